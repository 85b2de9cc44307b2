"""Which file holds which session. The ledger keeps the mapping; here it is rebuilt from the files
themselves."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from clawd.errors import UnsafePath
from clawd.files import read_beneath
from clawd.ids import session_stem
from clawd.sessions.format import parse

_HEAD = 8192
_HEAD_OF_ANY = 1 << 20


def rebuild(sessions_dir: Path, without: Collection[str] = ()) -> dict[str, str]:
    """id → stem, from the headers of every session file but those of these stems. Files without a header, and links,
    are left out.

    Where two files claim one id (a copy made by hand), the one with the id's own name has it.
    """
    claims: dict[str, list[str]] = {}
    for path in sorted(sessions_dir.glob("*.md")):
        if path.stem not in without and (id := session_of(path)) is not None:
            claims.setdefault(id, []).append(path.stem)
    return {
        id: next((own for own in (session_stem(id, False), session_stem(id, True)) if own in stems), stems[0])
        for id, stems in claims.items()
    }


def session_of(path: Path) -> str | None:
    """The id that a session file names, None when it names none or is no regular file."""
    try:
        head = parse(read_beneath(path.parent, path.name, _HEAD))
        if head.session and ("\ufffd" in head.session or "<!-- msg\\:" in head.session):
            # The exact id is in the first block.
            head = parse(read_beneath(path.parent, path.name, _HEAD_OF_ANY))
    except (OSError, UnsafePath):
        return None
    return head.session
