"""What was used and what is left, as people and programs are shown it: over the ledger as it is read, by the config."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any

from clawd.clock import moment_of
from clawd.errors import ClawdError, UsageError
from clawd.ledger import money
from clawd.ledger.db import Transaction
from clawd.usage import prices
from clawd.usage.books import Rules, limits
from clawd.usage.budgets import Limit, Period, holds, shown

Shown = dict[str, Any]
COLUMNS = {"group": "grp", "session": "session", "service": "service", "day": "day"}
EVERY_GROUP = "*"  # whose limit a service's is


def usage(tx: Transaction, by: str, **where: str) -> list[Shown]:
    """{key, turns, input, output, cached, usd|null, known_usd}: `usd` is null when the price of any part is unknown.
    `by` is one of COLUMNS."""
    return [_usage(row) for row in money.usage(tx, COLUMNS[by], where)]


def _usage(row: Shown) -> Shown:
    known, unknown = prices.dollars(row.pop("nanos")), row.pop("unknown")
    return {**row, "usd": None if unknown else known, "known_usd": known}


def budget(tx: Transaction | None, rules: Rules, when: Period, now: datetime) -> list[Shown]:
    """A row for each limit: {group, service|null, period, unit, limit, spent, reserved, opens|null}; `opens` is set
    while it is spent, or so nearly that turns wait for it."""
    held = money.reasons_held(tx) if tx is not None else []
    rows = [_budget(limit, any(holds(limit, reason) for reason in held)) for limit in limits(tx, rules, when)]
    most = rules.budget.requests_per_minute if rules.budget is not None else None
    if rules.group is not None and most is not None:
        since = now - timedelta(minutes=1)
        texts = money.last_calls(tx, rules.group, most) if tx is not None else []
        made = [moment for text in texts if (moment := moment_of(text))]
        last = [moment for moment in made if moment > since]
        opens = min(last) + timedelta(minutes=1) if len(last) >= most else None
        rows.append(_row(rules.group, None, "minute", "requests", most, len(last), 0, opens))
    return rows


def _budget(limit: Limit, held: bool) -> Shown:
    scale = money.NANO if limit.unit == "usd" else 1
    most, spent, reserved = limit.most / scale, limit.spent / scale, limit.reserved / scale
    opens = limit.opens if held or not limit.left else None
    return _row(limit.group or EVERY_GROUP, limit.service, limit.span, limit.unit, most, spent, reserved, opens)


def _row(
    group: str, service: str | None, period: str, unit: str, most: float, spent: float, reserved: float,
    opens: datetime | None,
) -> Shown:  # fmt: skip
    amounts = {"limit": most, "spent": spent, "reserved": reserved}
    return {
        "group": group,
        "service": service,
        "period": period,
        "unit": unit,
        **{name: amount if unit == "usd" else int(amount) for name, amount in amounts.items()},
        "opens": None if opens is None else opens.isoformat(timespec="seconds"),
    }


def said(tx: Transaction, rules: Rules, session: str, when: Period) -> str:
    """`/usage`: of this session, of the day and the month, and what is left."""
    group = str(rules.group)
    lines = [
        _line("this session", usage(tx, "session", session=session)),
        _line("today", usage(tx, "group", grp=group, day=when.day)),
        _line("this month", usage(tx, "group", grp=group, month=when.month)),
    ]
    for limit in limits(tx, rules, when):
        span = "today" if limit.span == "day" else "this month"
        left = f"left {span}: {shown(limit.left, limit.unit)} of {shown(limit.most, limit.unit)}"
        lines.append(left if limit.left else f"{left}, until {limit.opens.isoformat(timespec='minutes')}")
    return "\n".join(lines)


def _line(what: str, rows: list[Shown]) -> str:
    if not rows:
        return f"{what}: nothing"
    row = rows[0]
    turns = f"{row['turns']} turn{'s' if row['turns'] != 1 else ''}"
    cost = shown(round(row["known_usd"] * money.NANO), "usd")
    cost = cost if row["usd"] is not None else f"{cost} and what has no known price"
    return f"{what}: {turns}, {row['input']:,} tokens in ({row['cached']:,} cached), {row['output']:,} out, {cost}"


def raised(
    tx: Transaction, rules: Rules, when: Period, span: str, usd: float | None, tokens: int | None, now: str
) -> Shown:
    """Raise the limits of a group by so much, for a day or a month: `day`, `month`, or one by its date. Gives its rows
    for that period's span. Raises UsageError, and ClawdError where there is no such limit."""
    assert rules.group is not None and rules.budget is not None
    period = _period(span, when)
    kind = "day" if len(period) == len(when.day) else "month"
    for unit, amount in (("usd", usd), ("tokens", tokens)):
        if amount is not None and getattr(rules.budget, f"{unit}_per_{kind}") is None:
            raise ClawdError(
                f"group {rules.group} has no {unit}_per_{kind} that could be raised",
                hint="clawd budget show lists the limits that there are",
            )
    nanos = None if usd is None else prices.nanos(usd)
    money.raise_(tx, rules.group, period, tokens=tokens, nanos=nanos, now=now)
    return {"group": rules.group, "for": period, "usd": usd, "tokens": tokens}


def _period(span: str, when: Period) -> str:
    if span.lower() in ("day", "today"):
        return when.day
    if span.lower() == "month":
        return when.month
    try:
        if not re.fullmatch(r"\d{4}-\d\d(-\d\d)?", span):
            raise ValueError
        date.fromisoformat(span if len(span) == len(when.day) else f"{span}-01")
    except ValueError:
        raise UsageError(
            f"--for {span} is no day and no month", hint="write day, month, 2026-11-29 or 2026-11"
        ) from None
    if span < when.day[: len(span)]:
        raise UsageError(f"{span} is over")
    return span
