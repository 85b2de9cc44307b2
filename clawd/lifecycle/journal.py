"""The lines of decisions.jsonl and metrics.jsonl, and how they are put at the end of what is there. Pure.

A line is one JSON object that begins with its `seq`. A file is a person's too: lines that are not ours stay; of ours
one that was torn by a crash is cut before the next is written, and none is written twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from clawd.lifecycle.deciding import Decision, Thresholds

NANO = 10**9
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Costs:
    """Nano-dollars of what went in, came out, and both; None where the price is not known."""

    input: int | None = None
    output: int | None = None
    total: int | None = None

    def fields(self) -> dict[str, float | None]:
        """As the contract shows money."""
        said = {"input_cost_usd": self.input, "output_cost_usd": self.output, "total_cost_usd": self.total}
        return {name: None if nanos is None else nanos / NANO for name, nanos in said.items()}


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens of a turn."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Confirm:
    """What was asked before it was done: `granted` None while that is open."""

    granted: bool | None = None
    by: str | None = None


def decision_line(
    decision: Decision,
    limits: Thresholds | None,
    *,
    at: str,
    session: str,
    step: int,
    tokens: int,
    estimated: bool,
    recall: float | None = None,
    confirm: Confirm | None = None,
    nanos: int | None = None,
) -> dict[str, Any]:
    """A line of decisions.jsonl, without its seq. `nanos` is what the session cost so far; `limits` None: nobody knows
    which hold."""
    line: dict[str, Any] = {
        "ts": at,
        "session_id": session,
        "step_index": step,
        "action": decision.action,
        "trigger": decision.trigger,
        "total_tokens": tokens,
        "soft": limits.soft if limits else None,
        "hard": limits.hard if limits else None,
        "estimated": estimated,
    }
    if decision.policy is not None:
        line["policy"] = decision.policy
    if recall is not None:
        line["recall"] = recall
    if confirm is not None:
        line["confirm"] = {"required": True, "granted": confirm.granted, "by": confirm.by}
    line["reason"] = decision.reason
    if nanos is not None:
        line["total_cost_usd"] = nanos / NANO
    return line


def metric_line(
    event: str,
    *,
    at: str,
    session: str,
    step: int,
    window: int,
    total: int,
    used: Used | None = None,
    costs: Costs | None = None,
    latency_ms: int | None = None,
    estimated: bool = False,
    agent_id: str | None = None,
    memory_namespace: str | None = None,
    method: str | None = None,
    recall: float | None = None,
) -> dict[str, Any]:
    """A line of metrics.jsonl, without its seq. `total` is cumulative; `method` and `recall` are a compaction's."""
    costs = costs or Costs()
    said = {name: value for name, value in (("method", method), ("recall", recall)) if value is not None}
    return {
        "ts": at,
        "session_id": session,
        "step_index": step,
        "event": event,
        "prompt_tokens": used.input if used else None,
        "completion_tokens": used.output if used else None,
        "cached_tokens": used.cached if used else None,
        "window_tokens": window,
        "total_tokens": total,
        "latency_ms": latency_ms,
        **costs.fields(),
        "estimated": estimated,
        "agent_id": agent_id,
        "memory_namespace": memory_namespace,
        **said,
    }


@dataclass(frozen=True, slots=True)
class Lines:
    """The rows of a .jsonl file; `unreadable` lines are none, `torn` says that the last one was not whole."""

    rows: Sequence[Line] = ()
    unreadable: int = 0
    torn: bool = False


NO_LINES = Lines()


def lines_of(data: bytes) -> Lines:
    """The rows of a .jsonl file: each line that is a JSON object with finite numbers."""
    rows, unreadable = list[Line](), 0
    *whole, last = data.split(b"\n")
    for line in filter(bytes.strip, whole):
        row = object_of(line)
        if row is None:
            unreadable += 1
        else:
            rows.append(row)
    row = object_of(last)
    if row is not None:
        rows.append(row)
    return Lines(rows, unreadable, row is None and bool(last.strip()))


def object_of(data: bytes) -> Line | None:
    """The JSON object in these bytes; None where there is none, or numbers in it are not finite."""
    try:
        found = json.loads(data, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("too large")
    return number


@dataclass(frozen=True, slots=True)
class Append:
    """The file is cut to `keep` of its bytes, then `data` is put behind them."""

    keep: int
    data: bytes


def append(tail: bytes, size: int, lines: Sequence[str]) -> Append:
    """How lines of ours go behind what a file of `size` bytes ends with: those that are there are left out, what is
    torn of ours is cut, and a stranger's half line is ended. `tail` holds all that a crash can have left of them."""
    keep, closing = size, b""
    last = tail[tail.rfind(b"\n") + 1 :]
    if last:
        if object_of(last) is None and _is_torn(last, lines):
            keep, tail = size - len(last), tail[: len(tail) - len(last)]
        else:
            closing = b"\n"
    there = {_name(line) for line in map(object_of, tail.split(b"\n")) if line is not None}
    missing = [line for line in lines if _name(json.loads(line)) not in there]
    data = b"".join(line.encode() + b"\n" for line in missing)
    ended = bool(closing) and _is_torn(last, lines)  # of ours nothing is missing but the end of its line
    return Append(keep, closing + data if data or ended else b"")


def _is_torn(last: bytes, lines: Iterable[str]) -> bool:
    """Whether half a line is one of ours."""
    return any(line.encode().startswith(last) for line in lines) or last.startswith(b'{"seq": ')


def _name(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(str(line.get(key)) for key in ("seq", "session_id", "ts"))
