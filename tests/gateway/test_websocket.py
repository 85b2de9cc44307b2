"""A request that becomes a WebSocket: both ways, injected once, and bounded as any other."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import struct

import pytest

from clawd.gateway.scrub import forms_of

from .conftest import CANARY, Client, Stage
from .upstream import Gone, Upstream, Wire, answer, frame, head, raw, read_frame, redirect, websocket

pytestmark = pytest.mark.anyio


def service(upstream: Upstream, more: str = "websocket = true") -> str:
    return f'base_url = "{upstream.url}"\nallow_private = true\ncredential = "${{env:CANARY}}"\n{more}'


HANDSHAKE = [
    "Connection: keep-alive, Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Extensions: permessage-deflate",
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",
]


def masked(data: bytes, opcode: int = 1, fin: bool = True) -> bytes:
    size, mask = len(data), os.urandom(4)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    assert size < 65536
    return bytes([0x80 * fin | opcode]) + length + mask + bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))


class Socket:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(self, data: bytes, opcode: int = 1) -> None:
        await self._client.send(masked(data, opcode))

    async def receive(self) -> tuple[int, bytes]:
        async with asyncio.timeout(20):
            first, size = await self._client.reader.readexactly(2)
            assert not first & 0x70  # uncompressed
            if size == 126:
                size = struct.unpack(">H", await self._client.reader.readexactly(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", await self._client.reader.readexactly(8))[0]
            return first & 0x0F, await self._client.reader.readexactly(size)


async def opened(stage: Stage, *headers: str) -> Socket:
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1?a=b", *HANDSHAKE, *headers))
    got = await client.answer()
    assert got.status == 101 and got.values("sec-websocket-extensions") == []
    return Socket(client)


async def test_both_ways(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))
    upstream.script = websocket(headers=[("Set-Cookie", "a=b"), ("Sec-WebSocket-Protocol", "two")])
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1?a=b", *HANDSHAKE, "Sec-WebSocket-Protocol: one, two"))
    got = await client.answer()
    assert got.status == 101 and got.values("set-cookie") == [] and got.values("sec-websocket-protocol") == ["two"]
    [request] = upstream.requests
    assert request.target == "/v1?a=b" and request.values("authorization") == [f"Bearer {CANARY}"]
    assert request.values("sec-websocket-extensions") == [] and request.values("sec-websocket-protocol") == ["one,two"]
    assert stage.a.token.encode() not in upstream.received and stage.a.taints == [0.2]
    socket = Socket(client)
    for opcode, data in ((1, "grüß".encode()), (2, bytes(range(256)) * 100), (1, b""), (9, b"ping"), (10, b"pong")):
        await socket.send(data, opcode)
        assert await socket.receive() == (opcode, data)
    await socket.send(struct.pack(">H", 1001) + b"bye", 8)
    assert await socket.receive() == (8, struct.pack(">H", 1001) + b"bye")
    entry = await stage.entry()
    assert (entry["status"], entry["verdict"], entry["rule"]) == (101, "allow", "granted")
    assert entry["bytes_in"] == entry["bytes_out"] + 3 and entry["bytes_in"] > 25_000


async def test_who_may_not(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream, ""))
    got = await stage.ask("/svc/shop/v1", *HANDSHAKE)
    assert (got.status, got.rule) == (403, "websocket") and upstream.connections == []
    stage.serves("shop", service(upstream))
    for wrong in ("Sec-WebSocket-Version: 12", "Sec-WebSocket-Key: short"):
        lines = [line for line in HANDSHAKE if line.split(":")[0] != wrong.split(":")[0]]
        assert (await stage.ask("/svc/shop/v1", *lines, wrong)).status == 400
    assert upstream.connections == []


async def test_of_an_upstream_that_does_not_switch_the_status_is_all(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))
    with Upstream() as attacker:
        for script, status in (
            (answer(CANARY.encode(), 401, [("X-Key", CANARY), ("Set-Cookie", "a=b")]), 401),
            (answer(b"no socket", 200), 200),
            (redirect(f"{attacker.url}/"), 302),
        ):
            upstream.script = script
            got = await stage.ask("/svc/shop/v1", *HANDSHAKE)
            assert (got.status, got.body) == (status, b"")
            assert {name.lower() for name, _ in got.headers} <= {"content-length", "date", "server", "content-type"}
        assert attacker.connections == []
    upstream.script = raw(
        head(101, [("Upgrade", "websocket"), ("Connection", "upgrade"), ("Sec-WebSocket-Accept", "x")])
    )
    assert (await stage.ask("/svc/shop/v1", *HANDSHAKE)).rule == "upstream"


async def test_no_secret_comes_in_a_message(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))
    basic = base64.b64encode(f"x{CANARY}".encode())
    pieces = [
        b"a " + CANARY.encode() + b" b",
        basic,
        b"c " + CANARY.encode()[:12],
        CANARY.encode()[12:] + b" d",
        b"end",
    ]

    def talk(wire: Wire) -> None:
        wire.send(b"".join(frame(piece) for piece in pieces) + frame(CANARY.encode(), 9))
        read_frame(wire)

    upstream.script = websocket(talk)
    socket = await opened(stage)
    got = [await socket.receive() for _ in range(6)]
    assert got[0][1] == b"a [redacted] b" and got[2][1].startswith(b"c ") and got[3][1].endswith(b" d")
    assert got[4][1] == b"end" and got[5] == (9, b"[redacted]")
    together = b"".join(data for _, data in got)
    assert not any(form in together for form in forms_of(CANARY)) and CANARY.encode()[12:] not in together


async def test_no_token_leaves_in_a_message(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))
    upstream.script = websocket()
    socket = await opened(stage)
    await socket.send(stage.a.token.encode()[:20])
    assert (await socket.receive())[0] == 1
    await socket.send(stage.a.token.encode()[20:])
    assert await socket.receive() == (8, struct.pack(">H", 1008) + b"placeholder_misuse")
    assert (await stage.entry())["rule"] == "placeholder_misuse" and len(stage.a.alarms) == 1
    assert await asyncio.to_thread(upstream.connections[0].ended.wait, 5)
    assert not any(stage.a.token.encode()[20:] in bytes(each.received) for each in upstream.connections)


async def test_its_bytes_and_its_silence_are_bounded(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream, "websocket = true\nlimits = {response_bytes = 1000, idle_s = 1}"))

    def flood(wire: Wire) -> None:
        while True:
            wire.send(frame(b"x" * 400))

    upstream.script = websocket(flood)
    socket = await opened(stage)
    assert [(await socket.receive())[0] for _ in range(3)] == [1, 1, 8]
    assert (await stage.entry())["rule"] == "response_bytes"
    upstream.script = websocket()
    socket = await opened(stage)
    await socket.send(b"x")
    assert await socket.receive() == (1, b"x")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await socket.receive()
    assert (await stage.entry(2))["rule"] == "upstream_timeout"
    for connection in upstream.connections:
        assert await asyncio.to_thread(connection.ended.wait, 5)


async def test_no_message_is_held_that_is_larger_than_one_may_be(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))
    upstream.script = websocket()
    socket = await opened(stage)
    with contextlib.suppress(ConnectionError):
        for n in range(40):  # pieces of one message that never ends
            await socket._client.send(masked(b"x" * 60_000, 0 if n else 1, fin=False))
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        assert (await socket.receive())[0] == 8
    await stage.entry()
    assert len(upstream.received) < 10_000


async def test_either_end_breaks_off(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))

    def die(wire: Wire) -> None:
        raise Gone

    upstream.script = websocket(die)
    socket = await opened(stage)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await socket.receive()
    assert (await stage.entry())["rule"] == "upstream"
    upstream.script = websocket()
    socket = await opened(stage)
    socket._client.abort()
    assert await asyncio.to_thread(upstream.connections[-1].ended.wait, 5)
    assert (await stage.entry(2))["rule"] == "aborted"
