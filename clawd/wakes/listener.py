"""The HTTP side of webhooks: whatever arrives is bounded before it is read, and answered in a moment or ended.

A connection brings one request. Until its body is whole nobody knows who sends it: where there are too many, the oldest
of those goes, so that slow ones keep no good one out. How often a hook is called counts for whoever knows its secret;
whoever does not is counted by address.

Importing this module imports aiohttp: a daemon does so when it first has a hook.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import math
import re
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from aiohttp import web
from anyio import to_thread
from yarl import URL

from clawd.clock import Clock
from clawd.wakes import signatures
from clawd.wakes.hook import Hook, Key, Patience, Refusal
from clawd.wakes.signatures import Genuine

log = logging.getLogger(__name__)

BODY_BYTES = 1 << 20
CONNECTIONS, OF_A_HOOK = 64, 16  # at one time
A_MINUTE, MINUTE_S = 60, 60.0  # requests of a hook that are proven, and of an address that are not
ADDRESSES = 1000  # that are counted, the latest ones
ENDING_S = 0.5  # that requests which are here may take when we stop listening
_PATH = re.compile(r"/hooks/([A-Za-z0-9][A-Za-z0-9_-]{0,63})/([A-Za-z0-9][A-Za-z0-9_-]{0,63})")
_NOBODY = Hook("", "", "github", "", b"-")  # what a request is held against whose hook does not exist


class Desk(Protocol):
    """What is behind the listener."""

    def find(self, group: str, name: str) -> Hook | None:
        """The hook as its group's file has it now, in any thread. Raises Refusal where that cannot be said."""
        ...

    async def take(self, hook: Hook, genuine: Genuine, body: bytes) -> bool:
        """Have its group woken. False for what came before. Raises Refusal, and has done nothing then."""
        ...

    def refused(self, hook: Key | None, refusal: Refusal, size: int) -> None:
        """A request was refused; without a hook it was none of ours."""
        ...


class Rates:
    """How often things happened in the last minute, by key; of very many keys the latest are known."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: OrderedDict[Any, deque[float]] = OrderedDict()

    def check(self, key: Any, kind: str) -> None:
        """Raises Refusal for what happened too often."""
        now, times = self._clock.monotonic(), self._times.get(key)
        if times is not None and len(times) == A_MINUTE and (wait := times[0] + MINUTE_S - now) > 0:
            raise Refusal(429, kind, "too many requests", after=math.ceil(wait))

    def count(self, key: Any) -> None:
        times = self._times.pop(key, None) or deque(maxlen=A_MINUTE)
        times.append(self._clock.monotonic())
        self._times[key] = times
        while len(self._times) > ADDRESSES:
            self._times.popitem(last=False)


class Crowd:
    """Connections at one time, the oldest first. Where there are too many, `full` is called, and the oldest goes whose
    request is not whole."""

    def __init__(self, most: int, full: Callable[[], None]) -> None:
        self._most, self._full = most, full
        self._all: dict[Connection, None] = {}

    def add(self, connection: Connection) -> bool:
        """Whether there is room for it: else all of them are at work."""
        if len(self._all) >= self._most:
            self._full()
            oldest = next(iter(self.unproven()), None)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.drop()
        self._all[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        self._all.pop(connection, None)

    def unproven(self) -> list[Connection]:
        return [each for each in self._all if each.unproven]


class Connection(web.RequestHandler):
    """One connection, for one request."""

    __slots__ = ("_crowd", "_patience", "_timer", "unproven")

    def __init__(self, manager: web.Server, crowd: Crowd, patience: Patience, **options: Any) -> None:
        super().__init__(manager, **options)
        self._crowd, self._patience = crowd, patience
        self._timer: asyncio.TimerHandle | None = None
        self.unproven = True
        """Its request is not whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._crowd.add(self):
            cast(asyncio.Transport, transport).abort()
        self._timer = self._loop.call_later(self._patience.head, self._late)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._crowd.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._request_count and self._timer is not None:
            self._timer.cancel()

    def _late(self) -> None:
        if self.transport is not None:
            self.transport.write(_SLOW_HEAD)
            self.force_close()

    def drop(self) -> None:
        """End it now, and hear nothing more of it."""
        self._crowd.remove(self)
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What cannot be parsed is the peer's defect; no byte of it is in a log."""
        if isinstance(exc, ConnectionError) or request.writer.output_size > 0:
            raise ConnectionResetError from exc
        if status >= 500:
            log.error("a request to a webhook failed", exc_info=exc)
            return _reply(503, {"ok": False, "error": "not now"})
        log.info("a request to a webhook was refused: malformed")
        return _reply(400, {"ok": False, "error": "this is no HTTP request"})


