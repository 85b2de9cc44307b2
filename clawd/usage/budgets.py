"""Budgets: whether one more call may be made, and when it may be again. Pure.

A day and a month are the calendar's in the group's own time zone, whatever its clocks do at summer time. What is
reserved counts like what is spent: so no limit is ever passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from clawd.errors import ClawdError
from clawd.ledger.money import NANO, Used

Unit = Literal["usd", "tokens"]
Span = Literal["day", "month"]


@dataclass(frozen=True, slots=True)
class Call:
    """A model call before it is made: at most so many tokens go in and come out. `hour`: it may write to a cache for
    an hour. `listed`: it is billed as the price lists say; another tier has no known price."""

    group: str
    service: str
    model: str
    input: int
    output: int
    turn: int | None = None
    hour: bool = False
    listed: bool = True


class BudgetSpent(ClawdError):
    """A call would pass a limit. It is open again at `opens`, at the latest."""

    def __init__(self, message: str, call: Call, limit: Limit, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.call, self.limit, self.opens = call, limit, limit.opens


class AllowanceSpent(ClawdError):
    """A call would pass what its turn may use. Nothing opens that again."""


class PriceUnknown(ClawdError):
    """There is a limit in dollars, and nobody knows what the call costs."""


@dataclass(frozen=True, slots=True)
class Period:
    """The day and the month of a moment, like 2026-11-29 and 2026-11, and when the next ones begin."""

    day: str
    month: str
    next_day: datetime
    next_month: datetime


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit as it stands: `most` with what it was raised by; amounts are tokens or nano-dollars. `group` is None
    for one of a service."""

    group: str | None
    service: str | None
    unit: Unit
    span: Span
    most: int
    spent: int
    reserved: int
    opens: datetime

    @property
    def left(self) -> int:
        return max(0, self.most - self.spent - self.reserved)


def period(now: datetime, zone: str) -> Period:
    """The period of a moment in a time zone."""
    local = now.astimezone(ZoneInfo(zone))
    today = local.date()
    month = date(today.year + today.month // 12, today.month % 12 + 1, 1)
    return Period(
        today.isoformat(),
        today.isoformat()[:7],
        _begin(today + timedelta(days=1), now, zone),
        _begin(month, now, zone),
    )


def _begin(day: date, now: datetime, zone: str) -> datetime:
    """When a day begins: at the first midnight that is still to come, where clocks pass it twice; at the moment of the
    change, where they leave it out."""
    place = ZoneInfo(zone)
    midnights = [datetime.combine(day, time(0), place).replace(fold=fold).astimezone(UTC) for fold in (0, 1)]
    local = [midnight.astimezone(place) for midnight in midnights if midnight > now]
    return min((moment for moment in local if moment.date() >= day), default=local[-1])


def decide(limits: Iterable[Limit], call: Call, nanos: int | None) -> BudgetSpent | PriceUnknown | None:
    """Why a call that may cost so many nano-dollars (None: nobody knows) is not to be made, None when it may be."""
    limits = list(limits)
    if nanos is None and (priced := next((limit for limit in limits if limit.unit == "usd"), None)):
        return _unpriced(call, _whose(priced))
    needs = {"tokens": call.input + call.output, "usd": nanos or 0}
    passed = [limit for limit in limits if limit.left < needs[limit.unit]]
    if not passed:
        return None
    limit = max(passed, key=lambda each: each.opens)
    return BudgetSpent(_sentence(limit, needs[limit.unit]), call, limit, hint=_way_out(limit))


def _unpriced(call: Call, whose: str) -> PriceUnknown:
    name = call.model or "MODEL"
    return PriceUnknown(
        f"the price of {call.model or 'the model'} is not known, and {whose} has a limit in dollars",
        hint=f'write [prices."{name}"] into config.toml, with input = and output = in dollars a million tokens',
    )


def within(
    allowed: Mapping[str, float], used: Used, call: Call, nanos: int | None
) -> AllowanceSpent | PriceUnknown | None:
    """Why a call of a turn that may use so much ({usd, tokens}) is not to be made, None when it may be."""
    if "usd" in allowed and nanos is None:
        return _unpriced(call, "this run")
    units: tuple[tuple[Unit, float, int, int], ...] = (
        ("usd", allowed.get("usd", 0) * NANO, used.nanos + used.reserved_nanos, nanos or 0),
        ("tokens", allowed.get("tokens", 0), used.tokens + used.reserved_tokens, call.input + call.output),
    )
    for unit, most, taken, needs in units:
        if unit in allowed and taken + needs > most:
            said = f"{shown(taken, unit)} of {shown(round(most), unit)} are spent"
            return AllowanceSpent(
                f"the budget of this run does not allow another call: {said}, and it may take {shown(needs, unit)}",
                hint="raise its budget in the schedule's file",
            )
    return None


def _sentence(limit: Limit, needed: int) -> str:
    said = f"the budget of {_whose(limit)} is spent: {shown(limit.spent, limit.unit)} of {_most(limit)}"
    if limit.reserved:
        said += f", and calls under way may take {shown(limit.reserved, limit.unit)}"
    if limit.spent < limit.most:
        said += f", where the next call may take up to {shown(needed, limit.unit)}"
    return f"{said}; it opens again at {limit.opens.isoformat(timespec='seconds')}"


def holds(limit: Limit, reason: str) -> bool:
    """Whether this limit is why a turn is held."""
    return f"the budget of {_whose(limit)} is spent: " in reason and f" of {_most(limit)}" in reason


def _most(limit: Limit) -> str:
    return f"{shown(limit.most, limit.unit)} {'today' if limit.span == 'day' else 'this month'}"


def _whose(limit: Limit) -> str:
    return f"group {limit.group}" if limit.group is not None else f"service {limit.service}"


def _way_out(limit: Limit) -> str:
    if limit.group is None:
        return f"raise [services.{limit.service}.limits] {limit.unit}_per_day in config.toml"
    return f"clawd budget raise {limit.group} --{limit.unit} N --for {limit.span}"


def shown(amount: int, unit: Unit) -> str:
    """An amount as one says it: cents, and more digits where there are few."""
    if unit == "tokens":
        return f"{amount:,} tokens"
    usd = amount / NANO
    return f"${usd:.2f}" if usd >= 0.1 or not amount else f"${usd:.6f}".rstrip("0")
