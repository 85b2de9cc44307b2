"""A run without its sandbox: the real server on a real socket, the real runner as a process of the
machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web

from clawd.clock import SystemClock
from clawd.files import Blobs
from clawd.host.server import HostServer
from clawd.host.tools import ToolContext, built_in
from clawd.resources import shipped
from clawd.turns.desk import Lease

from .memory_desk import TOKEN, MemoryDesk


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class StandInGateway:
    """Refuses each request with its own first line. `/svc/wait` waits, for ever; a tunnel opens without TLS."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.callers: list[Any] = []
        self.waiting = 0
        self.ended = 0
        self.error: Exception | None = None
        self.noted: list[tuple[int, str]] = []

    def unread(self, caller: Any, status: int, rule: str) -> None:
        self.noted.append((status, rule))

    async def serve(self, request: web.BaseRequest, caller: Any, inner: Any, own: bool = False) -> web.StreamResponse:
        self.callers.append(caller)
        if request.method == "CONNECT":
            return await self._tunnel(request, inner)
        return await self._answer(request)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.served.append(f"{request.method} {request.raw_path}")
        if self.error is not None:
            raise self.error
        if request.raw_path.endswith("/wait"):
            self.waiting += 1
            try:
                await anyio.sleep_forever()
            finally:
                self.ended += 1
        return web.json_response({"schema": 1, "error": "served", "message": self.served[-1]}, status=403)

    async def _tunnel(self, request: web.BaseRequest, inner: Any) -> web.StreamResponse:
        transport, protocol = request.transport, inner(self._answer)
        assert transport is not None
        transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        try:
            await anyio.sleep_forever()
        finally:
            self.ended += 1
            transport.close()
        raise AssertionError


@dataclass
class Stage:
    """A run's directory and desk; makes servers for it, and runners that speak to them."""

    root: Path
    desk: MemoryDesk = field(default_factory=MemoryDesk)
    port: int = field(default_factory=free_port)
    runners: list[subprocess.Popen[bytes]] = field(default_factory=list)
    sent: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    second_hellos: int = 0
    caller: Any = field(default_factory=object)
    gateway: StandInGateway = field(default_factory=StandInGateway)
    openings: int = 0  # of the gateway

    async def opened(self) -> StandInGateway:
        self.openings += 1
        return self.gateway

    @property
    def socket(self) -> Path:
        return self.root / "socket" / "s"

    @property
    def work(self) -> Path:
        return self.root / "group" / "work"

    def server(self, run: str = "r1", **changes: Any) -> HostServer:
        def enqueue(
            tx: object,
            effect: int,
            /,
            *,
            kind: str,
            text: str,
            blob: str | None = None,
            name: str | None = None,
            **more: object,
        ) -> None:
            self.sent.append((kind, text, blob, name))

        def context(lease: Lease) -> ToolContext:
            blobs = Blobs(self.root / "blobs")
            return ToolContext(lease, self.work, blobs, enqueue, None, "main", SystemClock(), lambda: None, 1 << 20)

        def second_hello() -> None:
            self.second_hellos += 1

        options: dict[str, Any] = {
            "owns": lambda pid: True,
            "uid": None,
            "desk": self.desk,
            "tools": built_in(),
            "context": context,
            "token_ok": lambda run, token: token == TOKEN,
            "on_second_hello": second_hello,
            "caller": self.caller,
            "gateway": self.opened,
        }
        return HostServer(run, self.socket, **{**options, **changes})

    def runner(self, python: str = sys.executable) -> subprocess.Popen[bytes]:
        entry = shipped("containers") / "agent" / "runner.py"
        command = [python, "-I", "-B", str(entry), "--socket", str(self.socket)]
        command += ["--group", str(self.root / "group"), "--port", str(self.port)]
        process = subprocess.Popen(command, env={**os.environ, "CLAWD_STAGE": str(self.root)})
        self.runners.append(process)
        return process

    def processes(self) -> list[int]:
        """What a runner of this stage started and is still there, by the mark in its environment; not runner
        or forwarder, which hide theirs."""
        mark, found = f"CLAWD_STAGE={self.root}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if (
                        mark in (entry / "environ").read_bytes().split(b"\0")
                        and b"runner.py" not in (entry / "cmdline").read_bytes()
                    ):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def kill(self, runner: subprocess.Popen[bytes]) -> None:
        """The sandbox dies: the runner and everything that it started."""
        runner.kill()
        runner.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def stage() -> Iterator[Stage]:
    # A short path: the name of a Unix socket holds 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="clawd-"))
    made = Stage(root)
    made.work.mkdir(parents=True)
    yield made
    for runner in made.runners:
        made.kill(runner)
    shutil.rmtree(root)


async def eventually(condition: Callable[[], Any], seconds: float = 20) -> None:
    """Wait for something outside this process to become true; a test fails when it does not."""
    with anyio.fail_after(seconds):
        while True:
            if condition():
                return
            await anyio.sleep(0.005)
