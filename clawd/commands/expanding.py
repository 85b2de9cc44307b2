"""`clawd context expand`: what a compaction took out of what a model is shown. It is all still in the session's file; a
daemon is not needed, and no more of the file is read than what is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawd.commands.looking import check_group, rows_of
from clawd.commands.standing import place, segment
from clawd.config.home import Home
from clawd.errors import NotFound
from clawd.ledger import contexts, groups
from clawd.ledger.db import Row, Transaction, peek
from clawd.lifecycle.compaction import turn_of
from clawd.lifecycle.masking import is_masked
from clawd.model import Block
from clawd.sessions.format import MARKER_LINE, parse
from clawd.sessions.reading import markers, read_from


def expand(home: Home, session: str, compaction: int | None = None, group: str | None = None) -> list[dict[str, Any]]:
    """The messages that it stands for, then the tool output that it left out of others, as `session show` has them;
    without a number of the newest one, with one also of what the conversation was before. Raises NotFound."""
    check_group(home, group)
    folder, stem, _ = place(home, session, group)

    def read(tx: Transaction) -> tuple[str, list[Row]]:
        found = segment(tx, session)
        if found is not None and compaction is not None:
            found = groups.segment_of_compaction(tx, found.base, compaction) or found
        return (found.stem, contexts.written_compactions(tx, found.id)) if found else (stem, [])

    stem, rows = peek(home.ledger_file, read) or (stem, [])
    wanted = [row for row in rows if compaction in (None, row["id"])]
    if not wanted:
        what = f"has no compaction {compaction}" if compaction is not None else "was not compacted"
        raise NotFound(f"session {session!r} {what}", hint=f"clawd context status --session {session}")
    row = wanted[-1]
    before = [each for each in rows if each["id"] < row["id"]]
    path = home.group(folder).sessions / f"{stem}.md"
    return rows_of(_left_out(path, row, before))


def _left_out(path: Path, row: Row, before: list[Row]) -> Iterator[Block]:
    stood = max((each["upto"] for each in before if each["upto"] is not None), default=None)
    hidden = max((each["masked"] for each in before if each["masked"] is not None), default=None)
    start = 0 if stood is None else _behind(path, stood)
    cut = start if row["upto"] is None else max(start, _behind(path, row["upto"]))
    yield from _between(path, start, cut)
    if row["masked"] is None:
        return
    for block in _between(path, cut, max(cut, _behind(path, row["masked"]))):
        if is_masked(block, row["masked"]) and not is_masked(block, hidden):
            yield block


def _behind(path: Path, upto: int) -> int:
    """Where the first turn after this one begins; the end of the file where there is none."""
    for at, block in markers(path):
        if (turn := turn_of(block)) is not None and turn > upto:
            return at
    return path.stat().st_size if path.exists() else 0


def _between(path: Path, start: int, end: int) -> list[Block]:
    if end <= start:
        return []
    data = read_from(path, start, end - start + (1 if start else 0))
    first = MARKER_LINE.search(data, 1 if start else 0)
    return parse(data[first.start() :], whole=False).blocks if first else []
