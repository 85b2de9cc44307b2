"""What the gateway costs: a client on the run's socket, the gateway and an upstream, each a process, against the same
client that asks the upstream itself. The services have a credential, so that answers are searched for it.

Requests a second and the time that is added to one, by a route to http and to https and through a tunnel; the memory
that a stream of 100 MB takes; how late an event of a stream arrives. Connections that ask as fast as they can measure
how much a gateway can do, and then wait for each other; what is added to a request is seen where there is room.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

from benchmarks.figures import Figure, figure

REQUESTS, WARM_UP, SIZE, EVENTS, PAUSE = 3000, 300, 100 << 20, 200, 0.05
CALL = json.dumps({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x" * 2000}]}).encode()
TOKEN = "claw-" + secrets.token_urlsafe(32)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Opener = Callable[[], Awaitable[Streams]]


def gateway() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as root, _process("upstream", root) as upstream:
        ports = json.loads(cast(Any, upstream.stdout).readline())
        with _process("gateway", root, json.dumps(ports), TOKEN) as process:
            cast(Any, process.stdout).readline()
            yield from asyncio.run(_Bench(Path(root), ports, process.pid).figures())


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.gateway", *arguments], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class _Bench:
    def __init__(self, root: Path, ports: dict[str, int], pid: int) -> None:
        self._root, self._ports, self._pid = root, ports, pid
        self._upstreams = ssl.create_default_context(cafile=str(root / "ca.pem"))
        self._ours = ssl.create_default_context(cafile=str(root / "bundle.pem"))

    async def figures(self) -> list[Figure]:
        made: list[Figure] = []
        roads: list[tuple[str, Opener, Opener, str]] = [
            ("http route", self._plain, self._socket, "/svc/plain"),
            ("https route", self._secure, self._socket, "/svc/secure"),
            ("CONNECT", self._secure, self._tunnel, ""),
        ]
        for connections, pause in ((1, 0.0), (16, 0.0), (16, PAUSE)):
            for what, direct, through, prefix in roads:
                base, alone = await self._ask(direct, "", connections, pause)
                taken, rate = await self._ask(through, prefix, connections, pause)
                where = f"{what}, {connections} connection{'s' * (connections > 1)}"
                where += f", {rate:.0f} requests/s" if pause else ", flat out" * (connections > 1)
                added = [each - statistics.median(base) for each in taken]
                made.append(figure(f"added by the gateway, {where}", added, "ms", goal=0.5))
                if not pause:
                    made.append(figure(f"through the gateway, {where}", [rate], "requests/s"))
                    made.append(figure(f"without it, {where}", [alone], "requests/s"))
        base, _ = await self._ask(self._plain, "", 1, 0.0, CALL)
        taken, _ = await self._ask(self._socket, "/svc/plain", 1, 0.0, CALL)
        added = [each - statistics.median(base) for each in taken]
        made.append(figure("added to a model call, which is reserved and settled", added, "ms"))
        for what, through, prefix in (
            ("down, http route", self._socket, "/svc/plain"),
            ("down, CONNECT", self._tunnel, ""),
        ):
            made.append(await self._memory(what, self._download(through, prefix)))
        made.append(await self._memory("up, http route", self._upload(self._socket, "/svc/plain")))
        for what, opener, prefix in (
            ("without the gateway", self._plain, ""),
            ("http route", self._socket, "/svc/plain"),
            ("CONNECT", self._tunnel, ""),
        ):
            made.append(figure(f"lag of an event, {what}", await self._lag(opener, prefix), "ms"))
        return made

    # ---- connections

    async def _plain(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self._ports["plain"])

    async def _secure(self) -> Streams:
        return await asyncio.open_connection("localhost", self._ports["secure"], ssl=self._upstreams)

    async def _socket(self) -> Streams:
        return await asyncio.open_unix_connection(str(self._root / "s"))

    async def _tunnel(self) -> Streams:
        reader, writer = await self._socket()
        target = f"localhost:{self._ports['secure']}"
        writer.write(
            f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head, head
        await writer.start_tls(self._ours, server_hostname="localhost")
        return reader, writer

    def _head(self, method: str, path: str, prefix: str, length: int = 0) -> bytes:
        lines = [f"{method} {prefix}{path} HTTP/1.1", f"Host: localhost:{self._ports['secure']}"]
        lines += [f"Authorization: Bearer {TOKEN}"] * bool(prefix) + [f"Content-Length: {length}"] * bool(length)
        return "\r\n".join((*lines, "", "")).encode()

    @asynccontextmanager
    async def _open(self, opener: Opener) -> AsyncIterator[Streams]:
        reader, writer = await opener()
        try:
            yield reader, writer
        finally:
            cast(asyncio.Transport, writer.transport).abort()

    # ---- measures

    async def _ask(
        self, opener: Opener, prefix: str, connections: int, pause: float, call: bytes = b""
    ) -> tuple[list[float], float]:
        """Milliseconds of each request, and requests a second. Each connection rests for `pause` seconds, more or
        less, before it asks. A `call` is the body of a model call."""
        request = self._head("GET", "/small", prefix)
        if call:
            request = self._head("POST", "/v1/messages", prefix, len(call)) + call
        taken: list[float] = []

        async def client(streams: Streams, times: int) -> None:
            reader, writer = streams
            for _ in range(times):
                if pause:
                    await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                began = time.perf_counter()
                writer.write(request)
                await _answer(reader)
                taken.append((time.perf_counter() - began) * 1000)

        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(self._open(opener)) for _ in range(connections)]
            await asyncio.gather(*(client(each, WARM_UP // connections) for each in streams))
            taken.clear()
            began = time.perf_counter()
            await asyncio.gather(*(client(each, REQUESTS // connections) for each in streams))
            return taken, len(taken) / (time.perf_counter() - began)

    async def _download(self, opener: Opener, prefix: str) -> None:
        async with self._open(opener) as (reader, writer):
            writer.write(self._head("GET", "/big", prefix))
            await _status(reader)
            got = 0
            while got < SIZE:  # chunk sizes come on top
                data = await reader.read(1 << 18)
                assert data
                got += len(data)

    async def _upload(self, opener: Opener, prefix: str) -> None:
        async with self._open(opener) as (reader, writer):
            writer.write(self._head("POST", "/upload", prefix, SIZE))
            for _ in range(SIZE >> 16):
                writer.write(bytes(1 << 16))
                await writer.drain()
            await _answer(reader)

    async def _memory(self, what: str, stream: Awaitable[None]) -> Figure:
        before = _resident(self._pid, "VmRSS")
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # the peak counts from here on
        await stream
        grown = _resident(self._pid, "VmHWM") - before
        return figure(f"memory that 100 MB take, {what}", [max(0.0, grown)], "MB", goal=20)

    async def _lag(self, opener: Opener, prefix: str) -> list[float]:
        lags: list[float] = []
        async with self._open(opener) as (reader, writer):
            writer.write(self._head("GET", "/events", prefix))
            while len(lags) < EVENTS:
                line = await reader.readline()
                if line.startswith(b"data: "):
                    lags.append((time.monotonic_ns() - int(line[6:])) / 1e6)
        return lags


async def _status(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return head


async def _answer(reader: asyncio.StreamReader) -> None:
    found = re.search(rb"content-length: (\d+)", (await _status(reader)).lower())
    assert found is not None
    await reader.readexactly(int(found[1]))


def _resident(pid: int, what: str) -> float:
    """MB."""
    found = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


# ---- the upstream


async def _upstream(root: Path) -> None:
    from clawd.gateway.certificates import Certificates

    certificates = Certificates(root / "upstream")
    (root / "ca.pem").write_bytes(certificates.bundle())
    plain = await asyncio.start_server(_serve, "127.0.0.1", 0)
    secure = await asyncio.start_server(_serve, "127.0.0.1", 0, ssl=certificates.context("localhost"))
    ports = {name: each.sockets[0].getsockname()[1] for name, each in (("plain", plain), ("secure", secure))}
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    small = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n" + b"x" * 100
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/big " in head:
                writer.write(stream)
                for _ in range(SIZE >> 16):
                    writer.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
            elif b"/events " in head:
                writer.write(stream)
                for _ in range(EVENTS):
                    await asyncio.sleep(0.01)
                    event = b"data: %d\n\n" % time.monotonic_ns()
                    writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                writer.write(b"0\r\n\r\n")
            else:
                left = SIZE if b"/upload " in head else len(CALL) if b"/messages " in head else 0
                while left:
                    left -= len(await reader.read(min(left, 1 << 18)))
                writer.write(small)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


# ---- the gateway


class _Run:
    """A run of the owner's, whose turn never ends."""

    run, group = "bench", "main"

    def __init__(self, token: str) -> None:
        from clawd.gateway.caller import Road
        from clawd.trust import Role

        self._token, self._road = token, Road(Role.OWNER, 1)

    def road(self) -> Any:
        return self._road

    def owner_of(self, token: str) -> str | None:
        return self.run if token == self._token else None

    async def taint(self, trust: float) -> None:
        pass

    def turn_of(self, session: str) -> None:
        return None

    def paid(self, turn: int | None) -> None:
        pass

    spent: Any = paid

    def told(self, sentence: str) -> None:
        print(sentence, file=sys.stderr)

    alarm = told


