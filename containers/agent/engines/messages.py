"""The Messages dialect (Anthropic): a request, and what its stream's events mean."""

from __future__ import annotations

from agent.calls import arguments_of, count, raw_of
from agent.engines.stream import Reply, failure_of

HEADERS = {"anthropic-version": "2023-06-01"}
# Parameters that a model may not know, by the words that name one in a refusal: it is asked again without.
OPTIONAL = {"output_config": ("effort", "output_config"), "cache_control": ("cache_control",)}
_STOPS = {"pause_turn": "pause", "model_context_window_exceeded": "context"}


def request(model: dict, context: dict, talk: list[dict], without: set[str]) -> dict:
    messages = [{"role": entry["role"], "content": blocks(entry)} for entry in talk]
    body: dict = {"model": model["model"], "max_tokens": model["max_output"], "stream": True}
    parts = [{"type": "text", "text": part["text"]} for part in context["system"] if part["text"].strip()]
    if parts:
        body["system"] = parts
    if context["tools"]:
        body["tools"] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in context["tools"]
        ]
    if model.get("effort") and "output_config" not in without:
        body["output_config"] = {"effort": model["effort"]}
    if "cache_control" not in without:  # four may be; what is the same in each turn, and the user's newest two
        for block in [*parts[-1:], *(message["content"][-1] for message in messages[-1:-4:-2])]:
            block["cache_control"] = {"type": "ephemeral"}
    return {**body, "messages": messages}


def blocks(entry: dict) -> list[dict]:
    if entry["role"] == "user":
        results = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in entry["results"].items()]
        return [*results, *({"type": "text", "text": text} for text in entry["texts"])]
    texts = [{"type": "text", "text": entry["text"]}] if entry["text"] else []
    calls = [
        {"type": "tool_use", "id": id, "name": name, "input": arguments_of(raw)[0]} for id, name, raw in entry["calls"]
    ]
    return [*texts, *calls]


class Answer(Reply):
    def take(self, event: dict) -> None:
        """One event. Raises Failure for an error in mid-stream. What it does not know, thinking too, it passes over."""
        kind, part = event.get("type"), event.get("delta") or event.get("content_block") or event.get("message") or {}
        if kind == "error":
            raise failure_of(0, event)
        if kind == "message_start":
            self.report(part.get("usage"))
        elif kind == "content_block_start" and part.get("type") == "tool_use":
            self.calls.append([str(event.get("index")), str(part.get("name") or ""), raw_of(part.get("input") or "")])
        elif kind == "content_block_start" and part.get("type") == "text" or part.get("type") == "text_delta":
            self.texts.append(str(part.get("text") or ""))
        elif kind == "content_block_delta" and part.get("type") == "input_json_delta":
            for call in self.calls:
                if call[0] == str(event.get("index")):
                    call[2] += str(part.get("partial_json") or "")
        elif kind == "message_delta":
            stop = str(part.get("stop_reason"))
            self.stop = _STOPS.get(stop, stop[:40])
            self.report(event.get("usage"))
        elif kind == "message":  # of a server that does not stream
            for index, block in enumerate(event.get("content") or ()):
                self.take({"type": "content_block_start", "index": index, "content_block": block})
            self.take({**event, "type": "message_delta", "delta": event})
        self.whole = self.whole or kind in ("message", "message_stop")

    def usage(self) -> tuple[int, int, int]:
        """(input with what was cached, output, cached)"""
        reported = {name: count(value) for name, value in self.reported.items()}
        cached, written = reported.get("cache_read_input_tokens", 0), reported.get("cache_creation_input_tokens", 0)
        return reported.get("input_tokens", 0) + cached + written, reported.get("output_tokens", 0), cached
