"""The forwarder of a real runner: ordinary clients reach the tools through it, nobody reaches the turn
protocol."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.resources import shipped
from tests.gateway.tunnels import HOST, answer, ask, get, stand

from .conftest import Stage, eventually, free_port
from .memory_desk import TOKEN, HeldTurn

pytestmark = pytest.mark.anyio


def fetch(stage: Stage, target: str, body: Any = None, token: str = "") -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{stage.port}{target}", data, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def spelled(stage: Stage, target: str) -> int:
    """The status of a `hello` at a target that is sent as it stands."""
    with dial(stage.port) as client:
        head = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 12\r\n\r\n"
        client.sendall(head.encode() + b'{"schema":1}')
        return answer(client)[0]


async def live(stage: Stage) -> HeldTurn:
    stage.runner()
    turn = stage.desk.script({"delay_s": 600, "text": "x"})
    await stage.desk.until(lambda: turn.confirmed)
    return turn


async def test_tools_pass_and_the_turn_protocol_does_not(stage: Stage) -> None:
    async with stage.server():
        turn = await live(stage)

        async def get(*request: Any) -> tuple[int, dict[str, Any]]:
            return await anyio.to_thread.run_sync(fetch, stage, *request)

        for target in (
            "/host/v1/turn?wait=0&worker=0",
            f"/host/v1/turn/{turn.id}/final",
            "/host/v1/control?wait=0",
        ):
            status, answer = await get(target)
            assert (status, answer["error"]) == (403, "not_the_runner")
        status, answer = await get("/host/v1/hello", {"schema": 1})
        assert (status, answer["error"], stage.second_hellos) == (403, "not_the_runner", 0)
        for target in (
            "http://127.0.0.1/host/v1/hello",
            "/host/v1/%68ello",
            "//host/v1/hello",
            "/host/v1/./hello",
            "/svc/../host/v1/hello",
        ):  # spellings that it lets through, and the daemon knows for none of its own
            status = await anyio.to_thread.run_sync(spelled, stage, target)
            assert (status >= 400, stage.second_hellos) == (True, 0), target
        message = {"schema": 1, "arguments": {"text": "through"}}
        assert (await get("/host/v1/tools/send_message", message))[1]["error"] == "no_token"
        assert (await get("/host/v1/tools/send_message", message, TOKEN))[0] == 200
        assert stage.sent == [("text", "through", None, None)]
        big = {"schema": 1, "arguments": {"text": "x" * 250_000}}
        assert (await get("/host/v1/tools/send_message", big, TOKEN))[0] == 200
        assert (await get("/svc/anything"))[1]["error"] == "served"


async def test_a_daemon_that_is_away_is_said(stage: Stage) -> None:
    async with stage.server():
        await live(stage)
    status, answer = await anyio.to_thread.run_sync(fetch, stage, "/svc/x")
    assert (status, answer["error"]) == (502, "no_daemon")


async def test_it_forgets_clients_that_leave(stage: Stage) -> None:
    async with stage.server():
        await live(stage)

        def come_and_go() -> None:
            for _ in range(100):
                with socket.create_connection(("127.0.0.1", stage.port), timeout=20) as client:
                    client.sendall(b"GET /svc/x HTTP/1.1\r\n")

        await anyio.to_thread.run_sync(come_and_go)
        with anyio.fail_after(20):
            while True:
                try:
                    if (await anyio.to_thread.run_sync(fetch, stage, "/svc/x"))[0] == 403:
                        return
                except OSError:
                    await anyio.sleep(0.01)


@contextmanager
def forwarder(path: Path) -> Iterator[tuple[int, int]]:
    """A forwarder to `path` as a process: its port and pid."""
    port = free_port()
    code = "import sys; sys.path.insert(0, sys.argv[1]); from agent import forwarder as f;"
    code += "f.Forwarder(f.listen(int(sys.argv[2])), sys.argv[3]).run()"
    process = subprocess.Popen(
        [sys.executable, "-I", "-B", "-c", code, str(shipped("containers")), str(port), str(path)]
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=60).close()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def peak(pid: int) -> float:
    """MB that a process ever had resident."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


async def test_tunnels_pass_and_little_is_held() -> None:
    async with stand() as made:
        with forwarder(made.path) as (port, pid):
            before = peak(pid)

            def open_tunnel() -> ssl.SSLSocket:
                client = dial(port)
                client.sendall(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += client.recv(1)
                assert head.startswith(b"HTTP/1.1 200 ")
                return made.tls().wrap_socket(client, server_hostname=HOST)

            def talk() -> None:
                with dial(port) as deaf, open_tunnel() as deaf_inside, open_tunnel() as inside:
                    deaf.sendall(get("/mb/100"))
                    deaf_inside.sendall(get("/mb/100"))
                    assert len(ask(inside, "/mb/100")[1]) == 100 << 20
                    assert len(answer(deaf_inside)[1]) == 100 << 20
                with open_tunnel() as leaving:
                    leaving.sendall(get("/held"))
                    leaving.recv(1)

            await anyio.to_thread.run_sync(talk)
            await eventually(lambda: made.left == 1 and not made.http.connections)
            assert peak(pid) - before < 10

            def curl() -> bytes:
                roots = made.path.with_name("ca.pem")
                roots.write_bytes(made.certificates.bundle())
                command = ["curl", "-sS", "--cacert", str(roots), "--proxy", f"http://127.0.0.1:{port}"]
                command += [f"https://{HOST}/one", f"https://{HOST}/two", "--noproxy", ""]
                return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout

            assert await anyio.to_thread.run_sync(curl) == b"/one/two"


async def test_it_has_no_more_links_than_its_share() -> None:
    async with stand() as made:
        with forwarder(made.path) as (port, _):

            def crowd() -> tuple[int, int]:
                clients = [dial(port) for _ in range(60)]
                served = 0
                for client in clients:
                    try:
                        served += ask(client, "/a")[0] == 200
                    except OSError:
                        continue
                known = len(made.http.connections)
                for client in clients:
                    client.close()
                return served, known

            assert await anyio.to_thread.run_sync(crowd) == (48, 48)
            await eventually(lambda: not made.http.connections)
            with dial(port) as client:
                assert (await anyio.to_thread.run_sync(ask, client, "/a"))[0] == 200


async def test_each_direction_ends_by_itself(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /first"):  # the server ends first, and hears the client still
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\nbye")
            writer.write_eof()
            heard.append(await reader.read())
        else:  # it answers when the client has ended
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
            writer.write(await reader.read())
        writer.close()

    def server_first(port: int) -> None:
        with dial(port) as client:
            client.sendall(b"GET /first HTTP/1.1\r\nUpgrade: websocket\r\n\r\n")
            data = b""
            while piece := client.recv(1000):
                data += piece
            assert data.endswith(b"bye")
            client.sendall(bytes(100_000) + b"still here")

    def client_first(port: int) -> None:
        with dial(port) as client:
            client.sendall(b"GET /last HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\x81\x00frame")
            client.shutdown(socket.SHUT_WR)
            data = b""
            while piece := client.recv(1000):
                data += piece
            assert data.endswith(b"\r\n\r\n\x81\x00frame")

    server = await asyncio.start_unix_server(serve, str(tmp_path / "s"))
    async with server:
        with forwarder(tmp_path / "s") as (port, _):
            await anyio.to_thread.run_sync(server_first, port)
            await eventually(lambda: heard)
            assert heard == [bytes(100_000) + b"still here"]
            await anyio.to_thread.run_sync(client_first, port)
