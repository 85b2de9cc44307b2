"""Chat completions: what they take, and their stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.standin.refusal import Refused, known, named, need, spoken

FIELDS = (
    "model messages max_tokens max_completion_tokens tools tool_choice parallel_tool_calls stream stream_options "
    "temperature top_p stop seed user n reasoning_effort response_format metadata store prompt_cache_key "
    "frequency_penalty presence_penalty service_tier verbosity safety_identifier"
)
SHAPES = {
    "system": ("content", "name"),
    "developer": ("content", "name"),
    "user": ("content", "name"),
    "assistant": ("content", "tool_calls", "refusal", "name", "reasoning_content"),
    "tool": ("content", "tool_call_id", "name"),
}


def check(body: Any, headers: dict[str, str], alternate: bool) -> None:
    known(body, FIELDS, "body")
    need(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    for name in ("max_tokens", "max_completion_tokens"):
        need(type(body.get(name, 1)) is int and body.get(name, 1) > 0, f"{name}: below the minimum")
    need("max_tokens" not in body or "max_completion_tokens" not in body, "max_tokens: set both")
    need(body.get("stream") or "stream_options" not in body, "stream_options: only allowed when stream is enabled")
    need(body.get("tools") != [], "tools: array too short")
    for n, tool in enumerate(body.get("tools", ())):
        known(tool, ("type", "function"), f"tools.{n}")
        need(tool.get("type") == "function", f"tools.{n}.type: unknown")
        known(tool["function"], ("name", "description", "parameters", "strict"), f"tools.{n}.function")
        named(tool["function"].get("name"), 64, f"tools.{n}.function.name")
    efforts = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    need(body.get("reasoning_effort", "low") in efforts, "reasoning_effort: unknown value")
    conversation(body.get("messages"), alternate)


def conversation(messages: Any, alternate: bool) -> None:
    need(isinstance(messages, list) and messages, "messages: empty array")
    seen: set[str] = set()
    waiting: list[str] = []
    before = "system"
    for n, message in enumerate(messages):
        where, role = f"messages[{n}]", message.get("role")
        need(role in SHAPES, f"{where}.role: unknown")
        known(message, ("role", *SHAPES[role]), where)
        if role == "tool":
            need(message.get("tool_call_id") in waiting, f"{where}: must be a response to a preceding 'tool_calls'")
            need(isinstance(message.get("content"), str | list), f"{where}.content: must be text")
            waiting.remove(message["tool_call_id"])
            before = role
            continue
        need(not waiting, f"{where}: tool_call_ids without response messages: {waiting}")
        need(not alternate or role in ("system", "developer") or role != before, f"{where}: roles must alternate")
        need(not alternate or before == "system" or role not in ("system", "developer"), f"{where}: system comes first")
        need(role != "assistant" or before not in ("system", "developer"), f"{where}: the first message is the user's")
        before = role
        calls = message.get("tool_calls")
        need(calls != [], f"{where}.tool_calls: array too short")
        if calls is None or message.get("content") is not None:
            content = message.get("content")
            for text in [part.get("text", "image") for part in content] if isinstance(content, list) else [content]:
                spoken(text, f"{where}.content")
        for call in calls or ():
            known(call, ("id", "type", "function"), where)
            need(call.get("type") == "function" and isinstance(call.get("id"), str), f"{where}: no call")
            known(call["function"], ("name", "arguments"), where)
            named(call["function"].get("name"), 64, f"{where}.tool_calls.function.name")
            need(call["id"] not in seen, f"{where}: duplicate id")
            try:
                need(isinstance(json.loads(call["function"]["arguments"]), dict), f"{where}: arguments: no object")
            except ValueError:
                raise Refused(f"{where}: arguments are not JSON") from None
            seen.add(call["id"])
            waiting.append(call["id"])
    need(not waiting and before in ("user", "tool"), "the conversation must end with a user's message or a result")


def said(body: Any) -> str:
    """The newest text of a user."""
    content = next((each["content"] for each in reversed(body["messages"]) if each["role"] == "user"), "")
    return content if isinstance(content, str) else str(content[-1].get("text", ""))


def results(body: Any) -> list[str]:
    """The tool results since the newest assistant message."""
    found: list[str] = []
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            break
        if message["role"] == "tool":
            found.insert(0, message["content"])
    return found


def error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def usage_of(body: Any, reply: Any) -> dict[str, Any]:
    prompt, completion = len(json.dumps(body)) // 4, 1 + len(reply.text) // 4
    usual = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {**usual, "prompt_tokens_details": {"cached_tokens": 0}, **(reply.usage or {})}


def calls_of(reply: Any) -> list[dict[str, Any]]:
    calls = []
    for n, (name, arguments) in enumerate(reply.calls):
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": name, "arguments": raw}
        calls.append({"id": f"call_{id(reply)}_{n}", "type": "function", "function": function})
    return calls


def whole(body: Any, reply: Any) -> dict[str, Any]:
    calls = calls_of(reply)
    message = {"role": "assistant", "content": reply.text or None, **({"tool_calls": calls} if calls else {})}
    stop = reply.stop or ("tool_calls" if reply.calls else "stop")
    choice = {"index": 0, "message": message, "finish_reason": stop, "logprobs": None}
    usage = {} if reply.usage is None else {"usage": usage_of(body, reply)}
    return {"id": "c1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice], **usage}


def events(body: Any, reply: Any) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any], stop: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": stop, "logprobs": None}]
        return event({**head, "choices": choices})

    head = {"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    yield chunk({"role": "assistant", "content": ""})
    for at in range(0, len(reply.text), reply.words):
        yield chunk({"content": reply.text[at : at + reply.words]})
    for index, call in enumerate(calls_of(reply)):
        raw = call["function"]["arguments"]
        opening = {**call, "function": {**call["function"], "arguments": ""}}
        yield chunk({"tool_calls": [{"index": index, **opening}]})
        for at in range(0, len(raw), reply.words):
            piece = {"index": index, "function": {"arguments": raw[at : at + reply.words]}}
            yield chunk({"tool_calls": [piece]})
    if reply.error:
        yield event(error(reply.error, "scripted"))
        return
    yield chunk({}, reply.stop or ("tool_calls" if reply.calls else "stop"))
    if reply.usage is not None and body.get("stream_options", {}).get("include_usage"):
        yield event({**head, "choices": [], "usage": usage_of(body, reply)})
    yield b"data: [DONE]\n\n"


def event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
