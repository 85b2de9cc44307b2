"""Saving what can be saved of a damaged ledger: every row that is still readable goes into a new one.

What is in doubt is never sent as if it were new: sends that had begun or were waiting become `unknown`, and the outbox
decides each by its channel. Turns that their session files hold are finished, whatever the ledger last knew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from clawd.ledger.db import Ledger, Transaction

# In the order of their references.
TABLES = ("grp", "session", "turn", "inbound", "wake", "turn_wake", "step", "effect", "delivery", "run")
_LAST_KEY = 10_000_000


@dataclass(slots=True)
class Salvaged:
    """What came over: rows by table, tables whose rows could not all be read, and turns that the files finished."""

    rows: dict[str, int] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)


def salvage(damaged: Path, new: Path, finished: Mapping[int, str], now: str) -> Salvaged:
    """Fill a new ledger at `new` from `damaged`. `finished`: turn → session id, as the session files show them."""
    found = Salvaged()
    ledger = Ledger.open(new)
    source = None
    with suppress(sqlite3.Error):
        source = sqlite3.connect(f"{damaged.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        source.row_factory = sqlite3.Row
    try:
        ledger.tx(lambda tx: _fill(tx, source, finished, now, found))
    finally:
        ledger.close()
        if source is not None:
            source.close()
    return found


def _fill(
    tx: Transaction, source: sqlite3.Connection | None, finished: Mapping[int, str], now: str, found: Salvaged
) -> None:
    tx.execute("PRAGMA defer_foreign_keys = ON")
    for table in TABLES if source is not None else ():
        columns = [row["name"] for row in tx.all(f"PRAGMA table_info({table})")]
        count = 0
        for row in _readable(source, table, found):  # type: ignore[arg-type]
            names = [name for name in columns if name in row.keys()]  # noqa: SIM118 (a sqlite3.Row iterates values)
            marks = ", ".join("?" * len(names))
            with suppress(sqlite3.IntegrityError):
                tx.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", *(row[name] for name in names))
                count += 1
        found.rows[table] = count
    _drop_dangling(tx)
    _settle(tx, finished, now, found)


def _readable(source: sqlite3.Connection, table: str, found: Salvaged) -> Iterator[sqlite3.Row]:
    """Every row that can be read: in one go, and beyond the first damage one by one."""
    seen = 0
    try:
        for row in source.execute(f"SELECT * FROM {table}"):
            seen += 1
            yield row
        return
    except sqlite3.Error:
        found.damaged.append(table)
    misses, key = 0, seen
    while misses < 10_000 and key < _LAST_KEY:
        key += 1
        try:
            row = source.execute(f"SELECT * FROM {table} WHERE rowid = ?", (key,)).fetchone()
        except sqlite3.OperationalError:
            return  # the table itself is gone, or has no row ids
        except sqlite3.Error:
            row = None
        misses = misses + 1 if row is None else 0
        if row is not None:
            yield row


def _drop_dangling(tx: Transaction) -> None:
    """Rows whose owner was lost cannot be kept: a group and a session are rebuilt from folders, messages are not."""
    tx.execute("DELETE FROM session WHERE grp NOT IN (SELECT name FROM grp)")
    tx.execute("DELETE FROM turn WHERE grp NOT IN (SELECT name FROM grp) OR session NOT IN (SELECT id FROM session)")
    tx.execute("UPDATE inbound SET turn = NULL WHERE turn NOT IN (SELECT id FROM turn)")
    tx.execute("UPDATE wake SET inbound = NULL WHERE inbound NOT IN (SELECT seq FROM inbound)")
    tx.execute("DELETE FROM turn_wake WHERE turn NOT IN (SELECT id FROM turn) OR wake NOT IN (SELECT id FROM wake)")
    for table in ("step", "effect"):
        tx.execute(f"DELETE FROM {table} WHERE turn NOT IN (SELECT id FROM turn)")
    tx.execute("UPDATE turn SET retry_of = NULL WHERE retry_of NOT IN (SELECT id FROM turn)")
    for column, owner in (("turn", "turn (id)"), ("effect", "effect (id)"), ("inbound", "inbound (seq)")):
        name, _, key = owner.partition(" ")
        tx.execute(f"UPDATE delivery SET {column} = NULL WHERE {column} NOT IN (SELECT {key[1:-1]} FROM {name})")
    tx.execute("DELETE FROM run WHERE grp NOT IN (SELECT name FROM grp)")


def _settle(tx: Transaction, finished: Mapping[int, str], now: str, found: Salvaged) -> None:
    """Bring what was on its way into states that a start can go on from. This is no move: the law was broken."""
    for turn, session in finished.items():
        row = tx.one("SELECT state, recorded_at FROM turn WHERE id = ?", turn)
        if row is not None and row["recorded_at"] is None:
            state = row["state"] if row["state"] in ("failed", "stopped") else "answered"
            tx.execute(
                "UPDATE turn SET state = ?, recorded_at = ?, ended_at = COALESCE(ended_at, ?) WHERE id = ?",
                state,
                now,
                now,
                turn,
            )
            tx.execute("UPDATE wake SET state = 'closed' WHERE id IN (SELECT wake FROM turn_wake WHERE turn = ?)", turn)
            tx.execute(
                "UPDATE inbound SET state = 'recorded', reason = 'recovered' WHERE turn = ?"
                " AND state NOT IN ('failed', 'stopped')",
                turn,
            )
            found.finished.append(turn)
        elif row is None:  # its number must never be given again
            home = tx.one("SELECT grp FROM session WHERE id = ?", session)
            if home is not None:
                tx.insert(
                    "turn", id=turn, grp=home["grp"], session=session, ordinal=0, state="answered", authority="none",
                    taint=0.0, channel="", account="", chat="", thread="", queued_at=now, ended_at=now, recorded_at=now,
                )  # fmt: skip
                found.finished.append(turn)
    tx.execute("UPDATE delivery SET state = 'unknown' WHERE state IN ('pending', 'sending', 'draft')")
    # Answered, by the ledger, but what was said is lost with its final: only what is complete may be recorded.
    tx.execute("UPDATE turn SET state = 'queued', run = NULL, worker = NULL WHERE state IN ('claimed', 'held')")
    tx.execute(
        "UPDATE inbound SET state = 'received', reason = NULL"
        " WHERE turn IN (SELECT id FROM turn WHERE state = 'queued')"
    )
    tx.execute(
        "UPDATE wake SET state = 'pending' WHERE id IN"
        " (SELECT tw.wake FROM turn_wake tw JOIN turn t ON t.id = tw.turn WHERE t.state = 'queued')"
    )
    tx.execute("UPDATE run SET state = 'gone' WHERE state <> 'gone'")
