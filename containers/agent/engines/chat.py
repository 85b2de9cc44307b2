"""The chat completions dialect (OpenAI, and all who speak it): a request, and what its stream's chunks mean."""

from __future__ import annotations

import json

from agent.calls import arguments_of, as_json, count, raw_of, text_of
from agent.engines.stream import Reply, failure_of

HEADERS: dict[str, str] = {}
# Parameters that a model may not know, by the words that name one in a refusal: it is asked again without.
OPTIONAL = {
    "reasoning_effort": ("reasoning", "effort"),
    "max_tokens": ("max_tokens",),
    "max_completion_tokens": ("max_completion_tokens", "max_tokens"),
    "stream_options": ("stream_options",),
}
_STOPS = {"length": "max_tokens", "content_filter": "refusal"}


def request(model: dict, context: dict, talk: list[dict], without: set[str]) -> dict:
    text = "\n\n".join(part["text"] for part in context["system"] if part["text"].strip())
    messages: list[dict] = [{"role": "system", "content": text}] if text else []
    for entry in talk:
        messages += spoken(entry)
    # OpenAI's newer models take only the long name, many others only the short one.
    names = ["max_tokens", "max_completion_tokens"][:: -1 if model["service"] == "openai" else 1]
    limits = [name for name in names if name not in without]
    body: dict = {"model": model["model"], "messages": messages, "stream": True}
    body["stream_options"] = {"include_usage": True}
    if limits:
        body[limits[0]] = model["max_output"]
    if context["tools"]:
        tools = [{field: tool[field] for field in ("name", "description", "parameters")} for tool in context["tools"]]
        body["tools"] = [{"type": "function", "function": tool} for tool in tools]
    if model.get("effort"):
        body["reasoning_effort"] = model["effort"]
    return {name: value for name, value in body.items() if name not in without}


def spoken(entry: dict) -> list[dict]:
    if entry["role"] == "user":
        results = [{"role": "tool", "tool_call_id": id, "content": text} for id, text in entry["results"].items()]
        return [*results, *([{"role": "user", "content": "\n\n".join(entry["texts"])}] if entry["texts"] else [])]
    message: dict = {"role": "assistant", "content": entry["text"] or None}
    if entry["calls"]:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments_of(raw)[0])}}
            for id, name, raw in entry["calls"]
        ]
    return [message]


class Answer(Reply):
    def take(self, event: dict) -> None:
        """One chunk, or a whole answer of a server that does not stream. Raises Failure for an error in mid-stream."""
        if event.get("error"):
            raise failure_of(0, event)
        self.whole = self.whole or "done" in event
        self.report(event.get("usage"))
        for choice in (event.get("choices") or ())[:1]:
            delta = choice.get("delta") or choice.get("message") or {}
            self.texts += [text_of(delta.get(name)) for name in ("content", "refusal")]
            for call in delta.get("tool_calls") or ():
                self._call(call)
            if choice.get("finish_reason"):
                self.whole = True
                self.stop = _STOPS.get(str(choice["finish_reason"]), "end")

    def _call(self, piece: dict) -> None:
        """A piece of a call. It is told from others by its index; some servers give none, or all the same one."""
        function, index, id = piece.get("function") or {}, str(piece.get("index")), piece.get("id")
        last = next((call for call in reversed(self.calls) if call[0].split(" ")[0] == index), None)
        again = last is not None and function.get("name") and as_json(last[2].encode()) is not None
        if last is None or again or (id and id != last[0].partition(" ")[2]):
            last = [f"{index} {id or ''}", "", ""]
            self.calls.append(last)
        last[1] = last[1] or str(function.get("name") or "")
        last[2] += raw_of(function.get("arguments"))

    def usage(self) -> tuple[int, int, int]:
        """(input with what was cached, output, cached)"""
        read, details = count(self.reported.get("prompt_tokens")), self.reported.get("prompt_tokens_details")
        cached = count(details.get("cached_tokens")) if isinstance(details, dict) else 0
        return read, count(self.reported.get("completion_tokens")), min(read, cached)
