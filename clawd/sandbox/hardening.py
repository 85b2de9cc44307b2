"""From a run's description to a container's, and what must be true of its first process before the daemon speaks with
it: pure but for the looks at what is mounted, tested by table.

The Engine resolves a path when a container starts, so each mount is compared with what was there before. The Engine's
own filter of system calls stays on; the agent's entry adds ours to it (`LOADER`), which also shuts what the Engine's
leaves open: AF_VSOCK, io_uring, ptrace.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawd.errors import SandboxUnavailable
from clawd.sandbox import limits, recipe, seccomp
from clawd.sandbox.directories import present
from clawd.sandbox.protocol import LimitsKind, Mount, RunSpec

LABEL_INSTALL, LABEL_GROUP, LABEL_RUN = "clawd.install", "clawd.group", "clawd.run"
LABEL_ASKED = "clawd.asked"  # a hash of what the config asked for
SHM_BYTES = 64 << 20
STOP_SECONDS = 5

# Python inside: load the filter, then be the script that follows. PR_SET_SECCOMP, SECCOMP_MODE_FILTER: 22, 2.
LOADER = """import base64, ctypes, runpy, sys
code = base64.b64decode(sys.argv[1])
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
if ctypes.CDLL(None).prctl(22, ctypes.c_ulong(2), ctypes.byref(Program(len(code) // 8, code)), 0, 0):
    sys.exit("the system call filter was refused")
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Holds:
    """What the Engine can hold on this machine, from its `info`. `rootless`: its root is this daemon's user."""

    limits: LimitsKind
    swap: bool
    cpus: float  # 0: none can be held
    rootless: bool


def holds(info: Mapping[str, Any]) -> Holds:
    """Raises SandboxUnavailable for an Engine in which no agent may run."""
    options = [str(it) for it in info.get("SecurityOptions") or []]
    filters = [it for it in options if it.startswith("name=seccomp") and "unconfined" not in it]
    if info.get("OSType", "linux") != "linux" or not filters:
        raise SandboxUnavailable(
            "the Docker Engine does not filter system calls", hint="use an Engine on Linux with seccomp"
        )
    cpu = info.get("CpuCfsPeriod") and info.get("CpuCfsQuota")
    return Holds(
        limits="cgroup" if info.get("MemoryLimit") and info.get("PidsLimit") else "rlimit",
        swap=bool(info.get("SwapLimit")),
        cpus=float(info.get("NCPU") or 1) if cpu else 0.0,
        rootless="name=rootless" in options,
    )


def mounts(spec: RunSpec, engine: Path, agent: Path | None = None) -> list[Mount]:
    """What a run's container is shown, each by its real path. `agent` stands in for the image's own runner. Raises
    SandboxUnavailable for a path that cannot be shown, or that would show the Engine's socket; Exchanged."""
    wanted = [(spec.directory / "etc" / name, f"/etc/{name}", False) for name in recipe.etc_files(0, 0)]
    wanted += [
        (spec.view, "/group", False),
        (spec.work, recipe.WORK, True),
        (spec.inbox, "/group/inbox", False),
        (spec.group_skills, "/group/skills", False),
        (spec.skills, "/skills", False),
        (spec.socket_directory, recipe.RUN, False),
    ]
    if agent:
        wanted.append((agent, recipe.AGENT, False))
    found = []
    for path, target, writable in wanted:
        source = path.resolve(strict=True)
        if not path.is_absolute() or not str(source).isprintable():
            raise SandboxUnavailable(f"{str(path)!r} cannot be shown to an agent", hint="give it a plain absolute path")
        if engine.resolve().is_relative_to(source):
            raise SandboxUnavailable(f"{path} holds the Docker Engine's socket", hint="put the home elsewhere")
        status = source.lstat()
        found.append(Mount(source, target, writable, status.st_dev, status.st_ino))
    return [*found, *present(spec)]


def user(spec: RunSpec) -> tuple[int, int]:
    """Who the agent is on this host."""
    return (os.geteuid(), os.getegid()) if spec.uid is None else (spec.uid, spec.uid)


def user_inside(spec: RunSpec, able: Holds) -> str:
    return "0:0" if able.rootless else "{}:{}".format(*user(spec))


def entry(script: tuple[str, ...]) -> list[str]:
    """The command that runs one of the agent's own scripts (`recipe.RUNNER`, `recipe.FORWARDER`) behind our filter."""
    code = base64.b64encode(seccomp.program(platform.machine())).decode()
    return ["python3", *script[:2], "-c", LOADER, code, *script[2:]]


def container(
    spec: RunSpec, install: str, image: str, shown: Iterable[Mount], able: Holds, zone: str
) -> dict[str, Any]:
    """The body of the Engine's `POST /containers/create`. `image` is an id."""
    bounds, who = spec.limits, user_inside(spec, able)
    uid, _, gid = who.partition(":")
    ulimits = {"core": 0, "nofile": limits.OPEN_FILES, "fsize": bounds.file_bytes}
    if able.limits == "rlimit":
        ulimits |= {"nproc": bounds.pids, "data": bounds.memory_bytes}
    tmp = f"rw,nosuid,nodev,size={bounds.tmp_bytes}"
    host: dict[str, Any] = {
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": False,
        "Init": True,
        "IpcMode": "private",
        "ShmSize": SHM_BYTES,
        "Memory": bounds.memory_bytes,
        "PidsLimit": bounds.pids,
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in ulimits.items()],
        "Dns": ["127.0.0.1"],
        "DnsSearch": ["."],
        "Tmpfs": {
            "/tmp": f"{tmp},mode=1777,{'exec' if bounds.tmp_exec else 'noexec'}",
            recipe.HOME: f"{tmp},mode=0700,uid={uid},gid={gid},exec",
        },
        "Mounts": [
            {
                "Type": "bind",
                "Source": str(mount.source),
                "Target": mount.target,
                "ReadOnly": not mount.writable,
                "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
            }
            for mount in shown
        ],
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "5m", "max-file": "2"}},
        "RestartPolicy": {"Name": "no"},
    }
    if able.swap:
        host["MemorySwap"] = bounds.memory_bytes
    if able.cpus:
        host["NanoCpus"] = round(max(0.01, min(bounds.cpus, able.cpus)) * 1e9)
    return {
        "Image": image,
        "Entrypoint": entry(recipe.RUNNER),
        "Cmd": [],
        "User": who,
        "Env": environment(spec, zone),
        "WorkingDir": recipe.WORK,
        "Hostname": "agent",
        "Labels": labels(spec, install),
        "StopTimeout": STOP_SECONDS,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": host,
    }


