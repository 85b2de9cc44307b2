"""Into a PythonClaw home: `context/sessions/<id>.md` in the grammar of clawd.sessions, which PythonClaw reads, and
`context/memory/<local date>.md`, which it shows to its model.

A message's key is in its block's META, which PythonClaw does not look at, and a bullet of a log is known by its words.
PythonClaw itself keeps neither keys nor more than the last 50 messages when it saves a session that it has open: what
it wrote anew is known by its role, time and words, and what it cut away is added again by another conversion.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from os import fstat
from pathlib import Path
from typing import BinaryIO

from clawd.bridges.mmkr.bullets import DayLogs
from clawd.bridges.mmkr.messages import Kept, Piece
from clawd.bridges.mmkr.targets import Written, fact_key
from clawd.ids import session_stem
from clawd.memory import keyed
from clawd.model import Block
from clawd.sessions.file import SessionFile
from clawd.sessions.format import parse

# A key in a marker line. In a string of META the quotation marks around it would have backslashes.
_KEY = re.compile(rb'"key": "([0-9a-f]{16})"')
_MARKER = b"<!-- msg:"


class PythonClawTarget:
    def __init__(self, root: Path, session: str) -> None:
        self._session = session
        self._file = SessionFile(root / "context" / "sessions" / f"{session_stem(session, taken=False)}.md", session)
        self._memory = root / "context" / "memory"
        self._logs = DayLogs(self._memory)
        self._there = _There()

    @property
    def session_file(self) -> Path:
        return self._file.path

    @property
    def memory_dir(self) -> Path:
        return self._memory

    def write(self, pieces: Sequence[Piece]) -> Written:
        self._file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = Written()

        def choose(file: BinaryIO, whole: int) -> list[Block]:
            self._there.look(file, whole)
            chosen = list[Block]()
            for piece in pieces:
                new = self._there.missing(piece, first=not chosen)
                chosen += new
                written.added += len(new)
                written.known += max(0, len(piece.blocks) - len(new))
            return chosen

        self._file.extend(choose)
        return written

    def keep(self, memories: Sequence[Kept], now: datetime, day: date | None = None) -> Written:
        self._memory.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = self._logs.add([each for each in memories if not each.topic], now, day)
        for fact in (each for each in memories if each.topic):
            self._set(fact, fact.at or now, written)
        return written

    def _set(self, fact: Kept, at: datetime, written: Written) -> None:
        """A durable fact into MEMORY.md; what was kept there later, or is the same, stays."""
        key, value = fact_key(self._session, fact.topic), fact.content

        def changed(data: bytes) -> bytes:
            there = keyed.parsed(data)[1].get(key)
            new = keyed.with_fact(data, key, value, at)
            if there is None:
                return new
            later = there.updated is not None and there.updated > at.replace(microsecond=0)
            return data if later or there.value == keyed.parsed(new)[1][key].value else new

        with keyed.alone(self._memory):
            added = keyed.change(self._memory, keyed.FACTS, changed)
        written.added, written.known = written.added + added, written.known + (not added)


class _There:
    """Which messages a session's file has. The keys lie in a private database on disk, so that memory does not grow
    with the file; of a file that only grew, only what is new is read."""

    def __init__(self) -> None:
        self._known = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._known.executescript(
            "pragma journal_mode = off; pragma cache_size = -8000;"
            "create table known (key integer primary key) without rowid"
        )
        self._identity: tuple[int, int] | None = None
        self._read = 0
        self._last = ""
        self._nameless = False

    def look(self, file: BinaryIO, whole: int) -> None:
        """Read what was not read yet of its first `whole` bytes."""
        status = fstat(file.fileno())
        if (status.st_dev, status.st_ino) != self._identity or whole < self._read:
            self._known.execute("delete from known")
            self._identity, self._read, self._last = (status.st_dev, status.st_ino), 0, ""
        file.seek(self._read)
        self._known.executemany("insert or ignore into known values (?)", self._keys(file, whole - self._read))
        self._read = whole

    def missing(self, piece: Piece, first: bool) -> Sequence[Block]:
        """Which blocks of a piece are to be written. The result of a call that stands last can follow it at once, if
        nothing else is written before; otherwise it needs a call of its own."""
        if not self._has(piece.key, piece.blocks[0]):
            return piece.blocks
        if len(piece.blocks) == 1 or (first and self._last == piece.key):
            return piece.blocks[1:]
        if not piece.result_key or self._has(piece.result_key, piece.blocks[1]):
            return ()
        late = piece.late()
        return late.blocks[1:] if first and self._last == late.key else late.blocks

    def _has(self, key: str, block: Block) -> bool:
        """By its key, or by what is left of it when PythonClaw wrote the file anew."""
        return self._holds(_number(bytes.fromhex(key))) or (self._nameless and self._holds(_likeness(block)))

    def _holds(self, key: int) -> bool:
        return self._known.execute("select 1 from known where key = ?", (key,)).fetchone() is not None

    def _keys(self, file: BinaryIO, size: int) -> Iterator[tuple[int]]:
        """The keys of the blocks, and the likeness of those that have none."""
        nameless = list[bytes]()
        while size > 0 and (line := file.readline(size)):
            size -= len(line)
            if not line.startswith(_MARKER):
                if nameless:
                    nameless.append(line)
                continue
            if nameless:
                yield from _alike(nameless)
                nameless = []
            if key := _KEY.search(line):
                self._last = key[1].decode()
                yield (_number(bytes.fromhex(self._last)),)
            else:
                self._last, self._nameless, nameless = "", True, [line]
        if nameless:
            yield from _alike(nameless)


def _alike(lines: list[bytes]) -> Iterator[tuple[int]]:
    for block in parse(b"".join(lines), whole=False).blocks:
        yield (_likeness(block),)


def _likeness(block: Block) -> int:
    """What PythonClaw keeps of a message when it writes it anew."""
    at = None if block.at is None else int(block.at.timestamp())
    words = json.dumps([block.role, at, block.content.strip(), block.tool_call_id or "", *block.tool_calls])
    return _number(hashlib.blake2b(words.encode(), digest_size=8).digest())


def _number(key: bytes) -> int:
    return int.from_bytes(key, signed=True)