async def _gateway(root: Path, ports: dict[str, int], token: str) -> None:
    from aiohttp import web

    from clawd.clock import SystemClock
    from clawd.config.load import merged, parse_group
    from clawd.config.schema import Config
    from clawd.gateway import policy
    from clawd.gateway.audit import Audit
    from clawd.gateway.certificates import Certificates
    from clawd.gateway.gateway import Gateway
    from clawd.host.connection import Connection
    from clawd.ledger.db import Ledger
    from clawd.usage.books import Books

    key = root / "key"
    key.write_text("sk-" + secrets.token_hex(32))
    key.chmod(0o600)
    service = f'credential = "${{file:{key}}}"\nallow_private = true\nlimits = {{}}\n'
    config = Config.model_validate(
        tomllib.loads(
            f'[services.plain]\nbase_url = "http://127.0.0.1:{ports["plain"]}"\n{service}'
            f'[services.secure]\nbase_url = "https://localhost:{ports["secure"]}"\nca = "{root}/ca.pem"\n{service}'
        )
    )
    settings = merged(config, parse_group('grants = ["plain", "secure"]\n[budget]\ntokens_per_day = 1_000_000_000_000'))
    grants = policy.grants(config, settings, "main")
    clock, ledger = SystemClock(), Ledger.open(root / "ledger.db")
    books = Books(ledger, clock, lambda: config, lambda group: settings)
    certificates, caller, loop = Certificates(root / "gateway"), _Run(token), asyncio.get_running_loop()
    (root / "bundle.pem").write_bytes(certificates.bundle())
    made = Gateway(lambda _: grants, Audit(root / "audit", 30), certificates, clock, books=books)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return await made.serve(request, caller, cast(Connection, request.protocol).inner)

    http = web.Server(handle)
    options: dict[str, Any] = {"loop": loop, "tcp_keepalive": False, "access_log": None, "auto_decompress": False}
    await loop.create_unix_server(lambda: Connection(http, lambda _: None, **options), str(root / "s"))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "upstream":
        asyncio.run(_upstream(Path(sys.argv[2])))
    else:
        asyncio.run(_gateway(Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]))
