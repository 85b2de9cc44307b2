"""Real sandboxes for the tests: each agent is a script of the test's own, run by the whole recipe."""

from __future__ import annotations

import contextlib
import os
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from clawd.sandbox import recipe
from clawd.sandbox.bubblewrap import Bubblewrap
from clawd.sandbox.container import DockerSandbox
from clawd.sandbox.docker import Docker
from clawd.sandbox.engine import find_engine
from clawd.sandbox.processes import seeing
from clawd.sandbox.protocol import Exit, RunSpec, Sandbox, SandboxLimits
from clawd.sandbox.running import BubblewrapSandbox
from tests.engine import Engine

GATE = "import os, time\nwhile not os.path.exists('/run/clawd/go'): time.sleep(0.01)\n"
FORWARDER = "import os, sys\ncommand = sys.argv[sys.argv.index('--') + 1 :]\nos.execvp(command[0], command)\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a condition; fail when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        await anyio.sleep(0.01)


@dataclass
class Done:
    """What a command beside a runner gave."""

    code: int
    stdout: bytes
    stderr: bytes


async def beside(sandbox: Sandbox, argv: list[str], given: bytes = b"", **environment: str) -> Done:
    """Run a command in a sandbox, with `given` as its input."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        with anyio.fail_after(60):
            code = await sandbox.execute(argv, environment, [it.fileno() for it in (stdin, stdout, stderr)])
        for file in (stdout, stderr):
            file.seek(0)
        return Done(code, stdout.read(), stderr.read())


@dataclass
class Ground:
    """A home with groups in a temporary directory, and the sandboxes that a test started in it."""

    root: Path
    backend: Bubblewrap | Docker
    agents: Path
    image: str = ""
    started: list[Sandbox] = field(default_factory=list)

    @property
    def uid(self) -> int | None:
        return 64_001 if os.geteuid() == 0 else None

    def spec(self, run: str = "run-1", group: str = "main", **limits: float) -> RunSpec:
        home = self.root / "home" / "groups" / group
        return RunSpec(
            run=run,
            group=group,
            uid=self.uid,
            directory=self.root / "runtime" / run,
            work=home / "work",
            inbox=home / "inbox",
            group_skills=home / "skills",
            skills=self.root / "home" / "skills",
            limits=SandboxLimits(**{"memory_bytes": 256 << 20, "pids": 64, "tmp_bytes": 4 << 20} | limits),
            image=self.image,
        )

    def agent(self, script: str, run: str) -> Path:
        """A runner of the test's own. It begins when its sandbox was started: a container does not wait for that."""
        directory = self.agents / run
        directory.mkdir(exist_ok=True)
        (directory / "forwarder.py").write_text(FORWARDER)
        (directory / "runner.py").write_text(GATE + textwrap.dedent(script))
        return directory

    async def start(self, script: str, spec: RunSpec | None = None) -> Sandbox:
        spec = spec or self.spec()
        self.backend._agent = self.agent(script, spec.run)
        sandbox = await self.backend.start(spec)
        self.started.append(sandbox)
        (spec.socket_directory / "go").touch()
        return sandbox

    async def run(self, script: str, spec: RunSpec | None = None) -> tuple[Exit, str]:
        """Run an agent to its end; gives how it ended and what it printed."""
        sandbox = await self.start(script, spec)
        with anyio.fail_after(60):
            return await sandbox.wait(), said(sandbox)

    def another(self) -> Bubblewrap | Docker:
        """The backend as the next daemon has it."""
        if isinstance(self.backend, Docker):
            return Docker(self.backend._install, self.backend._find, self.backend._agent)
        return Bubblewrap(self.backend._install, self.backend._agent)

    async def end(self) -> None:
        for sandbox in self.started:
            with contextlib.suppress(Exception):
                await sandbox.kill()
        if isinstance(self.backend, Docker):
            await self.another().sweep([])


def said(sandbox: Sandbox) -> str:
    """What an agent printed, when it has ended."""
    assert isinstance(sandbox, BubblewrapSandbox | DockerSandbox)
    return sandbox.log if isinstance(sandbox, DockerSandbox) else sandbox.log.text()


def inside(sandbox: Sandbox) -> set[int]:
    """The processes of a living sandbox, as this host sees them."""
    assert isinstance(sandbox, BubblewrapSandbox | DockerSandbox)
    return {one.pid for one in seeing(sandbox._spec.socket_directory, recipe.RUN)}


def install() -> str:
    return f"test{os.getpid()}"


@pytest.fixture
async def bubblewrap(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Ground]:
    agents = tmp_path / "agents"
    agents.mkdir(exist_ok=True)
    made = Ground(tmp_path, Bubblewrap(install(), agents), agents)
    yield made
    await made.end()


@pytest.fixture
async def docker(tmp_path: Path, anyio_backend: str, engine: Engine) -> AsyncIterator[Ground]:
    agents = tmp_path / "agents"
    agents.mkdir(exist_ok=True)
    made = Ground(tmp_path, Docker(install(), lambda: find_engine(engine.host, {})), agents, engine.image)
    yield made
    await made.end()


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=pytest.mark.engine)])
def ground(request: pytest.FixtureRequest) -> Ground:
    """Either backend."""
    made: Ground = request.getfixturevalue(request.param)
    return made
