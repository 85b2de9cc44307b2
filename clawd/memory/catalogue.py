"""What lies in a group's `memory/`, kept in step with its index: which file has which memories, what each is worth, and
where a text lies. Derived from the files and the trust ledger, and made again from them whenever it is not there.

A file is read again when its stat is another one, when the ledger said something of its id or its text, or when another
file came to have its id. Any process may look; nothing here writes a memory.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

from clawd.errors import StorageError, UnsafePath
from clawd.files import open_beneath, walk_beneath
from clawd.memory import daily, documents, judgement, keyed, standing, text
from clawd.memory.judgement import Entry, Worth
from clawd.memory.provenance import Stamp, TrustLedger
from clawd.memory.record import FOLDERS, ID, QUARANTINE, MemoryRecord, Page, read
from clawd.memory.standing import Standing
from clawd.search.document import Document
from clawd.search.embedders import Embedder
from clawd.search.index import Index

LARGEST = 10 << 20  # bytes of a file that are read
_SETTLED_NS = 50_000_000  # a file that changed so lately may change again without another time
_BATCH = 2000
_MANY = 200

_TABLES = (
    standing.TABLES
    + """
CREATE TABLE files (n INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, sig TEXT NOT NULL, claim TEXT NOT NULL,
                    sha TEXT NOT NULL, problem TEXT NOT NULL);
CREATE INDEX files_claim ON files (claim) WHERE claim <> '';
CREATE INDEX files_sha ON files (sha);
CREATE INDEX files_problem ON files (problem) WHERE problem <> '';
CREATE TABLE held (id TEXT PRIMARY KEY, path TEXT NOT NULL, status TEXT NOT NULL, seal TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX held_path ON held (path);
CREATE INDEX held_status ON held (status) WHERE status <> 'active';
CREATE TABLE traces (trace TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (trace, n)) WITHOUT ROWID;
CREATE INDEX traces_file ON traces (n);
"""
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file as it was read. `sig` is "" while it may change without it. `claim` is the id that it says it has."""

    path: str
    sig: str
    data: bytes
    changed: datetime
    page: Page | None = None  # of a file with one memory
    claim: str = ""
    sha: str = ""
    lines: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A memory that a file has. `entries` are those of a day."""

    record: MemoryRecord
    entries: Sequence[Entry] = ()


@dataclass(slots=True)
class _Change:
    """What one transaction is to bring the index to."""

    loaded: dict[str, Loaded] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)


class Catalogue:
    """Calls block, one at a time. Raises StorageError."""

    def __init__(self, root: Path, index: Path, group: str, ledger: TrustLedger, floor: float,
                 embedder: Embedder | None) -> None:  # fmt: skip
        self.root, self._group, self._ledger, self._floor = root, group, ledger, floor
        self.index = Index(index, embedder, tables=_TABLES)
        self._directories: dict[str, int] = {}  # when each was changed last, where that is settled

    # ── looking ──

    def look(self, paths: Iterable[str] | None = None) -> list[str]:
        """Bring the index to what the files say: all of them, or these. Gives what was amiss."""
        notes = []
        known = self.index.read(_known)
        if self.index.amiss:
            notes.append(f"rebuilt: {self.index.amiss}")
        if paths is None or known is None:
            self._scan(None, notes)
        else:
            self._take(self._changes(paths, known))
        return notes + self.index.read(_problems)

    def freshen(self) -> None:
        """The same for what can be seen at once: new and lost files, the facts, the ledger."""
        behind = self.index.read(lambda db: _known(db) is None or standing.is_behind(db, self._ledger))
        moved = [folder for folder, seen in self._directories.items() if self._moved(folder) != seen]
        if behind or not self._directories:
            self.look()
        elif moved:
            self._scan(moved, [])
        elif self.is_stale(keyed.FACTS):
            self._take(self._changes([keyed.FACTS], {}))

    def reindex(self) -> int:
        self.index.write(lambda db: [db.execute(f"DELETE FROM {each}") for each in ("files", "held", "traces", "kept")])
        self._scan(None, [])
        return self.index.count()

    def is_stale(self, path: str) -> bool:
        """Whether a file is another one than was read last."""
        row = self.index.read(lambda db: db.execute("SELECT sig FROM files WHERE path = ?", (path,)).fetchone())
        return _signature(self.root, path) != (row[0] if row else None)

    def _moved(self, folder: str) -> int:
        try:
            return (self.root / folder).lstat().st_mtime_ns
        except OSError:
            return -1

    def _scan(self, folders: Sequence[str] | None, notes: list[str]) -> None:
        """Compare the stats of the files in these directories, or of all."""
        began = time.time_ns()
        directories = {
            folder: moved if began - (moved := self._moved(folder)) > _SETTLED_NS else 0 for folder in _folders(self.root)
        }
        if folders is None:
            found = {path: _sig(status) for path, status in walk_beneath(self.root) if is_memory(path)}
        else:
            found = {path: sig for folder in folders for path, sig in _listed(self.root, folder) if is_memory(path)}
        known = self.index.read(lambda db: dict(db.execute("SELECT path, sig FROM files")))
        if folders is not None:
            known = {path: sig for path, sig in known.items() if path.rpartition("/")[0] in folders}
            if set(directories) != set(self._directories):
                return self._scan(None, notes)
        changed = [path for path, sig in found.items() if known.get(path) != sig]
        self._take(_Change(gone=set(known) - set(found)), changed)
        self._directories = directories
        return None

    def _changes(self, paths: Iterable[str], known: Mapping[str, str]) -> _Change:
        change = _Change()
        for path in paths:
            if not is_memory(path):
                continue
            if (loaded := self.load(path)) is None:
                change.gone.add(path)
            else:
                change.loaded[path] = loaded
        return change

    def load(self, path: str) -> Loaded | None:
        """A file as it is now; None where there is none that may be read."""
        try:
            with os.fdopen(open_beneath(self.root, path), "rb") as file:
                status = os.fstat(file.fileno())
                data = file.read(LARGEST)
        except (FileNotFoundError, UnsafePath, PermissionError):
            return None
        except OSError as error:
            raise StorageError(f"{self.root / path} cannot be read: {error.strerror}") from error
        settled = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED_NS
        sig, changed = _sig(status) if settled else "", datetime.fromtimestamp(status.st_mtime).astimezone()
        large = f"{path} is larger than {LARGEST >> 20} MB: only its beginning is read" if status.st_size > LARGEST else ""
        if "/" not in path:
            return Loaded(path, sig, data, changed, problem=large)
        page = read(data, path)
        claim = str(page.fields.get("id", ""))
        return Loaded(
            path, sig, b"", changed, page, claim if ID.fullmatch(claim) else "", text.digest(page.text),
            text.lines(page.text), large or "; ".join(page.problems),
        )  # fmt: skip
