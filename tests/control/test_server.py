from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.control import descriptors, server, wire
from clawd.control.client import ConnectionLost, ControlClient, NoDaemon
from clawd.control.server import ControlServer
from clawd.errors import ClawdError, NotFound, UsageError
from tests.control.conversations import SESSION, StandIn

pytestmark = pytest.mark.anyio


async def echo(params: dict[str, Any]) -> Any:
    return params


async def missing(params: dict[str, Any]) -> Any:
    raise NotFound("nothing there", hint="look elsewhere")


async def broken(params: dict[str, Any]) -> Any:
    raise ValueError("secret detail")


async def shell(params: dict[str, Any], passed: Sequence[int]) -> int:
    if params["group"] != "main":
        raise NotFound("no such group")
    process = await asyncio.create_subprocess_exec(*params["argv"], stdin=passed[0], stdout=passed[1], stderr=passed[2])
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[StandIn]:
    host = StandIn(directory / "standin.json")
    operations = {"echo": echo, "missing": missing, "broken": broken}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.run)
        await tasks.start(ControlServer(directory, operations, host, shell).serve)
        yield host
        tasks.cancel_scope.cancel()


async def test_an_answer_that_is_too_long_is_an_error_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "ANSWER_LIMIT", 1 << 17)
    async with served(tmp_path), ControlClient(tmp_path) as client:
        with pytest.raises(ClawdError, match="it was done, but the answer") as caught:
            await client.call("echo", text="x" * (1 << 18))
        assert not isinstance(caught.value, ConnectionLost)
        assert await client.call("echo", n=1) == {"n": 1}


async def test_operations_and_their_errors(tmp_path: Path) -> None:
    async with served(tmp_path), ControlClient(tmp_path) as client:
        assert await client.call("echo", text="grüß\u2028dich") == {"text": "grüß\u2028dich"}
        with pytest.raises(NotFound, match="nothing there"):
            await client.call("missing")
        with pytest.raises(Exception, match="failed on this request") as caught:
            await client.call("broken")
        assert "secret" not in str(caught.value)
        with pytest.raises(UsageError):
            await client.call("nonsense")
        with pytest.raises(UsageError, match="longer"):
            await client.call("echo", text="x" * wire.LIMIT)
        assert await client.call("echo", n=1) == {"n": 1}


async def test_bad_lines_are_answered_and_disturb_nobody(tmp_path: Path) -> None:
    async with served(tmp_path), ControlClient(tmp_path) as other:
        reader, writer = await asyncio.open_unix_connection(sock=wire.connect(tmp_path), limit=wire.ANSWER_LIMIT)
        writer.write(b"\xff\n" + b"[" * 100 + b"\n" + b"y" * (wire.LIMIT + 10) + b"\n")
        writer.write(b'{"id":1,"op":["x"]}\n{"id":2,"op":"echo","params":3}\n{"id":3,"op":"echo"}\n')
        answers = [wire.decode(await reader.readline()) for _ in range(6)]
        assert [answer["ok"] for answer in answers] == [False] * 5 + [True]
        assert [answer["id"] for answer in answers] == [None, None, None, 1, 2, 3]
        assert await other.call("echo") == {}
        writer.close()


async def test_a_client_learns_that_nobody_is_there_or_that_the_daemon_went_away(tmp_path: Path) -> None:
    with pytest.raises(NoDaemon):
        await ControlClient(tmp_path).__aenter__()
    async with served(tmp_path):
        client = await ControlClient(tmp_path).__aenter__()
        assert await client.call("echo") == {}
    with pytest.raises(ConnectionLost):
        async for _ in client.events():
            pass
    with pytest.raises(ConnectionLost):
        await client.call("echo")
    await client.__aexit__(None, None, None)
    assert not (tmp_path / wire.NAME).exists()


async def gather(client: ControlClient, until: str) -> list[tuple[str, dict[str, Any]]]:
    events = []
    with anyio.fail_after(10):
        async for event in client.events():
            events.append(event)
            if event[0] == until:
                return events
    raise AssertionError("unreachable")


async def test_a_chat_tells_deltas_then_the_delivery_then_the_outcome(tmp_path: Path) -> None:
    async with served(tmp_path) as host, ControlClient(tmp_path) as client:
        assert await client.call("chat.open", group="main") == {"group": "main", "session": SESSION}
        receipt = await client.call("chat.send", text="echo hi", platform_id="p1")
        assert (receipt["message"], receipt["fresh"]) == (1, True)
        events = await gather(client, "outcome")
        kinds = [kind for kind, _ in events]
        assert "".join(data["text"] for kind, data in events if kind == "delta") == "you said echo hi"
        assert kinds.index("message") > max(i for i, kind in enumerate(kinds) if kind == "delta")
        assert events[-1][1]["message"] == 1 and events[-1][1]["state"] == "recorded"
        delivery = next(data for kind, data in events if kind == "message")
        assert (delivery["text"], delivery["turn"]) == ("you said echo hi", 1)
        await client.call("chat.seen", deliveries=[delivery["delivery"]])
        assert host.rows[0]["seen"] and host.rows[0]["sender"] == "owner"

        again = await client.call("chat.send", text="echo hi", platform_id="p1")
        assert (again["message"], again["fresh"]) == (1, False)
        assert (await gather(client, "outcome"))[-1][1]["turn"] == 1


