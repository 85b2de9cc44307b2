"""Making a backup, also beside a running daemon, which is only read.

The order is what keeps it true: the ledger's snapshot first, then the files, then the trust ledger, then what the
ledger knows of trust by then (`known.json`). So whatever came into a file meanwhile is no more trusted than it was: a
memory's line, a schedule's author and a session's taint are durable before the file is, and so they are in the archive.

An archive has its name only when it is whole and on the disk. Nothing else in `state/backups` is ever taken for one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from clawd import __version__, faults
from clawd.backups import contents
from clawd.backups.archive import Shrunk, Writer
from clawd.backups.contents import Found, Source
from clawd.backups.index import LABEL, Entry, Head, Index, Kind, Skipped, clipped, head_room, render, room_for
from clawd.clock import Clock, rfc3339
from clawd.config.home import Home, group_folders
from clawd.errors import DiskFull, NotFound, StorageError, UnsafePath, UsageError
from clawd.files import free_bytes, open_beneath, sync_directory
from clawd.ledger import moved
from clawd.ledger.db import Ledger, explained, schema_version
from clawd.memory.provenance import TrustLedger

TRUST, KNOWN = "state/trust.jsonl", "state/known.json"
LEDGER, ROWS = "state/ledger.db", "state/ledger.jsonl"
MAKING = ".making-"  # begins the name of a directory of what is not a backup yet
_SHARE = 10  # of a small disk so much is kept free
_PIECE = 8 << 20  # bytes between two looks at the disk
_LOCK_S = 5.0
_TRIES = 3  # for a file that is made anew while it is read

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Made:
    """An archive that is there."""

    archive: Path
    index: Index
    skipped: tuple[Skipped, ...]


def create(
    home: Home,
    clock: Clock,
    *,
    group: str | None = None,
    label: str | None = None,
    to: Path | None = None,
    keep_free: int = 0,
    progress: Progress = lambda done, total: None,
) -> Made:
    """Back up the home, or one group. `keep_free` bytes of the disk stay free. Raises UsageError, NotFound, DiskFull,
    StorageError; nothing is left then."""
    if label is not None and not LABEL.fullmatch(label):
        raise UsageError("a label has 1 to 40 letters, digits, - and _", hint="--label before-the-move")
    if group is not None and group not in group_folders(home):
        raise NotFound(f"there is no group {group!a}", hint="clawd groups list")
    now = clock.now()
    target = _target(home, to, now, label, group)
    sweep(home)
    try:
        with _place(home) as scratch, _whole(target) as file:
            made = _written(home, scratch, file, _head(group, label, now), Room(target.parent, keep_free), progress)
            faults.passing("backup-written")
    except OSError as error:
        raise _told(error, target) from error
    return Made(target, *made)


def _target(home: Home, to: Path | None, now: datetime, label: str | None, group: str | None) -> Path:
    if to is not None:
        target = to.expanduser().absolute()
        if target.parent.resolve().is_relative_to(home.groups.resolve()):
            raise UsageError("a backup does not belong into a group's folder: its agent could read it")
        if target.exists() or target.is_symlink():
            raise UsageError(f"{target} is there already; it is not overwritten")
        if not target.parent.is_dir():
            raise NotFound(f"there is no directory {target.parent}")
        return target
    name = "-".join(filter(None, (f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}", label, group)))
    target, number = home.backups / f"{name}.tar.gz", 1
    while target.exists():
        number += 1
        target = home.backups / f"{name}.{number}.tar.gz"
    return target


def _head(group: str | None, label: str | None, now: datetime) -> Head:
    kind: Kind = "home" if group is None else "group"
    return Head(kind, group, label, rfc3339(now), __version__, schema_version(), (), ())


@contextmanager
def _place(home: Home) -> Iterator[Path]:
    """A directory for what is not in the archive yet. Held, so that nobody sweeps it."""
    home.backups.mkdir(mode=0o700, exist_ok=True)
    place = home.backups / f"{MAKING}{secrets.token_hex(6)}"
    place.mkdir(mode=0o700)
    at = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(at, fcntl.LOCK_SH)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(at)


@contextmanager
def _whole(target: Path) -> Iterator[BinaryIO]:
    """A file that has its name when the block is over, and is gone when it fails."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            os.fchmod(descriptor, 0o600)
            yield file
            _name(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)


