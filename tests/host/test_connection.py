"""How long a connection may be kept without being used: a real one, with a patience of its own."""

from __future__ import annotations

import asyncio
import http.client
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
import pytest
from aiohttp import web

from clawd.host.connection import Connection, Patience, TooSlow

from .conftest import eventually

pytestmark = pytest.mark.anyio

run = anyio.to_thread.run_sync
SHORT, LONG = 0.5, 600.0


class Stand:
    """A server that echoes; `/held` waits for `release` before it reads, `/broken` fails in the middle."""

    def __init__(self, path: Path, lasting: bool) -> None:
        self.path, self.lasting = path, lasting
        self.release = asyncio.Event()
        self.http = web.Server(self.handle)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.raw_path == "/held":
            await self.release.wait()
        if request.raw_path == "/broken":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"begun")
            raise ValueError("in the middle")
        try:
            return web.Response(body=b"".join([chunk async for chunk in request.content.iter_any()]))
        except TooSlow as error:
            return web.Response(status=408, text=str(error))

    @property
    def connections(self) -> list[Connection]:
        return cast(list[Connection], self.http.connections)

    def dial(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        client.connect(str(self.path))
        return client


@asynccontextmanager
async def stand(lasting: bool = False, **seconds: float) -> AsyncIterator[Stand]:
    root = Path(tempfile.mkdtemp(prefix="clawd-"))
    made, loop = Stand(root / "s", lasting), asyncio.get_running_loop()
    patience = Patience(**{"head": LONG, "body": LONG, "idle": LONG, **seconds})

    def connect() -> Connection:
        options = {"loop": loop, "tcp_keepalive": False, "access_log": None, "lasting": lambda _: made.lasting}
        return Connection(made.http, lambda _: None, patience=patience, **options)

    server = await loop.create_unix_server(connect, str(made.path))
    try:
        yield made
    finally:
        server.close()
        made.http.pre_shutdown()
        await made.http.shutdown(2.0)
        shutil.rmtree(root)


def answer(client: socket.socket) -> tuple[int, bytes]:
    with http.client.HTTPResponse(client) as response:
        response.begin()
        return response.status, response.read()


def all_of(client: socket.socket) -> bytes:
    data = b""
    while piece := client.recv(1 << 16):
        data += piece
    return data


def post(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n".encode()


async def with_client(made: Stand, talk: Callable[[socket.socket], None]) -> None:
    def client() -> None:
        with made.dial() as dialled:
            talk(dialled)

    await run(client)
    await eventually(lambda: not made.connections)


async def test_a_head_comes_whole_in_time() -> None:
    async with stand(head=SHORT) as made:

        def slow(client: socket.socket) -> None:
            client.sendall(post("/a", 0) + b"GET /b HTTP")
            assert answer(client) == (200, b"")
            with suppress(BrokenPipeError):  # where we were slower than that
                client.sendall(b"/1.1")  # what was behind the first counts from here on
            data = all_of(client)
            assert data.startswith(b"HTTP/1.1 408 ") and b'"error":"too_slow"' in data

        await with_client(made, slow)

        def trickle(client: socket.socket) -> None:
            client.sendall(b"GET / HTTP/1.1\r\nX: ")
            client.settimeout(SHORT / 10)
            data, sent = b"", 0
            while not data.endswith(b"}"):
                try:
                    piece = client.recv(1000)
                    assert piece, data
                    data += piece
                except TimeoutError:
                    sent += 1
                    assert sent < 1000  # no single byte buys more time
                    with suppress(BrokenPipeError):  # its answer is here then
                        client.sendall(b"E")
            assert data.startswith(b"HTTP/1.1 408 ")

        await with_client(made, trickle)


async def test_a_body_that_comes_to_a_halt_ends() -> None:
    async with stand(body=SHORT) as made:

        def halt(client: socket.socket) -> None:
            client.sendall(post("/a", 10) + b"12345")
            assert answer(client) == (408, b"the body came to a halt")
            assert client.recv(1) == b""

        await with_client(made, halt)

        async with anyio.create_task_group() as group:

            async def later() -> None:
                await anyio.sleep(5 * SHORT)
                made.release.set()

            def ours(client: socket.socket) -> None:
                """The whole of it is there, but for what nobody reads yet."""
                client.sendall(post("/held", 3 << 20) + bytes(3 << 20))
                assert answer(client) == (200, bytes(3 << 20))
                client.shutdown(socket.SHUT_WR)

            group.start_soon(later)
            await with_client(made, ours)


async def test_every_piece_of_a_body_buys_time() -> None:
    async with stand() as made:
        with made.dial() as client:
            await run(client.sendall, post("/a", 3))
            await eventually(lambda: made.connections and made.connections[0]._request_count)
            (connection,) = made.connections
            for _ in range(2):
                due = connection._due
                await run(client.sendall, b"1")
                with anyio.fail_after(20):
                    while connection._due <= due:
                        await anyio.sleep(0.005)
            await run(client.sendall, b"1")
            assert await run(answer, client) == (200, b"111")


async def test_who_sends_what_is_no_request_hears_so() -> None:
    """However much of it comes: a socket that is closed on unread bytes takes back what was said."""

    def ask(stage: Stand) -> bytes:
        with stage.dial() as client:
            client.sendall(b"GET / HTTP/1.1\r\nX: " + bytes(1 << 20) + b"\r\n\r\n")
            answer = b""
            while data := client.recv(1 << 16):
                answer += data
        return answer

    async with stand(drain=LONG) as stage:
        for _ in range(20):
            assert (await run(ask, stage)).split(b" ", 2)[1] == b"400"
        await eventually(lambda: not stage.connections)
    async with stand(drain=SHORT) as stage:  # nobody is listened to for ever
        with stage.dial() as client:
            client.sendall(b"no request\r\n\r\n")
            await eventually(lambda: not stage.connections)


async def test_who_asks_nothing_goes() -> None:
    async with stand(idle=SHORT) as made:

        def silent(client: socket.socket) -> None:
            assert client.recv(1) == b""

        def idle(client: socket.socket) -> None:
            client.sendall(post("/a", 0))
            assert answer(client) == (200, b"")
            assert client.recv(1) == b""

        def half(client: socket.socket) -> None:
            client.sendall(b"GET /")
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""

        for talk in (silent, idle, half):
            await with_client(made, talk)
    async with stand() as made:
        await with_client(made, half)


async def test_the_runners_stay() -> None:
    async with stand(head=SHORT, body=SHORT, idle=SHORT) as made:
        with made.dial() as silent, made.dial() as idle, made.dial() as head, made.dial() as body:
            made.lasting = True  # it becomes known after they were made
            await run(idle.sendall, post("/a", 0))
            assert await run(answer, idle) == (200, b"")
            await run(head.sendall, b"POST /")
            await run(body.sendall, post("/a", 4) + b"12")
            await anyio.sleep(5 * SHORT)
            await run(head.sendall, post("/a", 0).removeprefix(b"POST /"))
            await run(body.sendall, b"34")
            for client in (silent, idle):
                await run(client.sendall, post("/a", 0))
            assert [await run(answer, client) for client in (silent, idle, head)] == [(200, b"")] * 3
            assert await run(answer, body) == (200, b"1234")


async def test_an_answer_that_failed_half_way_is_not_ended_as_if_it_were_whole() -> None:
    async with stand() as made:

        def broken(client: socket.socket) -> None:
            client.sendall(post("/broken", 0))
            data = all_of(client)
            assert data.endswith(b"5\r\nbegun\r\n") and data.count(b"HTTP/1.1") == 1

        await with_client(made, broken)
