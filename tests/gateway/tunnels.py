"""A server whose CONNECTs become tunnels, and clients of it: real sockets, real TLS."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
from aiohttp import web

from clawd.gateway.certificates import Certificates
from clawd.gateway.target import Malformed
from clawd.gateway.tunnel import tunnel
from clawd.host.connection import Connection, Patience

HOST = "api.example.com"


class Stand:
    """The server at `path`; `ended` are the statuses of tunnels that are over, `early` counts those that
    were none, `left` requests that were cancelled."""

    def __init__(self, root: Path) -> None:
        self.path = root / "s"
        self.certificates = Certificates(root / "gateway")
        self.ended: list[int] = []
        self.left = self.early = 0
        self.release = asyncio.Event()
        self.seconds = 10.0
        self.http: web.Server
        self.server: asyncio.Server

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "CONNECT":
            return await self.inside(request)
        host, _, _ = request.raw_path.rpartition(":")
        context = await asyncio.to_thread(self.certificates.context, host)
        connection = cast(Connection, request.protocol)
        try:
            response = await tunnel(request, host, context, connection.inner, self.inside, self.seconds)
        except Malformed as error:
            self.early += 1
            return web.Response(status=400, text=error.rule)
        self.ended.append(response.status)
        return response

    async def inside(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path
        if request.method == "CONNECT":
            refusal = web.Response(status=400, text='"malformed"')
            refusal.force_close()
            return refusal
        if path == "/echo":
            response = web.StreamResponse()
            await response.prepare(request)
            async for chunk in request.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response
        if path == "/who":
            peer = cast(Connection, request.protocol).peer
            assert peer is not None
            return web.json_response({"pid": peer.pid, "connections": len(self.http.connections)})
        if path == "/held":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"first")
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.left += 1
                raise
            await response.write(b"last")
            return response
        if path == "/full":  # more than the kernel takes while nobody reads
            response = web.StreamResponse()
            await response.prepare(request)
            assert request.transport is not None
            while not request.transport.get_write_buffer_size():
                await response.write(bytes(4096))
            return response
        if path.startswith("/mb/"):
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(int(path.removeprefix("/mb/"))):
                await response.write(bytes(1 << 20))
                await asyncio.sleep(0)  # as between two pieces from an upstream
            return response
        return web.Response(text=path)

    # ---- a client

    def dial(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        client.connect(str(self.path))
        return client

    def established(self, host: str = HOST) -> socket.socket:
        client = self.dial()
        client.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = client.recv(1)
            assert piece, head
            head += piece
        assert head.startswith(b"HTTP/1.1 200 ")
        return client

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.certificates.bundle().decode())

    def open(self, host: str = HOST) -> ssl.SSLSocket:
        return self.tls().wrap_socket(self.established(host), server_hostname=host)


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", f"Host: {HOST}", *headers, "", "")).encode()


def answer(client: socket.socket) -> tuple[int, bytes]:
    with http.client.HTTPResponse(client) as response:
        response.begin()
        return response.status, response.read()


def ask(client: socket.socket, path: str, *headers: str) -> tuple[int, bytes]:
    client.sendall(get(path, *headers))
    return answer(client)


def who(client: socket.socket) -> dict[str, int]:
    return cast(dict[str, int], json.loads(ask(client, "/who")[1]))


@asynccontextmanager
async def stand(patience: Patience | None = None) -> AsyncIterator[Stand]:
    root = Path(tempfile.mkdtemp(prefix="clawd-"))  # short: the name of a Unix socket holds 107 bytes
    made = Stand(root)
    await asyncio.to_thread(made.certificates.context, HOST)
    http, loop = web.Server(made.handle), asyncio.get_running_loop()

    def connect() -> Connection:
        options = {"loop": loop, "tcp_keepalive": False, "access_log": None, "auto_decompress": False}
        return Connection(http, lambda _: None, patience=patience or Patience(), **options)

    made.http, made.server = http, await loop.create_unix_server(connect, str(made.path), backlog=400)
    try:
        yield made
    finally:
        await stop(made)
        shutil.rmtree(root)


async def stop(made: Stand, seconds: float = 2.0) -> None:
    """As the run's socket is stopped; what is being done has so many seconds."""
    made.server.close()
    made.http.pre_shutdown()
    await made.http.shutdown(seconds)


async def until(condition: object, seconds: float = 30) -> None:
    assert callable(condition)
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.005)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
