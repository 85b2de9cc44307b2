"""The real gateway on real sockets, with an upstream that records what it received; only the run is a stand-in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import shutil
import tempfile
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from aiohttp import web

from clawd.clock import SystemClock
from clawd.config.group import Effective, GroupConfig
from clawd.config.load import merged, parse_group
from clawd.config.schema import Config
from clawd.gateway import audit
from clawd.gateway.audit import Audit
from clawd.gateway.caller import Road
from clawd.gateway.certificates import Certificates
from clawd.gateway.gateway import Gateway
from clawd.gateway.policy import Grants
from clawd.host.connection import Connection, Patience
from clawd.ledger.db import Ledger
from clawd.trust import Role
from clawd.usage.books import Books
from clawd.usage.budgets import BudgetSpent

from .granting import granting
from .upstream import Authority, Upstream

CANARY = "sk-CANARY-7f/3+q=Zx81mVt0b"
FREE = "limits = {}"  # a service without the caps that hosts have


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as made:
        yield made


class PushedClock(SystemClock):
    """The machine's clock, which a test can push ahead by seconds."""

    ahead = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)


@dataclass
class Run:
    """A caller. `tokens` are those of all living runs of the stage, by token."""

    run: str
    group: str
    tokens: dict[str, str]
    live: Road | None = field(default_factory=lambda: Road(Role.OWNER, 1))
    taints: list[float] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    spendings: list[tuple[int | None, BudgetSpent | None]] = field(default_factory=list)
    sessions: dict[str, int] = field(default_factory=dict)
    token: str = field(default_factory=lambda: "claw-" + secrets.token_urlsafe(32))

    def __post_init__(self) -> None:
        self.tokens[self.token] = self.run

    def road(self) -> Road | None:
        return self.live

    def turn_of(self, session: str) -> int | None:
        return self.sessions.get(session)

    def spent(self, turn: int | None, reason: BudgetSpent) -> None:
        self.spendings.append((turn, reason))

    def paid(self, turn: int | None) -> None:
        self.spendings.append((turn, None))

    def owner_of(self, token: str) -> str | None:
        return self.tokens.get(token)

    async def taint(self, trust: float) -> None:
        self.taints.append(trust)

    def told(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def alarm(self, sentence: str) -> None:
        self.alarms.append(sentence)


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    raw: bytes  # everything that came on the connection

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each.lower() == name.lower()]

    @property
    def rule(self) -> str:
        said = json.loads(self.body)
        assert set(said) == {"schema", "error", "rule", "message", "hint"} and said["message"], said
        assert self.values("x-clawd-rule") == [said["rule"]]
        return str(said["rule"])


