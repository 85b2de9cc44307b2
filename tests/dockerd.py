"""A `dockerd` of the tests' own: its socket, state, images and log in `.cache/engine/` of the repository.

It lives in a mount namespace of its own and under a cgroup of its own, and ends with the tests: nothing is left of it
but its images, which the next run finds. One that a killed run left behind is used again, or ended: by its pid, its
start time and its own socket in its command line, never by a name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "engine"
NAME = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
Say = Callable[[str], None]
SOCKET_LIMIT = 107  # bytes of a Unix socket's path
LONGEST = "exec/containerd/containerd-debug.sock"  # the longest of dockerd's own


class Unavailable(Exception):
    """There is no Engine here, and why."""


def client(host: str) -> Any:
    """A docker.DockerClient. Close it."""
    import docker

    return docker.DockerClient(base_url=host, version="auto", timeout=120)


def answers(host: str) -> bool:
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        with contextlib.closing(client(host)) as engine:
            return bool(engine.ping())
    except (DockerException, RequestException, OSError):
        return False


# Run in a mount namespace of its own: what dockerd mounts, and what is missing for it, nobody else sees. On a machine
# without an init nobody has mounted the cgroups; where all processes of a container are in its root cgroup (version 2),
# they must leave it before it can have children with limits.
START = r"""
set -eu
groups=/sys/fs/cgroup
if ! grep -q " $groups" /proc/self/mountinfo; then
    if grep -q "^memory.[1-9]" /proc/cgroups || ! mount -t cgroup2 none $groups; then
        mount -t tmpfs -o mode=755 none $groups
        for name in $(awk '!/^#/ && $4 == 1 { print $1 }' /proc/cgroups); do
            mkdir -p $groups/$name
            mount -t cgroup -o $name none $groups/$name || rmdir $groups/$name
        done
    fi
fi
if [ -e $groups/cgroup.type ] && ! grep -q memory $groups/cgroup.subtree_control; then
    mkdir -p $groups/init
    while read -r pid; do echo "$pid" > $groups/init/cgroup.procs || true; done < $groups/cgroup.procs
    sed 's/ / +/g; s/^/+/' $groups/cgroup.controllers > $groups/cgroup.subtree_control
