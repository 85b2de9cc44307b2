"""The ledger's file: one connection, one writing thread, transactions that are committed together.

Whoever wants something of the ledger hands in a function of a Transaction. The thread runs all that wait, each in a
savepoint of its own, and commits once: the answers go out only after that commit, so what was answered is on the disk.
A function may be run again when a neighbour fails, so it must do nothing but read and write the transaction.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from clawd.errors import DiskFull, LedgerCorrupt, LedgerNewer, StorageError
from clawd.files import sync_directory
from clawd.ledger.moves import move

T = TypeVar("T")
Row = sqlite3.Row
Work = Callable[["Transaction"], Any]

log = logging.getLogger(__name__)

_BATCH = 128
_LONGEST_PAUSE = 5.0  # seconds between two tries to write what must be written
_BALLAST_BYTES = 4 << 20
_JOURNAL_BYTES = 4 << 20  # of the write-ahead log once it is in the file: what more it has is cut off
_BACKUPS = 3  # of migrations, the newest
_INDEX_BYTES = 64 << 10
_QUICK_CHECK_BYTES = 32 << 20
_MIGRATIONS = Path(__file__).parent / "migrations"
_INCREMENTAL = 2  # of PRAGMA auto_vacuum
_KEY = {"inbound": "seq"}


class Transaction:
    """What a function of the ledger may do: read, write, and move a row from state to state by the law."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def one(self, sql: str, *values: Any) -> Row | None:
        row: Row | None = self._connection.execute(sql, values).fetchone()
        return row

    def all(self, sql: str, *values: Any) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def insert(self, table: str, **columns: Any) -> int:
        """Insert a row and give its integer key."""
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        cursor = self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))
        return cursor.lastrowid or 0

    def move(self, table: str, key: int | str, event: str, **columns: Any) -> str:
        """Move one row by `event`, set `columns` with it, and give the new state."""
        name = _KEY.get(table, "id")
        row = self.one(f"SELECT state FROM {table} WHERE {name} = ?", key)
        assert row is not None, f"{table} {key} does not exist"
        state = move(table, row["state"], event)
        sets = "".join(f", {column} = ?" for column in columns)
        self.execute(f"UPDATE {table} SET state = ?{sets} WHERE {name} = ?", state, *columns.values(), key)
        return state


