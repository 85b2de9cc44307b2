"""A request that becomes a WebSocket: message by message, uncompressed, each one looked at as a body would be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import aiohttp
from aiohttp import WSMsgType, web

from clawd.gateway import headers
from clawd.gateway.refusal import Aborted, Refusal
from clawd.gateway.relay import Exchange, failure
from clawd.gateway.scrub import Messages
from clawd.gateway.tokens import Tokens
from clawd.gateway.upstream import NotUpgraded

_LARGEST = 1 << 20  # bytes of a message: it is held, and looked at, as a whole
_CLOSE_S = 0.5  # for the other side to answer a close
_LONGEST_CONTROL, _LONGEST_REASON = 125, 123  # bytes
_POLICY = 1008
_BROKEN = "upstream"  # the rule of an upstream that broke off: no close is made up for it

_Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


def asked(request: web.BaseRequest) -> bool:
    """Whether the request would become a WebSocket. Any other upgrade is none, and goes on without. Raises Refusal for
    a handshake that is none."""
    upgrades = set(headers.values(request.headers, "Upgrade"))
    if "websocket" not in upgrades or "upgrade" not in headers.values(request.headers, "Connection"):
        return False
    key = request.headers.get("Sec-WebSocket-Key", "")
    version = request.headers.get("Sec-WebSocket-Version", "")
    if request.method != "GET" or version != "13" or len(key) != 24 or not key.endswith("=="):
        raise Refusal("malformed", "this is no WebSocket handshake", 400)
    return True


async def relay(exchange: Exchange) -> web.StreamResponse:
    """Both directions until either side closes. Raises Refusal and Aborted, as `relay.relay` does."""
    request = exchange.request
    wanted = [name for value in request.headers.getall("Sec-WebSocket-Protocol", ()) for name in value.split(",")]
    try:
        upstream = await exchange.session.ws_connect(
            exchange.url,
            headers=exchange.headers,
            protocols=[name.strip() for name in wanted],
            autoping=False,
            max_msg_size=_LARGEST,
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
        )
    except NotUpgraded as answer:
        await exchange.taints()
        exchange.entry.status = answer.status
        return web.Response(status=answer.status)
    except Refusal:
        raise
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise failure(exchange, error) from error
    try:
        await exchange.taints()
        chosen = () if upstream.protocol is None else (upstream.protocol,)
        ours = web.WebSocketResponse(
            timeout=_CLOSE_S,
            autoclose=False,
            autoping=False,
            compress=False,
            max_msg_size=_LARGEST,
            protocols=chosen,
        )
        exchange.entry.status = 101
        exchange.started = ours
        await ours.prepare(request)
        code, reason = await _both(exchange, ours, upstream)
        await _close(upstream, code, reason)
        await _close(ours, code, reason)
    except Refusal as refusal:
        await _close(upstream)
        if exchange.started is not None and refusal.rule != _BROKEN:
            await _close(ours, _POLICY, refusal.rule.encode())
        raise
    except ConnectionError as error:
        raise Aborted from error
    finally:
        await _close(upstream)
    return ours


async def _close(socket: _Socket, code: int = 1000, reason: bytes = b"") -> None:
    """aiohttp waits for the other side's answer as long as that sends anything. The end of the sandbox's connection
    cancels who waits here: it is closed last."""
    with suppress(asyncio.CancelledError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await socket.close(code=code, message=reason)


async def _both(
    exchange: Exchange, ours: web.WebSocketResponse, upstream: aiohttp.ClientWebSocketResponse
) -> tuple[int, bytes]:
    """With which code and reason the first of both closed. Raises Refusal and Aborted."""
    tokens = Tokens(exchange.caller)
    messages = Messages(exchange.forms) if exchange.forms is not None else None

    def out(data: bytes) -> bytes:
        exchange.sent(len(data))
        tokens.check_next(data)
        return data

    def back(data: bytes) -> bytes:
        exchange.took(len(data))
        if messages is not None:
            data = messages.clean(data)
        exchange.entry.bytes_out += len(data)
        return data

    loop = asyncio.get_running_loop()
    sending = loop.create_task(_carry(ours, upstream, out))
    taking = loop.create_task(_carry(upstream, ours, back))
    try:
        await asyncio.wait((sending, taking), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        taking.cancel()
        results = await asyncio.gather(sending, taking, return_exceptions=True)
    for result in results:
        if isinstance(result, Refusal):
            raise result
    for result in results:
        if isinstance(result, tuple):
            return result
    raise Aborted if results[0] is None or isinstance(results[0], ConnectionError) else failure(exchange, None)


async def _carry(source: _Socket, sink: _Socket, look: Callable[[bytes], bytes]) -> tuple[int, bytes] | None:
    """Until `source` closes: with which code and reason; None when it broke off."""
    while True:
        message = await source.receive()
        match message.type:
            case WSMsgType.TEXT:
                await sink.send_str(look(message.data.encode()).decode("utf-8", "replace"))
            case WSMsgType.BINARY:
                await sink.send_bytes(look(message.data))
            case WSMsgType.PING:
                await sink.ping(look(bytes(message.data))[:_LONGEST_CONTROL])
            case WSMsgType.PONG:
                await sink.pong(look(bytes(message.data))[:_LONGEST_CONTROL])
            case WSMsgType.CLOSE:
                code = message.data if message.data and message.data not in (1005, 1006, 1015) else 1000
                return code, look((message.extra or "").encode())[:_LONGEST_REASON]
            case _:
                return None
