"""Wakes that nobody typed: of a schedule, a changed file, a request from outside, a session that goes on. One
transaction makes the wake and its turn; the same key again makes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from clawd.ledger import groups, turns
from clawd.ledger.db import Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.inbound import MAX_QUEUED
from clawd.model import Authority, Part
from clawd.trust import Origin

Kind = Literal["schedule", "file", "webhook", "handoff"]
UNASKED: tuple[Kind, ...] = ("schedule", "file", "webhook", "handoff")
NOTHING = "NOTHING"  # the whole answer of a turn that nobody asked for, where there is nothing to tell


@dataclass(frozen=True, slots=True)
class Woken:
    """What a wake came to."""

    wake: int
    turn: int
    session: str


def put(
    tx: Transaction,
    kind: Kind,
    key: str,
    *,
    group: str,
    base: str,
    to: Address,
    rule: str,
    acts: Authority,
    origin: Origin,
    parts: Sequence[Part],
    now: str,
    choice: Mapping[str, str] | None = None,
    allowance: Mapping[str, Any] | None = None,
) -> Woken | None:
    """Wake the group's conversation `base`; the answer goes `to` a chat. `acts` is for whom, and the trust of its
    content; `origin` that of what it says. None for a key that was there before. Where very many turns wait already, it
    joins the last of them."""
    if tx.one("SELECT 1 FROM wake WHERE key = ?", key):
        return None
    session = groups.open_session(tx, base, group, now).id
    text = json.dumps([asdict(part) for part in parts], ensure_ascii=False)
    wake = tx.insert(
        "wake", kind=kind, key=key, authority=acts.role, trust=acts.taint, origin=origin, state="pending", text=text,
        rule=rule, made=now,
    )  # fmt: skip
    chosen = json.dumps(dict(choice), sort_keys=True) if choice else None
    allowed = json.dumps(dict(allowance), sort_keys=True) if allowance else None
    turn = _crowded(tx, session, acts, to, chosen, allowed)
    if turn is None:
        place = {"grp": group, "session": session, **asdict(to)}
        turn = turns.queue(tx, place, acts.role, acts.taint, now, choice=chosen, allowance=allowed)
    else:
        tx.execute("UPDATE turn SET taint = MIN(taint, ?) WHERE id = ?", acts.taint, turn)
    tx.execute("INSERT INTO turn_wake (turn, wake) VALUES (?, ?)", turn, wake)
    return Woken(wake, turn, session)


def _crowded(
    tx: Transaction, session: str, acts: Authority, to: Address, choice: str | None, allowance: str | None
) -> int | None:
    """The last waiting turn of a session that has as many as may wait, if this may join it."""
    last = tx.one(
        "SELECT COUNT(*) AS n, MAX(id) AS id FROM turn WHERE session = ? AND recorded_at IS NULL"
        " AND state IN ('queued', 'held')",
        session,
    )
    if last is None or last["n"] < MAX_QUEUED:
        return None
    row = turns.get(tx, last["id"])
    same = (row["authority"], row["choice"], row["allowance"]) == (acts.role, choice, allowance)
    return int(row["id"]) if same and Address.of(row) == to else None


def is_unasked(tx: Transaction, turn: int) -> bool:
    """Whether nobody said anything that the turn answers."""
    row = tx.one(
        f"SELECT COUNT(*) AS n, SUM(w.kind IN ({', '.join('?' * len(UNASKED))})) AS own FROM turn_wake tw"
        " JOIN wake w ON w.id = tw.wake WHERE tw.turn = ?",
        *UNASKED,
        turn,
    )
    return row is not None and row["n"] > 0 and row["n"] == row["own"]


def made_lately(tx: Transaction, group: str, rule: str, since: str) -> list[str]:
    """When wakes of a rule were made after `since`, the oldest first."""
    rows = tx.all(
        "SELECT w.made FROM wake w JOIN turn_wake tw ON tw.wake = w.id JOIN turn t ON t.id = tw.turn"
        " WHERE w.rule = ? AND t.grp = ? ORDER BY w.id DESC LIMIT 1000",
        rule,
        group,
    )
    return sorted(row["made"] for row in rows if row["made"] > since)
