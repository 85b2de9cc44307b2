"""What an answer of a model says that it used, read as it streams by: Messages, chat completions, responses, Ollama and
embeddings, whole or in events, cut anywhere. Never more than a bounded part of it is held.

Nothing that a provider says is taken as it stands: `used` gives counts that can be, within what was reserved.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from clawd.gateway.calls import Dialect
from clawd.usage.prices import Tokens

MOST_HELD = 1 << 20  # bytes of a whole answer, or of one event
_TAIL = 64 << 10  # of a longer one: its usage comes last
_BYTES_A_TOKEN = 3  # of what is estimated: English has four, code three
_SAID = frozenset(("text", "content", "thinking", "partial_json", "arguments", "delta", "refusal", "response"))
_SAID |= {"reasoning", "reasoning_content", "completion"}
_COUNTS = frozenset(("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
_COUNTS |= {"cache_creation", "prompt_tokens", "completion_tokens", "prompt_tokens_details", "input_tokens_details"}
_FASTEST = 100  # tokens that a model writes in a second, also those that it shows nobody


@dataclass(slots=True)
class Answer:
    """One answer. `complete` once it said all that it used, `arrived` once all of it is here; `streamed` are bytes of
    what it wrote."""

    speaks: Dialect
    events: bool
    complete: bool = False
    arrived: bool = False
    ended: bool = False
    streamed: int = 0
    counts: dict[str, Any] = field(default_factory=dict)
    _held: bytearray = field(default_factory=bytearray)
    _long: bool = False

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        if not self.events:
            self.streamed += len(data)
            self._held += data
            if len(self._held) > MOST_HELD:
                self._long = True
                del self._held[:-_TAIL]
            return
        lines = data.replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            if self._held or self._long:
                line, self._held = bytes(self._held) + line, bytearray()
            if self._long:  # an event that is too long to look at
                self._long = False
                self.streamed += len(line)
            elif line:
                self._line(line)
        self._held += lines[-1]
        if len(self._held) > MOST_HELD:
            self._long = True
            self.streamed += len(self._held)
            self._held.clear()

    def end(self) -> None:
        """It is over."""
        if self.events:
            if self._held and not self._long:
                self._line(bytes(self._held))
        elif self._long:
            self._last_usage(bytes(self._held))
        else:
            self._whole(bytes(self._held))
        self._held.clear()

    def _line(self, line: bytes) -> None:
        """A line of server-sent events, or of JSON lines."""
        text = line[5:].strip() if line.startswith(b"data:") else line.strip() if line.startswith(b"{") else b""
        if text == b"[DONE]":
            self.ended = True
        if not text.startswith(b"{"):
            return
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            self.streamed += len(text)
            return
        kind = event.get("type")
        if not isinstance(kind, str) or kind.endswith("delta"):
            self.streamed += _said(event, 0)
        self._event(event, kind)

    def _event(self, event: dict[str, Any], kind: object) -> None:
        inner = event.get("message") if kind == "message_start" else event.get("response")
        usage = (inner if isinstance(inner, dict) else event).get("usage")
        if isinstance(usage, dict):
            self.counts.update({key: usage[key] for key in _COUNTS & usage.keys() if usage[key] is not None})
            self.complete = kind != "message_start"
        if event.get("done") is True:
            self._ollama(event)
        self.ended = self.ended or event.get("done") is True or kind == "message_stop"
        self.ended = self.ended or kind in ("response.completed", "response.incomplete", "response.failed")

    def _whole(self, body: bytes) -> None:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            return
        if isinstance(answer, dict):
            self._event(answer, None)
            self._ollama(answer)

    def _ollama(self, answer: dict[str, Any]) -> None:
        for key in ("prompt_eval_count", "eval_count"):
            if key in answer:
                self.counts[key], self.complete = answer[key], True

    def _last_usage(self, tail: bytes) -> None:
        at = tail.rfind(b'"usage"')  # inside of a string it would be \"usage\"
        text = tail[at + 7 :].lstrip(b" \r\n\t:").decode("utf-8", "replace")
        try:
            usage, _ = json.JSONDecoder().raw_decode(text) if at >= 0 else (None, 0)
        except (ValueError, RecursionError):
            return
        if isinstance(usage, dict):
            self.counts, self.complete = usage, True

    def used(self, most_input: int, most_output: int, text: int, fixed: int, seconds: int = 0) -> tuple[Tokens, bool]:
        """What the call used, and whether that is estimated in part. `text` are the bytes of text that were sent,
        `fixed` the tokens of what else. What broke off after so many `seconds` may have been thought about for all of
        them; what is no stream was written whole before it came."""
        read, wrote = self._read()
        written = -(-self.streamed // _BYTES_A_TOKEN)
        if not (self.complete or self.arrived or self.ended):
            written = max(written, seconds * _FASTEST) if self.events else most_output
        guess_in, guess_out = -(-text // _BYTES_A_TOKEN) + fixed, 0 if self.speaks == "embeddings" else written
        output, guessed = _sound(wrote, guess_out, most_output, something=written > 0 and most_output > 0)
        if not self.complete and output < min(guess_out, most_output):
            output, guessed = min(guess_out, most_output), True
        input, also = _sound(read.input if read else None, guess_in, most_input, something=True)
        guessed = guessed or also or not self.complete
        parts = (read.cached, read.written, read.written_hour) if read and not also else (0, 0, 0)
        if sum(parts) > input:
            parts, guessed = (0, 0, 0), True
        return Tokens(input, output, *parts), guessed

    def _read(self) -> tuple[Tokens | None, object]:
        """What went in, None where that cannot be told, and what came out, as it was said."""
        counts = self.counts
        if self.speaks == "messages":
            output, parts = counts.get("output_tokens"), counts.get("cache_creation")
            fresh, cached = counts.get("input_tokens"), _or0(counts, "cache_read_input_tokens")
            made, hour = _or0(counts, "cache_creation_input_tokens"), 0
            if isinstance(parts, dict):
                hour = _or0(parts, "ephemeral_1h_input_tokens")
            if not all(map(_is_count, (fresh, cached, made, hour))):
                return None, output
            fresh, cached, made = int(fresh or 0), int(cached), int(made)
            hour = min(int(hour), made)
            return Tokens(fresh + cached + made, 0, cached, made - hour, hour), output
        if "prompt_eval_count" in counts or "eval_count" in counts:
            total, output, details = counts.get("prompt_eval_count"), counts.get("eval_count"), None
        else:
            total = counts.get("prompt_tokens", counts.get("input_tokens"))
            output = counts.get("completion_tokens", counts.get("output_tokens"))
            details = counts.get("prompt_tokens_details", counts.get("input_tokens_details"))
        if not _is_count(total):
            return None, output
        details = details if isinstance(details, dict) else {}
        cached, made = _or0(details, "cached_tokens"), _or0(details, "cache_write_tokens")
        parts = (int(cached), int(made)) if _is_count(cached) and _is_count(made) else (0, 0)
        return Tokens(int(total or 0), 0, *parts), output


def _or0(counts: dict[str, Any], key: str) -> Any:
    value = counts.get(key)
    return 0 if value is None else value


def _is_count(value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer() and value >= 0
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _sound(said: object, guess: int, most: int, *, something: bool) -> tuple[int, bool]:
    """A count as it was said, where it can be; and whether it was made up instead. More than there can be is as much as
    there can be, nothing for something is a guess."""
    if not _is_count(said) or (something and not said):
        return min(guess, most), something or said is not None
    count = int(said)  # type: ignore[call-overload]
    return (count, False) if count <= most else (most, True)


def _said(value: Any, depth: int) -> int:
    """Bytes, nearly, of what an event adds to the answer."""
    if isinstance(value, list):
        return sum(_said(each, depth + 1) for each in value[:64]) if depth < 8 else 0
    if not isinstance(value, dict) or depth >= 8:
        return 0
    total = 0
    for key, each in value.items():
        if isinstance(each, str):
            total += len(each) if key in _SAID else 0
        elif isinstance(each, dict | list):
            total += _said(each, depth + 1)
    return total
