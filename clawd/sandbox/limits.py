"""What holds a sandbox's memory, processes and CPU.

In this order: a cgroup of our own (v1 or v2, whichever carries the controller) where it can be written; a
scope of systemd; else resource limits, which hold each process by itself. A cgroup of ours is named
`clawd-<install>-<run>`, and everything in it is ours to end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clawd.sandbox.protocol import LimitsKind, SandboxLimits

if TYPE_CHECKING:
    from clawd.config.schema import SandboxTable

CONTROLLERS = ("memory", "pids", "cpu")
NEEDED = ("memory", "pids")
OPEN_FILES = 4096
_PERIOD = 100_000  # microseconds, the kernel's default for a CPU quota


def limits_of(sandbox: SandboxTable) -> SandboxLimits:
    """What a group's config says of it."""
    return SandboxLimits(
        memory_bytes=sandbox.memory,
        cpus=sandbox.cpus,
        pids=sandbox.pids,
        file_bytes=sandbox.work,
        work_bytes=sandbox.work,
        work_files=sandbox.work_files,
        tmp_exec=sandbox.tmp_exec,
    )


@dataclass(frozen=True, slots=True)
class Place:
    """A directory in which cgroups of one hierarchy can be made."""

    directory: Path
    version: int


@dataclass(frozen=True, slots=True)
class Holder:
    """What holds limits on this machine. `places` (controller → where) has entries for `cgroup` alone."""

    kind: LimitsKind
    places: dict[str, Place]


def places_of(mountinfo: str, own: str) -> dict[str, Place]:
    """Where this process's cgroups lie, by controller, from the text of /proc/self/mountinfo and
    /proc/self/cgroup.

    The controllers of the v2 hierarchy, which only its directory tells, stand under the name "".
    """
    paths: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    found: dict[str, Place] = {}
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        kind, *_, options = source.split(" ")
        fields = mount.split(" ")
        root, point = fields[3], fields[4]
        names = {"cgroup": [name for name in options.split(",") if name in CONTROLLERS], "cgroup2": [""]}.get(kind, [])
        for name in names:
            path = paths.get(name, "")
            if path and (root == "/" or path == root or path.startswith(f"{root}/")):
                below = path if root == "/" else path[len(root) :]
                found[name] = Place(Path(point + below), 2 if kind == "cgroup2" else 1)
    return found


def settings(controller: str, version: int, limits: SandboxLimits) -> list[tuple[str, str, bool]]:
    """What is written into a cgroup's files: (file, value, whether the kernel must have it)."""
    quota, memory = max(1000, round(limits.cpus * _PERIOD)), str(limits.memory_bytes)
    return {
        ("memory", 1): [
            ("memory.limit_in_bytes", memory, True),
            ("memory.memsw.limit_in_bytes", memory, False),
        ],
        ("memory", 2): [("memory.max", memory, True), ("memory.swap.max", "0", False)],
        ("pids", 1): [("pids.max", str(limits.pids), True)],
        ("pids", 2): [("pids.max", str(limits.pids), True)],
        ("cpu", 1): [("cpu.cfs_period_us", str(_PERIOD), True), ("cpu.cfs_quota_us", str(quota), True)],
        ("cpu", 2): [("cpu.max", f"{quota} {_PERIOD}", True)],
    }[controller, version]


def prlimit_options(kind: LimitsKind, limits: SandboxLimits) -> list[str]:
    """Options of `prlimit` for every process inside. RLIMIT_DATA, not AS: some runtimes reserve far more than
    they use."""
    options = ["--core=0", f"--nofile={OPEN_FILES}", f"--fsize={limits.file_bytes}"]
    return options + ([f"--nproc={limits.pids}", f"--data={limits.memory_bytes}"] if kind == "rlimit" else [])


def scope_command(limits: SandboxLimits, root: bool) -> list[str]:
    """What stands before a command so that systemd starts it in a scope with these limits."""
    properties = {
        "MemoryMax": str(limits.memory_bytes),
        "MemorySwapMax": "0",
        "TasksMax": str(limits.pids),
        "CPUQuota": f"{max(1, round(limits.cpus * 100))}%",
    }
    command = ["systemd-run", *([] if root else ["--user"]), "--scope", "--quiet", "--collect"]
    return [*command, *(f"--property={name}={value}" for name, value in properties.items()), "--"]


