"""A CONNECT that became TLS: HTTP goes through it as through any connection, nothing else does, and nothing of it
stays."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import ssl
import warnings
from contextlib import suppress
from functools import partial

import anyio
import pytest

from clawd.host.connection import Connection, Patience

from .tunnels import HOST, Stand, answer, ask, descriptors, get, stand, stop, until, who

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


run = anyio.to_thread.run_sync


async def test_it_carries_http() -> None:
    async with stand() as made:

        def client() -> None:
            with made.open() as inside:
                assert inside.selected_alpn_protocol() is None
                assert ask(inside, "/a") == (200, b"/a")
                # One client, one connection: what is inside is not counted again.
                assert who(inside) == {"pid": os.getpid(), "connections": 1}
                inside.sendall(get("/b") + get("/c") + get("/d"))
                assert [answer(inside)[1] for _ in range(3)] == [b"/b", b"/c", b"/d"]
                head = get("/echo", "Content-Length: 5000000").replace(b"GET", b"POST")
                body = os.urandom(5_000_000)
                inside.sendall(head)
                echoed = bytearray()
                inside.settimeout(0)
                sent = 0
                while sent < len(body):
                    with suppress(ssl.SSLWantWriteError):
                        sent += inside.send(body[sent : sent + 50_000])
                    with suppress(ssl.SSLWantReadError):
                        echoed += inside.recv(1 << 17)
                inside.settimeout(60)
                while b"\r\n0\r\n\r\n" not in echoed[-7:]:
                    echoed += inside.recv(1 << 17)
                assert len(echoed) > len(body)
                assert len(ask(inside, "/mb/20")[1]) == 20 << 20
                assert ask(inside, "/e", "Connection: close") == (200, b"/e")
                assert inside.recv(1) == b""

        await run(client)
        await until(lambda: made.ended == [200])
        await until(lambda: not made.http.connections)


async def test_what_is_not_a_tunnel_of_this_name_is_refused() -> None:
    async with stand() as made:
        hello = bytes.fromhex("1603010005010000010303")

        def early() -> None:
            head = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}\r\n"
            for rest in (b"\r\n" + hello, b"Content-Length: 5\r\n\r\nhello", b"\r\n" + get("/a")):
                with made.dial() as client:
                    client.sendall(head.encode() + rest)
                    assert answer(client) == (400, b"early_bytes")
                    assert client.recv(100) == b""

        await run(early)
        with made.dial() as client:  # behind an answer that nobody has read
            await run(client.sendall, get("/full") + f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            await until(lambda: made.early == 4)
            assert b"HTTP/1.1 400 Bad Request" in await run(rest, client)
        assert made.ended == []

        def other_name(name: str | None) -> None:
            context = made.tls()
            context.check_hostname = False
            with made.established() as client, pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
                context.wrap_socket(client, server_hostname=name)

        for name in ("evil.com", "x" + HOST, None):
            await run(other_name, name)
        await until(lambda: made.ended == [421] * 3)

        def no_tls(data: bytes) -> None:
            with made.established() as client:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1000):
                    pass

        made.ended.clear()
        for data in (get("/a"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", hello + b"\0" * 50, b""):
            await run(no_tls, data)
        await until(lambda: made.ended == [400] * 4)

        def inside(data: bytes) -> None:
            with made.open() as client:
                client.sendall(data)
                status, body = answer(client)
                assert (status, b'"malformed"' in body) == (400, True)
                assert client.recv(1) == b""

        connect = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
        for data in (connect, connect + hello, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", hello):
            await run(inside, data)
        await until(lambda: not made.http.connections)


async def test_a_handshake_has_its_time() -> None:
    async with stand() as made:
        made.seconds = 0.2

        def silent() -> None:
            with made.established() as client:
                assert client.recv(1) == b""

        await run(silent)
        await until(lambda: made.ended == [408])


async def test_who_leaves_ends_what_was_asked() -> None:
    async with stand() as made:

        def leave(abruptly: bool) -> None:
            inside = made.open()
            inside.sendall(get("/held"))
            assert b"first" in inside.recv(1000) + inside.recv(1000)
            if abruptly:
                socket.socket(fileno=inside.detach()).close()
            else:
                inside.close()

        for n, abruptly in enumerate((False, True), 1):
            await run(leave, abruptly)
            await until(partial(lambda n: made.left == n and len(made.ended) == n, n))
        await until(lambda: not made.http.connections)


async def test_an_idle_one_ends_and_a_busy_one_does_not() -> None:
    async with stand(Patience(head=0.5, body=0.5, idle=0.5)) as made:

        def idle() -> None:
            with made.open() as inside:
                assert ask(inside, "/a") == (200, b"/a")
                assert inside.recv(1) == b""

        await run(idle)
        await until(lambda: made.ended == [200])

        def busy() -> tuple[int, bytes]:
            with made.open() as inside:
                return ask(inside, "/held")

        async with anyio.create_task_group() as group:

            async def later() -> None:
                await anyio.sleep(2.5)  # five times what an idle one has
                made.release.set()

            group.start_soon(later)
            assert await run(busy) == (200, b"firstlast")


@pytest.mark.parametrize("busy", [False, True])
async def test_a_server_that_leaves_takes_its_tunnels_along(busy: bool) -> None:
    async with stand() as made:
        inside = await run(made.open)
        with inside:
            await run(ask, inside, "/a")
            if busy:
                await run(inside.sendall, get("/held"))
                await run(inside.recv, 1000)
            with anyio.fail_after(60):  # it waits for what is being done, and for nobody's goodbye
                await stop(made, 0.5 if busy else 600.0)
            await until(lambda: not made.http.connections and made.ended == ([] if busy else [200]))
            await until(lambda: made.left == busy)
            assert await run(rest, inside) == b""


def rest(client: socket.socket) -> bytes:
    """What came until the end: `first` of a held answer may be among it."""
    data = b""
    with suppress(OSError):
        while piece := client.recv(1 << 16):
            data += piece
    return data.removeprefix(b"5\r\nfirst\r\n")


async def test_nothing_stays_of_three_hundred(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with stand() as made:
            before = await census(made)

            def come_and_go(n: int) -> None:
                if n % 5 == 0:
                    made.established().close()  # before the handshake
                    return
                if n % 5 == 1:
                    with made.established() as client:
                        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00")  # within it
                    return
                inside = made.open()
                if n % 5 == 2:
                    assert ask(inside, "/a") == (200, b"/a")
                elif n % 5 == 3:
                    inside.sendall(get("/held"))  # within a request
                else:
                    inside.sendall(get("/mb/20"))  # within an answer that nobody reads
                    inside.recv(1)
                socket.socket(fileno=inside.detach()).close()

            async with anyio.create_task_group() as group:
                for first in range(3):

                    async def some(first: int) -> None:
                        for n in range(first, 300, 3):
                            await run(come_and_go, n)

                    group.start_soon(some, first)
            await until(lambda: not made.http.connections and len(made.ended) == 300)
            with anyio.fail_after(30):
                while (now := await census(made)) != before:
                    await anyio.sleep(0.05)
            assert now == before
    assert not complaints
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR or each.name == "asyncio"]


async def census(made: Stand) -> dict[str, int]:
    await anyio.to_thread.run_sync(gc.collect)
    kinds = (asyncio.Transport, asyncio.BaseProtocol, asyncio.Task, ssl.SSLObject, Connection)
    counted = {kind.__name__: sum(isinstance(each, kind) for each in gc.get_objects()) for kind in kinds}
    return {**counted, "tasks": len(asyncio.all_tasks()), "descriptors": descriptors()}
