"""One connection to a run's socket: who made it, and what waits on it.

aiohttp's request handler, with three changes: the peer is looked at once, when it connects; a long-poll ends
with its connection; and what is no HTTP is answered in our own words and never logged."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from aiohttp import web

from clawd.host.bodies import CONNECTIONS, SCHEMA, Problem
from clawd.host.peer import Peer, peer_of

# Those beyond CONNECTIONS are told so when they ask; still more cost a descriptor each, and are cut at once.
MOST_HELD = 2 * CONNECTIONS

T = TypeVar("T")
log = logging.getLogger(__name__)

# Given once a connection: the peer when it may speak here, or why not.
Admission = Callable[[Peer | None], Problem | None]


class Connection(web.RequestHandler):
    """`peer` is who connected, `refusal` what every request of it is answered with, if anything."""

    __slots__ = ("_admit", "_ended", "_poll", "peer", "refusal")

    def __init__(self, manager: web.Server, admit: Admission, **options: Any) -> None:
        super().__init__(manager, **options)
        self._admit = admit
        self._poll: asyncio.Task[Any] | None = None
        self._ended = False
        self.peer: Peer | None = None
        self.refusal: Problem | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = peer_of(cast(socket.socket, transport.get_extra_info("socket")))
        self.refusal = self._admit(self.peer)
        super().connection_made(transport)
        if self.refusal is not None and self._manager is not None and len(self._manager.connections) > MOST_HELD:
            cast(asyncio.Transport, transport).abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.end_poll()

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
        """What cannot be parsed is the peer's defect: 400, and no byte of it in a log."""
        log.warning("a request that is no HTTP was refused: %s", type(exc).__name__)
        return problem(Problem(400 if status < 500 else status, "malformed", "this is no HTTP request", close=True))


def reply(body: dict[str, Any], status: int = 200) -> web.Response:
    data = json.dumps({"schema": SCHEMA, **body}, separators=(",", ":")).encode()
    return web.Response(body=data, status=status, content_type="application/json")


def problem(error: Problem) -> web.Response:
    response = reply({"error": error.code, "message": error.message}, error.status)
    if error.close:
        response.force_close()
    return response
