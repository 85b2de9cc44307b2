"""One connection to a run's socket: who made it, and what waits on it.

aiohttp's request handler, with a few changes: the peer is looked at once, when it connects; a long-poll ends with its
connection; what is no HTTP is answered in our own words and never logged; and who keeps a connection must use it, but
for the runner, whose sandbox may be frozen for long."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from aiohttp import web
from yarl import URL

from clawd.host.bodies import CONNECTIONS, SCHEMA, Problem
from clawd.host.peer import Peer, peer_of

# Those beyond CONNECTIONS are told so when they ask; still more cost a descriptor each, and are cut at once.
MOST_HELD = 2 * CONNECTIONS

T = TypeVar("T")
log = logging.getLogger(__name__)

# Given once a connection: the peer when it may speak here, or why not.
Admission = Callable[[Peer | None], Problem | None]


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: for a request's head from its first byte on, between two pieces of a body, without a request, and for
    what a peer still sends after it was refused."""

    head: float = 10.0
    body: float = 30.0
    idle: float = 120.0
    drain: float = 2.0


class TooSlow(web.RequestPayloadError, TimeoutError):
    """A body that came to a halt: 408."""


class Connection(web.RequestHandler):
    """`peer` is who connected, `refusal` what every request of it is answered with, if anything. `lasting` is asked
    when patience has ended: whether this peer's connections may stay as they are. `unread` is told status and rule of
    what was refused before it was a request."""

    __slots__ = (
        "_admit",
        "_drained",
        "_due",
        "_ended",
        "_head",
        "_inside",
        "_lasting",
        "_options",
        "_patience",
        "_poll",
        "_timer",
        "_unread",
        "peer",
        "refusal",
    )

    def __init__(
        self,
        manager: web.Server,
        admit: Admission,
        *,
        lasting: Callable[[Peer | None], bool] = lambda _: False,
        patience: Patience = Patience(),
        unread: Callable[[int, str], None] = lambda status, rule: None,
        **options: Any,
    ) -> None:
        super().__init__(manager, **options)
        self._unread = unread
        self._admit, self._lasting, self._patience, self._options = admit, lasting, patience, options
        self._poll: asyncio.Task[Any] | None = None
        self._ended = False
        self._drained: asyncio.Event | None = None  # nothing of what comes is read any more; set when the peer has gone
        self._inside: Connection | None = None
        self._head = False  # a part of a request's head is here
        self._due = 0.0  # by the loop's clock, when patience ends
        self._timer: asyncio.TimerHandle | None = None
        self.peer: Peer | None = None
        self.refusal: Problem | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = peer_of(cast(socket.socket, transport.get_extra_info("socket")))
        self.refusal = self._admit(self.peer)
        super().connection_made(transport)
        self._expect(self._patience.idle)
        if self.refusal is not None and self._manager is not None and len(self._manager.connections) > MOST_HELD:
            cast(asyncio.Transport, transport).abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._drained is not None:
            self._drained.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._inside is None:  # a tunnel was told by what is inside it, and is at its end
            self.end_poll()

    def inner(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> Connection:
        """The protocol inside a tunnel that this connection becomes: the same peer's, counted with this one, and ending
        with it. Its requests are cancelled when their client leaves."""
        self._inside = Connection(
            server(handler, handler_cancellation=True),
            lambda _: self.refusal,
            patience=self._patience,
            unread=self._unread,
            **self._options,
        )
        return self._inside

    def close(self) -> None:
        """The server is leaving: what is being done may end first. A tunnel in which nothing is done ends now: its
        client need not be waited for."""
        super().close()
        if self._inside is not None:
            resting = self._inside._resting()
            self._inside.close()
            if resting and self.transport is not None:
                self.transport.abort()

    # ---- patience

    def data_received(self, data: bytes) -> None:
        if self._drained is not None:
            return
        requests = self._request_count
        super().data_received(data)
        if self._request_count != requests or not self._resting():
            self._head = self._head and self._request_count == requests
            self._expect(self._patience.body)
        elif data and not self._head:
            self._head = True
            self._expect(self._patience.head)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        finished = await super().finish_response(request, resp, start_time)
        self._expect(self._patience.idle)
        if self._drained is not None:
            await self._drain(self._drained)
        return finished

    async def _drain(self, gone: asyncio.Event) -> None:
        """Let the peer read why it was refused: closing a socket on unread bytes would take the answer back."""
        if isinstance(self.transport, asyncio.WriteTransport) and self.transport.can_write_eof():
            self.transport.write_eof()
            self.resume_reading()
            with suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), self._patience.drain)

    def _resting(self) -> bool:
        """No request is here, or being done."""
        return self._waiter is not None and not self._messages

    def _expect(self, seconds: float) -> None:
        """Patience ends in so many seconds. A timer that fires too early is set anew: cheaper than one a request."""
        if self.transport is None:
            return
        self._due = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._timer = None
        if self.transport is None or self._upgraded or self._lasting(self.peer):
            return  # the next bytes set it again
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._look)
        elif self._resting():
            if self._head:
                self.transport.write(_TOO_SLOW)
                self._unread(408, "too_slow")
            self.force_close()
        elif self._current_request is None or self._reading_paused or self._current_request.content.is_eof():
            self._expect(self._patience.body)  # it is we who are busy
        else:
            body = self._current_request.content
            body.set_exception(TooSlow("the body came to a halt"))
            body.feed_eof()  # nobody need wait for the rest
            self.close()

    def end_poll(self) -> None:
        """Nothing waits here any more, now or later: the peer or the server is leaving."""
        self._ended = True
        if self._poll is not None:
            self._poll.cancel()

    async def wait(self, poll: Callable[[], Awaitable[T]]) -> T:
        """Await a long-poll that ends with this connection: nobody would be left to hand a turn to."""
        if self._ended:
            raise Problem(503, "stopping", "the daemon is stopping; ask again", close=True)
        self._poll = asyncio.current_task()
        try:
            return await poll()
        finally:
            self._poll = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What cannot be parsed is the peer's defect: 400, and no byte of it in a log. An answer that has begun is
        never ended as if it were whole."""
        if isinstance(exc, ConnectionError) or request.writer.output_size > 0:
            raise ConnectionResetError from exc
        if status >= 500:
            log.error("a request failed: %s", type(exc).__name__)
            return problem(Problem(status, "internal", "the daemon failed at this; its log says more", close=True))
        log.warning("a request that is no HTTP was refused: %s", type(exc).__name__)
        self._unread(400, "malformed")
        self._drained = asyncio.Event()
        return problem(Problem(400, "malformed", "this is no HTTP request", close=True))


def server(handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], **options: Any) -> web.Server:
    """aiohttp's, for any target: its request would look for a host in one, and fail at some that are none."""
    made = web.Server(handler, **options)
    make = made.request_factory

    def request(message: Any, *rest: Any) -> web.BaseRequest:
        try:
            return make(message, *rest)
        except ValueError:
            return make(message._replace(url=URL("/")), *rest)  # `raw_path`, which is judged, stays as it was

    made.request_factory = request
    return made


def reply(body: dict[str, Any], status: int = 200) -> web.Response:
    data = json.dumps({"schema": SCHEMA, **body}, separators=(",", ":")).encode()
    return web.Response(body=data, status=status, content_type="application/json")


def problem(error: Problem) -> web.Response:
    body = {"error": error.code, "rule": error.code, "message": error.message, "hint": None}
    response = reply(body, error.status)
    response.headers["X-Clawd-Rule"] = error.code
    if error.close:
        response.force_close()
    return response


def _raw(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close"
    return head.encode() + b"\r\n\r\n" + body


_TOO_SLOW = _raw(
    "408 Request Timeout",
    b'{"schema":1,"error":"too_slow","rule":"too_slow","message":"a request\'s head came too slowly","hint":null}',
)
