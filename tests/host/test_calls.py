"""Calls of host tools by other processes of the sandbox: whose turn they belong to; a lost answer costs nothing."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from .conftest import Stage
from .memory_desk import TOKEN
from .test_server import BEARER, FINAL, TARGET, ask, code, elsewhere, live

pytestmark = pytest.mark.anyio

SEND = {"schema": 1, "arguments": {"text": "hello"}}


def request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {TARGET} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def test_another_process_uses_the_only_live_turn_or_names_one(stage: Stage) -> None:
    sessions: dict[str, int] = {}
    stage.caller = SimpleNamespace(turn_of=sessions.get)
    async with stage.server():
        turn = await live(stage)
        for named in ({}, {"turn": turn.id}):
            answer = await anyio.to_thread.run_sync(elsewhere, stage, request({**SEND, **named}))
            assert answer.startswith(b"HTTP/1.1 200")
        assert len(stage.sent) == 2  # equal, and both were meant
        other = stage.desk.submit("another")
        await ask(stage, "GET", "/host/v1/turn?wait=1&worker=1")
        assert await code(stage, "POST", TARGET, SEND, headers=BEARER) == (403, "no_turn")  # which of the two?
        sessions["terminal:two"] = other.id
        named = {**BEARER, "X-Clawd-Session": "terminal:two"}
        assert (await code(stage, "POST", TARGET, SEND, headers=named))[0] == 200
        assert [key[0] for key in stage.desk.effects] == [turn.id, turn.id, other.id]
        unknown = {**BEARER, "X-Clawd-Session": "terminal:three"}
        assert await code(stage, "POST", TARGET, SEND, headers=unknown) == (403, "no_turn")
        await ask(stage, "POST", f"/host/v1/turn/{other.id}/final", {**FINAL, "worker": 1})
        assert await code(stage, "POST", TARGET, SEND, headers=named) == (403, "no_turn")


async def test_an_answer_that_nobody_read_is_given_again_and_nothing_done_twice(stage: Stage) -> None:
    async with stage.server():
        await live(stage)
        stage.desk.slowly = anyio.Event()
        _, writer = await asyncio.open_unix_connection(str(stage.socket))
        writer.write(request(SEND))
        await stage.desk.until(lambda: stage.desk.effects)
        writer.close()  # whoever asked is gone before the answer is there
        await writer.wait_closed()
        stage.desk.slowly.set()
        for count in (1, 2):  # the lost one's answer, then one of its own
            status, answer = await ask(stage, "POST", TARGET, SEND, BEARER)
            assert (status, answer["result"], len(stage.sent)) == (200, {"queued": "message"}, count)
        assert stage.desk.given == {1, 2}


async def test_help_does_nothing_and_a_wrong_call_says_where_to_look(stage: Stage) -> None:
    async with stage.server():
        await live(stage)

        async def call(tool: str, **arguments: Any) -> tuple[int, dict[str, Any]]:
            return await ask(stage, "POST", f"/host/v1/tools/{tool}", {"schema": 1, "arguments": arguments}, BEARER)

        status, answer = await call("tool_help", name="ask")
        assert status == 200 and "expires_hours" in answer["result"]["help"]
        status, answer = await call("ask", questoin="x")
        assert status == 400 and "tool_help ask" in answer["message"]
        assert not stage.desk.effects and not stage.desk.given


async def test_a_numbered_call_keeps_its_result_though_the_file_is_gone(stage: Stage) -> None:
    async with stage.server():
        await live(stage)
        (stage.work / "a.txt").write_text("hello")
        body = {"schema": 1, "arguments": {"path": "a.txt"}, "nth": 0}
        first = await ask(stage, "POST", "/host/v1/tools/send_file", body, BEARER)
        (stage.work / "a.txt").unlink()
        assert first[0] == 200 and await ask(stage, "POST", "/host/v1/tools/send_file", body, BEARER) == first
