"""A home's ledger that comes out of a backup: what was on its way then is not done again.

Between the backup and now a later ledger may have answered, sent and fired all of it, and nobody can ask it any more.
So what was open ends: turns have failed, which a person can try again by hand; deliveries are cancelled; nothing that
was due before now is due again. What the present ledger knows to have come in is never taken in again. This is no move:
the law says what may become of what is on its way, not what is to be made of a state that is over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clawd.ledger import deliveries, firings, groups, moved
from clawd.ledger.db import Row, Transaction
from clawd.ledger.moved import Known
from clawd.trust import Role

WHY = "it was open in the backup that was restored, and may have been answered since"
_KEY = ("channel", "account", "chat", "thread", "kind", "platform_id", "rev")
_COPIED = (*_KEY, "sender", "role", "at", "received", "grp", "session")


@dataclass(slots=True)
class Settled:
    """How many messages, deliveries and approvals were open and are not any more; how many messages came in since, and
    of those how many the present ledger had not answered yet."""

    messages: list[int] = field(default_factory=list)
    deliveries: int = 0
    approvals: int = 0
    since: int = 0
    unanswered: int = 0


def settle(tx: Transaction, known: Known, finished: Callable[[Row], bool], now: str) -> Settled:
    """End what was open. `finished`: whether a turn's blocks are in its session's file already."""
    found = Settled()
    tx.execute("UPDATE run SET state = 'gone' WHERE state <> 'gone'")
    for turn in tx.all("SELECT * FROM turn WHERE recorded_at IS NULL ORDER BY id"):
        _settle_turn(tx, turn, finished(turn), now)
    tx.execute("UPDATE wake SET state = 'closed' WHERE state IN ('pending', 'taken')")
    open_ones = "state IN ('draft', 'pending', 'sending', 'unknown')"
    found.deliveries = tx.execute(f"UPDATE delivery SET state = 'cancelled', error = ? WHERE {open_ones}", WHY).rowcount
    waiting = "state IN ('received', 'claimed', 'held')"
    found.messages = [row["seq"] for row in tx.all(f"SELECT seq FROM inbound WHERE {waiting} ORDER BY seq")]
    tx.execute(f"UPDATE inbound SET state = 'failed', reason = 'restored', told = 1 WHERE {waiting}")
    for row in tx.all(
        "SELECT DISTINCT turn FROM inbound WHERE state IN ('answered', 'delivered') AND turn IS NOT NULL"
    ):
        deliveries.settle_turn(tx, row["turn"])
    tx.execute("UPDATE inbound SET state = 'recorded', reason = 'restored' WHERE turn IS NULL AND state IN"
               " ('answered', 'delivered')")  # fmt: skip
    found.approvals = tx.execute("UPDATE approval SET state = 'void', result = ? WHERE state = 'open'", WHY).rowcount
    tx.execute("UPDATE approval SET state = 'failed', result = ? WHERE state IN ('approved', 'executing')", WHY)
    tx.execute("UPDATE question SET state = 'withdrawn' WHERE state = 'open'")
    _settle_schedules(tx, now)
    for table in ("seen", "changed", "watching"):  # they lie there anew: nobody is told of each file
        tx.execute(f"DELETE FROM {table}")
    moved.settle_windows(tx, now)
    _lower(tx, known)
    return found


def _settle_turn(tx: Transaction, turn: Row, finished: bool, now: str) -> None:
    over = turn["state"] in ("answered", "failed", "stopped")
    if not over and not finished:
        done = now if turn["session"].startswith("job:") else None  # else the recorder says so in the conversation
        sql = "UPDATE turn SET state = 'failed', run = NULL, error = ?, ended_at = ?, recorded_at = ?, held = NULL"
        tx.execute(f"{sql} WHERE id = ?", WHY, now, done, turn["id"])
        return
    if finished:
        tx.execute(
            "UPDATE turn SET state = ?, ended_at = COALESCE(ended_at, ?), recorded_at = ?, held = NULL WHERE id = ?",
            *(turn["state"] if over else "answered", now, now, turn["id"]),
        )
        tx.execute(
            "UPDATE inbound SET state = 'recorded', reason = 'restored' WHERE turn = ?"
            " AND state IN ('received', 'claimed', 'held')",
            turn["id"],
        )


def _settle_schedules(tx: Transaction, now: str) -> None:
    at = firings.utc(datetime.fromisoformat(now))
    tx.execute("UPDATE schedule SET last_due = ?, next = NULL WHERE COALESCE(last_due, '') < ?", at, at)
    firings.mark_salvaged(tx, at)
    tx.execute(
        "UPDATE firing SET state = 'failed', reason = ? WHERE state = 'due' OR state = 'fired' AND"
        " COALESCE((SELECT state FROM turn WHERE turn.id = firing.turn), '') <> 'answered'",
        WHY,
    )
    tx.execute("UPDATE firing SET state = CASE WHEN reason IS NULL THEN 'ran' ELSE 'late' END WHERE state = 'fired'")


def _lower(tx: Transaction, known: Known) -> None:
    """To what is known of trust elsewhere, where that is lower."""
    for name, said in known["groups"].items():
        if groups.find(tx, name) is not None:
            groups.fall(tx, name, Role(said["authority"]), said["taint"])
    for id, said in known["sessions"].items():
        groups.distrust(tx, id, said["taint"])
        tx.execute(
            "UPDATE context SET seq = MAX(seq, ?), measured = MAX(measured, ?), dirty = 1 WHERE session = ?",
            *(said["seq"], said["measured"], id),
        )
    for row in known["authored"]:
        moved.authored(tx, row)
    for table, least in known["sequences"].items():
        if tx.one("SELECT 1 FROM sqlite_master WHERE name = ? AND sql LIKE '%AUTOINCREMENT%'", table) is not None:
            moved.raise_sequence(tx, table, least)


def carry_over(tx: Transaction, present: sqlite3.Connection, found: Settled) -> None:
    """What the present ledger knows and the restored one must: what came in, how far each channel was read, how far
    anything is trusted, which numbers were given. Raises sqlite3.Error where it cannot be read, and nothing was done
    then that is not safe to keep."""
    _lower(tx, moved.known_of(moved.known(Transaction(present), None)))
    for row in present.execute("SELECT * FROM remembering WHERE forgot IS NOT NULL"):
        later = "forgot = NULLIF(MAX(COALESCE(forgot, ''), ?), '')"
        tx.execute(f"UPDATE remembering SET {later} WHERE grp = ?", row["forgot"], row["grp"])
    tx.execute("DELETE FROM cursor")
    for row in present.execute("SELECT * FROM cursor"):
        tx.insert("cursor", **_all(row))
    marks = ", ".join("?" * (len(_COPIED) + 4))
    for row in _messages(present):
        taken = tx.execute(
            f"INSERT OR IGNORE INTO inbound ({', '.join(_COPIED)}, parts, state, reason, told) VALUES ({marks})",
            *(row[name] for name in _COPIED), "[]", "recorded", "restored", 1,
        )  # fmt: skip
        found.since += taken.rowcount
        found.unanswered += bool(taken.rowcount) and row["state"] in ("received", "claimed", "held")
    for row in present.execute("SELECT * FROM hook"):
        said = {name: value for name, value in _all(row).items() if name not in ("id", "wake")}
        tx.execute(
            f"INSERT OR IGNORE INTO hook ({', '.join(said)}) VALUES ({', '.join('?' * len(said))})", *said.values()
        )
    for row in present.execute("SELECT * FROM injected"):
        _injected(tx, row)


def without_present(tx: Transaction) -> None:
    """There is no present ledger that can be asked: how far a channel was read since is not known, so each begins
    now."""
    tx.execute("DELETE FROM cursor")


def _messages(present: sqlite3.Connection) -> Iterator[Any]:
    return present.execute(f"SELECT {', '.join(_COPIED)}, state FROM inbound ORDER BY seq")


def _injected(tx: Transaction, row: Any) -> None:
    """A piece that another program brought since is known by its key, and not taken again."""
    if tx.one("SELECT 1 FROM session WHERE id = ? AND grp = ?", row["session"], row["grp"]) is not None:
        tx.execute(
            "INSERT OR IGNORE INTO injected (grp, session, key, state, blocks, made)"
            " VALUES (?, ?, ?, 'recorded', '[]', ?)",
            *(row["grp"], row["session"], row["key"], row["made"]),
        )


def _all(row: Any) -> dict[str, Any]:
    return {name: row[name] for name in row.keys()}  # noqa: SIM118 (a sqlite3.Row iterates values)
