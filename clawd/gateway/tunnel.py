"""A CONNECT that was allowed: its connection becomes TLS of our own, and what is inside is HTTP again.

No byte passes through unseen: what a client sends before it was answered is refused, what is no TLS for the tunnel's
own name ends it, and what is inside is the handler's to judge, a second CONNECT too. However it ends, both protocols of
the connection, the one outside and the one inside, are told so.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

from aiohttp import web

from clawd.gateway.target import Malformed

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Inner = Callable[[Handler], asyncio.BaseProtocol]

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
# A fatal alert, unrecognized_name, as a TLS record: asyncio closes a connection before OpenSSL's own has gone out.
_ALERT = b"\x15\x03\x03\x00\x02\x02\x70"


async def tunnel(
    request: web.BaseRequest,
    host: str,
    context: ssl.SSLContext,
    inner: Inner,
    handler: Handler,
    seconds: float = 10.0,
) -> web.StreamResponse:
    """Answer a CONNECT to `host`, and serve what comes inside until its connection is over.

    `context` is the one for `host`; the handshake has `seconds`. `inner` makes the protocol inside, whose requests go
    to `handler`. Of what this gives nothing is written, but its status is what became of the tunnel: 200 it was there,
    408 no handshake in time, 421 the client asked for another name than `host`, 400 it spoke no TLS that we take.
    Raises Malformed, before anything was written, when the client did not wait for the answer.
    """
    outer, transport = request.protocol, request.transport
    if transport is None:
        raise ConnectionResetError
    # aiohttp has no public name for what came behind a CONNECT.
    if outer._message_tail or transport.get_write_buffer_size():
        outer.close()  # after the answer; nothing behind it is a request
        raise Malformed("early_bytes", f"nothing may be sent to {host} before the CONNECT is answered")

    loop = asyncio.get_running_loop()
    relay = _Relay(loop.create_future())
    try:
        transport.write(_ESTABLISHED)
        status, secured = await _secure(transport, relay, context, seconds)
        if secured is not None:
            relay.begin(cast(asyncio.Protocol, inner(handler)), secured)
            await relay.over
    finally:
        transport.abort()
        # Later, for it may cancel who waits here: what follows on this line is to be done.
        loop.call_soon(outer.connection_lost, None)
    return web.Response(status=status)


async def _secure(
    transport: asyncio.Transport, relay: _Relay, context: ssl.SSLContext, seconds: float
) -> tuple[int, asyncio.Transport | None]:
    """The handshake: 200 and the transport of what is inside, or the status of its failure."""
    with cast(socket.socket, transport.get_extra_info("socket")).dup() as spare:
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, relay, context, server_side=True, ssl_handshake_timeout=seconds
            )
        except ssl.SSLError as error:
            if error.reason != "CALLBACK_FAILED":
                return 400, None
            with suppress(OSError):  # who is gone need not be told
                spare.send(_ALERT)
            return 421, None
        except ConnectionAbortedError:
            return 408, None
        except OSError:
            return 400, None
    return 200, None if relay.over.done() else secured


class _Relay(asyncio.Protocol):
    """Between TLS and the protocol inside: what is ready before that one is made waits for it, and `over` is done when
    the connection is."""

    def __init__(self, over: asyncio.Future[None]) -> None:
        self.over = over
        self._inner: asyncio.Protocol | None = None
        self._early = bytearray()

    def begin(self, inner: asyncio.Protocol, transport: asyncio.Transport) -> None:
        inner.connection_made(transport)
        self._inner = inner
        if self._early:
            inner.data_received(bytes(self._early))
            self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            self._early += data
        else:
            self._inner.data_received(data)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._inner is not None:
            self._inner.connection_lost(exc)
        if not self.over.done():
            self.over.set_result(None)
