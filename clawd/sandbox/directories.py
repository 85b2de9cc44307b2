"""The host's side of a run's mounts: made before every start, so that a missing directory never breaks one.

What lies in the run's 0700 directory is the daemon's; `work/` is the group's uid's own, and never reached by
a link.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from clawd.errors import SandboxUnavailable
from clawd.sandbox.protocol import Exchanged, Mount, RunSpec, unchanged
from clawd.sandbox.recipe import etc_files

MOUNT_POINTS = ("work", "inbox", "skills")


def prepare(spec: RunSpec) -> RunSpec:
    """Make what the run's mounts need; gives the spec with an empty directory where an optional one cannot be
    made.

    Raises SandboxUnavailable when `work/` is a link or another user's; OSError when the disk fails.
    """
    spec.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    spec.directory.chmod(0o700)
    etc, empty = spec.directory / "etc", spec.directory / "empty"
    for directory in (
        spec.socket_directory,
        spec.view,
        etc,
        empty,
        *(spec.view / name for name in MOUNT_POINTS),
    ):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
    uid, gid = (os.geteuid(), os.getegid()) if spec.uid is None else (spec.uid, spec.uid)
    for name, text in etc_files(uid, gid).items():
        (etc / name).write_text(text)
        (etc / name).chmod(0o644)
    own_work(spec.work, uid, gid)
    return replace(
        spec,
        inbox=_shown(spec.inbox, empty),
        group_skills=_shown(spec.group_skills, empty),
        skills=_shown(spec.skills, empty),
    )


def own_work(work: Path, uid: int, gid: int) -> None:
    """Make `work/` the agent's own, 0700. Raises SandboxUnavailable when it is no directory, or not ours to
    give."""
    work.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        work.mkdir(mode=0o700, exist_ok=True)
        at = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (NotADirectoryError, FileExistsError):  # also what O_NOFOLLOW says of a link to a directory
        raise SandboxUnavailable(
            f"{work} is a link, or not a directory", hint="move it away: the daemon makes a new one"
        ) from None
    try:
        if os.fstat(at).st_uid != uid:
            os.fchown(at, uid, gid)
            os.fchmod(at, 0o700)
    except PermissionError:
        raise SandboxUnavailable(f"{work} belongs to another user", hint=f"chown -R {uid} {work}") from None
    finally:
        os.close(at)


def _shown(directory: Path, empty: Path) -> Path:
    """A directory of the daemon's own, made where it is missing and open to the group's uid: what lies above it
    (0700) keeps everybody else out. A person's link stays as it is."""
    try:
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
        status = directory.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o055 != 0o055:
            directory.chmod(stat.S_IMODE(status.st_mode) | 0o055)
    except OSError:
        return empty
    return directory if directory.is_dir() else empty


def present(spec: RunSpec) -> tuple[Mount, ...]:
    """The mounts of the owner's directories, which lie where they were checked. Raises Exchanged."""
    for mount in spec.mounts:
        with contextlib.suppress(OSError):
            if unchanged(mount, mount.source):
                continue
        raise Exchanged(spec.group, mount)
    return spec.mounts


def strange(pid: int, shown: Iterable[Mount]) -> Mount | None:
    """Which mount of a sandbox, whose first process is `pid`, is not what it was checked to be. Raises OSError where
    that cannot be seen, at present or at all."""
    return next((mount for mount in shown if not unchanged(mount, f"/proc/{pid}/root{mount.target}")), None)
