"""What the trust ledger says of one group, as tables in its index: the stamps of each id, and the marks by which a text
is known wherever it lies. Derived: made again from the ledger whenever it was replaced, else read on from where it was.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from clawd.memory.admission import FLOOR
from clawd.memory.provenance import Stamp, TrustLedger, fields_of, stamp_of
from clawd.trust import Origin

TABLES = """
CREATE TABLE kept (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trusted (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, stamp TEXT NOT NULL);
CREATE INDEX trusted_id ON trusted (id);
CREATE INDEX trusted_line ON trusted (json_extract(stamp, '$.source')) WHERE substr(id, 1, 3) = 'lg_';
CREATE TABLE marks (
    mark TEXT PRIMARY KEY,
    quarantined INTEGER NOT NULL DEFAULT 0,
    forgotten INTEGER NOT NULL DEFAULT 0,
    trust REAL NOT NULL DEFAULT 1
) WITHOUT ROWID;
"""
LINE = "lg_"  # begins the id of a line in a day's log; LOG and its key say that the key is one of such lines
LOG = "log:"
_TAIL = 64  # bytes before the place that was read to, by which the file is known to be the same


@dataclass(frozen=True, slots=True)
class Marked:
    """What is known of a text by its marks. `trust` is 1 where nothing is."""

    quarantined: bool = False
    forgotten: bool = False
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class News:
    """Of which ids and marks the ledger said something new. `anew`: of any."""

    ids: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    anew: bool = False


class Standing:
    """For one transaction on the index. `many` reads the tables at once, for whoever asks for all."""

    def __init__(self, db: sqlite3.Connection, group: str, *, many: bool = False) -> None:
        self._db, self._group = db, group
        self._stamps: dict[str, list[Stamp]] | None = None
        if many:
            self._stamps = {}
            for id, line in db.execute("SELECT id, stamp FROM trusted ORDER BY seq"):
                self._stamps.setdefault(id, []).append(_read(line))
        self._any = db.execute("SELECT 1 FROM marks LIMIT 1").fetchone() is not None

    def of(self, id: str) -> list[Stamp]:
        """The stamps of an id, the last one last."""
        if self._stamps is not None:
            return self._stamps.get(id, [])
        rows = self._db.execute("SELECT stamp FROM trusted WHERE id = ? ORDER BY seq", (id,))
        return [_read(line) for (line,) in rows]

    def marked(self, digest: str, lines: Callable[[], Iterable[str]]) -> Marked:
        """Of a text as a whole and, but for its trust, of its parts: the first of its `lines` is the whole again."""
        if not self._any:
            return Marked()
        select = "SELECT quarantined, forgotten, trust FROM marks WHERE mark = ?"
        found = [self._db.execute(select, (mark,)).fetchone() or (0, 0, 1.0) for mark in (digest, *lines())]
        return Marked(
            any(each[0] for each in found), any(each[1] for each in found), min(each[2] for each in found[:2])
        )


def _read(line: str) -> Stamp:
    stamp = stamp_of(line.encode("utf-8", "surrogatepass"))
    assert stamp is not None
    return stamp


def lines_of(db: sqlite3.Connection, source: str, sha256: str) -> int:
    """How many lines of logs the ledger has with this source and text."""
    (count,) = db.execute(
        "SELECT count(DISTINCT id) FROM trusted WHERE substr(id, 1, 3) = 'lg_'"
        " AND json_extract(stamp, '$.source') = ? AND json_extract(stamp, '$.sha256') = ?",
        (source, sha256),
    ).fetchone()
    return int(count)


def is_behind(db: sqlite3.Connection, ledger: TrustLedger) -> bool:
    """Whether the ledger has what the tables do not."""
    try:
        size = ledger.path.stat().st_size
    except FileNotFoundError:
        size = 0
    return bool(_place(db)["end"] != size)


def follow(db: sqlite3.Connection, ledger: TrustLedger, group: str) -> News:
    """Bring the tables up to the ledger. Raises OSError."""
    place = _place(db)
    try:
        with ledger.open() as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, place["end"] - _TAIL))
            tail = file.read(min(_TAIL, place["end"])).hex()
    except FileNotFoundError:
        size, tail = 0, ""
    anew = size < place["end"] or tail != place["tail"]
    if anew:
        db.execute("DELETE FROM trusted")
        db.execute("DELETE FROM marks")
        place = {"end": 0, "tail": ""}
    if size == place["end"]:
        if anew:
            _kept(db, ledger, 0)
        return News(anew=anew)
    ids, marks, made, end = set[str](), set[str](), list[tuple[str, str]](), place["end"]
    for end, stamp in ledger.lines(place["end"]):  # noqa: B007
        if stamp is not None and stamp.group == group:
            ids.add(stamp.id)
            marks |= _marks(db, stamp)
            made.append((stamp.id, json.dumps({**fields_of(stamp), "lines": ()}, separators=(",", ":"))))
    db.executemany("INSERT INTO trusted (id, stamp) VALUES (?, ?)", made)
    _kept(db, ledger, end)
    return News(frozenset(ids), frozenset(marks), anew)


def _marks(db: sqlite3.Connection, stamp: Stamp) -> set[str]:
    """What a stamp says of its text wherever it lies, as far as that is news. The value of a fact, or a line of a log,
    is too short to be known by itself alone."""
    short = stamp.id.startswith(("fact:", "fp_", LINE))
    marks = {*stamp.lines} if short else {stamp.sha256, *stamp.lines}
    if lifts(stamp):
        return {mark for mark in marks if db.execute("DELETE FROM marks WHERE mark = ?", (mark,)).rowcount}
    marks -= {*stamp.spared}
    column: str | None = None
    value: float = 1
    if stamp.op in ("reject", "quarantine") or stamp.status == "quarantined":
        column = "quarantined"
    elif stamp.op == "delete":
        column = "forgotten"
    elif stamp.trust < FLOOR and stamp.origin is not Origin.HAND:
        column, value, marks = "trust", stamp.trust, marks & {stamp.sha256, *stamp.lines[:1]}
    if column is None:
        return set()
    new = "excluded.trust < trust" if column == "trust" else f"{column} = 0"
    return {
        mark
        for mark in marks
        if db.execute(
            f"INSERT INTO marks (mark, {column}) VALUES (?, ?)"
            f" ON CONFLICT DO UPDATE SET {column} = excluded.{column} WHERE {new}",
            (mark, value),
        ).rowcount
    }


def lifts(stamp: Stamp) -> bool:
    """Whether the owner stands for this text, whatever was known of it."""
    own = stamp.op in ("write", "update") and stamp.origin is Origin.OWNER and stamp.taint >= 1
    return stamp.op in ("approve", "trust") or (own and stamp.status in ("active", "proposed"))


def _place(db: sqlite3.Connection) -> dict[str, Any]:
    row = db.execute("SELECT value FROM kept WHERE name = 'ledger'").fetchone()
    place: dict[str, Any] = json.loads(row[0]) if row else {"end": 0, "tail": ""}
    return place


def _kept(db: sqlite3.Connection, ledger: TrustLedger, end: int) -> None:
    tail = b""
    if end:
        with ledger.open() as file:
            file.seek(max(0, end - _TAIL))
            tail = file.read(min(_TAIL, end))
    value = json.dumps({"end": end, "tail": tail.hex()})
    db.execute("INSERT INTO kept VALUES ('ledger', ?) ON CONFLICT DO UPDATE SET value = excluded.value", (value,))
