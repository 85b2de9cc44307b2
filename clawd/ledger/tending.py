"""How far each group's memory was tended: the turns that were looked at for a lesson, when memories were last merged,
what the owner was told of, and the jobs whose answers are to be carried out in files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from clawd.ledger.db import Row, Transaction

KINDS = ("consolidate", "reflect")
Pair = tuple[str, ...]


def of(tx: Transaction, group: str) -> Row | None:
    """The group's row {reflected, consolidated, conflicts}, None while nothing was done."""
    return tx.one("SELECT reflected, consolidated, conflicts FROM remembering WHERE grp = ?", group)


def put(tx: Transaction, group: str, **values: Any) -> None:
    """Set some of `reflected`, `consolidated` and `conflicts`."""
    tx.execute("INSERT OR IGNORE INTO remembering (grp) VALUES (?)", group)
    for name, value in values.items():
        tx.execute(f"UPDATE remembering SET {name} = ? WHERE grp = ?", value, group)


def begin(tx: Transaction, every: Iterable[str]) -> list[str]:
    """What was over before anybody looked for lessons stays as it is. Gives the groups of which turns were not looked
    at, or answers not carried out."""
    found = tx.all("SELECT grp, MAX(id) AS last FROM turn WHERE recorded_at IS NOT NULL AND forgotten = 0 GROUP BY grp")
    last = {row["grp"]: row["last"] for row in found}
    behind = {row["grp"] for row in untaken(tx)}
    for group in every:
        row = of(tx, group)
        if row is None:
            put(tx, group, reflected=last.get(group, 0))
        elif row["reflected"] < last.get(group, 0):
            behind.add(group)
    return sorted(behind)


def told(tx: Transaction, group: str) -> set[Pair]:
    """Contradictions that the owner knows of."""
    row = of(tx, group)
    return {tuple(pair) for pair in json.loads(row["conflicts"])} if row else set()


def to_reflect(tx: Transaction, group: str) -> tuple[list[int], int]:
    """Recorded turns of people and clocks that nobody looked at yet, oldest first; and up to which turn all are over,
    once these were looked at."""
    row = of(tx, group)
    after = row["reflected"] if row else 0
    found = tx.all(
        "SELECT id FROM turn WHERE grp = ? AND id > ? AND recorded_at IS NOT NULL AND forgotten = 0"
        " AND session NOT LIKE 'job:%' ORDER BY id LIMIT 200",
        group,
        after,
    )
    ids = [each["id"] for each in found]
    open_one = tx.one("SELECT MIN(id) AS id FROM turn WHERE grp = ? AND recorded_at IS NULL", group)
    last = max(ids, default=after)
    return ids, min(last, open_one["id"] - 1) if open_one and open_one["id"] else last


def before(tx: Transaction, turn: Row) -> Row | None:
    """The turn of the same session that was answered before this one."""
    return tx.one(
        "SELECT * FROM turn WHERE session = ? AND id < ? AND state = 'answered' ORDER BY id DESC LIMIT 1",
        turn["session"],
        turn["id"],
    )


def is_busy(tx: Transaction, group: str) -> bool:
    """Whether somebody's turn is at work in the group."""
    live = "SELECT 1 FROM turn WHERE grp = ? AND state = 'claimed' AND recorded_at IS NULL AND session NOT LIKE 'job:%'"
    return tx.one(live, group) is not None


def recalled_since(tx: Transaction, group: str, since: str) -> set[str]:
    """Ids of memories that were shown to a turn since then (RFC 3339, as all of ours)."""
    rows = tx.all("SELECT DISTINCT memory FROM recalled WHERE grp = ? AND at >= ?", group, since)
    return {row["memory"] for row in rows}


def untaken(tx: Transaction, group: str | None = None) -> list[Row]:
    """Answered jobs whose answers were not carried out, oldest first: {id, grp, kind, key, answer, taint, stale}.
    `stale`: since it was asked something of the group's memory was forgotten, which its answer may tell of."""
    return tx.all(
        "SELECT j.id, j.grp, j.kind, j.key, j.answer, t.taint, COALESCE(r.forgot >= t.queued_at, 0) AS stale"
        " FROM job j JOIN turn t ON t.id = j.turn LEFT JOIN remembering r ON r.grp = j.grp"
        " WHERE j.kind IN (?, ?) AND j.answer IS NOT NULL AND j.taken = 0 AND ? IN (j.grp, '') ORDER BY j.id",
        *KINDS,
        group or "",
    )


def taken(tx: Transaction, job: int) -> None:
    tx.execute("UPDATE job SET taken = 1 WHERE id = ?", job)


def asked(tx: Transaction, group: str, kind: str, since: str) -> tuple[int, bool]:
    """How many jobs of a kind the group has had since then, and whether one of them is not over."""
    row = tx.one(
        "SELECT COUNT(*) AS n, COALESCE(MAX(t.recorded_at IS NULL), 0) AS open FROM job j JOIN turn t ON t.id = j.turn"
        " WHERE j.grp = ? AND j.kind = ? AND (t.queued_at >= ? OR t.recorded_at IS NULL)",
        group,
        kind,
        since,
    )
    assert row is not None
    return row["n"], bool(row["open"])
