"""The run's socket, tried with raw requests: who may speak, what may be said, and that nothing malformed
hurts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.errors import ClawdError, StorageError
from clawd.host import bodies

from .conftest import Stage, eventually
from .memory_desk import TOKEN, HeldTurn, MemoryDesk

pytestmark = pytest.mark.anyio

BEARER = {"Authorization": f"Bearer {TOKEN}"}
HELLO = {"schema": 1, "version": "1", "engine": "offline", "pid": 1}
FENCE = {"schema": 1, "attempt": 1, "worker": 0}
STEP = {**FENCE, "n": 0, "message": {"role": "assistant", "content": "x", "at": "now"}, "shown": []}
FINAL = {**FENCE, "text": "bye"}


async def raw(stage: Stage, data: bytes) -> tuple[int, dict[str, Any]]:
    """Send bytes on a new connection; the status and JSON of the first answer."""
    reader, writer = await asyncio.open_unix_connection(str(stage.socket))
    try:
        with anyio.fail_after(10):
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            return int(head.split()[1]), json.loads(await reader.readexactly(length))
    finally:
        writer.close()


async def ask(
    stage: Stage, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return await raw(stage, "\r\n".join(lines).encode() + b"\r\n\r\n" + data)


async def code(stage: Stage, *request: Any, **more: Any) -> tuple[int, str]:
    """Status and error code of an answer."""
    status, answer = await ask(stage, *request, **more)
    assert answer["schema"] == 1 and (status == 200 or answer["message"])
    return status, answer.get("error", "")


async def live(stage: Stage) -> HeldTurn:
    """This process says hello and claims a turn."""
    assert (await ask(stage, "POST", bodies.HELLO, HELLO))[0] == 200
    turn = stage.desk.submit("hi")
    status, offer = await ask(stage, "GET", "/host/v1/turn?wait=1&worker=0")
    assert (status, offer["turn"], offer["attempt"]) == (200, turn.id, 1)
    return turn


def elsewhere(stage: Stage, request: bytes) -> bytes:
    """The answer that another process gets."""
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "s.sendall(sys.stdin.buffer.read()); sys.stdout.buffer.write(s.recv(65536))"
    )
    command = [sys.executable, "-I", "-c", program, str(stage.socket)]
    return subprocess.run(command, input=request, capture_output=True, check=True, timeout=20).stdout


# ---- who may speak


async def test_the_socket_is_for_one_user(stage: Stage) -> None:
    async with stage.server():
        assert stage.socket.stat().st_mode & 0o777 == 0o600
        assert stage.socket.parent.stat().st_mode & 0o777 == 0o711
        assert [path.name for path in stage.socket.parent.iterdir()] == ["s"]


async def test_the_first_hello_fixes_the_runner_and_a_second_ends_the_run(stage: Stage) -> None:
    async with stage.server() as server:
        assert (await ask(stage, "POST", bodies.HELLO, HELLO))[1]["token"] == TOKEN
        assert server.runner is not None and server.runner.pid == os.getpid()
        assert stage.desk.hellos == [(os.getpid(), server.runner.started)]
        body = json.dumps(HELLO).encode()
        head = f"POST {bodies.HELLO} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        answer = await anyio.to_thread.run_sync(elsewhere, stage, head.encode() + body)
        assert answer.startswith(b"HTTP/1.1 403") and b"second_hello" in answer
        assert stage.second_hellos == 1 and len(stage.desk.hellos) == 1


async def test_a_runner_whose_hello_was_not_answered_says_it_again_until_it_takes_part(stage: Stage) -> None:
    async with stage.server():
        assert (await ask(stage, "POST", bodies.HELLO, HELLO))[0] == 200
        assert (await ask(stage, "POST", bodies.HELLO, HELLO))[1]["token"] == TOKEN
        stage.desk.submit("hi")
        assert (await ask(stage, "GET", "/host/v1/turn?wait=1&worker=0"))[0] == 200
        assert await code(stage, "POST", bodies.HELLO, HELLO) == (403, "second_hello")
        assert stage.second_hellos == 1 and len(stage.desk.hellos) == 2


async def test_a_runner_of_an_earlier_daemon_finds_a_new_socket_and_goes_on_without_a_hello(stage: Stage) -> None:
    async with stage.server() as first:
        turn = await live(stage)
        inode = stage.socket.stat().st_ino
    assert turn.lease is not None
    async with stage.server(runner=first.runner, live=[turn.lease]):
        assert stage.socket.stat().st_ino != inode
        tool = bodies.TOOLS + "send_message"
        call = {"schema": 1, "arguments": {"text": "from a child"}, "nth": 0}
        assert (await ask(stage, "POST", tool, call, BEARER))[0] == 200  # before its runner was heard of
        assert (await ask(stage, "POST", f"{bodies.TURN}/{turn.id}/final", FINAL))[0] == 200
    body = b"GET /host/v1/control?wait=0 HTTP/1.1\r\nHost: x\r\n\r\n"
    async with stage.server(runner=first.runner):
        assert b"not_the_runner" in await anyio.to_thread.run_sync(elsewhere, stage, body)


@pytest.mark.parametrize(
    "line", ["GET /host/v1/turn?wait=0&worker=0", "GET /host/v1/control?wait=0", "POST /host/v1/turn/1/final"]
)
async def test_the_turn_protocol_is_taken_from_the_runner_alone(stage: Stage, line: str) -> None:
    async with stage.server():
        method, target = line.split()
        assert await code(stage, method, target) == (403, "not_the_runner")
        await live(stage)
        request = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
        answer = await anyio.to_thread.run_sync(elsewhere, stage, request)
        assert answer.startswith(b"HTTP/1.1 403") and b"not_the_runner" in answer


async def test_a_process_of_another_sandbox_is_refused(stage: Stage) -> None:
    async with stage.server(owns=lambda pid: pid != os.getpid()):
        assert await code(stage, "POST", bodies.HELLO, HELLO) == (403, "not_this_sandbox")
        assert stage.desk.hellos == []


async def test_who_comes_before_the_sandbox_is_known_asks_again(stage: Stage) -> None:
    known: list[bool | None] = [None, None, True]
    async with stage.server(owns=lambda pid: known.pop(0) if known else True):
        assert await code(stage, "POST", bodies.HELLO, HELLO) == (503, "starting")
        stage.runner()
        await stage.desk.until(lambda: stage.desk.hellos)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a socket away")
async def test_a_process_of_another_user_is_refused(stage: Stage) -> None:
    async with stage.server(uid=64_001):
        assert stage.socket.stat().st_uid == 64_001
        assert await code(stage, "POST", bodies.HELLO, HELLO) == (403, "not_this_sandbox")


async def test_connections_are_counted(stage: Stage) -> None:
    async with stage.server():
        idle = [await asyncio.open_unix_connection(str(stage.socket)) for _ in range(bodies.CONNECTIONS)]
        with anyio.fail_after(10):
            while await code(stage, "GET", "/") != (503, "too_many_connections"):
                pass
        for _, writer in idle:
            writer.close()
        with anyio.fail_after(10):
            while await code(stage, "GET", "/") != (404, "not_found"):
                pass


async def test_a_flood_of_connections_holds_no_descriptors(stage: Stage) -> None:
    async with stage.server():
        flood = [await asyncio.open_unix_connection(str(stage.socket)) for _ in range(4 * bodies.CONNECTIONS)]
        with anyio.fail_after(10):
            for reader, _ in flood[2 * bodies.CONNECTIONS :]:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
        for _, writer in flood:
            writer.close()
        with anyio.fail_after(10):
            back = False
            while not back:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    back = await code(stage, "GET", "/") == (404, "not_found")


async def test_what_others_keep_open_does_not_keep_the_runner_out(stage: Stage) -> None:
    program = (
        "import socket, sys\n"
        "held = [socket.socket(socket.AF_UNIX) for _ in range(int(sys.argv[2]))]\n"
        "for one in held: one.connect(sys.argv[1])\n"
        "print(flush=True); sys.stdin.read()\n"
    )
    async with stage.server():
        turn = await live(stage)
        arguments = ("-c", program, str(stage.socket), str(4 * bodies.CONNECTIONS))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        holder = await asyncio.create_subprocess_exec(sys.executable, *arguments, **pipes)
        try:
            assert holder.stdout is not None
            with anyio.fail_after(30):
                assert await holder.stdout.readline()
            assert await code(stage, "POST", f"/host/v1/turn/{turn.id}/step", STEP) == (200, "")
        finally:
            holder.kill()
            await holder.wait()


async def test_a_client_that_leaves_in_mid_body_is_no_failure(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async with stage.server() as server:
        turn = await live(stage)
        _, writer = await asyncio.open_unix_connection(str(stage.socket))
        writer.write(f"POST /host/v1/turn/{turn.id}/step HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode())
        await eventually(lambda: any(each._current_request for each in server._http.connections))
        writer.close()
        await eventually(lambda: not server._http.connections)
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


# ---- turns


async def test_a_lost_answer_loses_no_turn(stage: Stage) -> None:
    async with stage.server():
        turn = await live(stage)
        status, offer = await ask(stage, "GET", "/host/v1/turn?wait=1&worker=0")
        assert (status, offer["turn"]) == (200, turn.id)


async def test_a_poll_ends_with_its_connection(stage: Stage) -> None:
    async with stage.server():
        await ask(stage, "POST", bodies.HELLO, HELLO)
        _, writer = await asyncio.open_unix_connection(str(stage.socket))
        writer.write(b"GET /host/v1/turn?wait=300&worker=7 HTTP/1.1\r\nHost: x\r\n\r\n")
        await stage.desk.until(lambda: stage.desk.polls == 1)
        writer.close()
        await writer.wait_closed()
        await eventually(lambda: len(asyncio.all_tasks()) <= 2)  # the connection's and the poll's are gone
        turn = stage.desk.submit("hi")
        await ask(stage, "GET", "/host/v1/turn?wait=1&worker=0")
        assert turn.lease is not None and turn.lease.worker == 0


async def test_final_is_accepted_once_and_a_replay_is_answered_alike(stage: Stage) -> None:
    async with stage.server():
        turn = await live(stage)
        target = f"/host/v1/turn/{turn.id}/final"
        assert await ask(stage, "POST", target, FINAL) == (200, {"schema": 1})
        assert await ask(stage, "POST", target, {**FINAL, "text": "other"}) == (200, {"schema": 1})
        assert turn.final is not None and turn.final.text == "bye"
        assert await code(stage, "POST", target, {**FINAL, "attempt": 2}) == (409, "lease_lost")
        assert await code(stage, "POST", f"/host/v1/turn/{turn.id}/step", STEP) == (409, "lease_lost")


async def test_a_turn_hears_of_its_stop(stage: Stage) -> None:
    async with stage.server():
        turn = await live(stage)
        stage.desk.stop(turn)
        heard = {"schema": 1, "control": [{"turn": turn.id, "action": "stop", "wakes": []}]}
        assert await ask(stage, "GET", "/host/v1/control?wait=1") == (200, heard)
        assert await ask(stage, "GET", f"/host/v1/turn/{turn.id}/more?attempt=1&worker=0") == (200, heard)


# ---- host tools

SEND = {"schema": 1, "arguments": {"text": "hello"}}
TARGET = "/host/v1/tools/send_message"


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer", "Basic !!", "Digest x", "Basic " + "x" * 999])
async def test_tools_need_the_token(stage: Stage, header: str | None) -> None:
    async with stage.server():
        await live(stage)
        headers = {"Authorization": header} if header else {}
        assert await code(stage, "POST", TARGET, SEND, headers=headers) == (403, "no_token")


async def test_no_turn_no_road(stage: Stage) -> None:
    async with stage.server():
        assert await code(stage, "POST", TARGET, SEND, headers=BEARER) == (403, "no_turn")
        turn = await live(stage)
        assert await code(stage, "POST", TARGET, {**SEND, "turn": 77}, headers=BEARER) == (403, "no_turn")
        assert (await code(stage, "POST", TARGET, SEND, headers=BEARER))[0] == 200
        await ask(stage, "POST", f"/host/v1/turn/{turn.id}/final", FINAL)
        assert await code(stage, "POST", TARGET, SEND, headers=BEARER) == (403, "no_turn")


@pytest.mark.parametrize("user", [f"clawd:{TOKEN}", f"{TOKEN}:"])
async def test_the_token_may_be_user_information(stage: Stage, user: str) -> None:
    async with stage.server():
        await live(stage)
        headers = {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()}
        assert (await code(stage, "POST", TARGET, SEND, headers=headers))[0] == 200


async def test_equal_calls_are_told_apart_by_their_number(stage: Stage) -> None:
    async with stage.server():
        turn = await live(stage)
        for nth in (0, 0, 1):
            body = {**SEND, "turn": turn.id, "attempt": 1, "worker": 0, "nth": nth}
            status, answer = await ask(stage, "POST", TARGET, body, BEARER)
            assert (status, answer["result"]) == (200, {"queued": "message"})
        assert len(stage.sent) == 2
        stale = {**SEND, "turn": turn.id, "attempt": 9, "worker": 0}
        assert await code(stage, "POST", TARGET, stale, headers=BEARER) == (409, "lease_lost")


async def test_a_tool_refuses_in_sentences(stage: Stage) -> None:
    async with stage.server():
        await live(stage)

        async def call(name: str, arguments: Any) -> tuple[int, str]:
            body = {"schema": 1, "arguments": arguments}
            return await code(stage, "POST", f"/host/v1/tools/{name}", body, headers=BEARER)

        assert await call("rm", {}) == (404, "no_tool")
        assert await call("send_message", {"text": 5}) == (400, "arguments")
        assert await call("send_message", {"text": "x", "chat": "other"}) == (400, "arguments")
        assert await call("send_message", {"text": " "}) == (422, "refused")
        assert await call("send_file", {"path": "../../secret"}) == (422, "refused")
        assert await call("send_file", {"path": "missing"}) == (422, "refused")
        assert stage.sent == []


async def test_calls_are_rationed(stage: Stage) -> None:
    class Still:
        at = 5.0

        def monotonic(self) -> float:
            return self.at

    clock = Still()
    async with stage.server(clock=clock):
        await live(stage)
        for _ in range(bodies.CALLS_PER_SECOND):
            assert (await code(stage, "POST", TARGET, SEND, headers=BEARER))[0] == 200
        assert await code(stage, "POST", TARGET, SEND, headers=BEARER) == (429, "too_fast")
        clock.at += 1
        assert (await code(stage, "POST", TARGET, SEND, headers=BEARER))[0] == 200


# ---- what may be said

MALFORMED: dict[str, Any] = {
    "empty": b"",
    "no json": b"{",
    "a list": b"[]",
    "not utf-8": b'{"schema":1,"a":"\xff"}',
    "utf-16": json.dumps(FINAL).encode("utf-16"),
    "nan": b'{"schema":1,"attempt":NaN}',
    "endless number": b'{"schema":1,"attempt":' + b"9" * 5000 + b"}",
    "deep": b'{"schema":1,"notes":' + b"[" * 40 + b"]" * 40 + b"}",
    "very deep": b"[" * 100_000,
    "nul": {**FINAL, "text": "a\0b"},
    "half a character": {**FINAL, "text": "\ud800"},
    "half a character in a key": {**FINAL, "notes": {"\udfff": 1}},
    "unknown field": {**FINAL, "group": "other"},
    "missing field": FENCE,
    "text for a number": {**FINAL, "attempt": "1"},
    "bool for a number": {**FINAL, "attempt": True},
    "negative": {**FINAL, "attempt": -1},
    "negative money": {**FINAL, "usage": {"usd": -1.0}},
    "compressed": b"\x1f\x8b\x08\x00",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
async def test_what_is_malformed_is_400(stage: Stage, body: Any) -> None:
    async with stage.server():
        turn = await live(stage)
        assert await code(stage, "POST", f"/host/v1/turn/{turn.id}/final", body) == (400, "malformed")
        assert turn.final is None


@pytest.mark.parametrize("schema", [0, 2, "1", True, None, 1.0])
async def test_another_schema_is_409(stage: Stage, schema: Any) -> None:
    async with stage.server():
        assert await code(stage, "POST", bodies.HELLO, {**HELLO, "schema": schema}) == (409, "proto")
        turn = await live(stage)
        assert await code(stage, "POST", f"/host/v1/turn/{turn.id}/final", {"schema": schema}) == (
            409,
            "proto",
        )


@pytest.mark.parametrize("message", [{"role": "tool"}, {"role": "assistant", "tool_call_id": "a"}, {"role": "user"}])
async def test_a_step_is_a_message_or_a_result(stage: Stage, message: dict[str, str]) -> None:
    async with stage.server():
        turn = await live(stage)
        step = {**STEP, "message": {"content": "x", "at": "now", **message}}
        assert await code(stage, "POST", f"/host/v1/turn/{turn.id}/step", step) == (400, "malformed")
        assert turn.steps == []


async def test_bodies_are_bounded(stage: Stage) -> None:
    async with stage.server():
        turn = await live(stage)
        events = {**FENCE, "events": [{"type": "delta", "text": "x" * bodies.EVENTS_BYTES}]}
        assert await code(stage, "POST", f"/host/v1/turn/{turn.id}/events", events) == (413, "too_large")
        long = {**FINAL, "text": "é" * (bodies.TEXT_BYTES // 2 + 1)}
        assert await code(stage, "POST", f"/host/v1/turn/{turn.id}/final", long) == (413, "too_large")
        big = {"schema": 1, "arguments": {"text": "x" * bodies.TOOL_BYTES}}
        assert await code(stage, "POST", TARGET, big, headers=BEARER) == (413, "too_large")
        head = f"POST /host/v1/turn/{turn.id}/events HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunked = head.encode() + b"20000\r\n" + b" " * 0x20000 + b"\r\n0\r\n\r\n"
        status, answer = await raw(stage, chunked)
        assert (status, answer["error"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("method", "target", "status", "error"),
    [
        ("POST", "/mcp", 403, "no_token"),
        ("POST", "/mcp/", 404, "not_found"),
        ("GET", "/svc", 404, "not_found"),
        ("GET", "/SVC/github/user", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("GET", bodies.HELLO, 404, "not_found"),
        ("DELETE", "/host/v1/turn", 404, "not_found"),
        ("GET", "/host/v1/turn/x/more", 404, "not_found"),
        ("GET", "/host/v1/turn/²/more", 400, "malformed"),
        ("POST", "/host/v1/turn/1/nothing", 404, "not_found"),
        ("GET", "/host/v1/turn", 400, "malformed"),
        ("GET", "/host/v1/turn?wait=nan&worker=0", 400, "malformed"),
        ("GET", "/host/v1/turn?wait=-1&worker=0", 400, "malformed"),
        ("GET", "/host/v1/turn?wait=1&worker=0&worker=1", 400, "malformed"),
        ("GET", "/host/v1/control?wait=1&a=1", 400, "malformed"),
    ],
)
async def test_where_requests_go(stage: Stage, method: str, target: str, status: int, error: str) -> None:
    async with stage.server():
        await live(stage)
        assert await code(stage, method, target) == (status, error)


# ---- what goes to the gateway


async def test_services_and_the_proxy_are_the_gateways_and_nothing_else_opens_it(stage: Stage) -> None:
    async with stage.server():
        await live(stage)
        assert await code(stage, "POST", "/mcp") == (403, "no_token") and stage.openings == 0
        lines = ["GET /svc/github/user?a=%2f", "POST http://example.test/a/../b", "OPTIONS *", "GET //evil.test/svc/a"]
        for line in lines:
            assert (await ask(stage, *line.split(" ")))[1].get("message", line) == line
        assert stage.gateway.served[:4] == lines
        assert set(stage.gateway.callers) == {stage.caller}


async def test_it_is_asked_by_nobody_who_may_not_speak_here(stage: Stage) -> None:
    request = b"GET /svc/a/b HTTP/1.1\r\nHost: x\r\n\r\n", b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"
    for owned, expected in ((False, (403, "not_this_sandbox")), (None, (503, "starting"))):
        async with stage.server(owns=lambda pid, owned=owned: owned):
            for each in request:
                status, answer = await raw(stage, each)
                assert (status, answer["error"]) == expected
    assert stage.openings == 0


async def test_who_goes_away_and_the_end_of_the_server_end_what_was_asked_for(stage: Stage) -> None:
    async with stage.server():
        for _ in range(2):
            _, writer = await asyncio.open_unix_connection(str(stage.socket))
            writer.write(b"GET /svc/a/wait HTTP/1.1\r\nHost: x\r\n\r\n")
            await eventually(lambda: stage.gateway.waiting == stage.gateway.ended + 1)
            if not stage.gateway.ended:
                writer.close()
                await eventually(lambda: stage.gateway.ended == 1)
    assert stage.gateway.ended == 2
    writer.close()


async def test_a_request_in_a_tunnel_ends_with_its_client_and_a_tunnel_with_the_server(stage: Stage) -> None:
    async with stage.server():
        reader, writer = await asyncio.open_unix_connection(str(stage.socket))
        writer.write(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for error, status in ((None, b"403"), (StorageError("the disk is full"), b"503"), (RuntimeError("x"), b"500")):
            stage.gateway.error = error
            writer.write(b"GET /inside HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.split(b" ")[1] == status
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(length)
            if status == b"500":
                assert await reader.read() == b""
        assert stage.gateway.served == ["GET /inside"] * 3
        stage.gateway.error, ended = None, stage.gateway.ended
        reader, again = await asyncio.open_unix_connection(str(stage.socket))
        again.write(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        again.write(b"GET /inside/wait HTTP/1.1\r\nHost: a\r\n\r\n")
        await eventually(lambda: stage.gateway.waiting)
        again.close()
        await eventually(lambda: stage.gateway.ended > ended)
    writer.close()


async def test_what_fails_in_it_is_a_sentence(stage: Stage) -> None:
    async with stage.server():
        for error, expected in (
            (StorageError("the disk is full"), (503, "storage")),
            (RuntimeError("secret"), (500, "internal")),
        ):
            stage.gateway.error = error
            assert await code(stage, "GET", "/svc/a/b") == expected


async def test_what_is_no_http_is_400(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async with stage.server():
        for data in (b"secret\r\n\r\n", b"\x16\x03\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\nsecret\r\n\r\n"):
            status, answer = await raw(stage, data)
            assert (status, answer["error"]) == (400, "malformed") and answer["rule"] == "malformed"
        await eventually(lambda: len(stage.gateway.noted) == 3)
    assert stage.gateway.noted == [(400, "malformed")] * 3 and "secret" not in caplog.text


async def test_a_host_that_no_library_reads_is_judged_as_it_is(stage: Stage) -> None:
    async with stage.server():
        target = "xn--pi-2db.example.org:443"
        status, answer = await raw(stage, f"GET http://{target}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (status, answer["message"]) == (403, f"GET http://{target}/")


async def test_errors_of_the_desk_are_answers(stage: Stage) -> None:
    class Failing(MemoryDesk):
        error: Exception

        async def events(self, lease: Any, events: Any) -> None:
            raise self.error

    stage.desk = desk = Failing()
    async with stage.server():
        turn = await live(stage)
        for error, expected in (
            (StorageError("the disk is full"), (503, "storage")),
            (ClawdError("too many"), (422, "refused")),
            (RuntimeError("secret"), (500, "internal")),
        ):
            desk.error = error
            status, answer = await ask(stage, "POST", f"/host/v1/turn/{turn.id}/events", {**FENCE, "events": []})
            assert (status, answer["error"]) == expected and "secret" not in str(answer)


# ---- anything at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
FIELDS = sorted(
    {
        field.alias or name
        for model in (bodies.Hello, bodies.Step, bodies.Events, bodies.FinalBody, bodies.ToolBody)
        for name, field in model.model_fields.items()
    }
)
NEAR = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8).map(lambda body: {**STEP, **FINAL, **body})
ONE_OFF = st.tuples(st.sampled_from([STEP, FINAL, SEND, HELLO]), st.sampled_from(FIELDS), JSON).map(
    lambda drawn: {**drawn[0], drawn[1]: drawn[2]}
)
BODY = st.binary(max_size=60) | (JSON | NEAR | ONE_OFF).map(lambda value: json.dumps(value).encode())
VERB = st.sampled_from(
    ["turn/1/step", "turn/1/events", "turn/1/final", "tools/send_message", "tools/send_file", "hello"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests=st.lists(st.tuples(VERB, BODY), min_size=1, max_size=8))
def test_no_body_is_an_internal_error(requests: list[tuple[str, bytes]]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="clawd-") as directory:
            stage = Stage(Path(directory), port=0)
            stage.work.mkdir(parents=True)
            async with stage.server():
                await live(stage)
                for verb, body in requests:
                    status, answer = await ask(stage, "POST", f"/host/v1/{verb}", body, BEARER)
                    assert status in (200, 400, 403, 404, 409, 413, 422, 429), answer

    anyio.run(main)
