"""The Messages API: what it takes, and its stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.standin.refusal import known, named, need, spoken

FIELDS = (
    "model messages max_tokens system tools tool_choice stream temperature top_p top_k stop_sequences metadata "
    "thinking output_config service_tier cache_control container context_management mcp_servers betas speed"
)
BLOCKS = {
    "text": ("text", "citations"),
    "tool_use": ("id", "name", "input", "caller"),
    "tool_result": ("tool_use_id", "content", "is_error"),
    "image": ("source",),
    "document": ("source", "title", "context", "citations"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}


def check(body: Any, headers: dict[str, str], alternate: bool) -> None:
    known(body, FIELDS, "body")
    need(headers.get("anthropic-version"), "anthropic-version: header is required")
    need(isinstance(body.get("model"), str) and body["model"], "model: Field required")
    need(type(body.get("max_tokens")) is int and body["max_tokens"] > 0, "max_tokens: must be greater than 0")
    for n, block in enumerate(body["system"] if isinstance(body.get("system"), list) else ()):
        known(block, ("type", "text", "cache_control"), f"system.{n}")
        spoken(block.get("text"), f"system.{n}")
    for n, tool in enumerate(body.get("tools", ())):
        named(tool.get("name"), 128, f"tools.{n}.name")
        if tool.get("type", "custom") == "custom":
            need(tool.get("input_schema", {}).get("type") == "object", f"tools.{n}.input_schema.type: Field required")
    names = [tool["name"] for tool in body.get("tools", ())]
    need(len(set(names)) == len(names), "tools: Tool names must be unique")
    effort = body.get("output_config", {}).get("effort", "low")
    need(effort in ("low", "medium", "high", "xhigh", "max"), "output_config.effort: unknown value")
    marks = json.dumps(body).count('"cache_control": {"type": "ephemeral"')
    need(marks <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
    messages = body.get("messages")
    if "mid-conversation" in headers.get("anthropic-beta", ""):  # then the system may speak in between
        messages = [each for each in messages if each.get("role") != "system"]
    conversation(messages, alternate)


def conversation(messages: Any, alternate: bool) -> None:
    need(isinstance(messages, list) and messages, "messages: at least one message is required")
    seen: set[str] = set()
    open_calls: list[str] = []
    before = "assistant"
    for n, message in enumerate(messages):
        where = f"messages.{n}"
        known(message, ("role", "content"), where)
        role = message.get("role")
        need(role in ("user", "assistant"), f"{where}.role: unexpected role")
        need(n or role == "user", "messages: first message must use the user role")
        need(not alternate or role != before, f"messages: roles must alternate, {where}")
        before = role
        blocks = message.get("content")
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        need(isinstance(blocks, list) and blocks, f"{where}: all messages must have non-empty content")
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        need(sorted(results) == sorted(open_calls), f"{where}: tool_use ids without their tool_result, or the reverse")
        leading = [block.get("type") for block in blocks[: len(results)]]
        need(leading == ["tool_result"] * len(results), f"{where}: tool_result blocks must come first")
        open_calls = []
        for k, block in enumerate(blocks):
            at, kind = f"{where}.content.{k}", block.get("type")
            need(kind in BLOCKS, f"{at}.type: unknown")
            known(block, ("type", "cache_control", *BLOCKS[kind]), at)
            if kind == "text":
                spoken(block.get("text"), at)
            elif kind == "tool_use":
                need(role == "assistant", f"{at}: `tool_use` blocks can only be in assistant messages")
                named(block.get("id"), 200, f"{at}.id")
                named(block.get("name"), 200, f"{at}.name")
                need(isinstance(block.get("input"), dict), f"{at}.input: Input should be a valid dictionary")
                need(block["id"] not in seen, f"{at}: `tool_use` ids must be unique")
                seen.add(block["id"])
                open_calls.append(block["id"])
            elif kind == "tool_result":
                need(role == "user", f"{at}: `tool_result` blocks can only be in user messages")
                need(isinstance(block.get("content", ""), str | list), f"{at}.content: must be text or blocks")
    need(not open_calls and before == "user", "the conversation must end with a user message")


def said(body: Any) -> str:
    """The newest text of a user."""
    for message in reversed(body["messages"]):
        if message["role"] == "user" and isinstance(message["content"], str):
            return str(message["content"])
        texts = [block["text"] for block in message["content"] if isinstance(block, dict) and block["type"] == "text"]
        if message["role"] == "user" and texts:
            return str(texts[-1])
    return ""


def results(body: Any) -> list[str]:
    """The tool results of the newest message."""
    blocks = body["messages"][-1]["content"]
    found = [block["content"] for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"]
    return ["".join(part.get("text", "") for part in text) if isinstance(text, list) else text for text in found]


def error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def usage_of(body: Any, reply: Any) -> dict[str, Any]:
    usual = {"input_tokens": len(json.dumps(body)) // 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {**usual, "output_tokens": 1 + len(reply.text) // 4, **(reply.usage or {})}


def whole(body: Any, reply: Any) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    for n, (name, arguments) in enumerate(reply.calls):
        content.append({"type": "tool_use", "id": f"toolu_{id(reply)}_{n}", "name": name, "input": arguments})
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content}
    stop = reply.stop or ("tool_use" if reply.calls else "end_turn")
    usage = {} if reply.usage is None else {"usage": usage_of(body, reply)}
    return {**message, "stop_reason": stop, "stop_sequence": None, **usage}


def events(body: Any, reply: Any) -> Iterator[bytes]:
    message = whole(body, reply)
    usage = message.get("usage", {})
    start = {**message, "content": [], "stop_reason": None}
    if usage:
        start["usage"] = {**usage, "output_tokens": 1}
    yield event("message_start", message=start)
    yield event("ping")
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for at in range(0, len(reply.text), reply.words):
                delta = {"type": "text_delta", "text": reply.text[at : at + reply.words]}
                yield event("content_block_delta", index=index, delta=delta)
        else:
            yield event("content_block_start", index=index, content_block={**block, "input": {}})
            raw = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
            for at in range(0, len(raw), reply.words):
                delta = {"type": "input_json_delta", "partial_json": raw[at : at + reply.words]}
                yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    if reply.error:
        yield event("error", error={"type": reply.error, "message": "scripted"})
        return
    ending = {"usage": {"output_tokens": usage["output_tokens"]}} if usage else {}
    yield event("message_delta", delta={"stop_reason": message["stop_reason"], "stop_sequence": None}, **ending)
    yield event("message_stop")


def event(kind: str, **more: Any) -> bytes:
    data = json.dumps({"type": kind, **more}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()