async def test_what_nobody_saw_is_replayed_and_a_named_session_is_a_thread(tmp_path: Path) -> None:
    async with served(tmp_path) as host:
        async with ControlClient(tmp_path) as client:
            await client.call("chat.open", group="main", session="terminal:x", **{"as": "member:bob"})
            await client.call("chat.send", text="echo a", platform_id="p1")
            await gather(client, "outcome")
        assert (host.rows[0]["thread"], host.rows[0]["sender"]) == ("terminal:x", "member:bob")
        async with ControlClient(tmp_path) as client:
            await client.call("chat.open", session="terminal:x", replay=True)
            assert (await gather(client, "message"))[-1][1]["text"] == "you said echo a"


@pytest.mark.parametrize(
    ("op", "params", "error"),
    [
        ("chat.send", {"text": "x", "platform_id": "p"}, UsageError),
        ("chat.seen", {"deliveries": [1]}, UsageError),
        ("chat.open", {"group": "nowhere"}, NotFound),
        ("chat.open", {"as": "king"}, UsageError),
        ("chat.open", {"as": "member:"}, UsageError),
        ("chat.open", {"group": 7}, UsageError),
    ],
)
async def test_wrong_chat_requests(tmp_path: Path, op: str, params: dict[str, Any], error: type[Exception]) -> None:
    async with served(tmp_path), ControlClient(tmp_path) as client:
        with pytest.raises(error):
            await client.call(op, **params)
        await client.call("chat.open")


async def test_exec_runs_on_the_callers_own_descriptors(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("in", "out")}
    files["in"].write_text("in\n")
    with files["in"].open("rb") as stdin, files["out"].open("wb") as stdout:
        async with served(tmp_path):
            script = "cat; echo err >&2; exit 7; " + "#" * 100_000
            params = {"group": "main", "argv": ["sh", "-c", script]}
            streams = (stdin.fileno(), stdout.fileno(), stdout.fileno())
            code = await asyncio.to_thread(descriptors.execute, tmp_path, params, streams)
    assert (code, files["out"].read_text()) == (7, "in\nerr\n")


async def test_exec_that_is_refused_says_why(tmp_path: Path) -> None:
    async with served(tmp_path):
        with pytest.raises(NotFound, match="no such group"):
            await asyncio.to_thread(descriptors.execute, tmp_path, {"group": "nope", "argv": ["true"]})


async def test_exec_ends_when_its_client_goes_away(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    async with served(tmp_path):
        connection = wire.connect(tmp_path)
        line = wire.encode({"op": descriptors.OP, "params": {"group": "main", "argv": ["sleep", "1000"]}})
        socket.send_fds(connection, [line], [0, writing, writing])
        os.close(writing)
        connection.close()
        with anyio.fail_after(10):  # the pipe ends when the last process that holds it is gone
            assert await asyncio.to_thread(os.read, reading, 1) == b""
    os.close(reading)


@pytest.mark.parametrize(
    "request_",
    [{"op": "echo", "params": {}}, {"op": "sandbox.exec", "params": {"argv": []}}, {"op": "sandbox.exec"}],
)
async def test_descriptors_come_with_a_command_only(tmp_path: Path, request_: dict[str, Any]) -> None:
    async with served(tmp_path):
        with wire.connect(tmp_path) as connection:
            socket.send_fds(connection, [wire.encode(request_)], [0, 1, 2])
            answer = wire.decode(await asyncio.to_thread(connection.recv, 65536))
    assert answer["error"]["code"] == 2


async def test_a_socket_that_somebody_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "NAME_CHECK_S", 0.01)
    async with served(tmp_path), ControlClient(tmp_path) as before:
        assert await before.call("echo", n=0) == {"n": 0}
        assert not caplog.records  # it was not made twice
        (tmp_path / wire.NAME).unlink()
        with anyio.fail_after(10):
            while not (tmp_path / wire.NAME).exists():
                await anyio.sleep(0.01)
        async with ControlClient(tmp_path) as after:
            assert await after.call("echo", n=1) == {"n": 1}
        assert await before.call("echo", n=2) == {"n": 2}
    assert not (tmp_path / wire.NAME).exists()
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # it was made twice, and told once


async def test_a_client_that_leaves_without_reading_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path):
        client = wire.connect(tmp_path)
        client.sendall(b'{"id":1,"op":"echo"}\n')
        await anyio.wait_readable(client)
        client.close()
        async with ControlClient(tmp_path) as other:
            assert await other.call("echo", n=1) == {"n": 1}
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
