"""Reading an archive that may be anybody's: whether it is whole and sound, and its files into an empty directory.

Nothing is written that the index does not name, and no more of it than the index says. A file's bytes are compared with
its hash also when they are taken out, whatever an earlier look found.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from clawd.backups.archive import CHUNK, Member, Reader
from clawd.backups.index import Entry, Folder, Index, Unsound
from clawd.errors import NotFound, Refused, StorageError
from clawd.files import directory_beneath, open_beneath

MOST_ERRORS = 100

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Verdict:
    """What a look at an archive found; `index` is None where it could not be read."""

    archive: Path
    index: Index | None = None
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.errors


def verify(archive: Path, progress: Progress = lambda done, total: None) -> Verdict:
    """Look at all of it. Raises NotFound, StorageError."""
    verdict = Verdict(archive)
    try:
        with _opened(archive) as reader:
            verdict.index = reader.index
            for _ in _checked(reader, None, verdict.errors, progress):
                pass
    except (Unsound, Refused) as error:
        verdict.errors.append(error.message)
    return verdict


def extract(archive: Path, into: Path, wanted: Callable[[str], bool], progress: Progress) -> Index:
    """Put the files that are `wanted`, by their paths, beneath the empty directory `into`, with their modes and times.
    Raises Refused for an archive that is not sound, NotFound, StorageError, OSError."""
    errors: list[str] = []

    def place(entry: Entry) -> IO[bytes] | None:
        return _made(into, entry) if wanted(entry.path) else None

    try:
        with _opened(archive) as reader:
            for entry in _checked(
                reader, lambda each: _made(into, each) if wanted(each.path) else None, errors, progress
            ):
                if wanted(entry.path):
                    _finish(into, entry)
            index = reader.index
    except Unsound as error:
        errors.append(error.message)
    if errors:
        raise Refused(f"{archive} is not sound: {errors[0]}", hint="clawd backup verify ARCHIVE says all")
    _folders(into, index, wanted)
    return index


def index_of(archive: Path) -> Index:
    """The index alone. Raises Unsound, Refused, NotFound, StorageError."""
    with _opened(archive) as reader:
        return reader.index


def _opened(archive: Path) -> Reader:
    try:
        return Reader(archive)
    except FileNotFoundError:
        raise NotFound(f"there is no archive {archive}", hint="clawd backup list") from None
    except OSError as error:
        raise StorageError(f"{archive} cannot be read ({error.strerror})") from error


def _checked(
    reader: Reader, to: Callable[[Entry], IO[bytes] | None] | None, errors: list[str], progress: Progress
) -> Iterator[Entry]:
    """Every file that is as the index says, once it was read."""
    missing, total, done = dict(reader.index.files), reader.index.bytes, 0
    for member in reader.members():
        entry = missing.pop(member.name, None)
        if entry is None:
            known = member.name in reader.index.files
            name = member.name[:200]
            _note(errors, f"it has {name!a} twice" if known else f"{name!a} is not in its index")
        elif member.size != entry.bytes:
            _note(errors, f"{member.name[:200]!a} has {member.size:,} bytes, its index says {entry.bytes:,}")
        elif _hashed(member, to(entry) if to is not None else None) != entry.sha256:
            _note(errors, f"{member.name[:200]!a} is not what was put in: its hash is another one")
        else:
            done += entry.bytes
            progress(done, total)
            yield entry
            continue
        if to is not None or len(errors) >= MOST_ERRORS:
            return
    for name in missing:
        _note(errors, f"{name[:200]!a} is missing")


def _note(errors: list[str], sentence: str) -> None:
    if len(errors) < MOST_ERRORS:
        errors.append(sentence)


def _hashed(member: Member, to: IO[bytes] | None) -> str:
    digest = hashlib.sha256()
    try:
        while chunk := member.data.read(CHUNK):
            digest.update(chunk)
            if to is not None:
                to.write(chunk)
    finally:
        if to is not None:
            to.close()
    return digest.hexdigest()


def _made(into: Path, entry: Entry) -> IO[bytes]:
    above, _, name = entry.path.rpartition("/")
    at = directory_beneath(into, above, make=0o700)
    try:
        return os.fdopen(open_beneath(at, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")
    finally:
        os.close(at)


def _finish(into: Path, entry: Entry) -> None:
    descriptor = open_beneath(into, entry.path)
    try:
        os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
        os.fchmod(descriptor, entry.mode | stat.S_IRUSR)
    finally:
        os.close(descriptor)


def _folders(into: Path, index: Index, wanted: Callable[[str], bool]) -> None:
    """Directories with their modes, the deepest first."""
    for folder in sorted(index.folders.values(), key=lambda each: each.path, reverse=True):
        if wanted(folder.path):
            at = directory_beneath(into, folder.path, make=0o700)
            try:
                os.fchmod(at, folder.mode | stat.S_IRWXU)
            finally:
                os.close(at)


def give(into: Path, index: Index, uid_of: Callable[[str], int | None]) -> None:
    """What a group's own user had is theirs again; `uid_of` a group's name."""
    things: list[Entry | Folder] = [*index.files.values(), *index.folders.values()]
    for path in [each.path for each in things if each.agent and each.path.startswith("groups/")]:
        uid = uid_of(path.split("/")[1])
        if uid is None or not (into / path).exists():
            continue
        at = directory_beneath(into, path) if path in index.folders else open_beneath(into, path)
        try:
            os.fchown(at, uid, uid)
        finally:
            os.close(at)