class Client:
    """One connection of a sandbox's, written and read byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.raw = reader, writer, b""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> bytes:
        with anyio.fail_after(20):
            data = await self.reader.readuntil(b"\r\n\r\n")
        self.raw += data
        return data

    async def read(self, size: int = 1 << 16) -> bytes:
        """What comes next, nothing at the end."""
        with anyio.fail_after(20):
            data = await self.reader.read(size)
        self.raw += data
        return data

    async def until(self, text: bytes) -> bytes:
        data = b""
        while text not in data:
            piece = await self.read()
            assert piece, data
            data += piece
        return data

    async def answer(self, method: str = "GET") -> Answer:
        """A whole answer. Raises IncompleteReadError when it is broken off."""
        lines = (await self.head()).decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
        found = {name.lower(): value for name, value in headers}
        body = b""
        if method != "HEAD" and status not in (204, 304) and status >= 200:
            with anyio.fail_after(30):
                if found.get("transfer-encoding") == "chunked":
                    while size := int(await self.reader.readuntil(b"\r\n"), 16):
                        body += await self.reader.readexactly(size)
                        assert await self.reader.readexactly(2) == b"\r\n"
                    assert await self.reader.readexactly(2) == b"\r\n", "trailers"
                elif "content-length" in found:
                    body = await self.reader.readexactly(int(found["content-length"]))
                else:
                    body = await self.reader.read()
        self.raw += body
        return Answer(status, headers, body, self.raw)

    def abort(self) -> None:
        self.writer.transport.abort()


class Stage:
    """The gateway at the sockets of two runs, `a` (group main) and `b` (group other). `config` and `group` are what
    the config files say from the next request on. With `counts` model calls are counted, in a ledger."""

    def __init__(self, root: Path, *, counts: bool = False) -> None:
        self.root, self.config, self.group = root, "", "grants = []"
        self.ledger = Ledger.open(root / "ledger.db") if counts else None
        self.clock = PushedClock()
        self.books = Books(self.ledger, self.clock, lambda: self.read()[0], self.settings) if self.ledger else None
        tokens: dict[str, str] = {}
        self.a, self.b = Run("run-a", "main", tokens), Run("run-b", "other", tokens)
        self.audit = Audit(root / "audit", 30)
        self.lookups: list[str] = []
        self.names: dict[str, list[str]] = {}
        self.certificates = Certificates(root / "gateway")
        self.gateway = Gateway(self._grants, self.audit, self.certificates, self.clock, self._lookup, self.books)
        self._parsed: tuple[str, str, Grants] | None = None
        self._servers: list[tuple[asyncio.Server, web.Server]] = []
        self._clients: list[Client] = []

    def _grants(self, group: str) -> Grants:
        if self._parsed is None or self._parsed[:2] != (self.config, self.group):
            self._parsed = (self.config, self.group, granting(self.group, self.config))
        return self._parsed[2]

    def read(self) -> tuple[Config, GroupConfig]:
        return Config.model_validate(tomllib.loads(self.config)), parse_group(self.group)

    def settings(self, group: str) -> Effective:
        return merged(*self.read())

    def rows(self) -> list[dict[str, Any]]:
        """The reservations, in their order."""
        reading = Ledger.read_only(self.root / "ledger.db")  # the other connection belongs to its thread
        try:
            return [dict(row) for row in reading.tx(lambda tx: tx.all("SELECT * FROM reservation ORDER BY id"))]
        finally:
            reading.close()

    async def row(self, count: int = 1) -> dict[str, Any]:
        """The last of so many, once none is open."""
        await until(lambda: len(rows := self.rows()) == count and all(row["state"] != "open" for row in rows))
        return self.rows()[-1]

    async def _lookup(self, host: str) -> list[str]:
        self.lookups.append(host)
        return self.names.get(host, ["127.0.0.1"])

    def serves(self, service: str, lines: str) -> None:
        """From now on there is this service alone, and it is granted to members."""
        self.config = f"[services.{service}]\n{lines}\n"
        self.group = f'grants = [{{service = "{service}", for = "member"}}]'

    async def listen(self, caller: Run) -> None:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            connection = cast(Connection, request.protocol)
            return await connection.wait(lambda: self.gateway.serve(request, caller, connection.inner))

        http, loop = web.Server(handle), asyncio.get_running_loop()

        def connect() -> Connection:
            options = {
                "loop": loop,
                "tcp_keepalive": False,
                "access_log": None,
                "auto_decompress": False,
                "lingering_time": 0.2,
            }
            return Connection(http, lambda _: None, patience=Patience(), **options)

        server = await loop.create_unix_server(connect, str(self.path(caller)), backlog=400)
        self._servers.append((server, http))

    def path(self, caller: Run) -> Path:
        return self.root / caller.run

    async def dial(self, caller: Run | None = None) -> Client:
        reader, writer = await asyncio.open_unix_connection(str(self.path(caller or self.a)), limit=1 << 20)
        self._clients.append(Client(reader, writer))
        return self._clients[-1]

    def request(
        self, target: str, *headers: str, method: str = "GET", body: bytes = b"", token: str | None = None
    ) -> bytes:
        """A request's bytes. It shows the token of `a` unless `token` says another, or nothing."""
        shown = self.a.token if token is None else token
        lines = [f"{method} {target} HTTP/1.1", *headers]
        if not any(line.lower().startswith("host:") for line in headers):
            lines.append("Host: 127.0.0.1:8080")
        if shown:
            name = "Authorization" if target.startswith("/") else "Proxy-Authorization"
            lines.append(f"{name}: Bearer {shown}")
        if body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    async def ask(self, target: str, *headers: str, caller: Run | None = None, **what: Any) -> Answer:
        client = await self.dial(caller)
        await client.send(self.request(target, *headers, **what))
        return await client.answer(what.get("method", "GET"))

    def entries(self) -> list[dict[str, Any]]:
        """What is over."""
        return [line for line in audit.read(self.root / "audit") if line["rule"] != "under_way"]

    async def entry(self, count: int = 1) -> dict[str, Any]:
        """The last line of the audit, once there are so many."""
        await until(lambda: len(self.entries()) >= count)
        assert len(self.entries()) == count
        return self.entries()[-1]

    async def close(self) -> None:
        for client in self._clients:
            client.abort()
        with anyio.move_on_after(2):
            while any(http.connections for _, http in self._servers):
                await anyio.sleep(0.005)
        for server, http in self._servers:
            server.close()
            http.pre_shutdown()
            await http.shutdown(2.0)
        await self.gateway.close()
        self.audit.close()
        if self.ledger is not None:
            self.ledger.close()


@asynccontextmanager
async def staged(*, counts: bool = False) -> AsyncIterator[Stage]:
    root = Path(tempfile.mkdtemp(prefix="clawd-"))  # short: the name of a Unix socket holds 107 bytes
    made = Stage(root, counts=counts)
    try:
        for caller in (made.a, made.b):
            await made.listen(caller)
        yield made
    finally:
        await made.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(root)


@pytest.fixture
async def stage(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setenv("CANARY", CANARY)
    async with staged() as made:
        yield made


async def until(condition: Any, seconds: float = 20) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.005)
