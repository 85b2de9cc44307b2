"""The host tools as an MCP server: streamable HTTP with plain JSON answers, stateless, on the run's socket.

Four methods (initialize, ping, tools/list, tools/call) and nothing kept between them, so the SDK, which brings a web
framework of its own, is not needed. What a tool refuses is a result with `isError`, which the model reads; only what is
no MCP is an error of the protocol.
"""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web

from clawd import __version__
from clawd.context.parts import compact
from clawd.errors import ClawdError
from clawd.host import bodies
from clawd.host.bodies import Problem
from clawd.host.calls import ToolCalls, problem_of, read
from clawd.host.connection import problem
from clawd.host.tools import schema
from clawd.turns.desk import Effect, Lease

log = logging.getLogger(__name__)

# Newest first. One that is not known is answered with the first: the client decides whether it can go on.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
ASSUMED = "2025-03-26"  # of a client that does not say: so the specification has it
BATCHES = frozenset({"2025-03-26", "2024-11-05"})  # versions that have them
MOST_IN_A_BATCH = 50
_PARSE, _REQUEST, _METHOD, _PARAMS, _INTERNAL = -32700, -32600, -32601, -32602, -32603

Given = list[tuple[Lease, Effect]]


class Wrong(Exception):
    """An error of JSON-RPC: its code and a sentence."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


async def serve(request: web.BaseRequest, calls: ToolCalls) -> web.StreamResponse:
    """One HTTP request to /mcp. Raises Problem for what is refused before it is MCP."""
    if request.method != "POST":  # nothing is ever pushed, and there is no session to end
        response = problem(Problem(405, "method", "MCP is spoken with POST here"))
        response.headers["Allow"] = "POST"
        return response
    calls.admit(request)
    if not _local(request.headers.get("Origin")):
        raise Problem(403, "origin", "no page of the web may speak here")
    data = await read(request, bodies.TOOL_BYTES)
    given: Given = []
    try:
        version = request.headers.get("MCP-Protocol-Version", ASSUMED)
        if version not in VERSIONS:
            raise Wrong(_REQUEST, f"this server speaks MCP {', '.join(VERSIONS)}")
        messages, batch = _messages(data, version)
    except Wrong as wrong:
        return web.json_response(_error(None, wrong), status=400)
    answers = [answer for each in messages if (answer := await _answer(request, calls, each, given)) is not None]
    if not answers:
        return web.Response(status=202)
    response = web.json_response(answers if batch else answers[0], dumps=compact)
    return await calls.answer(request, response, given)


def _messages(data: bytes, version: str) -> tuple[list[Any], bool]:
    """The messages of a body, and whether they are a batch. Raises Wrong for what is neither."""
    try:
        value = bodies.parse(data)
    except Problem as error:
        raise Wrong(_PARSE, error.message) from None
    if not isinstance(value, list):
        if not isinstance(value, dict) or not _is_message(value):
            raise Wrong(_REQUEST, "this is no JSON-RPC 2.0 message")
        return [value], False
    if version not in BATCHES:
        raise Wrong(_REQUEST, f"MCP {version} has no batches")
    if not 0 < len(value) <= MOST_IN_A_BATCH:
        raise Wrong(_REQUEST, f"a batch holds 1 to {MOST_IN_A_BATCH} messages")
    return value, True


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return False
    id, answers = value.get("id"), "result" in value or "error" in value
    known = "id" not in value or (isinstance(id, str | int) and not isinstance(id, bool))
    return known and (isinstance(value.get("method"), str) or ("id" in value and answers))


async def _answer(request: web.BaseRequest, calls: ToolCalls, message: Any, given: Given) -> dict[str, Any] | None:
    """The answer to one message; None for notifications, and for answers, which nobody asked for."""
    if not _is_message(message):
        return _error(None, Wrong(_REQUEST, "this is no JSON-RPC 2.0 message"))
    if "id" not in message or "method" not in message:
        return None
    try:
        params = message.get("params", {})
        if not isinstance(params, dict):
            raise Wrong(_PARAMS, "params must be an object")
        result = await _result(request, calls, message["method"], params, given)
    except Wrong as wrong:
        return _error(message["id"], wrong)
    except ConnectionError:
        raise
    except Exception:
        log.exception("MCP: %s failed", message["method"][:100])
        return _error(message["id"], Wrong(_INTERNAL, "the daemon failed at this; its log says more"))
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


async def _result(
    request: web.BaseRequest, calls: ToolCalls, method: str, params: dict[str, Any], given: Given
) -> dict[str, Any]:
    match method:
        case "initialize":
            asked = params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": "clawd", "version": __version__},
            }
        case "ping":
            return {}
        case "tools/list":
            return {
                "tools": [
                    {"name": name, "description": f"{tool.DESCRIPTION} {tool.HELP}", "inputSchema": schema(tool)}
                    for name, tool in calls.tools.items()
                ]
            }
        case "tools/call":
            return await _call(request, calls, params, given)
    raise Wrong(_METHOD, f"there is no method {method[:100]!r}")


async def _call(request: web.BaseRequest, calls: ToolCalls, params: dict[str, Any], given: Given) -> dict[str, Any]:
    name, arguments = params.get("name"), params.get("arguments", {})
    if not isinstance(name, str) or name not in calls.tools:
        raise Wrong(_PARAMS, f"there is no such tool; there are {', '.join(sorted(calls.tools))}")
    if not isinstance(arguments, dict):
        raise Wrong(_PARAMS, "arguments must be an object")
    try:
        lease, effect = await calls.call(request, name, arguments)
    except Problem as refusal:
        return _text(refusal.message, wrong=True)
    except ClawdError as error:
        return _text(problem_of(error).message, wrong=True)
    given.append((lease, effect))
    result = effect.result
    alone = result.get("text") if result.keys() == {"text"} else None
    return _text(result.get("error") or result.get("help") or alone or compact(result), wrong="error" in result)


def _text(text: str, *, wrong: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": wrong}


def _error(id: Any, wrong: Wrong) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": wrong.code, "message": wrong.message}}


def _local(origin: str | None) -> bool:
    """Whether a browser, if it is one, shows a page of the sandbox itself."""
    host = (origin or "http://localhost").partition("://")[2].rsplit(":", 1)[0]
    return host in ("localhost", "127.0.0.1")
