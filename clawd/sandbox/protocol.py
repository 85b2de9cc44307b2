"""What every backend of sandboxes gives. Nothing outside this room knows which one is at work, or where."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from clawd.errors import SandboxUnavailable
from clawd.model import Authority
from clawd.trust import Role

LimitsKind = Literal["cgroup", "scope", "rlimit"]
BackendName = Literal["docker", "bubblewrap"]


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Bytes, CPUs and counts for one run. `work_*` bound the group's `work/`, `file_bytes` any one file; `tmp_exec`:
    programs may be started from /tmp (under Docker)."""

    memory_bytes: int = 1 << 30
    cpus: float = 1.0
    pids: int = 256
    tmp_bytes: int = 256 << 20
    file_bytes: int = 1 << 30
    work_bytes: int = 1 << 30
    work_files: int = 100_000
    tmp_exec: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host, without links in its path, as it was seen at `device` and `inode`. `trust` is
    that of what stands in it."""

    source: Path
    target: str
    writable: bool
    device: int
    inode: int
    trust: float = 1.0


class Exchanged(SandboxUnavailable):
    """What lies at a mount's source is not what was checked: nothing of it was shown."""

    def __init__(self, group: str, mount: Mount) -> None:
        super().__init__(f"what {group} was to have at {mount.target} was exchanged: {mount.source} is another now")
        self.mount = mount


def unchanged(mount: Mount, at: Path | str) -> bool:
    """Whether what lies `at` is what a mount was checked to be. Raises OSError."""
    status = os.lstat(at)
    return (status.st_dev, status.st_ino) == (mount.device, mount.inode)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that a backend needs to make a run's sandbox. Paths are on the host.

    `uid` is the group's own user where the daemon is root, None where the daemon's own user is all there is.
    `directory` (0700 parent) holds the socket's directory `socket/` (→ /run/clawd, so that a renewed socket
    appears) and `view/` (→ /group, read-only). `environment` is what the runner starts with: no secret, ever.
    `image` names what a container is made from, where containers are. `mounts` are the owner's directories that the
    allowlist lets the group have, outer ones first.
    """

    run: str
    group: str
    uid: int | None
    directory: Path
    work: Path
    inbox: Path
    group_skills: Path
    skills: Path
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    mounts: tuple[Mount, ...] = ()

    @property
    def within(self) -> Authority:
        """The lowest role whose turns may have such a sandbox, and the lowest trust of what it shows."""
        writes = any(mount.writable for mount in self.mounts)
        trust = min((mount.trust for mount in self.mounts), default=1.0)
        return Authority(Role.OWNER if writes else Role.NONE, trust)

    @property
    def socket_directory(self) -> Path:
        return self.directory / "socket"

    @property
    def view(self) -> Path:
        return self.directory / "view"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a sandbox ended. `reason` is a sentence's worth for a person: "ran out of memory", "was ended". `outside`:
    it was ended by what is around it, its Engine's end or restart, and by nothing that it did itself."""

    code: int | None
    reason: str
    outside: bool = False


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A run that the ledger has not seen end: what is known of its sandbox since before a restart. `handle` is empty
    when the daemon was gone before it knew one."""

    run: str
    backend: BackendName
    handle: str
    directory: Path
    uid: int | None


class Sandbox(Protocol):
    """One living sandbox."""

    run: str
    backend: BackendName
    id: str
    """What a person can look it up by: a container's id, say."""
    handle: str
    """What finds it again after a restart of the daemon, and tells it from any later one."""
    limits: LimitsKind
    pausable: bool
    """Whether `pause` and `unpause` do anything."""

    async def wait(self) -> Exit:
        """Return when every process of the sandbox is gone. May be awaited more than once."""
        ...

    async def kill(self) -> Exit:
        """End it and wait until it is known dead. Raises SandboxUnavailable when it will not die."""
        ...

    async def pause(self) -> None:
        """Freeze every process of it. Raises SandboxUnavailable; then it may be frozen or not, until `unpause` says
        so."""
        ...

    async def unpause(self) -> None:
        """Let it go on; nothing to do for one that is not frozen. Raises SandboxUnavailable when it does not."""
        ...

    def owns(self, pid: int) -> bool:
        """Whether `pid` (as this host sees it) is a process of this sandbox, exec'ed ones included."""
        ...

    async def execute(self, argv: list[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
        """Run a command beside the runner, with the same mounts and limits, on the caller's standard streams (three
        descriptors, which stay the caller's); gives its exit code. Cancelled, it ends the command. The caller sees to
        it that the sandbox is not paused meanwhile. Raises SandboxUnavailable."""
        ...


class Backend(Protocol):
    """A maker of sandboxes."""

    async def check(self, image: str = "") -> BackendName:
        """Which kind makes the next sandbox (of `image`, where that matters). Raises SandboxUnavailable, with a
        sentence that says what to do, when none can be made here."""
        ...

    async def start(self, spec: RunSpec) -> Sandbox:
        """Make a sandbox whose runner will connect to the run's socket. Raises SandboxUnavailable."""
        ...

    async def adopt(self, left: LeftOver, spec: RunSpec) -> Sandbox | None:
        """After a restart: the sandbox of a run that is still alive and as it must be (the protocol fits, what it sees
        is what `spec` says), not paused; None when there is none to go on with: `sweep` ends what is left. Raises
        SandboxUnavailable when that cannot be known just now."""
        ...

    async def sweep(self, left: Iterable[LeftOver], ours: Collection[str] = ()) -> list[str]:
        """End what is left of these runs, and whatever else of this install belongs to none of them and none of
        `ours`; give the names of the runs of `left` that are known dead."""
        ...
