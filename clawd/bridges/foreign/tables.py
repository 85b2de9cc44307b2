"""SQLite databases of a stranger: a copy is read, table by table, and nothing that stands in it is run.

The copy is taken as every other file is, with its write-ahead log, so that neither a link is followed nor anything
written beside the original. Views, virtual tables and computed columns are refused; rows, bytes and the work that a
query costs are bounded.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from clawd.bridges.foreign.place import Place, text_of

LARGEST = 512 << 20  # bytes of a database that is copied
ROWS = 100_000
BYTES = 64 << 20  # of the rows of one table
_CELL = 4 << 20
_STEPS, _PATIENCE = 100_000, 10_000  # instructions of SQLite between two looks, and looks
_COMPUTED = re.compile(r"(?i)^[^(]*\bvirtual\b|\bas\s*\(|\bgenerated\b")  # what a table has no row of its own for
_MAY = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})


class Tables:
    """A database's plain tables."""

    def __init__(self, place: Place, path: str, db: sqlite3.Connection) -> None:
        self._place, self._path, self._db = place, path, db

    def rows(self, name: str, wanted: Sequence[str], *, newest: str = "") -> list[dict[str, Any]]:
        """The rows of a table, each with those of the `wanted` columns that there are; with `newest`, a column, in its
        order, and where there are too many the last ones. None where there is no such table; what cannot be read, and
        what is too much, is left."""
        try:
            return self._rows(name, wanted, newest)
        except (sqlite3.Error, OverflowError, MemoryError) as error:
            why = "it takes too long" if "interrupted" in str(error) else "it is damaged, or no table of its own kind"
            self._place.leave(f"{self._path}#{name}", f"it cannot be read: {why}")
            return []

    def _rows(self, name: str, wanted: Sequence[str], newest: str) -> list[dict[str, Any]]:
        kept = self._db.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (name,)).fetchall()
        if not kept:
            return []
        if len(kept) > 1 or kept[0][0] != "table" or _COMPUTED.search(str(kept[0][1])):
            raise sqlite3.DatabaseError("no table of its own kind")
        known = [each[0] for each in self._db.execute(f'SELECT * FROM "{name}" LIMIT 0').description]
        columns = [each for each in wanted if each in known]
        if not columns:
            return []
        listed = ", ".join(f'"{each}"' for each in columns)
        order = ", ".join(f'"{each}" DESC' for each in dict.fromkeys([newest, *columns]) if each in columns)
        query = f'SELECT {listed} FROM "{name}" ORDER BY {order} LIMIT {ROWS + 1}'
        found, size = list[dict[str, Any]](), 0
        for row in self._db.execute(query):
            size += sum(len(each) for each in row if isinstance(each, str | bytes))
            if len(found) == ROWS or size > BYTES:
                self._place.leave(f"{self._path}#{name}", f"only {len(found):,} rows of it are read, the newest")
                break
            found.append(dict(zip(columns, row, strict=True)))
        return found[::-1]


@contextmanager
def opened(place: Place, path: str) -> Iterator[Tables | None]:
    """The database at a path of the home; None where there is none, or it is left."""
    if not place.kind(path):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="clawd-bridge-") as folder:
        copy = Path(folder) / "copy.db"
        if not place.copy(path, copy, LARGEST):
            yield None
            return
        place.copy(f"{path}-wal", Path(folder) / "copy.db-wal", LARGEST)
        try:
            db = _connection(copy)
        except sqlite3.Error:
            place.leave(path, "it is no SQLite database, or a damaged one")
            yield None
            return
        with closing(db):
            yield Tables(place, path, db)


def _connection(copy: Path) -> sqlite3.Connection:
    """Raises sqlite3.Error where that is no database."""
    db = sqlite3.connect(copy, isolation_level=None)
    try:
        db.text_factory = lambda data: data.decode("utf-8", "replace")
        for limit, most in (
            (sqlite3.SQLITE_LIMIT_LENGTH, _CELL),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 50),
        ):
            db.setlimit(limit, most)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        looks = 0

        def patient() -> int:
            nonlocal looks
            looks += 1
            return int(looks > _PATIENCE)

        db.set_progress_handler(patient, _STEPS)
        db.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _MAY else sqlite3.SQLITE_DENY)
    except BaseException:
        db.close()
        raise
    return db


def cell(row: dict[str, Any], name: str) -> str:
    """A cell as text; "" where there is none."""
    value = row.get(name)
    return value.decode("utf-8", "replace").replace("\0", "\ufffd") if isinstance(value, bytes) else text_of(value)


def flag(row: dict[str, Any], name: str) -> bool:
    """Whether a cell says yes."""
    return cell(row, name).lower() in ("1", "1.0", "true")
