"""Which files a skill is made of, and one hash over them: approvals, and the copies that sandboxes see, rest on it.

Plain files alone: nothing is followed, and nothing but a plain file with one name is opened. What version control, and
systems that unpack archives, leave behind is no part of a skill.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from clawd.errors import UnsafePath
from clawd.files import open_beneath
from clawd.text import unhidden

MOST_FILES = 2_000
MOST_BYTES = 50 << 20
DEEPEST = 16  # levels of directories
APART = frozenset({".git", ".hg", ".svn", "__pycache__", "__MACOSX", ".DS_Store"})
KINDS = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


class File(NamedTuple):
    """`mode` is 0o755 for what may be run, else 0o644, whatever else the file's rights say."""

    path: str
    mode: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    files: tuple[File, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder as it lies there: its files with their status, sorted; what is left out, and what is done with the
    rights of the rest, as sentences; and what others could change."""

    files: tuple[tuple[str, os.stat_result], ...]
    warnings: tuple[str, ...]
    exposed: tuple[str, ...]


def look(folder: Path, *, linked: bool = False) -> Tree:
    """`linked` takes files with a second name, too, as our own copies have. Raises UnsafePath for a link, for what is
    no folder, and for more than a skill may be; OSError."""
    files, warnings, exposed, total = list[tuple[str, os.stat_result]](), list[str](), list[str](), 0
    for path, status in _beneath(folder):
        kind = stat.S_IFMT(status.st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            warnings.append(f"{path!a} is left out: it is {KINDS.get(kind, 'a device')}")
            continue
        if not _showable(path):
            warnings.append(f"{path!a} is left out: nobody could read its name")
            continue
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            exposed.append(path)
        if kind == stat.S_IFDIR:
            continue
        if status.st_nlink > 1 and not linked:
            warnings.append(f"{path!a} is left out: it is a file with a second name (a copy of it is not)")
            continue
        if not status.st_mode & stat.S_IRUSR:
            warnings.append(f"{path!a} is left out: its owner may not read it (chmod u+r)")
            continue
        if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            warnings.append(f"{path!a} would run as its owner: the agent is shown it without that right")
        total += status.st_size
        if len(files) == MOST_FILES or total > MOST_BYTES:
            raise UnsafePath(f"it has more than {MOST_FILES:,} files, or {MOST_BYTES >> 20} MB")
        files.append((path, status))
    return Tree(tuple(sorted(files)), tuple(sorted(warnings)), tuple(sorted(exposed)))


def manifest(folder: Path, *, linked: bool = False) -> Manifest:
    """Raises UnsafePath as `look` does, and where a file changes meanwhile; OSError."""
    files = tuple(
        File(path, mode_of(status), *_digest(folder, path)) for path, status in look(folder, linked=linked).files
    )
    text = json.dumps(files, ensure_ascii=True, separators=(",", ":"))
    return Manifest(files, hashlib.sha256(text.encode()).hexdigest())


def version(folder: Path, *, linked: bool = False) -> str | None:
    """The sha256 of a folder's manifest; None where there is none, or what cannot be one."""
    try:
        return manifest(folder, linked=linked).sha256
    except (UnsafePath, OSError):
        return None


def stamp(folder: Path) -> str:
    """What is another one whenever a file of the folder is changed, added or removed; nothing is read. Raises as `look`
    does."""
    seen = [
        (path, each.st_mode, each.st_size, each.st_mtime_ns, each.st_ctime_ns, each.st_ino)
        for path, each in look(folder).files
    ]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def mode_of(status: os.stat_result) -> int:
    return 0o755 if status.st_mode & stat.S_IXUSR else 0o644


def _digest(folder: Path, path: str) -> tuple[int, str]:
    """Size and sha256 of one file."""
    digest, size = hashlib.sha256(), 0
    with os.fdopen(open_beneath(folder, path), "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            if (size := size + len(chunk)) > MOST_BYTES:
                raise UnsafePath(f"{path!a} grows while it is read")
    return size, digest.hexdigest()


def _showable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return unhidden(path) == path and "\n" not in path and "\\" not in path


def _beneath(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything in a folder, itself first as `.`, nothing followed."""
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise UnsafePath("it is a link, or no folder") from None
    try:
        yield ".", os.fstat(top)
        yield from _entries(top, "", 0)
    finally:
        os.close(top)


def _entries(at: int, prefix: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(at) as entries:
        for n, entry in enumerate(entries):
            if n > 2 * MOST_FILES:
                raise UnsafePath(f"it has more than {MOST_FILES:,} files")
            if entry.name in APART:
                continue
            status = entry.stat(follow_symlinks=False)
            yield prefix + entry.name, status
            if not stat.S_ISDIR(status.st_mode):
                continue
            if depth == DEEPEST:
                raise UnsafePath(f"its directories lie more than {DEEPEST} deep")
            try:
                below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            except NotADirectoryError:  # exchanged meanwhile
                continue
            try:
                yield from _entries(below, f"{prefix}{entry.name}/", depth + 1)
            finally:
                os.close(below)
