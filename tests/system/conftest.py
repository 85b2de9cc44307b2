"""The product from outside: a home in a short temporary directory, the real daemon in a process of its own, real
sandboxes, real sockets. Whatever a test starts is ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from clawd.commands import looking, writing
from clawd.config.home import Home as Layout
from clawd.control import wire
from clawd.control.client import ControlClient
from clawd.files import write_atomic
from clawd.model import Block
from clawd.sandbox.choose import install_id
from clawd.sessions import reading
from tests.dockerd import client
from tests.engine import Engine
from tests.system.clone import Clone
from tests.system.watched import BLOCKED

ROOT = Path(__file__).parents[2]
GUARD = os.environ.get("CLAWD_GUARD", "50")  # milliseconds that the daemon's event loop may be blocked
NO_DOCKER = 'backend = "bubblewrap"'
DEADLINE = 60.0  # seconds for anything that no person waits for by the clock

T = TypeVar("T")


def until(what: Callable[[], T], seconds: float = DEADLINE, *, pause: float = 0.02) -> T:
    """Ask until the answer is true, every `pause` seconds; gives the answer. An OSError (nobody there yet) is a no."""
    deadline = time.monotonic() + seconds
    while True:
        answer: Any = None
        with contextlib.suppress(OSError):
            answer = what()
        if answer:
            return answer  # type: ignore[no-any-return]
        assert time.monotonic() < deadline, f"not in {seconds:g} s: {answer!r}"
        time.sleep(pause)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A step of a script that calls one tool."""
    return {"text": f"calling {name}", "tool_calls": [{"name": name, "arguments": arguments}]}