class Cgroup:
    """One run's cgroup: a directory in each hierarchy that carries a controller. Every method may be called
    again."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self.directories = tuple(directories)

    @classmethod
    def of(cls, places: dict[str, Place], name: str) -> Cgroup:
        """The one of this name, which `create` makes."""
        return cls(dict.fromkeys(place.directory / name for place in places.values()))

    def create(self, places: dict[str, Place], limits: SandboxLimits) -> None:
        """Make it where `of` placed it, with its limits set. Raises OSError."""
        try:
            for directory in self.directories:
                directory.mkdir(mode=0o755, exist_ok=True)
            for controller, place in places.items():
                (directory,) = (it for it in self.directories if it.parent == place.directory)
                for file, value, needed in settings(controller, place.version, limits):
                    with contextlib.nullcontext() if needed else contextlib.suppress(OSError):
                        _write(directory / file, value)
        except OSError:
            self.remove()
            raise

    @property
    def join(self) -> list[str]:
        """The files into which a process writes 0 to come in."""
        return [str(directory / "cgroup.procs") for directory in self.directories]

    def pids(self) -> set[int]:
        """Every process in it, as this host sees them."""
        found: set[int] = set()
        for directory in self.directories:
            with contextlib.suppress(OSError):
                found.update(int(pid) for pid in (directory / "cgroup.procs").read_text().split() if pid != "0")
        return found

    def kill(self) -> None:
        """Send SIGKILL to everything in it; nothing can be forked in it any more."""
        for directory in self.directories:
            for file, value in (("pids.max", "0"), ("cgroup.kill", "1")):
                if (directory / file).exists():
                    with contextlib.suppress(OSError):
                        _write(directory / file, value)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def out_of_memory(self) -> bool:
        """Whether the kernel ended a process in it for want of memory."""
        return self._count(("memory.events", "memory.oom_control"), "oom_kill") > 0

    def out_of_processes(self) -> bool:
        """Whether a fork in it was refused."""
        return self._count(("pids.events",), "max") > 0

    def _count(self, files: tuple[str, ...], key: str) -> int:
        for path in (directory / file for directory in self.directories for file in files):
            with contextlib.suppress(OSError):
                for line in path.read_text().splitlines():
                    if line.startswith(f"{key} "):
                        return int(line.split()[1])
        return 0

    def remove(self) -> bool:
        """Remove its directories; False while something is still in it."""
        for directory in self.directories:
            with contextlib.suppress(OSError):
                directory.rmdir()
        return not any(directory.exists() for directory in self.directories)


def find_holder(install: str) -> Holder:
    """Find what holds limits here: makes and removes one cgroup, or one scope, to be sure."""
    places = _own_places()
    if all(controller in places for controller in NEEDED):
        with contextlib.suppress(OSError):
            probe = Cgroup.of(places, f"clawd-{install}-probe-{os.getpid()}")
            probe.create(places, SandboxLimits())
            if probe.remove():
                return Holder("cgroup", places)
    if shutil.which("systemd-run") and Path("/run/systemd/system").is_dir():
        command = [*scope_command(SandboxLimits(), os.geteuid() == 0), "true"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if not subprocess.run(command, capture_output=True, timeout=5, check=False).returncode:
                return Holder("scope", {})
    return Holder("rlimit", {})


def _own_places() -> dict[str, Place]:
    places = places_of(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    if unified := places.pop("", None):
        with contextlib.suppress(OSError):
            directory = _opened(unified.directory, [name for name in CONTROLLERS if name not in places])
            offered = (directory / "cgroup.subtree_control").read_text().split()
            places |= {name: Place(directory, 2) for name in CONTROLLERS if name in offered and name not in places}
    return places


def _opened(directory: Path, wanted: list[str]) -> Path:
    """A v2 cgroup whose children get the controllers. One with processes in it cannot have such children, so
    in a cgroup that systemd delegated to us, its processes (ours) move into a leaf of their own first."""
    if not _delegated(directory) and _delegated(directory.parent):
        directory = directory.parent  # we are in such a leaf already
    control = directory / "cgroup.subtree_control"
    offered, enabled = (directory / "cgroup.controllers").read_text().split(), control.read_text().split()
    missing = " ".join(f"+{name}" for name in wanted if name in offered and name not in enabled)
    if not missing:
        return directory
    try:
        _write(control, missing)
    except OSError:
        if not _delegated(directory):
            raise
        (directory / "daemon").mkdir(exist_ok=True)
        for pid in (directory / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                _write(directory / "daemon" / "cgroup.procs", pid)
        _write(control, missing)
    return directory


def _delegated(directory: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(directory, name) == b"1":
                return True
    return False


def _write(path: Path, value: str) -> None:
    with path.open("w") as file:
        file.write(value)
