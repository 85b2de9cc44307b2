"""What a path of the host is: each component from / on, opened without following a link, and where its disk has it.

Read-only, and nothing is kept open: what was seen is known again by device and inode.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from clawd.ledger.groups import UID_BASE

Identity = tuple[int, int]  # device and inode
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ACL_USER, _ACL_GROUP, _ACL_WRITE = 0x02, 0x08, 2  # linux/posix_acl_xattr.h
_NOBODY = 65_534
_MOST_LINKS = 40  # as many as the kernel follows


class Link(OSError):
    """A component is a link by now."""


@dataclass(frozen=True, slots=True)
class MountPoint:
    """A line of /proc/self/mountinfo: `root` is the part of the file system (`device`) that is mounted `at`."""

    device: str
    root: str
    at: Path
    kind: str


@dataclass(frozen=True, slots=True)
class Found:
    """A file or directory by its real path. `ids` are those of every component, / first, itself last. `over` are the
    links that lead there. `open_at` is the first directory above it, or above one of those, in which somebody else, or
    an agent, could put another thing in its place."""

    real: Path
    status: os.stat_result
    ids: tuple[Identity, ...]
    open_at: Path | None
    mounted: MountPoint
    names: tuple[Path, ...]  # every path that leads there, by whatever mount
    place: tuple[str, Path]  # the file system, and the path in it
    over: tuple[Found, ...] = ()

    @property
    def own(self) -> Identity:
        return self.ids[-1]

    def within(self, other: Found) -> bool:
        """Whether it is the other one, or lies in it."""
        beneath = self.place[0] == other.place[0] and self.place[1].is_relative_to(other.place[1])
        return other.own in self.ids or beneath


def identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def resolved(path: Path, table: Mapping[int, MountPoint]) -> Found:
    """What a path leads to, and over which links: whoever can exchange one of them says what it means. Raises
    OSError, Link among them."""
    real, rest, links = Path("/"), [*reversed(path.parts[1:])], list[Path]()
    while rest:
        step = real.parent if (part := rest.pop()) == ".." else real / part
        if not stat.S_ISLNK(step.lstat().st_mode):
            real = step
            continue
        links.append(step)
        if len(links) > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        to = step.readlink()
        real = Path("/") if to.is_absolute() else real
        rest += reversed(to.parts[1:] if to.is_absolute() else to.parts)
    found, over = walk(real, table), tuple(walk(link, table, link=True) for link in links)
    return replace(found, over=over, open_at=next((each.open_at for each in (found, *over) if each.open_at), None))


def walk(real: Path, table: Mapping[int, MountPoint], *, link: bool = False) -> Found:
    """A path without links, or that of a link itself. Raises OSError, Link among them."""
    steps = []
    at = os.open("/", _FLAGS)
    try:
        steps.append((os.fstat(at), _writers(at)))
        for part in real.parts[1:]:
            below = os.open(part, _FLAGS, dir_fd=at)
            os.close(at)
            at = below
            if stat.S_ISLNK((status := os.fstat(at)).st_mode) and not (link and len(steps) == len(real.parts) - 1):
                raise Link(f"{real} leads over a link")
            steps.append((status, _writers(at)))
        info = Path(f"/proc/self/fdinfo/{at}").read_text()
    finally:
        os.close(at)
    mounted = table.get(int(info.partition("mnt_id:")[2].split()[0]))
    if mounted is None or not real.is_relative_to(mounted.at):
        raise OSError(f"nobody knows what is mounted at {real}")
    inner = Path(mounted.root) / real.relative_to(mounted.at)
    same = (other for other in table.values() if other.device == mounted.device and inner.is_relative_to(other.root))
    names = [real, *(other.at / inner.relative_to(other.root) for other in same)]
    statuses = [status for status, _ in steps]
    pairs = zip(steps, statuses[1:], strict=False)
    opened = (Path(*real.parts[: n + 1]) for n, (step, below) in enumerate(pairs) if _loose(*step, below))
    return Found(
        real,
        statuses[-1],
        tuple(map(identity, statuses)),
        next(opened, None),
        mounted,
        tuple(dict.fromkeys(names)),
        (mounted.device, inner),
    )


def mount_table() -> dict[int, MountPoint]:
    """Everything that is mounted where we are, by its number."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_bytes().decode("utf-8", "surrogateescape").splitlines():
        fields = line.split(" ")
        kind = fields[fields.index("-", 6) + 1]
        found[int(fields[0])] = MountPoint(fields[2], _plain(fields[3]), Path(_plain(fields[4])), kind)
    return found


def beneath(directory: Path, table: Mapping[int, MountPoint]) -> Iterator[Path]:
    """What is mounted inside of a directory."""
    return (each.at for each in table.values() if each.at != directory and each.at.is_relative_to(directory))


def is_agent(uid: int) -> bool:
    """Whether a uid, or gid, is one that a group of a root daemon may have."""
    return UID_BASE <= uid < _NOBODY and uid != os.geteuid()


def _loose(status: os.stat_result, acl: bool, below: os.stat_result) -> bool:
    """Whether somebody who is neither root nor us could exchange `below` in this directory. Under a sticky bit, that
    takes its owner."""
    ours = (0, os.geteuid())
    if is_agent(status.st_uid) or acl:
        return True
    if status.st_mode & stat.S_IWGRP and is_agent(status.st_gid):
        return True
    return bool(status.st_mode & stat.S_IWOTH) and not (status.st_mode & stat.S_ISVTX and below.st_uid in ours)


def _writers(at: int) -> bool:
    """Whether an access list lets an agent write."""
    data = b""
    with suppress(OSError):
        data = os.getxattr(f"/proc/self/fd/{at}", "system.posix_acl_access")
    entries = struct.iter_unpack("<HHI", data[4 : 4 + (max(0, len(data) - 4) // 8) * 8])
    return any(tag in (_ACL_USER, _ACL_GROUP) and rights & _ACL_WRITE and is_agent(who) for tag, rights, who in entries)


def _plain(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