def _where(rows: list[dict[str, Any]], where: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


class Home:
    """A home, its daemon, and its commands. Everything is asked of the program itself. With an `engine` its sandboxes
    are containers there; without one they are bubblewrap's, and there is no Engine. `program` is the module that the
    daemon is in; `may_block` is for a test that blocks its event loop on purpose."""

    def __init__(self, root: Path, engine: Engine | None = None) -> None:
        self.root, self.engine = root / "h", engine
        self.backend = "docker" if engine else "bubblewrap"
        self.layout = Layout(self.root)
        self.runtime = root / "r"
        self.program = "tests.system.watched"
        self.may_block = False
        self.runtime.mkdir(mode=0o700)
        self.started: list[subprocess.Popen[str]] = []
        self.daemon: subprocess.Popen[str] | None = None
        self.layout.create()
        self.configure()

    # ── files ──

    def configure(self, engine: str = "offline", *, sandbox: str = "", more: str = "") -> None:
        """Write config.toml; `sandbox` and `more` are TOML lines."""
        text = f'schema = 1\n[claw]\nname = "clawd"\n[model]\nengine = "{engine}"\nscript = "script.json"\n'
        file = self.layout.config_file
        # what is stopped leaves nothing: that containers are kept has tests of its own
        docker = f'backend = "docker"\nimage = "{self.engine.image}"\nkeep = false' if self.engine else ""
        new, owner = file.with_name("config.new"), self.root.stat()  # a daemon may read it just now
        new.write_text(f"{text}[sandbox]\n{docker or NO_DOCKER}\n{sandbox}\n{more}\n")
        new.chmod(0o600)
        os.chown(new, owner.st_uid, owner.st_gid)
        new.replace(file)

    def script(self, *steps: dict[str, Any], sandbox: str = "", more: str = "") -> None:
        """Use the engine `scripted` with these steps."""
        self.configure("scripted", sandbox=sandbox, more=more)
        script = json.dumps({"steps": steps}).encode()
        write_atomic(self.root / "script.json", script, 0o644)  # a turn may read it just now

    def blocks(self, group: str = "main", session: str | None = None) -> list[Block]:
        """The session file, which must be without a fault."""
        read = reading.load(looking.session_file(self.layout, session or f"terminal:{group}"))
        assert not read.errors
        return read.blocks

    def said(self, group: str = "main", session: str | None = None) -> list[tuple[str, str]]:
        """(role, content) of each block of a session file."""
        return [(block.role, block.content) for block in self.blocks(group, session)]

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.layout.log_file.read_text().splitlines()]

    # ── commands ──

    def environment(self, **more: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLAWD_", "DOCKER_"))}
        host = self.engine.host if self.engine else f"unix://{self.runtime}/no-engine"
        own = {"PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(self.runtime), "DOCKER_HOST": host}
        return kept | own | {"CLAWD_GUARD": GUARD} | more

    def command(self, *words: str, module: str = "clawd") -> list[str]:
        return [sys.executable, "-m", module, "--home", str(self.root), *words]

    def cli(
        self, *words: str, text: str = "", timeout: float = DEADLINE, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        command, environment = self.command(*words), self.environment(**env)
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=timeout, env=environment
        )

    def json(self, *words: str, **env: str) -> Any:
        """What a command that must succeed prints with --json."""
        done = self.cli(*words, "--json", **env)
        assert done.returncode == 0, f"{words}: {done.returncode} {done.stdout} {done.stderr}"
        return json.loads(done.stdout)

    def spawn(self, *words: str, module: str = "clawd", **env: str) -> subprocess.Popen[str]:
        """Start a command and go on; it is killed with the test."""
        process = subprocess.Popen(
            self.command(*words, module=module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**env),
        )
        self.started.append(process)
        return process

    def chat(self, *words: str, **env: str) -> subprocess.Popen[str]:
        """`clawd chat` in the background."""
        return self.spawn("chat", *words, **env)

    def say(self, text: str, group: str = "main", *, key: str | None = None, **opening: Any) -> dict[str, Any]:
        """Send a message and go away without waiting for its reply; gives the receipt."""

        async def send() -> dict[str, Any]:
            async with asyncio.timeout(DEADLINE), ControlClient(self.layout.state) as client:
                await client.call("chat.open", group=group, **opening)
                return dict(await client.call("chat.send", text=text, platform_id=key or uuid.uuid4().hex))

        return asyncio.run(send())

    # What the commands show, by the functions behind them: asked often, a process for each answer would cost too much.

    def ask(self, operation: str, **params: Any) -> Any:
        """An operation of the running daemon."""
        return writing.ask(self.layout, operation, **params)

    def messages(self, **where: Any) -> list[dict[str, Any]]:
        """`messages list`, those of which every named field has the given value."""
        return _where(looking.messages(self.layout, None, None, 1000), where)

    def deliveries(self, **where: Any) -> list[dict[str, Any]]:
        """`deliveries list`, in the same way."""
        return _where(looking.deliveries(self.layout), where)

    # ── the daemon ──

    def start(self, fault: str | None = None, *, module: str | None = None, **env: str) -> subprocess.Popen[str]:
        """Start the daemon and wait until it answers; `module` is in the place of `program`."""
        self.daemon = self.spawn(
            "run", module=module or self.program, **({"CLAWD_FAULT": fault} if fault else {}), **env
        )
        daemon = self.daemon

        def answers() -> bool:
            wire.connect(self.layout.state).close()
            return True

        def ready() -> bool:
            if daemon.poll() is not None:
                raise AssertionError(f"the daemon ended with {daemon.returncode}: {daemon.communicate()}")
            return answers()

        until(ready)
        return daemon

    def wait(self, seconds: float = DEADLINE) -> int:
        """Wait for the daemon's end; gives its exit code."""
        assert self.daemon is not None
        return self.daemon.wait(seconds)

    def kill(self) -> None:
        """SIGKILL to the daemon."""
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait(DEADLINE)

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        assert self.daemon is not None
        self.daemon.terminate()
        return self.wait(100)

    def settled(self, count: int, *, states: tuple[str, ...] = ("recorded",), seconds: float = DEADLINE) -> list[Any]:
        """Wait until there are `count` messages and each is in one of `states`; gives them."""

        def done() -> list[Any]:
            rows = self.messages()
            return rows if len(rows) == count and all(row["state"] in states for row in rows) else []

        return until(done, seconds)

    # ── what runs and what is left ──

    def sandboxed(self) -> list[int]:
        """Every living process of a sandbox of this home: in a mount namespace of its own it sees the group's work,
        or it is the bwrap around one. What shares our own namespace is no sandbox, whatever is mounted there."""
        tree, ours = f"{self.root}/".encode(), Path("/proc/self/ns/mnt").readlink()
        found, parents, bwraps = set(), {}, set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
                parents[int(entry.name)] = int(parent)
                elsewhere = (entry / "ns" / "mnt").readlink() != ours
                mounts = (entry / "mountinfo").read_bytes() if state not in "ZX" and elsewhere else b""
                if tree in mounts and b"/group/work " in mounts:
                    found.add(int(entry.name))
                if state not in "ZX" and b"bwrap" in (entry / "cmdline").read_bytes().partition(b"\0")[0]:
                    bwraps.add(int(entry.name))
        around = {parents[pid] for pid in found} & bwraps
        begun = {pid for pid in bwraps if self.daemon is not None and parents[pid] == self.daemon.pid}
        return sorted(found | around | begun)

    def containers(self) -> list[Any]:
        """Every container of this home, living or not."""
        if self.engine is None:
            return []
        label = f"clawd.install={install_id(self.root)}"
        with contextlib.closing(client(self.engine.host)) as docker:
            return list(docker.containers.list(all=True, filters={"label": label}, ignore_removed=True))

    def runner(self, group: str = "main") -> int:
        """The pid of the group's runner."""
        return self._inside(group, rb"runner\.py")

    def sandbox_processes(self, group: str = "main") -> tuple[int, int]:
        """The process whose end is the sandbox's, seen from outside, and the first one that it started: bwrap and the
        first process inside, or a container's first process and the one that it waits for."""
        id = self._sandbox(group)["id"]
        if self.engine is None:
            _, _, outer, _, first, _ = id.split(":")
            return int(outer), int(first)
        firsts = [each.attrs["State"]["Pid"] for each in self.containers() if each.id.startswith(id[:12])]
        first = firsts[0] if firsts else 0
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split() if first else []
        if not children:
            raise ProcessLookupError(f"the sandbox of {group} ended")
        return int(first), int(children[0])

    def named(self, command: str) -> list[int]:
        """The pids of the processes in sandboxes of this home whose command line is `command`."""
        wanted, found = command.encode(), []
        for pid in self.sandboxed():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip() == wanted:
                    found.append(pid)
        return found

    def _sandbox(self, group: str) -> dict[str, Any]:
        for row in self.ask("sandbox.list"):
            if row["group"] == group and row["id"]:
                return dict(row)
        raise ProcessLookupError(f"group {group} has no sandbox")

    def _inside(self, group: str, pattern: bytes) -> int:
        """The process whose command line has `pattern`: of several the one that forked the others."""
        work, found = str(self.layout.group(group).work).encode(), dict[int, int]()
        for pid in self.sandboxed():
            with contextlib.suppress(OSError):
                line, mounts, status = (
                    Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "mountinfo", "stat")
                )
                around = line.partition(b"\0")[0].rpartition(b"/")[2] in (b"bwrap", b"docker-init")
                if not around and re.search(pattern, line) and work in mounts:
                    found[pid] = int(status.rpartition(b") ")[2].split()[1])
        if first := [pid for pid, parent in found.items() if parent not in found]:
            return first[0]
        raise ProcessLookupError(f"no {pattern!r} in a sandbox of {group}")

    def left_over(self) -> list[str]:
        """What a home without a daemon must not have: processes, containers, run directories, cgroups."""
        runs = self.runtime / "clawd"
        directories = [str(path) for path in runs.iterdir()] if runs.is_dir() else []
        name = f"clawd-{install_id(self.root)}-"
        cgroups = [at for at, _, _ in os.walk("/sys/fs/cgroup") if Path(at).name.startswith(name)]
        containers = [each.name for each in self.containers()]
        return [*map(str, self.sandboxed()), *containers, *directories, *cgroups]

    def end(self) -> None:
        """End whatever was started here."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for container in self.containers():
            with contextlib.suppress(Exception):  # somebody else's removal of it is as good
                container.remove(force=True, v=True)
        until(lambda: not self._kill_sandboxed(), 20)

    def blocked(self) -> list[str]:
        """What the log says about a blocked event loop, where no test does it on purpose."""
        files = self.layout.log_file.parent.glob(f"{self.layout.log_file.name}*")
        lines = (line for file in files for line in file.read_text("utf-8", "replace").splitlines())
        return [line for line in lines if BLOCKED in line and not self.may_block]

    def _kill_sandboxed(self) -> list[int]:
        left = self.sandboxed()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left


Make = Callable[..., Home]


@contextlib.contextmanager
def homes(engine: Engine | None = None) -> Iterator[Make]:
    """Makes homes that are ended and removed with the block."""
    made: list[Home] = []
    roots: list[Path] = []

    def make() -> Home:
        roots.append(Path(tempfile.mkdtemp(prefix="cl")))
        made.append(Home(roots[-1], engine))
        return made[-1]

    try:
        yield make
    finally:
        for home in made:
            home.end()
        blocked = [line for home in made for line in home.blocked()]
        for root in roots:
            shutil.rmtree(root, ignore_errors=True)
        assert not blocked, "\n".join(blocked)


EACH = ("bubblewrap", pytest.param("docker", marks=pytest.mark.engine))
BOTH = pytest.mark.parametrize("backend", EACH, indirect=True)
"""Marks tests whose `home` is tried with each backend; without it, bubblewrap makes the sandboxes."""


def chosen(request: pytest.FixtureRequest) -> Engine | None:
    """The Engine where `request.param` is docker, else None."""
    if getattr(request, "param", "bubblewrap") == "bubblewrap":
        return None
    engine = request.getfixturevalue("engine")
    assert isinstance(engine, Engine)
    return engine


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Engine | None:
    """What makes the sandboxes of `home`: this Engine, or bubblewrap."""
    return chosen(request)


@pytest.fixture
def make_home(backend: Engine | None) -> Iterator[Make]:
    """Makes homes that are ended and removed with the test."""
    with homes(backend) as make:
        yield make


@pytest.fixture
def home(make_home: Make) -> Home:
    """One home, with the offline engine and no daemon yet."""
    return make_home()


@pytest.fixture(scope="session")
def clone() -> Iterator[Clone]:
    """One clone for all tests: setting it up asks a package registry."""
    beside = Path(tempfile.mkdtemp(prefix="cl"))
    try:
        yield Clone(beside)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