class Ledger:
    """The open ledger. `do` from the event loop; `tx` from a command that holds the home's lock, or from a test."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._waiting: queue.SimpleQueue[tuple[Work, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = self._reading = False
        self._alone = threading.Lock()  # `tx` and the thread behind `do` share a connection
        self._file = path.stat()
        self.patient = True
        self.damage: LedgerCorrupt | None = None
        self.alarm: Callable[[], None] = lambda: None
        """Called in the event loop when the file was found damaged, or is no longer where it was."""

    @classmethod
    def open(cls, path: Path, backups: Path | None = None) -> Ledger:
        """Open for writing, made whole where there is none, and migrate, after a backup.

        Raises LedgerCorrupt, LedgerNewer or StorageError.
        """
        try:
            if not path.exists():
                _make(path)
            if not path.stat().st_size:  # SQLite would take it for a new one, and throw its journal away
                raise sqlite3.DatabaseError("malformed: it is empty")
            connection = _connect(path, "rw")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if path.stat().st_size <= _QUICK_CHECK_BYTES:
                verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if verdict != "ok":
                    raise sqlite3.DatabaseError(f"malformed: {verdict}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA journal_size_limit = {_JOURNAL_BYTES}")
            connection.execute("PRAGMA foreign_keys = ON")
            _migrate(connection, version, path, backups)
            path.chmod(0o600)
        except sqlite3.Error as error:
            raise explained(error, path) from error
        except OSError as error:
            raise unwritable(path, str(error.strerror)) from error
        ledger = cls(path, connection)
        ledger.lay_ballast()
        return ledger

    @classmethod
    def read_only(cls, path: Path) -> Ledger:
        """Open for reading beside a daemon that writes."""
        try:
            connection = _connect(path, "ro")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            raise explained(error, path) from error
        _check_version(version, path)
        ledger = cls(path, connection)
        ledger._reading = True
        return ledger

    def is_there(self) -> bool:
        """Whether the path still leads to the open file: what is written to another one is lost."""
        try:
            return os.path.samestat(self.path.stat(), self._file)
        except OSError:
            return False

    async def do(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction and give what it gave, once that is durable. Its exceptions come back, undone.

        The transaction is carried out even when the caller is cancelled meanwhile.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="ledger", daemon=True)
            self._thread.start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.put((work, future))
        return await future

    async def insist(self, work: Callable[[Transaction], T]) -> T:
        """The same, again and again until the disk takes it, for what has happened and must not be forgotten; but
        only while the daemon is `patient`."""
        pause = 0.1
        while True:
            try:
                return await self.do(work)
            except StorageError as error:
                if not self.patient:
                    raise
                log.error("the ledger cannot be written, trying again: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def tx(self, work: Callable[[Transaction], T]) -> T:
        """The same at once and in this thread."""
        with self._alone:
            [(value, error)] = self._run([work])
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def copy(self, target: Path) -> None:
        """A whole copy in a file of its own."""
        target.unlink(missing_ok=True)
        if self._reading:  # it counts as writing; the file itself is open for reading alone
            self._connection.execute("PRAGMA query_only = OFF")
        try:
            self._connection.execute("VACUUM INTO ?", (str(target),))
        finally:
            if self._reading:
                self._connection.execute("PRAGMA query_only = ON")
        target.chmod(0o600)

    def checkpoint(self) -> bool:
        """Bring the journal into the file and cut it, unless somebody reads or writes just now; in any thread."""
        if not self.is_there():
            return False
        try:
            with closing(_connect(self.path, "rw")) as connection:
                connection.execute("PRAGMA busy_timeout = 0")
                return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise explained(error, self.path) from error

    def close(self) -> None:
        """Finish what waits, then close the file."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
        self._connection.close()

    def _serve(self) -> None:
        while True:
            first = self._waiting.get()
            if first is None:
                return
            batch = [first]
            last = False
            with suppress(queue.Empty):
                while len(batch) < _BATCH:
                    item = self._waiting.get_nowait()
                    if item is None:
                        last = True
                        break
                    batch.append(item)
            with self._alone:
                outcomes = self._run([work for work, _ in batch])
            if self.damage is not None or not self.is_there():
                with suppress(RuntimeError):
                    first[1].get_loop().call_soon_threadsafe(self.alarm)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                loop = future.get_loop()
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(_settle, future, outcome)
            if last:
                return

    def _run(self, works: Sequence[Work]) -> list[tuple[Any, BaseException | None]]:
        if not self.is_there():
            lost = StorageError(
                f"{self.path} was taken away while clawd runs; nothing more is accepted",
                hint=f"put {self.path.parent} back as it was, or end this daemon",
            )
            return [(None, lost) for _ in works]
        try:
            return self._commit(works)
        except sqlite3.Error as error:
            self._roll_back()
            if _is_full(error) and self._drop_ballast():
                with suppress(sqlite3.Error):
                    return self._commit(works)
                self._roll_back()
            if len(works) == 1:
                told = explained(error, self.path)
                if isinstance(told, LedgerCorrupt) and not isinstance(error, sqlite3.OperationalError):
                    self.damage = told
                return [(None, told)]
        return [self._run([work])[0] for work in works]

    def _commit(self, works: Sequence[Work]) -> list[tuple[Any, BaseException | None]]:
        connection = self._connection
        outcomes: list[tuple[Any, BaseException | None]] = []
        transaction = Transaction(connection)
        connection.execute("BEGIN" if self._reading else "BEGIN IMMEDIATE")
        for work in works:
            connection.execute("SAVEPOINT work")
            try:
                outcomes.append((work(transaction), None))
            except sqlite3.Error:
                raise
            except Exception as error:
                connection.execute("ROLLBACK TO work")
                outcomes.append((None, error))
            connection.execute("RELEASE work")
        connection.execute("COMMIT")
        return outcomes

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @property
    def _ballast(self) -> Path:
        return self.path.with_name("ballast")

    def lay_ballast(self) -> bool:
        """Keep some disk in hand, so that on a full disk what was accepted can still be brought to its end; also again,
        when it was let go and there is room for more than that. Gives whether it is there."""
        with suppress(OSError):
            if self._ballast.exists() and self._ballast.stat().st_size >= _BALLAST_BYTES:
                return True
            disk = os.statvfs(self.path.parent)
            if disk.f_bavail * disk.f_frsize > _BALLAST_BYTES + _BALLAST_BYTES // 4:
                self._ballast.write_bytes(bytes(_BALLAST_BYTES))
                return True
        return False

    def check_room(self) -> None:
        """Raises StorageError while the ballast is gone: what is left is for what was accepted."""
        if self.is_there() and not self.lay_ballast():
            raise _full(self.path)

    def _drop_ballast(self) -> bool:
        try:
            self._ballast.unlink()
        except OSError:
            return False
        return True


