"""The host tools over MCP, with raw requests: what a client of any version sends, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawd import __version__
from clawd.host import bodies
from clawd.host.mcp import MOST_IN_A_BATCH, VERSIONS
from clawd.host.tools import built_in

from .conftest import Stage
from .test_server import BEARER, ask, live

pytestmark = pytest.mark.anyio


async def post(stage: Stage, body: Any, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer; None for one without a body."""
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await ask(stage, "POST", "/mcp", body, {**BEARER, **named})
    except json.JSONDecodeError:
        return 202, None


def request(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


def send(text: str, id: Any = 1) -> dict[str, Any]:
    return request("tools/call", {"name": "send_message", "arguments": {"text": text}}, id)


def said(answer: Any) -> tuple[str, bool]:
    [content] = answer["result"]["content"]
    return content["text"], answer["result"]["isError"]


async def test_a_clients_way_from_its_first_word_to_a_call(stage: Stage) -> None:
    async with stage.server():
        for asked, spoken in [*((version, version) for version in VERSIONS), ("1999-01-01", VERSIONS[0])]:
            status, answer = await post(stage, request("initialize", {"protocolVersion": asked, "capabilities": {}}))
            assert (status, answer["result"]["protocolVersion"]) == (200, spoken)
        assert answer["result"]["serverInfo"] == {"name": "clawd", "version": __version__}
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert await post(stage, initialized, MCP_Protocol_Version=VERSIONS[0]) == (202, None)
        assert (await post(stage, request("ping", id="a")))[1] == {"jsonrpc": "2.0", "id": "a", "result": {}}
        listed = (await post(stage, request("tools/list")))[1]["result"]["tools"]
        assert [each["name"] for each in listed] == list(built_in())
        assert set(listed[2]["inputSchema"]["properties"]) == {"question", "choices", "note", "expires_hours"}
        text, wrong = said((await post(stage, send("early")))[1])
        assert wrong and "only while a turn is live" in text
        await live(stage)
        for _ in range(2):  # equal, and both were answered
            assert said((await post(stage, send("hello")))[1]) == ('{"queued":"message"}', False)
        assert [each[1] for each in stage.sent] == ["hello", "hello"]
        help = request("tools/call", {"name": "tool_help", "arguments": {"name": "react"}})
        text, wrong = said((await post(stage, help))[1])
        assert text.startswith("react: ") and not wrong


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"name": "send_message", "arguments": {"text": " "}}, "needs some text"),
        ({"name": "send_message", "arguments": {"text": 5}}, "tool_help send_message"),
        ({"name": "send_message"}, "Field required"),
        ({"name": "send_file", "arguments": {"path": "/etc/passwd"}}, "/group/work"),
    ],
)
async def test_a_refusal_is_a_result_that_the_model_reads(stage: Stage, params: Any, words: str) -> None:
    async with stage.server():
        await live(stage)
        text, wrong = said((await post(stage, request("tools/call", params)))[1])
        assert wrong and words in text and not stage.sent


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"{", 400, -32700),
        (b"[" * 40 + b"]" * 40, 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"\\u0000"}', 400, -32700),
        (5, 400, -32600),
        ({}, 400, -32600),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, 400, -32600),
        ([], 400, -32600),
        ([request("ping")] * (MOST_IN_A_BATCH + 1), 400, -32600),
        (request("resources/list"), 200, -32601),
        (request("ping", []), 200, -32602),
        (request("tools/call", {"name": "rm"}), 200, -32602),
        (request("tools/call", {"name": 5}), 200, -32602),
        (request("tools/call", {"name": "ask", "arguments": []}), 200, -32602),
    ],
)
async def test_what_is_no_mcp_is_an_error_of_the_protocol(stage: Stage, body: Any, status: int, error: int) -> None:
    async with stage.server():
        assert [(s, a["error"]["code"]) for s, a in [await post(stage, body)]] == [(status, error)]


async def test_batches_are_for_the_versions_that_have_them(stage: Stage) -> None:
    async with stage.server():
        await live(stage)
        batch = [send("a", "x"), {"jsonrpc": "2.0", "method": "notifications/x"}, 5, send("a", 7), request("no", id=8)]
        for version in ({}, {"MCP_Protocol_Version": "2025-03-26"}):
            status, answers = await post(stage, batch, **version)
            assert (status, [each["id"] for each in answers]) == (200, ["x", None, 7, 8])
        assert (await post(stage, [batch[1]])) == (202, None)
        for version in ("2025-06-18", "2025-11-25", "nonsense"):
            status, answer = await post(stage, batch, MCP_Protocol_Version=version)
            assert (status, answer["error"]["code"]) == (400, -32600)
        # In one batch equal calls cannot know of each other's answers: they are one.
        assert len(stage.sent) == 2


async def test_the_way_in(stage: Stage) -> None:
    async with stage.server():
        await live(stage)
        body = send("hello")
        assert (await ask(stage, "POST", "/mcp", body))[1]["error"] == "no_token"
        for method in ("GET", "DELETE"):
            assert (await ask(stage, method, "/mcp", None, BEARER))[0] == 405
        assert (await post(stage, body, Origin="https://evil.test"))[1]["error"] == "origin"
        assert (await post(stage, send("x" * bodies.TOOL_BYTES)))[0] == 413
        assert not stage.sent
        assert (await post(stage, body, Origin="http://localhost:3000"))[0] == 200
        texts = [said((await post(stage, body))[1])[0] for _ in range(bodies.CALLS_PER_SECOND)]
        assert f"more than {bodies.CALLS_PER_SECOND} tool calls" in texts[-1]
        assert (await post(stage, request("ping")))[0] == 200
