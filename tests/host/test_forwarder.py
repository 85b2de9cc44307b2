"""The forwarder of a real runner: ordinary clients reach the tools through it, nobody reaches the turn
protocol."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import anyio
import pytest

from .conftest import Stage
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
                    if (await anyio.to_thread.run_sync(fetch, stage, "/svc/x"))[0] == 200:
                        return
                except OSError:
                    await anyio.sleep(0.01)
