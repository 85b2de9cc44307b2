"""File input and output that never follows an agent.

`root` is a directory that we trust; what lies beneath it may have been written by a sandbox. Every component
is opened without following links, special files are refused, and reads are bounded. Writes that replace a
file are atomic and durable: a temporary file beside it, fsync, rename, fsync of the directory.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path, PurePosixPath

from clawd import faults
from clawd.errors import UnsafePath

_LINK_ERRORS = frozenset({errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR})
DEEPEST = 64  # levels of directories that a walk goes down
OWNED_LIMIT = 1 << 20  # bytes of a file of the owner's own that goes into prompts
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parts_of(relative: str) -> tuple[str, ...]:
    """The components of a path beneath a root. Raises UnsafePath on absolute paths, `..`, NUL and
    emptiness."""
    if "/" not in relative and "\0" not in relative and relative not in ("", ".", ".."):
        return (relative,)
    path = PurePosixPath(relative)
    parts = tuple(part for part in path.parts if part != ".")
    if path.is_absolute() or ".." in parts or "\0" in relative or not parts:
        raise UnsafePath(f"{relative!r} is not a path inside the directory")
    return parts


def plain(path: str, flags: int) -> int:
    """An `opener` of regular files alone: a pipe would keep whoever reads it waiting for ever. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file")
    return descriptor