def labels(spec: RunSpec, install: str) -> dict[str, str]:
    """What a run's container is known by, and what tells that the config asks for another one since."""
    asked = repr((spec.limits, sorted(spec.environment.items()), spec.image, *spec.mounts))
    digest = hashlib.sha256(asked.encode()).hexdigest()[:12]
    return {LABEL_INSTALL: install, LABEL_GROUP: spec.group, LABEL_RUN: spec.run, LABEL_ASKED: digest}


def environment(spec: RunSpec, zone: str, extra: Mapping[str, str] | None = None) -> list[str]:
    """What the runner, or a command beside it, starts with, in the Engine's form."""
    return [f"{name}={value}" for name, value in recipe.environment(spec, zone, extra or {}).items()]


def loose(status: str, uid: int) -> str | None:
    """What is not shut in a process with this /proc/<pid>/status, which must be `uid`'s: a few words."""
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    if 0 in (owners := set(map(int, fields["Uid"].split()))) or owners != {uid}:
        return f"it runs as user {fields['Uid'].split()[0]}, not {uid}"
    if any(int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")):
        return "it has capabilities"
    if fields["NoNewPrivs"] != "1":
        return "it may gain privileges"
    return "no filter of system calls holds it" if fields["Seccomp"] != "2" else None


def within(pid: int, container_id: str) -> bool:
    """Whether a process of this host is in a container: by its cgroup, which it cannot leave."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
    return pid > 0 and any(container_id in line.rpartition(":")[2] for line in text.splitlines())
