"""A group's spent budget is raised once more by its own limit, for this day or month."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clawd.approvals.kind import Kind, Words
from clawd.clock import Clock
from clawd.config.group import Effective
from clawd.config.home import Home
from clawd.config.load import load_config, load_group, merged
from clawd.ledger import money
from clawd.ledger.db import Transaction
from clawd.usage import prices
from clawd.usage.budgets import BudgetSpent, Span, Unit, period, shown


@dataclass(frozen=True, slots=True)
class Raise:
    """`period` is a day or a month of the group's, `amount` tokens or nano-dollars."""

    group: str
    span: Span
    period: str
    unit: Unit
    amount: int


class Budget(Kind):
    name, Effect, again = "budget", Raise, None

    def __init__(self, home: Home, clock: Clock, look: Callable[[], None]) -> None:
        """`look` is told that limits have changed."""
        self._home, self._clock, self._look = home, clock, look

    def subject(self, effect: Raise) -> str:
        return f"{effect.group} {effect.period}"

    def group(self, effect: Raise) -> str:
        return effect.group

    def words(self, tx: Transaction, effect: Raise) -> Words:
        more = shown(effect.amount, effect.unit)
        span = "today" if effect.span == "day" else "this month"
        return Words(
            f"use {more} more {span} in the group {effect.group}",
            [f"Its budget for {effect.period} is spent, and messages wait. A yes raises it by {more}, once."],
        )

    def rests_on(self, tx: Transaction, effect: Raise) -> Any:
        raised = money.raised(tx, effect.group, effect.period)[effect.unit == "usd"]
        return {"limit": limit_of(self._settings(effect.group), effect.span, effect.unit), "raised": raised}

    def refuse(self, tx: Transaction, effect: Raise) -> str | None:
        when = period(self._clock.now(), self._settings(effect.group).timezone)
        if effect.period != (when.day if effect.span == "day" else when.month):
            return f"{effect.period} is over"
        return None

    def execute(self, tx: Transaction, effect: Raise, now: str) -> str:
        tokens, nanos = (effect.amount, None) if effect.unit == "tokens" else (None, effect.amount)
        money.raise_(tx, effect.group, effect.period, tokens=tokens, nanos=nanos, now=now)
        return f"the budget of {effect.group} for {effect.period} is {shown(effect.amount, effect.unit)} larger"

    def after(self, effect: Raise) -> None:
        self._look()

    def _settings(self, group: str) -> Effective:
        return merged(load_config(self._home, dict(os.environ)), load_group(self._home, group))


def limit_of(settings: Effective, span: Span, unit: Unit) -> int | None:
    """A group's own limit, in tokens or nano-dollars."""
    value = getattr(settings.budget, f"{unit}_per_{span}")
    return prices.nanos(value) if value is not None and unit == "usd" else value


def raise_of(spent: BudgetSpent, settings: Effective, now: datetime) -> dict[str, Any] | None:
    """The effect that lets a group go on whose budget is spent; None where that would not help: a limit of 0, or one of
    a service."""
    limit = spent.limit
    amount = limit_of(settings, limit.span, limit.unit)
    if limit.group is None or not amount:
        return None
    when = period(now, settings.timezone)
    of = when.day if limit.span == "day" else when.month
    return {"group": limit.group, "span": limit.span, "period": of, "unit": limit.unit, "amount": amount}
