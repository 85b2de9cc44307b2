"""What a turn used, and what its session's next prompt would hold after it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clawd.clock import moment_of
from clawd.config.models import THINKING
from clawd.lifecycle import estimate
from clawd.lifecycle.journal import Costs, Used
from clawd.lifecycle.pinned import Columns
from clawd.model import Block

MOST = 2**53  # tokens: whatever a runner says of each of its turns, their sum can be kept
Price = Callable[[str, int, int, int], int | None]
"""Nano-dollars of a call: model, tokens in, out, and of those in from a cache; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Counted:
    """`window` tokens would go in next; `used` went in and out. `estimated`: of one or both nobody told. `nanos` is
    what the session cost so far, None where that is not known any more."""

    window: int
    used: Used
    estimated: bool
    cumulative: int
    costs: Costs
    nanos: int | None
    latency_ms: int | None


def counted(
    row: Columns,
    turn: Columns,
    blocks: Sequence[Block],
    last: Columns | None,
    calls: Sequence[Columns],
    price: Price,
    *,
    compacted: bool = False,
) -> Counted:
    """`row` is the session's before the turn; `last` the newest call that the gateway settled, `calls` all of them.
    `compacted`: while the turn was at work, so that what its calls read is not what the next prompt would hold."""
    characters = sum(map(length, blocks))
    answered = sum(length(block) for block in blocks if block.role == "assistant")
    window, estimated = row["window"] + estimate.tokens(characters), True
    if compacted:
        pass
    elif last is not None:
        window, estimated = last["input"] + last["output"], bool(last["estimated"])
        if (
            estimated
        ):  # the books do not take what the bytes of a call do not bear out; to be full is no matter of money
            window = max(window, turn["window_tokens"] or 0)
    elif turn["window_tokens"] is not None:
        window, estimated = turn["window_tokens"], False
    if calls:
        used = Used(*(sum(call[name] or 0 for call in calls) for name in ("input", "output", "cached")))
        estimated = estimated or any(call["estimated"] for call in calls)
    elif turn["claimed_at"] is None:  # nobody was asked
        used = Used()
    else:
        out = estimate.tokens(answered)
        used = Used(max(0, window - out), out, 0)
    costs = costs_of(calls, price)
    spent = costs.total if calls else 0 if turn["claimed_at"] is None or turn["engine"] in THINKING else None
    before = row["nanos"] if row["nanos"] is not None or row["step_index"] else 0
    return Counted(
        min(window, MOST),
        used,
        estimated,
        min(row["cumulative"] + used.input + used.output, MOST),
        costs,
        None if spent is None or before is None else before + spent,
        _milliseconds(turn["claimed_at"], turn["ended_at"]),
    )


def costs_of(calls: Sequence[Columns], price: Price) -> Costs:
    """What calls cost, as the books have it, and which part of it came out."""
    if not calls or any(call["nanos"] is None for call in calls):
        return Costs()
    total, output = sum(call["nanos"] for call in calls), 0
    for call in calls:
        said = (call["model"], call["input"] or 0, call["output"] or 0, call["cached"] or 0)
        whole, bare = price(*said), price(said[0], said[1], 0, said[3])
        if whole is None or bare is None:
            return Costs(total=total)
        output += min(whole - bare, call["nanos"])
    return Costs(total - output, output, total)


def length(block: Block) -> int:
    """Characters that a model reads of a block."""
    called = sum(len(str(call.get("function", ""))) for call in block.tool_calls)
    return len(block.content) + called


def _milliseconds(start: str | None, end: str | None) -> int | None:
    began, ended = (moment_of(each) if each else None for each in (start, end))
    return None if began is None or ended is None else max(0, round((ended - began).total_seconds() * 1000))
