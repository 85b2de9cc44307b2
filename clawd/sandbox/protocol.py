"""What every backend of sandboxes gives. Nothing outside this room knows which one is at work, or where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

LimitsKind = Literal["cgroup", "scope", "rlimit"]


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Bytes, CPUs and counts for one run. `work_*` bound the group's `work/`, `file_bytes` any one file."""

    memory_bytes: int = 1 << 30
    cpus: float = 1.0
    pids: int = 256
    tmp_bytes: int = 256 << 20
    file_bytes: int = 1 << 30
    work_bytes: int = 1 << 30
    work_files: int = 100_000


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that a backend needs to make a run's sandbox. Paths are on the host.

    `uid` is the group's own user where the daemon is root, None where the daemon's own user is all there is.
    `directory` (0700 parent) holds the socket's directory `socket/` (→ /run/clawd, so that a renewed socket
    appears) and `view/` (→ /group, read-only). `environment` is what the runner starts with: no secret, ever.
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

    @property
    def socket_directory(self) -> Path:
        return self.directory / "socket"

    @property
    def view(self) -> Path:
        return self.directory / "view"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a sandbox ended. `reason` is a sentence's worth for a person: "ran out of memory", "was ended"."""

    code: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A run that the ledger has not seen end: what is known of its sandbox since before a restart."""

    run: str
    sandbox_id: str
    directory: Path
    uid: int | None


class Sandbox(Protocol):
    """One living sandbox."""

    run: str
    id: str
    limits: LimitsKind

    async def wait(self) -> Exit:
        """Return when every process of the sandbox is gone. May be awaited more than once."""
        ...

    async def kill(self) -> Exit:
        """End it and wait until it is known dead. Raises SandboxUnavailable when it will not die."""
        ...

    def owns(self, pid: int) -> bool:
        """Whether `pid` (as this host sees it) is a process of this sandbox, exec'ed ones included."""
        ...

    def exec_command(self, argv: list[str], environment: Mapping[str, str]) -> tuple[list[str], list[int]]:
        """A host command line that runs `argv` in a second sandbox with the same mounts and cgroup, and the
        file descriptors that it must inherit (the caller closes them). Register its process with `adopt`."""
        ...

    def adopt(self, pid: int) -> None:
        """Count a process started from `exec_command`, and its descendants, as this sandbox's own."""
        ...


class Backend(Protocol):
    """A maker of sandboxes."""

    @property
    def name(self) -> Literal["docker", "bubblewrap"]: ...

    async def check(self) -> None:
        """Raises SandboxUnavailable with a sentence that says what to do when no sandbox can be made here."""
        ...

    async def start(self, spec: RunSpec) -> Sandbox:
        """Make a sandbox whose runner will connect to the run's socket. Raises SandboxUnavailable."""
        ...

    async def sweep(self, left: Iterable[LeftOver]) -> list[str]:
        """After a restart: end what is left of these runs; give the names of the runs that are known dead."""
        ...
