"""The rows of money: a reservation for each model call, and what limits were raised by. Amounts are tokens and
nano-dollars (None: the price is not known); days and months are those of the group.

A row counts with what is reserved while it is open, with what was used afterwards, with nothing once released. A turn's
usage is the sum of its rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from clawd.ledger.db import Row, Transaction

NANO = 10**9  # of them are a dollar


@dataclass(frozen=True, slots=True)
class Used:
    """By calls that are over, and by those under way."""

    tokens: int
    nanos: int
    reserved_tokens: int
    reserved_nanos: int


def used(tx: Transaction, day: str | None = None, *, group: str | None = None, service: str | None = None,
         month: str | None = None, turn: int | None = None) -> Used:  # fmt: skip
    """What counts for a group in a month or on a day of it, for a service on a day, or for a turn. An unknown price
    counts as nothing here: under a limit in dollars there are no such calls."""
    where = {"grp": group, "month": month, "service": service, "day": day, "turn": turn}
    given = {name: value for name, value in where.items() if value is not None}
    rows = tx.all(
        "SELECT state = 'open' AS open, COALESCE(SUM(tokens), 0) AS tokens, COALESCE(SUM(nanos), 0) AS nanos"
        f" FROM reservation WHERE {' AND '.join(f'{name} = ?' for name in given)} GROUP BY open",
        *given.values(),
    )
    sums = {bool(row["open"]): (row["tokens"], row["nanos"]) for row in rows}
    return Used(*sums.get(False, (0, 0)), *sums.get(True, (0, 0)))


def allowance(tx: Transaction, turn: int) -> dict[str, Any]:
    """What a turn may use beside its group's budget: {usd, tokens}, where it is limited."""
    row = tx.one("SELECT allowance FROM turn WHERE id = ?", turn)
    return dict(json.loads(row["allowance"])) if row is not None and row["allowance"] else {}


def reserve(
    tx: Transaction,
    *,
    group: str,
    service: str,
    turn: int | None,
    model: str,
    day: str,
    month: str,
    input: int,
    output: int,
    nanos: int | None,
    now: str,
) -> int:
    """At most so many tokens may go in and come out. Gives the row's key. The session is that of the turn."""
    session = tx.one("SELECT session FROM turn WHERE id = ?", turn) if turn is not None else None
    return tx.insert(
        "reservation", grp=group, service=service, turn=turn, session=session["session"] if session else None,
        model=model, state="open", day=day, month=month, tokens=input + output, nanos=nanos, input=input,
        output=output, cached=0, made=now,
    )  # fmt: skip


def settle(
    tx: Transaction,
    id: int,
    *,
    input: int,
    output: int,
    cached: int,
    nanos: int | None,
    estimated: bool,
) -> None:
    """The call is over, and this is what it used."""
    tx.move(
        "reservation", id, "settle", tokens=input + output, nanos=nanos, input=input, output=output, cached=cached,
        estimated=int(estimated),
    )  # fmt: skip
    _sum_turn(tx, id)


def release(tx: Transaction, id: int) -> None:
    """It surely cost nothing."""
    tx.move("reservation", id, "release", tokens=0, nanos=0, input=0, output=0)


def assume(tx: Transaction, id: int) -> None:
    """Nobody knows what it cost: what was reserved counts."""
    tx.move("reservation", id, "assume", estimated=1)
    _sum_turn(tx, id)


def assume_open(tx: Transaction) -> int:
    """After a crash. Gives how many there were."""
    rows = tx.all("SELECT id FROM reservation WHERE state = 'open'")
    for row in rows:
        assume(tx, row["id"])
    return len(rows)


def report(
    tx: Transaction,
    turn: Row,
    model: str,
    used: tuple[int, int, int],
    nanos: int | None,
    *,
    day: str,
    month: str,
    now: str,
) -> None:
    """What an engine says itself that its turn `used` (input, output, cached): it counts where none of its calls came
    by us."""
    of_ours = "SELECT 1 FROM reservation WHERE turn = ? AND service <> '' AND state <> 'released'"
    if tx.one(of_ours, turn["id"]) is not None:
        return
    input, output, cached = used
    id = reserve(
        tx,
        group=turn["grp"],
        service="",
        turn=turn["id"],
        model=model,
        day=day,
        month=month,
        input=input,
        output=output,
        nanos=nanos,
        now=now,
    )
    settle(tx, id, input=input, output=output, cached=cached, nanos=nanos, estimated=False)


def _sum_turn(tx: Transaction, reservation: int) -> None:
    """Bring the turn of a row up to date."""
    row = tx.one(
        "SELECT turn, SUM(input) AS input, SUM(output) AS output, SUM(cached) AS cached, SUM(nanos) AS nanos,"
        " COUNT(*) > COUNT(nanos) AS unknown FROM reservation WHERE state IN ('settled', 'assumed')"
        " AND turn = (SELECT turn FROM reservation WHERE id = ?)",
        reservation,
    )
    if row is not None and row["turn"] is not None:
        usd = None if row["unknown"] else row["nanos"] / NANO
        tx.execute(
            "UPDATE turn SET input = ?, output = ?, cached = ?, usd = ? WHERE id = ?",
            row["input"],
            row["output"],
            row["cached"],
            usd,
            row["turn"],
        )


def raised(tx: Transaction, group: str, period: str) -> tuple[int, int]:
    """(tokens, nano-dollars) that a group's limits were raised by for a day or a month."""
    row = tx.one(
        "SELECT COALESCE(SUM(tokens), 0) AS tokens, COALESCE(SUM(nanos), 0) AS nanos FROM budget_raise"
        " WHERE grp = ? AND period = ?",
        group,
        period,
    )
    return (row["tokens"], row["nanos"]) if row is not None else (0, 0)


def raise_(tx: Transaction, group: str, period: str, *, tokens: int | None, nanos: int | None, now: str) -> None:
    tx.insert("budget_raise", grp=group, period=period, tokens=tokens, nanos=nanos, made=now)


def usage(tx: Transaction, by: str, where: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Sums by `grp`, `session`, `service` or `day`: {key, turns, input, output, cached, nanos, unknown}; `unknown` is
    how many calls have no known price. With `where`, of the rows that have these values."""
    where = where or {}
    rows = tx.all(
        f"SELECT {by} AS key, COUNT(DISTINCT turn) AS turns, COALESCE(SUM(input), 0) AS input,"
        " COALESCE(SUM(output), 0) AS output, COALESCE(SUM(cached), 0) AS cached, COALESCE(SUM(nanos), 0) AS nanos,"
        " COUNT(*) - COUNT(nanos) AS unknown FROM reservation WHERE state IN ('settled', 'assumed')"
        + "".join(f" AND {name} = ?" for name in where)
        + " GROUP BY key ORDER BY key",
        *where.values(),
    )
    return [dict(row) for row in rows]


def reasons_held(tx: Transaction) -> list[str]:
    """Why turns are held."""
    return [
        row["held"] for row in tx.all("SELECT DISTINCT held FROM turn WHERE state = 'held' AND recorded_at IS NULL")
    ]


def last_calls(tx: Transaction, group: str, count: int) -> list[str]:
    """When a group's newest calls were made, the newest first."""
    return [
        row["made"]
        for row in tx.all("SELECT made FROM reservation WHERE grp = ? ORDER BY id DESC LIMIT ?", group, count)
    ]