def peek(path: Path, work: Callable[[Transaction], T]) -> T | None:
    """What `work` reads, beside a daemon that writes or none; None where there is no ledger yet."""
    if not path.exists():
        return None
    ledger = Ledger.read_only(path)
    try:
        return ledger.tx(work)
    finally:
        ledger.close()


def _full(path: Path) -> DiskFull:
    return DiskFull(f"the disk that holds {path.parent} is full", hint="free some space; nothing accepted was lost")


def unwritable(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} cannot be written ({why})", hint=f"check the rights and the file system of {path.parent}"
    )


def explained(error: sqlite3.Error, path: Path) -> Exception:
    """The sentence for what SQLite said."""
    text = str(error)
    if _is_full(error) or ("I/O error" in text and not _has_room(path)):
        return _full(path)
    if "readonly" in text or "read-only" in text or "unable to open" in text or "I/O error" in text:
        return unwritable(path, text)
    if "locked" in text:  # whoever insists tries it again
        return StorageError(f"another program keeps {path} locked", hint="end the program that has it open")
    if "malformed" in text or "not a database" in text or "no such" in text or "corrupt" in text:
        return LedgerCorrupt(
            f"the ledger {path} is damaged ({text}); it was kept as it is",
            hint="clawd doctor --recover saves what can be saved",
        )
    return error


def _is_full(error: sqlite3.Error) -> bool:
    return "full" in str(error)


def _has_room(path: Path) -> bool:
    """Whether the disk could hold SQLite's shared index; one that cannot shows as a mere I/O error."""
    with suppress(OSError):
        disk = os.statvfs(path.parent)
        return disk.f_bavail * disk.f_frsize >= _INDEX_BYTES
    return True


def _settle(future: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    if future.done():
        return
    value, error = outcome
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _make(path: Path) -> None:
    """An empty ledger under the name, whole or not at all: an empty file there is always damage."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    connection = _connect(new, "rwc")
    try:
        _migrate(connection, 0, new, None)
    finally:
        connection.close()
    new.chmod(0o600)
    new.rename(path)
    sync_directory(path.parent)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=10,
    )
    connection.row_factory = Row
    if mode == "ro":
        connection.execute("PRAGMA query_only = ON")
    return connection


def schema_version() -> int:
    """The newest schema that this program knows: the highest number among the migrations."""
    return max(int(path.stem) for path in _MIGRATIONS.glob("*.sql"))


def _check_version(version: int, path: Path) -> None:
    if version > schema_version():
        raise LedgerNewer(
            f"{path} has schema {version}, this clawd knows up to {schema_version()}",
            hint="use the newer clawd",
        )


def _migrate(connection: sqlite3.Connection, version: int, path: Path, backups: Path | None) -> None:
    _check_version(version, path)
    steps = sorted(each for each in _MIGRATIONS.glob("*.sql") if int(each.stem) > version)
    if steps and version and backups is not None:
        backup = backups / f"ledger-{version}.db"
        backup.unlink(missing_ok=True)
        connection.execute("VACUUM INTO ?", (str(backup),))
        backup.chmod(0o600)
        for old in sorted(backups.glob("ledger-*.db"), key=lambda path: path.stat().st_mtime)[:-_BACKUPS]:
            old.unlink()
    for step in steps:
        script = f"BEGIN IMMEDIATE;\n{step.read_text('utf-8')}\nPRAGMA user_version = {int(step.stem)};\nCOMMIT;"
        connection.executescript(script)
    # Made anew: equal schemas lie on equal pages, as the salvage needs them, and free pages can be given back. Also
    # when the last migration was cut off.
    if steps or connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
