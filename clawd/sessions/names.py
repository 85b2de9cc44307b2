"""Which file holds which session. The ledger keeps the mapping; here it is rebuilt from the files
themselves."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from clawd.errors import UnsafePath
from clawd.files import read_beneath
from clawd.ids import session_stems
from clawd.sessions.format import parse

_HEADS = (8192, 1 << 20, 1 << 26)  # bytes; the last ones hold any first block, where that names the session


def rebuild(sessions_dir: Path, without: Collection[str] = ()) -> dict[str, str]:
    """id → stem, from the headers of every session file but those of these stems. Files without a header, and links,
    are left out.

    Where two files claim one id (a copy made by hand), the one with the id's own name has it.
    """
    claims: dict[str, list[str]] = {}
    for path in sorted(sessions_dir.glob("*.md")):
        if path.stem not in without and (id := session_of(path)) is not None:
            claims.setdefault(id, []).append(path.stem)
    return {id: next((own for own in session_stems(id) if own in stems), stems[0]) for id, stems in claims.items()}


def session_of(path: Path) -> str | None:
    """The id that a session file names, None when it names none (also where its header cannot show it and the block
    that says it is missing) or is no regular file."""
    try:
        for size in _HEADS:
            head = parse(read_beneath(path.parent, path.name, size))
            disguised = head.session and ("\ufffd" in head.session or "<!-- msg\\:" in head.session)
            if not disguised:
                return head.session
            if head.blocks:  # the first one has the exact id where it differs
                return head.session
    except (OSError, UnsafePath):
        return None
    return None
