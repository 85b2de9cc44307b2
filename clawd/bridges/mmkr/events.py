"""An mmkr trace, line by line, whichever of its five dialects a line speaks. Pure; no line raises, none is dropped.

A engine       `event`, `ts` in epoch seconds, `args` and `result` as text      (mmkr's src/mmkr/trace.py)
B docs         `event_type`, `tool`, `target`, `outcome`, `metadata`, ISO time  (docs/architecture.md)
C collector    `event_type` as mmkr:…, `args` an object, `outcome`, `error`     (integrations/pythonclaw_collector.py)
D hydra        `event`, `tool_name`, `result_summary`; `tick` may be missing    (integrations/hydra_ingestor.py)
E tests, blog  `timestamp`, what matters in `metadata` or `data`                (tests/test_integrations.py)

Real traces mix them, so a line is read field by field and not by a dialect. What a field is not known for stays in
`Event.more`; only the labels of the record itself (which agent, which run of it) are left out of the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO

from clawd.clock import moment_of

LONGEST = 16 << 20  # bytes of a line; a longer one counts as broken
_MILLISECONDS = 1e11  # an epoch number above it is in milliseconds: in seconds it would be the year 5138
_LABELS = ("agent_id", "session_id")
_SAME = {"tick_complete": "tick_end", "tick_started": "tick_start"}
_WELL = ("success", "ok", "succeeded")
_BADLY = ("error", "failed", "failure")
# mmkr's own weights of what it keeps; everything else has .5.
_IMPORTANCE = {"error": 0.9, "failure": 0.9, "tick_outcome": 0.8, "goal": 0.7, "plan": 0.7}
GENERAL = "general"


@dataclass(frozen=True, slots=True)
class Event:
    """One line. `tick` and `at` are those of the line before where it has none itself.

    `kind` is without `mmkr:`, and "note" where the line has none. `args` is JSON text of an object. `call` is an id
    that the trace itself gave to a call. A call's `result` or `outcome` stands in where no result of it follows.
    `failed`: the line says so.
    `more`: every other field, as text, in the line's order.
    """

    kind: str
    line: int
    tick: int | None = None
    at: datetime | None = None
    agent: str = ""
    phase: str = ""
    tool: str = ""
    args: str = "{}"
    call: str = ""
    result: str = ""
    outcome: str = ""
    failed: bool = False
    error: str = ""
    text: str = ""
    category: str = GENERAL
    importance: float = 0.5
    topic: str = ""
    goals: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    count: int = 0
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that is no event, and why; with `kept`, one that was read all the same."""

    line: int
    why: str
    kept: bool = False


def importance_of(category: str) -> float:
    """How much mmkr itself would make of a memory of this category."""
    return _IMPORTANCE.get(category.lower(), 0.5)


def lines_of(file: BinaryIO, longest: int = LONGEST) -> Iterator[tuple[bytes | None, int]]:
    """Every line with the bytes that it took; None in place of one that is too long to be held in memory."""
    while line := file.readline(longest + 1):
        if len(line) <= longest:
            yield line, len(line)
            continue
        taken = len(line)
        while not line.endswith(b"\n") and (line := file.readline(longest)):
            taken += len(line)
        yield None, taken


class Reader:
    """Lines to events. It remembers the last tick and time, and nothing else."""

    def __init__(self) -> None:
        self._line = 0
        self._tick: int | None = None
        self._at: datetime | None = None

    def read(self, line: bytes | None) -> list[Event | Broken]:
        """What a line gives: nothing for an empty one, and a Broken beside the event where it had to be mended."""
        self._line += 1
        if line is None:
            return [Broken(self._line, f"it is longer than {LONGEST >> 20} MB")]
        found = list[Event | Broken]()
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            text = line.decode("utf-8", "replace")
            found.append(Broken(self._line, f"invalid UTF-8 at its byte {error.start}, which is replaced", kept=True))
        if not (text := text.strip().removeprefix("\ufeff")):
            return found
        try:
            raw = json.loads(text, parse_constant=str)
            if not isinstance(raw, dict):
                return [Broken(self._line, "it is JSON, but no object")]
            return [*found, self._event(raw)]
        except RecursionError:
            return [Broken(self._line, "it is nested too deep")]
        except ValueError as error:
            return [Broken(self._line, f"it is no JSON ({getattr(error, 'msg', None) or 'a number is too long'})")]

    def _event(self, raw: dict[str, Any]) -> Event:
        fields = _Fields(raw)
        kind = fields.text("event", "event_type").strip().removeprefix("mmkr:") or "note"
        kind = _SAME.get(kind, kind)
        self._tick = fields.number("tick", default=self._tick)
        self._at = fields.moment("ts", "timestamp") or self._at
        agent, _ = (fields.text(label) for label in _LABELS)
        said = _READ.get(kind, _other)(fields)
        if "failed" not in said:
            said |= _ended(fields, needed=False)
        return Event(
            kind=kind,
            line=self._line,
            tick=self._tick,
            at=self._at,
            agent=agent,
            phase=fields.text("phase"),
            more=fields.rest(),
            **said,
        )


