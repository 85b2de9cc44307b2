"""Everything of a session that waits goes on to the next segment of its conversation: turns with their messages,
messages that have none yet, an open question, what other programs put in. What is over stays where it was.

A session of which a turn is live is never moved from.
"""

from __future__ import annotations

from clawd.ledger import groups
from clawd.ledger.db import Row, Transaction

_WAITS = "state IN ('queued', 'held') AND recorded_at IS NULL"
# Kinds of wakes with which somebody spoke to it, beside an answer that nobody gave in time.
_SPOKEN = "('message', 'line', 'answer', 'edit')"


def is_at_work(tx: Transaction, session: str) -> bool:
    """Whether a turn of it is held by a run."""
    held = "SELECT 1 FROM turn WHERE session = ? AND recorded_at IS NULL AND state = 'claimed' LIMIT 1"
    return tx.one(held, session) is not None


def move(tx: Transaction, old: str, new: str) -> int:
    """From segment to segment; gives how many turns that were. The new one counts its turns on from the old one's."""
    tx.execute("UPDATE session SET turns = MAX(turns, (SELECT turns FROM session WHERE id = ?)) WHERE id = ?", old, new)
    moved = tx.execute(f"UPDATE turn SET session = ? WHERE session = ? AND {_WAITS}", new, old).rowcount
    for state in ("received", "held"):  # each has an index of its own
        tx.execute(f"UPDATE inbound SET session = ? WHERE session = ? AND state = '{state}'", new, old)
    tx.execute("UPDATE question SET session = ? WHERE session = ? AND state = 'open'", new, old)
    pieces = "SELECT 1 FROM injected WHERE session = ? AND state <> 'recorded' LIMIT 1"
    if tx.one(pieces, old) is not None:
        row = tx.one("SELECT taint FROM session WHERE id = ?", old)
        groups.distrust(tx, new, row["taint"] if row is not None else 0.0)
        tx.execute("UPDATE injected SET session = ? WHERE session = ? AND state <> 'recorded'", new, old)
    return moved


def take_back(tx: Transaction, session: str, now: str) -> int:
    """Withdraw what waits to go on by itself and has not begun: another that goes on takes its place, or a person's
    word. Gives how many turns that were."""
    rows = tx.all(
        f"SELECT id FROM turn t WHERE session = ? AND {_WAITS} AND claimed_at IS NULL"
        " AND EXISTS (SELECT 1 FROM turn_wake tw WHERE tw.turn = t.id) AND NOT EXISTS (SELECT 1 FROM turn_wake tw"
        " JOIN wake w ON w.id = tw.wake WHERE tw.turn = t.id AND w.kind <> 'handoff')",
        session,
    )
    for row in rows:
        for wake in tx.all("SELECT wake FROM turn_wake WHERE turn = ?", row["id"]):
            tx.move("wake", wake["wake"], "drop")
        tx.move("turn", row["id"], "withdraw", ended_at=now, recorded_at=now)
    return len(rows)


def last_turn(tx: Transaction, session: str) -> Row | None:
    """The last one that was handed out."""
    return tx.one(
        "SELECT * FROM turn WHERE session = ? AND claimed_at IS NOT NULL AND state IN ('answered', 'stopped', 'failed')"
        " ORDER BY id DESC LIMIT 1",
        session,
    )


def place(tx: Transaction, session: str) -> Row | None:
    """A turn that says where the session speaks: its last, or the first that waits."""
    return last_turn(tx, session) or tx.one(
        "SELECT * FROM turn WHERE session = ? AND state <> 'joined' ORDER BY id DESC LIMIT 1", session
    )


def was_spoken_to(tx: Transaction, session: str) -> bool:
    """Whether a person said something to it."""
    return (
        tx.one(
            "SELECT 1 FROM turn t JOIN turn_wake tw ON tw.turn = t.id JOIN wake w ON w.id = tw.wake"
            " WHERE t.session = ? AND t.claimed_at IS NOT NULL"
            f" AND w.inbound IS NOT NULL AND w.kind IN {_SPOKEN} LIMIT 1",
            session,
        )
        is not None
    )


def is_newest(tx: Transaction, session: str) -> bool:
    row = tx.one("SELECT base FROM session WHERE id = ?", session)
    newest = groups.session(tx, row["base"]) if row is not None else None
    return newest is not None and newest.id == session
