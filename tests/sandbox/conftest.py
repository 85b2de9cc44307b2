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

from clawd.sandbox.bubblewrap import Bubblewrap
from clawd.sandbox.protocol import Exit, RunSpec, Sandbox, SandboxLimits
from clawd.sandbox.running import BubblewrapSandbox

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
    backend: Bubblewrap
    agents: Path
    started: list[BubblewrapSandbox] = field(default_factory=list)

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
        )

    async def start(self, script: str, spec: RunSpec | None = None) -> BubblewrapSandbox:
        spec = spec or self.spec()
        self.backend._agent = self.agents / spec.run
        self.backend._agent.mkdir(exist_ok=True)
        (self.backend._agent / "forwarder.py").write_text(FORWARDER)
        (self.backend._agent / "runner.py").write_text(textwrap.dedent(script))
        sandbox = await self.backend.start(spec)
        assert isinstance(sandbox, BubblewrapSandbox)
        self.started.append(sandbox)
        return sandbox

    async def run(self, script: str, spec: RunSpec | None = None) -> tuple[Exit, str]:
        """Run an agent to its end; gives how it ended and what it printed."""
        sandbox = await self.start(script, spec)
        with anyio.fail_after(60):
            return await sandbox.wait(), sandbox.log.text()


@pytest.fixture
async def ground(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Ground]:
    agents = tmp_path / "agents"
    agents.mkdir()
    made = Ground(tmp_path, Bubblewrap(f"test{os.getpid()}", agents), agents)
    yield made
    for sandbox in made.started:
        with contextlib.suppress(Exception):
            await sandbox.kill()