class _Fields:
    """The fields of a line, those of `metadata` and `data` among them; each is taken once."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._left = {name: value for name, value in raw.items() if not _empty(value)}
        for nest in ("metadata", "data"):
            inner = self._left.get(nest)
            if isinstance(inner, dict):
                del self._left[nest]
                for name, value in inner.items():
                    if not _empty(value):
                        self._left[name if name not in self._left else f"{nest}.{name}"] = value

    def take(self, *names: str) -> Any:
        """The first of these that there is; the others stay."""
        for name in names:
            if name in self._left:
                return self._left.pop(name)
        return None

    def text(self, *names: str) -> str:
        value = self.take(*names)
        return "" if value is None else shown(value)

    def texts(self, *names: str) -> tuple[str, ...]:
        value = self.take(*names)
        if value is None:
            return ()
        return tuple(map(shown, value)) if isinstance(value, list) else (shown(value),)

    def number(self, *names: str, default: Any = 0) -> Any:
        """A whole number; what is none stays a field like others."""
        for name in names:
            value = self._left.get(name)
            if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) < 20:
                value = int(value)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62:
                del self._left[name]
                return value
        return default

    def flag(self, *names: str) -> bool | None:
        """The first of these that is true or false."""
        for name in names:
            if isinstance(self._left.get(name), bool):
                return bool(self._left.pop(name))
        return None

    def share(self, name: str, default: float) -> float:
        """A number from 0 to 1."""
        value = self._left.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            del self._left[name]
            return float(value)
        return default

    def moment(self, *names: str) -> datetime | None:
        for name in names:
            if (moment := _moment(self._left.get(name))) is not None:
                del self._left[name]
                return moment
        return None

    def rest(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, shown(value)) for name, value in self._left.items())


def shown(value: Any) -> str:
    """A value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def arguments_of(value: Any) -> str:
    """A call's arguments as JSON text of an object; text that is one already stays as it is."""
    if value is None:
        return "{}"
    if isinstance(value, str):
        try:
            if isinstance(json.loads(value, parse_constant=_refused), dict):
                return value
        except (ValueError, RecursionError):
            pass
    return json.dumps(value if isinstance(value, dict) else {"args": value}, ensure_ascii=False)


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _moment(value: Any) -> datetime | None:
    """A time in epoch seconds or milliseconds, as a number or its digits, or in ISO 8601."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return moment_of(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = value / 1000 if abs(value) > _MILLISECONDS else value
        return moment_of(datetime.fromtimestamp(seconds).astimezone().isoformat())
    except (ValueError, OverflowError, OSError):
        return None


# -- the kinds: what of a line's fields means what --


def _tick_start(fields: _Fields) -> dict[str, Any]:
    return {
        "goals": fields.texts("goals", "active_goals", "goal"),
        "count": fields.number("memory_count", "memories_loaded"),
        "text": fields.text("summary", "message"),
    }


def _tick_end(fields: _Fields) -> dict[str, Any]:
    return {
        "text": fields.text("summary", "message"),
        "count": fields.number("tools_used", "tools_called"),
        "actions": fields.texts("actions_taken", "actions"),
    }


def _tool_call(fields: _Fields) -> dict[str, Any]:
    args = fields.take("args", "arguments", "input")
    if args is None and (target := fields.take("target")) is not None:
        args = {"target": target}
    return {
        "tool": fields.text("tool", "tool_name"),
        "args": arguments_of(args),
        "call": fields.text("call_id", "tool_call_id"),
        "text": fields.text("reasoning", "summary", "message"),
        "result": fields.text("result", "result_summary", "output"),
        **_ended(fields),
    }


def _tool_result(fields: _Fields) -> dict[str, Any]:
    error = fields.text("error")
    result = fields.text("result", "result_summary", "output")
    if not result and not error:
        result = fields.text("summary", "message")
    return {
        "tool": fields.text("tool", "tool_name"),
        "call": fields.text("call_id", "tool_call_id"),
        "result": result,
        "error": error,
        **_ended(fields, bool(error), needed=not result and not error),
    }


def _memory_write(fields: _Fields) -> dict[str, Any]:
    category = fields.text("category") or GENERAL
    return {
        "text": fields.text("content", "value", "summary", "message"),
        "category": category,
        "importance": fields.share("importance", importance_of(category)),
        "topic": fields.text("key"),
        "tool": fields.text("tool", "tool_name"),
    }


def _ended(fields: _Fields, failed: bool = False, needed: bool = True) -> dict[str, Any]:
    """How something ended. A plain word for it says no more than `failed`: it counts where it is `needed`, because it
    is all that is known of a result."""
    outcome = fields.text("outcome")
    failed = fields.flag("succeeded", "success") is False or failed or outcome.lower() in _BADLY
    plain = outcome.lower() in (*_WELL, *_BADLY)
    return {"outcome": "" if plain and not needed else outcome, "failed": failed}


def _said(*names: str) -> Any:
    return lambda fields: {"text": fields.text(*names)}


def _error(fields: _Fields) -> dict[str, Any]:
    text = fields.text("message", "error", "summary")
    return {"text": text, "tool": fields.text("tool", "tool_name"), **_ended(fields, failed=True, needed=False)}


def _action(fields: _Fields) -> dict[str, Any]:
    return {
        "text": fields.text("description", "summary", "message"),
        "category": fields.text("type"),
        "tool": fields.text("tool_used", "tool", "tool_name"),
        "result": fields.text("result"),
        **_ended(fields, needed=False),
    }


def _other(fields: _Fields) -> dict[str, Any]:
    return {"text": fields.text("summary", "message", "description"), "tool": fields.text("tool", "tool_name")}


_READ = {
    "tick_start": _tick_start,
    "tick_end": _tick_end,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "memory_write": _memory_write,
    "decision": _said("summary", "message", "decision", "reasoning"),
    "error": _error,
    "action": _action,
    "llm_prompt": _said("prompt"),
    "llm_response": _said("response"),
    "phase_complete": _said("summary", "message"),
}