class Listener:
    """Listens at one address, from `open` to `close`."""

    def __init__(self, desk: Desk, clock: Clock, patience: Patience) -> None:
        self._desk, self._clock, self._patience = desk, clock, patience
        self._crowd = Crowd(CONNECTIONS, lambda: self._crowded(None))
        self._of_hook: dict[Key | None, Crowd] = {}
        self._of_hooks, self._of_strangers = Rates(clock), Rates(clock)
        self._server: asyncio.Server | None = None
        self._http: web.Server | None = None

    async def open(self, host: str, port: int) -> str:
        """Where it listens now. Raises OSError."""
        loop = asyncio.get_running_loop()
        http = self._http = web.Server(self._handle, request_factory=_request)

        def connect() -> Connection:
            return Connection(
                http,
                self._crowd,
                self._patience,
                loop=loop,
                access_log=None,
                auto_decompress=False,
                lingering_time=self._patience.drain,
                max_headers=64,
            )

        self._server = await loop.create_server(connect, host, port, backlog=2 * CONNECTIONS)
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def close(self) -> None:
        """Take nothing more in. What is whole may come to its end."""
        if self._server is None or self._http is None:
            return
        self._server.close()
        for each in self._crowd.unproven():
            each.drop()
        await self._http.shutdown(ENDING_S)
        self._server = self._http = None

    # ---- requests

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection, hook = cast(Connection, request.protocol), None
        address = _address(request)
        try:
            group, name = _target(request)
            self._of_strangers.check(address, "strangers")
            hook = await to_thread.run_sync(self._desk.find, group, name)
            if hook is not None:
                self._of_hooks.check(hook.key, "often")
            crowd = self._crowd_of(hook.key if hook else None)
            if not crowd.add(connection):
                raise Refusal(503, "busy", "too many requests at one time", after=1)
            try:
                body = await self._body(request)
                connection.unproven = False
                return await self._answer(request, hook, body)
            finally:
                crowd.remove(connection)
        except Refusal as refusal:
            if refusal.status < 500 and refusal.kind not in ("often", "strangers", "id"):
                self._of_strangers.count(address)
            self._desk.refused(hook.key if hook else refusal.about, refusal, request.content_length or 0)
            after = {"Retry-After": str(refusal.after)} if refusal.after else {}
            return _reply(refusal.status, {"ok": False, "error": refusal.message}, **after)

    async def _answer(self, request: web.BaseRequest, hook: Hook | None, body: bytes) -> web.StreamResponse:
        held_against, now = hook or _NOBODY, self._clock.now().timestamp()
        found = await to_thread.run_sync(
            lambda: signatures.judge(
                held_against.scheme, held_against.secret, lambda name: request.headers.getall(name, ()), body, now
            )
        )
        if hook is None:
            raise Refusal(404, "unknown", "there is no such webhook")
        if isinstance(found, str):
            raise Refusal(*_NOT_GENUINE[found])
        self._of_hooks.check(hook.key, "often")  # others may have been proven meanwhile
        self._of_hooks.count(hook.key)
        if found.answer is not None:
            return _reply(200, found.answer)
        fresh = await self._desk.take(hook, found, body)
        return _reply(200, {"ok": True} if fresh else {"ok": True, "duplicate": True})

    async def _body(self, request: web.BaseRequest) -> bytes:
        """The whole body, as it is. Raises Refusal."""
        headers, patience = request.headers, self._patience
        encodings = [*headers.getall("Content-Encoding", ()), *headers.getall("Transfer-Encoding", ())]
        if any(each.strip().lower() not in ("", "identity", "chunked") for each in encodings):
            raise Refusal(415, "encoded", "send the body as it is, without compression")
        if (request.content_length or 0) > BODY_BYTES:
            raise _too_large()
        if headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        body, begun = bytearray(), asyncio.get_running_loop().time()
        while True:
            until = begun + min(patience.body, patience.grace + len(body) / patience.pace)
            try:
                async with asyncio.timeout_at(until):
                    piece = await request.content.readany()
            except TimeoutError:
                raise Refusal(408, "too_slow", "the body came too slowly") from None
            except web.RequestPayloadError:
                raise Refusal(400, "malformed", "the body cannot be read") from None
            if not piece:
                return bytes(body)
            body += piece
            if len(body) > BODY_BYTES:
                raise _too_large()

    def _crowd_of(self, hook: Key | None) -> Crowd:
        """Those who send something to a hook, or to what is none."""
        return self._of_hook.setdefault(hook, Crowd(OF_A_HOOK, lambda: self._crowded(hook)))

    def _crowded(self, hook: Key | None) -> None:
        self._desk.refused(hook, Refusal(503, "crowded", "too many requests at one time"), 0)


def _too_large() -> Refusal:
    return Refusal(413, "too_large", f"a body has at most {BODY_BYTES:,} bytes")


_NOT_GENUINE = {
    "signature": (401, "signature", "not authorized"),
    "timestamp": (401, "timestamp", "timestamp"),
    "id": (400, "id", "the request's id cannot be one: 1 to 200 characters of ASCII, once"),
}


def _target(request: web.BaseRequest) -> tuple[str, str]:
    """The group and the hook that a request names. Raises Refusal."""
    path = _PATH.fullmatch(request.raw_path.partition("?")[0])
    if path is None:
        raise Refusal(404, "unknown", "there is no such webhook")
    if request.method != "POST":
        raise Refusal(405, "method", "only POST is taken here")
    return path[1], path[2]


def _address(request: web.BaseRequest) -> str:
    """Whose request it is, as far as can be known: a proxy of this machine says it last. Of IPv6 it is the network."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    said = request.headers.getall("X-Forwarded-For", ())
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0] if peer else "")
        if address.is_loopback and said:
            address = ipaddress.ip_address(said[-1].rpartition(",")[2].strip())
    except ValueError:
        return str(peer[0]) if peer else ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:  # all of them lie in one network
        address = address.ipv4_mapped
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """aiohttp's, for any target: it looks for a host in one, and fails at some that are none, like `http://xn--/`."""
    loop = asyncio.get_running_loop()
    try:
        return web.BaseRequest(message, payload, protocol, writer, task, loop)
    except ValueError:
        return web.BaseRequest(message._replace(url=URL("/")), payload, protocol, writer, task, loop)


def _reply(status: int, body: dict[str, Any], **headers: str) -> web.Response:
    if status == 405:
        headers["Allow"] = "POST"
    response = web.Response(
        body=json.dumps(body).encode(),
        status=status,
        content_type="application/json",
        headers={**headers, "Server": "clawd"},
    )
    response.force_close()
    return response


_SLOW_HEAD = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
