"""What the Claude Code CLI says during a turn (`--output-format stream-json`), and what each of it is to the turn."""

from __future__ import annotations

import re

from agent import protocol
from agent.calls import count
from agent.turn import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.engines.claude_code import Engine
    from agent.engines.foreign import Poster

DENIED = {
    "WebSearch": "WebSearch is not open here: it would go around the gateway. Use Bash with curl for the services that"
    " this group may use.",
    "WebFetch": "WebFetch is not open here: it would go around the gateway. Use Bash with curl: it goes through the"
    " gateway, to the services that this group may use.",
    "AskUserQuestion": "Nobody sits in front of this. Use the tool mcp__clawd__ask, and end your turn: the answer wakes"
    " you.",
}


class Stream:
    """The events of one turn. An assistant message comes block by block; it is posted once it is whole, and only then
    do its tools get their yes."""

    def __init__(self, engine: Engine, poster: Poster) -> None:
        self._engine, self._poster = engine, poster
        self._open = False  # a message is on its way
        self._text = ""
        self._calls: list[tuple[str, str, dict[str, Any]]] = []
        self._waiting: list[dict[str, Any]] = []
        self.model: str | None = None

    def take(self, event: dict[str, Any]) -> Answer | None:
        """What the event is to the turn; the answer when it was the last one."""
        kind = event.get("type")
        if kind == "result":
            return self._result(event)
        if kind == "control_request":
            self._waiting.append(event)
        if event.get("parent_tool_use_id") is None:  # else it is within a subagent, whose call is the step
            if kind == "stream_event":
                self._piece(event.get("event") or {})
            elif kind == "assistant":
                self._message(event.get("message") or {})
            elif kind == "user":
                self._results((event.get("message") or {}).get("content"))
        if self._waiting and not self._open:
            self._post()
            for asked in self._waiting:
                self._engine.answer(asked, DENIED.get((asked.get("request") or {}).get("tool_name", "")))
            self._waiting.clear()
        return None

    def _piece(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":  # also the repeat of one that was cut off, whose calls never ran
            self._open, self._text, self._calls = True, "", []
        elif kind == "content_block_delta":
            self._poster.say(str((event.get("delta") or {}).get("text") or ""))
        elif kind == "message_stop":
            self._open = False
            self._post()

    def _message(self, message: dict[str, Any]) -> None:
        if message.get("model") not in (None, "<synthetic>"):
            self.model = str(message["model"])[:200]
        for block in message.get("content") or ():
            if block.get("type") == "text":
                self._text += block.get("text") or ""
            elif block.get("type") == "tool_use":
                self._calls.append((str(block.get("id")), str(block.get("name")), block.get("input") or {}))

    def _post(self) -> None:
        if self._calls:
            self._poster.calls(self._text, self._calls)
        self._text, self._calls = "", []

    def _results(self, content: Any) -> None:
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                self._open = False  # a tool ran: its message is whole, whatever was not heard of it
                self._post()
                self._poster.result(str(block.get("tool_use_id")), text_of(block.get("content")))

    def _result(self, event: dict[str, Any]) -> Answer:
        """`is_error` counts; `subtype` says "success" for a failed run too."""
        counts = event.get("usage") or {}
        usage = {
            "input": count(counts.get("input_tokens")) + count(counts.get("cache_creation_input_tokens")),
            "output": count(counts.get("output_tokens")),
            "cached": count(counts.get("cache_read_input_tokens")),
        }
        more = {"model": self.model, "usage": usage if any(usage.values()) else None}
        text = protocol.hidden(str(event.get("result") or ""))
        if event.get("is_error"):
            said = text or "; ".join(map(str, event.get("errors") or ())) or str(event.get("subtype"))
            why = f"Claude Code could not answer: {plain(said)[:3000]}"  # it tried again by itself
            return Answer(error=why, stop_reason=protocol.GIVEN_UP, **more)
        if not text.strip():
            return Answer(error="Claude Code ended without an answer.", **more)
        return Answer(text, **more)


def plain(said: str) -> str:
    """Its own words. Of what an API said there is the code alone, and the word that it was a token that we sent."""
    own, api, theirs = said.partition("API Error")
    known = re.match(r":?\s*(\d{3}|Connection error|Request timed out)", theirs)
    sent = " (placeholder_misuse)" * ("placeholder_misuse" in theirs)
    return own + api + (f": {known[1]}" if known else "") + sent


def text_of(content: Any) -> str:
    """A tool result's text; what is no text is named."""
    if isinstance(content, list):
        return "\n".join(block.get("text") or f"[{block.get('type')}]" for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else ""