fi
exec dockerd "$@"
"""


def directory(cache: Path, name: str) -> Path:
    """Where its socket is: in the cache, unless the path would be too long for a socket."""
    if len(os.fsencode(cache / LONGEST)) <= SOCKET_LIMIT:
        return cache
    return Path(tempfile.gettempdir()) / f"clawd-engine-{name}"


class Dockerd:
    """The `dockerd` of this repository. `used` is held by every test run that uses it; the last one ends it."""

    def __init__(self, cache: Path = CACHE) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self.cache, name = cache, hashlib.sha256(str(cache).encode()).hexdigest()[:12]
        self.at = directory(cache, name)
        self.at.mkdir(mode=0o700, exist_ok=True)
        if self.at.stat().st_uid != os.geteuid():
            raise Unavailable(f"{self.at} belongs to somebody else")
        self.host = f"unix://{self.at}/docker.sock"
        self.parent = f"clawd-engine-{name}"  # the cgroup above its containers
        self.process: subprocess.Popen[bytes] | None = None
        self.pid_file = self.at / "pid"
        self.known = self.at / "known"  # pid and start time of the one that was started
        self.used = (self.at / "used").open("w")

    def start(self, say: Say) -> None:
        """Start it, or go on with the one that runs. Raises Unavailable."""
        with (self.at / "starting").open("w") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            fcntl.flock(self.used, fcntl.LOCK_SH)
            if self.running():
                if self._wait(30):
                    return
                self._end()
            self._start()
            if not self._wait(120):
                self._end()
                raise Unavailable(f"dockerd did not start: {self._why()}")
            if self.at != self.cache:
                say(f"its sockets are in {self.at}: a path in {self.cache} would be too long for them")

    def _start(self) -> None:
        for stale in (self.pid_file, self.known):
            stale.unlink(missing_ok=True)
        options = [
            *("-H", self.host, "--data-root", self.cache / "data", "--exec-root", self.at / "exec"),
            *("--pidfile", self.pid_file, "--config-file", self.at / "none.json"),
            *("--bridge", "none", "--iptables=false", "--ip6tables=false"),
            *("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{self.parent}"),
        ]
        (self.at / "none.json").write_text("{}")
        with (self.cache / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "slave", "sh", "-c", START, "sh", *map(str, options)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.known.write_text(f"{self.process.pid} {_started(self.process.pid)}")

    def running(self) -> int:
        """Its pid, 0 when it is not there. One that an earlier run started is known by its start time and its own
        socket in its command line."""
        if self.process is not None:
            return self.process.pid if self.process.poll() is None else 0
        with contextlib.suppress(OSError, ValueError):
            pid, started = self.known.read_text().split()
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if _started(int(pid)) == started and self.host.encode() in line:
                return int(pid)
        return 0

    def _wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.running():
            if answers(self.host):
                return True
            time.sleep(0.05)
        return False

    def _why(self) -> str:
        lines = (self.cache / "log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def kill(self, sign: int = signal.SIGKILL) -> None:
        """Send it a signal and wait until it is gone; its containers may live on."""
        if pid := self.running():
            os.kill(pid, sign)
            _until(lambda: not self.running(), 60)
        if self.process is not None:
            self.process.wait(10)
        # The next one would wait 15 s for a containerd that is not its own child.
        for pid in self._strays("containerd"):
            os.kill(pid, signal.SIGKILL)
        (self.at / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def freeze(self, frozen: bool = True) -> None:
        """Have it hang, or go on."""
        if pid := self.running():
            os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def again(self) -> None:
        """Start it, if it is not there. Raises Unavailable."""
        for _ in range(3):  # it gives its containerd 15 s to come up, which on a busy machine may be too little
            if not self.running():
                self._start()
            if self._wait(120):
                return
        raise Unavailable(f"dockerd did not start: {self._why()}")

    def restart(self) -> None:
        """End it in order, with its containers, and start it."""
        self.kill(signal.SIGTERM)
        self.again()

    def stop(self) -> None:
        """End it, unless another test run uses it."""
        with (self.at / "starting").open("w") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self.used, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._strays() and not self.running():  # only another dockerd can end the containers of a dead one
                    self._start()
                    self._wait(60)
                self._end()
        self.used.close()

    def _end(self) -> None:
        if answers(self.host):
            with contextlib.closing(client(self.host)) as engine:
                for container in engine.containers.list(all=True, ignore_removed=True):
                    with contextlib.suppress(Exception):  # one that somebody else removes just now
                        container.remove(force=True, v=True)
        if pid := self.running():
            self._remove_cgroups(Path(f"/proc/{pid}/root"))  # as it sees them: they may be mounted there alone
        for sign, seconds in ((signal.SIGTERM, 60), (signal.SIGKILL, 10)):
            if not (pid := self.running()):
                break
            os.kill(pid, sign)
            _until(lambda: not self.running(), seconds)
        for pid in self._strays():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _until(lambda: not self._strays(), 10)
        self._remove_cgroups(Path("/"))
        shutil.rmtree(self.at / "exec", ignore_errors=True)
        for file in (self.pid_file, self.known, self.at / "docker.sock", self.at / "none.json"):
            file.unlink(missing_ok=True)
        if self.at != self.cache:
            shutil.rmtree(self.at, ignore_errors=True)

    def _remove_cgroups(self, root: Path) -> None:
        groups = root / "sys" / "fs" / "cgroup"
        for base in (groups, *groups.glob("*")):
            for at, _, _ in os.walk(base / self.parent, topdown=False):
                _until(partial(_gone, Path(at)), 5)

    def _strays(self, program: str = "") -> list[int]:
        """What a dockerd that was killed left: its containerd and the shims, by our own directory in their lines; or
        those of one program alone."""
        own, found = str(self.at / "exec" / "containerd").encode() + b"/", []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                name = line.partition(b"\0")[0].rpartition(b"/")[2].decode()
                if name.startswith("containerd") and own in line and program in ("", name):
                    found.append(int(entry.name))
        return found


def _started(pid: int) -> str:
    """The start time of a process, which no later one of the same number has."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def _until(true: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)


def _gone(cgroup: Path) -> bool:
    with contextlib.suppress(OSError):
        cgroup.rmdir()
    return not cgroup.exists()