def directory_beneath(root: Path | int, relative: str, make: int | None = None) -> int:
    """A descriptor of the directory `relative` beneath `root`, which "" is itself; the caller closes it. What is
    missing is made, with the mode `make`. Raises UnsafePath for a link anywhere on the way, or what is no directory;
    FileNotFoundError as usual."""
    parts = parts_of(relative) if relative else ()
    at = os.dup(root) if isinstance(root, int) else os.open(root, _DIRECTORY)
    try:
        for part in parts:
            if make is not None:
                with suppress(FileExistsError):
                    os.mkdir(part, make, dir_fd=at)
            below = os.open(part, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
    except OSError as error:
        os.close(at)
        if error.errno in _LINK_ERRORS:
            raise UnsafePath(f"{relative!r} is a link, or not a directory") from error
        raise
    return at


def open_beneath(root: Path | int, relative: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of the regular file `relative` beneath `root`, a path or a descriptor; the caller closes it.

    Raises UnsafePath for a link anywhere on the way, a special file, or a path that leaves the root;
    FileNotFoundError as usual.
    """
    *parents, name = parts_of(relative)
    at = root if isinstance(root, int) and not parents else directory_beneath(root, "/".join(parents))
    try:
        # O_NONBLOCK: opening a FIFO that an agent left must not hang the daemon.
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=at)
    except OSError as error:
        if error.errno in _LINK_ERRORS:
            raise UnsafePath(f"{relative!r} is a link, or not a regular file") from error
        raise
    finally:
        if at != root:
            os.close(at)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafePath(f"{relative!r} is not a regular file")
    return descriptor


def read_beneath(root: Path, relative: str, limit: int) -> bytes:
    """At most `limit` bytes of a file beneath `root`."""
    with os.fdopen(open_beneath(root, relative), "rb") as file:
        return file.read(limit)


def read_owned(root: Path, relative: str) -> bytes:
    """A file beneath `root` that is surely the owner's own word: regular, of the daemon's user, and nobody else can
    write to it. Raises UnsafePath with why it is not, FileNotFoundError."""
    try:
        descriptor = open_beneath(root, relative)
    except UnsafePath:
        raise UnsafePath("it is a link, or not a regular file") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise UnsafePath("it belongs to another user")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnsafePath(f"others can write to it (chmod go-w {root / relative})")
        if status.st_size > OWNED_LIMIT:
            raise UnsafePath(f"it is larger than {OWNED_LIMIT >> 20} MB")
        return file.read(OWNED_LIMIT)


def walk_beneath(
    root: Path,
    skip: Callable[[str], bool] = lambda name: False,
    left_out: Callable[[str, str], None] | None = None,
) -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file beneath `root` with its stat, links and special files left out, and whatever `skip` says of
    its name alone. What vanishes meanwhile, or cannot be opened, is no error. Raises UnsafePath where directories lie
    more than 64 deep: an agent can nest them without end, and each level costs a descriptor. `left_out`
    is told each path that is, and why, instead of that."""
    try:
        top = os.open(root, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return
    levels = [(top, _names(top), "")]
    try:
        while levels:
            at, names, prefix = levels[-1]
            if not names:
                os.close(at)
                levels.pop()
                continue
            name = names.pop()
            if skip(name):
                continue
            why = ""
            try:
                status = os.stat(name, dir_fd=at, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield prefix + name, status
                elif not stat.S_ISDIR(status.st_mode):
                    why = "it is a link" if stat.S_ISLNK(status.st_mode) else "it is no plain file"
                elif len(levels) <= DEEPEST:
                    below = os.open(name, _DIRECTORY, dir_fd=at)
                    levels.append((below, [], f"{prefix}{name}/"))
                    levels[-1][1].extend(_names(below))
                elif left_out is None:
                    raise UnsafePath(f"{root} has directories that lie more than {DEEPEST} deep")
                else:
                    why = f"it lies more than {DEEPEST} deep"
            except FileNotFoundError:
                continue
            except OSError as error:
                why = f"it cannot be opened ({error.strerror})"
            if why and left_out is not None:
                left_out(prefix + name, why)
    finally:
        for at, _, _ in levels:
            os.close(at)


def directories_beneath(
    root: Path, skip: Callable[[str], bool] = lambda relative: False
) -> Iterator[tuple[str, os.stat_result]]:
    """Every directory beneath `root`, itself first (as ""), with its stat; links are left out, and so is what `skip`
    says of its relative path, with all that is in it. What vanishes meanwhile, cannot be opened, or lies more than 64
    deep, is no error."""
    levels: list[tuple[int, str, list[str]]] = []

    def entered(name: str | Path, at: int | None, relative: str) -> Iterator[tuple[str, os.stat_result]]:
        with suppress(OSError):
            below = os.open(name, _DIRECTORY, dir_fd=at)
            levels.append((below, relative, []))
            yield relative, os.fstat(below)
            with os.scandir(below) as entries:
                levels[-1][2].extend(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    try:
        yield from entered(root, None, "")
        while levels:
            at, prefix, names = levels[-1]
            if not names or len(levels) > DEEPEST:
                os.close(at)
                levels.pop()
                continue
            name = names.pop()
            relative = f"{prefix}/{name}" if prefix else name
            if not skip(relative):
                yield from entered(name, at, relative)
    finally:
        for at, _, _ in levels:
            os.close(at)


def remove_tree(root: Path) -> None:
    """Remove a directory with everything in it, following no link; one that is not there is no error.

    What lies deeper is moved up first, so that no nesting is too deep.
    """
    try:
        top = os.open(root, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        while names := _names(top):
            for name in names:
                try:
                    at = os.open(name, _DIRECTORY, dir_fd=top)
                except NotADirectoryError:
                    os.unlink(name, dir_fd=top)
                    continue
                try:
                    for child in _names(at):
                        if stat.S_ISDIR(os.stat(child, dir_fd=at, follow_symlinks=False).st_mode):
                            os.rename(child, f".{secrets.token_hex(8)}", src_dir_fd=at, dst_dir_fd=top)
                        else:
                            os.unlink(child, dir_fd=at)
                finally:
                    os.close(at)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    root.rmdir()


def _names(directory: int) -> list[str]:
    return os.listdir(directory)


def free_bytes(path: Path) -> int:
    """Room that is left for this user on the disk that holds `path`."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def sync_directory(path: Path) -> None:
    """Make a rename or a new name in `path` durable."""
    at = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(at)
    finally:
        os.close(at)


def append_whole(descriptor: int, data: bytes, size: int) -> None:
    """All of it behind the `size` bytes of a file that nobody else writes to now, durably, or nothing. Raises
    OSError."""
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, size)
        raise


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` by `data`, whole or not at all, durably."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        faults.passing(f"replacing-{path.name}")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def put_beneath(root: Path | int, relative: str, data: bytes, mode: int = 0o600) -> None:
    """Put a file beneath `root`, with the directories that lead to it, whole or not at all, durably. Raises UnsafePath,
    OSError."""
    *parents, name = parts_of(relative)
    at = directory_beneath(root, "/".join(parents), make=0o755 if mode & 0o044 else 0o700)
    try:
        temporary = f".clawd-{secrets.token_hex(8)}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=at)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=at)
            raise
        os.fsync(at)
    finally:
        os.close(at)


def sweep_beneath(root: Path | int, folder: str, torn: re.Pattern[str]) -> None:
    """Take away the files of a folder that are called so: what a run that was killed had not renamed yet. What cannot
    be taken away stays."""
    with suppress(OSError, UnsafePath):
        at = directory_beneath(root, folder)
        try:
            for name in filter(torn.fullmatch, _names(at)):
                os.unlink(name, dir_fd=at)
        finally:
            os.close(at)


def settle_beneath(root: Path, temporary: str, names: Collection[str]) -> str:
    """Give a whole file in `root` its name, durably and readable by all who reach it: the first of `names` that is
    free, else the last with a number. Nothing is followed or replaced. Gives the name."""
    at = os.open(root, _DIRECTORY)
    try:
        descriptor = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        try:
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        *_, last = names
        stem, dot, suffix = last.rpartition(".")
        more = (f"{stem}-{n}{dot}{suffix}" if stem else f"{last}-{n}" for n in count(2))
        for name in chain(names, more):
            with suppress(FileExistsError):
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=at))
                os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
                os.fsync(at)
                return name
        raise AssertionError("numbers do not end")
    finally:
        os.close(at)


class Blobs:
    """Copies of files by content, `state/blobs/<sha256>`: what is delivered is the copy, whatever the agent
    does next."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, sha256: str) -> Path:
        return self.directory / sha256

    def keep(self, root: Path, relative: str, limit: int) -> tuple[str, int]:
        """Copy a file beneath `root`; gives its sha256 and size. Raises UnsafePath, also when it is over
        `limit` bytes."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.directory / f".{secrets.token_hex(8)}.tmp"
        digest, size = hashlib.sha256(), 0
        try:
            with os.fdopen(open_beneath(root, relative), "rb") as source, temporary.open("xb") as copy:
                size = os.fstat(source.fileno()).st_size
                if size > limit:
                    raise UnsafePath(f"{relative!r} is larger than {limit} bytes")
                size = 0
                while chunk := source.read(1 << 20):
                    size += len(chunk)
                    if size > limit:
                        raise UnsafePath(f"{relative!r} is larger than {limit} bytes")
                    digest.update(chunk)
                    copy.write(chunk)
                copy.flush()
                os.fsync(copy.fileno())
            with self._alone():
                temporary.replace(self.path(digest.hexdigest()))
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(self.directory)
        return digest.hexdigest(), size

    def add(self, content: bytes) -> str:
        """Keep some bytes; gives their sha256."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = hashlib.sha256(content).hexdigest()
        with self._alone():
            write_atomic(self.path(name), content)
        return name

    def collect(self, wanted: Collection[str], before: float) -> int:
        """Remove copies that are not `wanted`, and torn ones, if they were made before that time (in seconds since the
        epoch): what was just kept may not be referred to yet. Gives how many."""
        removed = 0
        for path in self.directory.iterdir() if self.directory.is_dir() else ():
            with self._alone():  # one that is kept once more meanwhile is new
                if path.name not in wanted and path.is_file() and path.stat().st_mtime < before:
                    path.unlink()
                    removed += 1
        return removed

    @contextmanager
    def _alone(self) -> Iterator[None]:
        directory = os.open(self.directory, _DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)
