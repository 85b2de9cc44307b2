"""What is watched: roots, and which directories of theirs the kernel can tell us of."""

from __future__ import annotations

import logging
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from clawd.files import directories_beneath

log = logging.getLogger(__name__)

MOST = 50_000  # directories of one root
_FAR = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "afs", "ceph", "ncpfs"})

Hit = Callable[[frozenset[str]], None]


class Unseen(Exception):
    """Why a root cannot be watched."""


@dataclass(slots=True, eq=False)
class Root:
    """A directory whose changes are told to `hit`, as `Watcher.watch` says."""

    name: str
    path: str
    hit: Hit
    deep: bool
    skip: Callable[[str], bool]
    identity: tuple[int, int] | None = None  # of the directory that is watched
    size: int = 0  # directories
    polled: set[str] = field(default_factory=set)  # relative paths of what is told by the clock
    undecodable: set[str] = field(default_factory=set)  # those that hold a name that is not UTF-8
    limited: bool = False  # polled since the system gives no more watches

    def wants(self, relative: str) -> bool:
        """Whether a path is one to tell of."""
        at = relative.find("/")
        if at >= 0 and not self.deep:
            return False
        while at >= 0:
            if self.skip(relative[:at]):
                return False
            at = relative.find("/", at + 1)
        return not (relative and self.skip(relative))

    def directories(self, relative: str, far: Mapping[int, str], known: Callable[[str], bool]) -> set[str]:
        """Look for the directories at and beneath a path of it; gives those that can be watched and are not `known`.
        Those that cannot be are polled. Raises Unseen. In a thread."""
        self.polled = {each for each in self.polled if not within(each, relative)}
        if not relative:
            self.limited, self.size, self.identity = False, 0, identity(self.path)
        found: set[str] = set()
        count = 0

        def skip(below: str) -> bool:
            path = _joined(relative, below)
            return _parent(path) in self.polled or self.skip(path)

        for below, status in directories_beneath(Path(_joined(self.path, relative)), skip):
            path = _joined(relative, below)
            if status.st_dev in far or path in self.undecodable or not _is_text(_joined(self.path, path)):
                self.polled.add(path)
                if status.st_dev in far:
                    log.info("%s: %r is %s, and polled", self.name, path, far[status.st_dev])
            else:
                count += 1
                if not known(full := _joined(self.path, path)):
                    found.add(full)
            if not self.deep:
                break
            if self.size + count > MOST:
                raise Unseen(f"it has more than {MOST} directories")
        if not (relative or count or self.polled or self.identity is None):
            raise Unseen("it cannot be opened")
        self.size += count
        return found


Place = tuple[Root, str]  # a path of it, relative; "" is all of it


def within(path: str, top: str) -> bool:
    """Of relative paths: whether one is the other, or beneath it."""
    return not top or path == top or path.startswith(f"{top}/")


def outermost(places: Set[Place]) -> set[Place]:
    """Those that lie in no other of them."""
    grouped = by_root(places)
    return {(root, at) for root, at in places if not at or not lies_in(_parent(at), grouped[root])}


def by_root(places: Iterable[Place]) -> dict[Root, set[str]]:
    paths: dict[Root, set[str]] = defaultdict(set)
    for root, relative in places:
        paths[root].add(relative)
    return paths


def lies_in(path: str, tops: Set[str]) -> bool:
    """Whether a path is one of those, or beneath one."""
    while path and path not in tops:
        path = _parent(path)
    return path in tops


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _joined(top: str, below: str) -> str:
    return f"{top}/{below}" if top and below else top or below


def _is_text(path: str) -> bool:
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def far_devices(mounts: str) -> dict[int, str]:
    """Devices whose files others change behind the kernel's back, with the kind of their file system. `mounts` is what
    /proc/self/mountinfo says."""
    far = {}
    for line in mounts.splitlines():
        fields, _, system = line.partition(" - ")
        kind = system.split(" ", 1)[0]
        if kind in _FAR or kind.startswith("fuse"):
            major, _, minor = fields.split(" ")[2].partition(":")
            far[os.makedev(int(major), int(minor))] = kind
    return far
