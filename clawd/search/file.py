"""The file of an index: made anew, empty, whenever it cannot be used as it is, and said so in `amiss`.

Any number of processes may have it open. Whoever finds it gone, damaged, of another schema or another embedder makes a
new one, under a lock; the others see at their next call that theirs is no longer there. Nothing in it is needed: it is
filled again from what was indexed.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from clawd.errors import DiskFull, StorageError
from clawd.search.ranking import VOUCHED

log = logging.getLogger(__name__)
T = TypeVar("T")

_BUSY_S = 30.0  # another process may fill it just now, from 100,000 files
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_CACHE_KB = 16_000

_TOKENS = "tokenize = \"porter unicode61 remove_diacritics 2 categories 'L* N* Co M*'\""
# A document is never changed: it gets another row. Its point has what its vector needs, who stands beside it (0 where
# nobody does), and when that changed; `vouched` is -1 once the document is gone.
_TABLES = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, piece INTEGER NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL, trust REAL NOT NULL,
    taint REAL NOT NULL, status TEXT NOT NULL, shown INTEGER NOT NULL, thread TEXT NOT NULL,
    vouched INTEGER NOT NULL AS (trust >= {VOUCHED}) STORED,
    title TEXT NOT NULL, space TEXT NOT NULL, text TEXT NOT NULL,
    UNIQUE (id, piece)
);
CREATE INDEX beside ON documents (thread, space, shown, vouched, at, id, piece) WHERE thread <> '';
CREATE INDEX spaces ON documents (space) WHERE space <> '';
CREATE TABLE points (
    row INTEGER PRIMARY KEY, before INTEGER NOT NULL, after INTEGER NOT NULL, vouched INTEGER NOT NULL,
    changed INTEGER NOT NULL, vector BLOB
);
CREATE INDEX changes ON points (changed);
CREATE INDEX waiting ON points (row) WHERE vector IS NULL AND vouched >= 0;
CREATE VIRTUAL TABLE words1 USING fts5 (own, near, {_TOKENS});
CREATE VIRTUAL TABLE words0 USING fts5 (own, near, {_TOKENS});
"""


class IndexFile:
    """`embedder` names whose vectors are in it; "" where none are wanted: then any may be. Calls block, any thread
    may make them; they raise StorageError and DiskFull. `fill` is called whenever it was made anew, before anything is
    done with it."""

    def __init__(
        self, path: Path, embedder: str = "", more: str = "", fill: Callable[[], object] = lambda: None
    ) -> None:
        self.path, self._fill = path, fill
        self._tables = _TABLES + more
        self._schema = hashlib.sha256(self._tables.encode()).hexdigest()
        self.amiss = ""  # why it was made anew
        self._embedder = embedder
        self._connection: sqlite3.Connection | None = None
        self._opened: os.stat_result | None = None
        self._writes = self._opens = 0
        self._is_new = False
        self._lock = threading.RLock()

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives, of one state of the file."""
        return self._run("BEGIN", work)

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """All that `work` does, or nothing. It may be run twice."""
        return self._run("BEGIN IMMEDIATE", work)

    def version(self, connection: sqlite3.Connection) -> tuple[int, int, int]:
        """It differs when the file may have changed, by whomever."""
        return self._opens, self._writes, connection.execute("PRAGMA data_version").fetchone()[0]

    def scrub(self) -> None:
        """Leave no byte of what was removed, in the file or its log."""

        def scrub() -> None:
            connection = self._usable()
            for table in ("words1", "words0"):
                connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
            connection.execute("VACUUM")
            if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise StorageError(f"{self.path.name} is being read all the time: its log still has what was forgotten",
                                   hint="try again; or remove the file, it is made anew")  # fmt: skip

        with self._lock:
            self._guarded(scrub)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        def transaction() -> T:
            connection = self._usable()
            connection.execute(begin)
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            self._writes += begin != "BEGIN"
            return result

        with self._lock:
            return self._guarded(transaction)

    def _guarded(self, work: Callable[[], T]) -> T:
        """Run it; once more on a new file where this one turns out to be damaged."""
        try:
            try:
                return work()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._open("it was damaged")
                return work()
        except sqlite3.Error as error:
            raise _told(error, self.path) from error
        except OSError as error:
            raise StorageError(f"{self.path} cannot be used: {error.strerror}") from error

    def _usable(self) -> sqlite3.Connection:
        if self._connection is None or not self._is_there():
            self._open()
        if self._is_new:
            self._is_new = False
            self._fill()
        assert self._connection is not None
        return self._connection

    def _is_there(self) -> bool:
        try:
            return self._opened is not None and os.path.samestat(self.path.stat(), self._opened)
        except FileNotFoundError:
            return False

    def _open(self, damage: str = "") -> None:
        """Open it, made anew where it must be. With `damage` it is, unless another process just did."""
        damaged = damage if self._connection is None or self._is_there() else ""
        self.close()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            why = damaged or self._reason()
            if why:
                self.amiss, self._is_new = why, True
                log.info("search index %s is made anew: %s", self.path, why)
                for end in ("-wal", "-shm", ""):
                    Path(f"{self.path}{end}").unlink(missing_ok=True)
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._connection = self._connected()
            if why:
                self._connection.executescript(f"BEGIN; {self._tables}")
                self._connection.executemany(
                    "INSERT INTO meta VALUES (?, ?)",
                    [("schema", self._schema), ("embedder", self._embedder), ("changed", "0"), ("purged", "0")],
                )
                self._connection.execute("COMMIT")
            elif self._embedder and not self._meta(self._connection)["embedder"]:
                self._connection.execute("UPDATE meta SET value = ? WHERE name = 'embedder'", (self._embedder,))
            self._opened = self.path.stat()
            self._opens += 1
        finally:
            os.close(lock)

    def _reason(self) -> str:
        """Why it cannot be used; "" where it can."""
        if not self.path.exists():
            return "it was missing"
        try:
            with closing(self._connected()) as connection:
                meta = self._meta(connection)
        except sqlite3.DatabaseError as error:
            if _is_damage(error):
                return "it was damaged"
            if "no such table" in str(error):
                return "it was empty"
            raise
        if meta.get("schema") != self._schema:
            return "it was of another version"
        if self._embedder and meta.get("embedder") not in ("", self._embedder):
            return "its vectors were of another model"
        return ""

    def _meta(self, connection: sqlite3.Connection) -> dict[str, str]:
        return dict(connection.execute("SELECT name, value FROM meta"))

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in _DAMAGED or str(error).startswith("Could not decode")  # a text that is none


def _told(error: sqlite3.Error, path: Path) -> StorageError:
    code = _code(error)
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(f"there is no room for {path}", hint="make room: nothing in it is needed, it is filled again")
    hint = "another process holds it; try again" if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else None
    return StorageError(f"the search index {path} cannot be used: {error}", hint=hint)