def _name(temporary: Path, target: Path) -> None:
    """Give it its name; what somebody else put there meanwhile stays. Raises OSError."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it is there already", str(target)) from None
        temporary.rename(target)
    else:
        temporary.unlink()


def sweep(home: Home) -> None:
    """Take away what makers left that were killed; never raises."""
    with suppress(OSError):
        for path in home.backups.iterdir():
            if not (path.name.startswith(MAKING) or (path.name.startswith(".") and path.name.endswith(".tmp"))):
                continue
            with suppress(OSError):
                at = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(at, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                finally:
                    os.close(at)


def _written(
    home: Home, scratch: Path, file: BinaryIO, head: Head, room: Room, progress: Progress
) -> tuple[Index, tuple[Skipped, ...]]:
    room.check(0)
    first, more = _snapshot(home, scratch, head.group)
    head = replace(head, **more)
    found = contents.of_home(home) if head.group is None else contents.of_group(home, head.group)
    faults.passing("backup-walked")
    head = replace(head, skipped=clipped(found.skipped), left=len(found.skipped))
    names = [each.path for each in found.sources] + list(found.folders) + [LEDGER, ROWS, TRUST, KNOWN]
    writer = Writer(file, head_room(head) + sum(map(room_for, names)), room.check)
    index = Index(head, found.folders)
    _Copy(writer, index, found, first.stat().st_size if first else 0, progress).all(home, scratch, first)
    index.head = replace(head, skipped=clipped(found.skipped), left=len(found.skipped))
    faults.passing("backup-copied")
    writer.finish(render(index), time.time_ns())
    return index, tuple(found.skipped)


def _snapshot(home: Home, scratch: Path, group: str | None) -> tuple[Path | None, dict[str, Any]]:
    """The ledger as it is now, and what the head says because of it."""
    groups = [group] if group is not None else group_folders(home)
    if not home.ledger_file.exists():
        return None, {"groups": tuple(groups), "people": ()}
    ledger = Ledger.read_only(home.ledger_file)
    try:
        if group is None:
            copy = scratch / "ledger.db"
            ledger.copy(copy)
        else:
            copy = scratch / "ledger.jsonl"
            ledger.tx(lambda tx: moved.write(tx, group, copy))
        people = ledger.tx(lambda tx: moved.people(tx, group))
        version = ledger.tx(lambda tx: moved.version(tx))
    except sqlite3.Error as error:
        raise explained(error, home.ledger_file) from error
    finally:
        ledger.close()
    return copy, {"groups": tuple(groups), "people": people, "ledger": version}


class _Copy:
    """Files, one after another, into an archive and its index."""

    def __init__(self, writer: Writer, index: Index, found: Found, ledger: int, progress: Progress) -> None:
        self._writer, self._index, self._found, self._progress = writer, index, found, progress
        self._total, self._done = found.bytes + ledger, 0

    def all(self, home: Home, scratch: Path, first: Path | None) -> None:
        if first is not None:
            path = LEDGER if first.name == "ledger.db" else ROWS
            self.one(Source(scratch, first.name, path, first.stat().st_size))
        for source in self._found.sources:
            self.one(source)
        self._trust(home, scratch)
        known = scratch / "known.json"
        known.write_bytes(_known(home, self._index.head.group))
        self.one(Source(scratch, known.name, KNOWN, known.stat().st_size))

    def one(self, source: Source) -> None:
        """What cannot be read, or is not what it was, is left out and said."""
        why = "it was cut, again and again, while it was read"
        for _ in range(_TRIES):
            try:
                self._add(source)
                why = ""
                break
            except Shrunk:
                continue
            except FileNotFoundError:
                why = "it was gone before it was read"
                break
            except UnsafePath:
                why = "it is a link, or no plain file"
                break
            except PermissionError as error:
                why = f"it cannot be read ({error.strerror})"
                break
        if why:
            self._found.skipped.append(Skipped(source.path, why))
        self._done += source.bytes
        self._progress(self._done, self._total)

    def _add(self, source: Source) -> None:
        with os.fdopen(open_beneath(source.root, source.relative), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            size = _settled(file.fileno()) if _is_appended(source.path) else status.st_size
            mode = stat.S_IMODE(status.st_mode) & 0o777
            sha256, size = self._writer.add(source.path, file, size, mode, status.st_mtime_ns)
        self._index.files[source.path] = Entry(
            source.path, size, mode, sha256, max(0, status.st_mtime_ns), contents.is_agents(status)
        )

    def _trust(self, home: Home, scratch: Path) -> None:
        """The trust ledger, or the lines of it that are of the group."""
        own, group = home.state / "trust.jsonl", self._index.head.group
        if not own.exists() and not own.is_symlink():
            return
        if group is None:
            self.one(Source(home.state, own.name, TRUST, own.stat().st_size))
            return
        lines = scratch / own.name
        with TrustLedger(own).open() as every, lines.open("xb") as some:
            some.writelines(line for line in every if line.endswith(b"\n") and moved.is_of(line, group))
        self.one(Source(scratch, lines.name, TRUST, lines.stat().st_size))


def _known(home: Home, group: str | None) -> bytes:
    if not home.ledger_file.exists():
        return b"{}"
    ledger = Ledger.read_only(home.ledger_file)
    try:
        return ledger.tx(lambda tx: moved.known(tx, group))
    finally:
        ledger.close()


def _is_appended(path: str) -> bool:
    """Whether its writers hold it while they append to it: what is there in between is whole."""
    parts = path.split("/")
    return path == TRUST or (parts[0] == "groups" and len(parts) == 4 and parts[2] == "sessions")


def _settled(descriptor: int) -> int:
    """How long it is while nobody appends to it; when somebody does not let go, how long it is now."""
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            return os.fstat(descriptor).st_size
        try:
            return os.fstat(descriptor).st_size
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


class Room:
    """Whether a disk keeps what is to stay free: so many bytes, or a tenth of a small one."""

    def __init__(self, directory: Path, keep_free: int) -> None:
        disk = os.statvfs(directory)
        self._directory = directory
        self._keep = min(keep_free, disk.f_blocks * disk.f_frsize // _SHARE)
        self._since = 0

    def check(self, more: int) -> None:
        """Say that so many bytes are about to be written. Raises DiskFull."""
        self._since += more
        if self._since < _PIECE and more:
            return
        self._since = 0
        if not self.has(_PIECE // 8):
            raise DiskFull(
                f"the disk that holds {self._directory} has no room for it ([retention] keep_free stays free);"
                " what was written of it is gone again",
                hint="free some space, or write it elsewhere: clawd backup create --to FILE",
            )

    def has(self, more: int) -> bool:
        """Whether so many bytes fit in beside what stays free."""
        return free_bytes(self._directory) >= self._keep + more


def _told(error: OSError, target: Path) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"the disk that holds {target.parent} is full; what was written of the backup is gone again",
            hint="free some space, or write it elsewhere: clawd backup create --to FILE",
        )
    return StorageError(f"{error.filename or target} cannot be written or read ({error.strerror})")
