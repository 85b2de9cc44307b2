"""Steering in the ledger: what is said to a session while its turn is at work.

Such a message has a turn of its own, which waits. Handing its wake to the live turn's model changes nothing; only when
a step or the final says that the model was shown it does the wake become the live turn's, and its own turn `joined`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from clawd.channel import NOTICE
from clawd.ledger import deliveries, turns
from clawd.ledger.db import Row, Transaction
from clawd.trust import Role, lowest

# What `turn.stop_requested` says: by whom it is ended, in the words of its messages' reason.
STOPPED = {1: "stopped", 2: "stopped to answer a newer message", 3: "stopped from another chat"}
NEWER, ELSEWHERE = 2, 3
INTERRUPTED = "Stopped to answer your newer message."
# Kinds of wakes that a person said; any other one is no word to a turn at work.
_SPOKEN = "'message', 'line', 'answer'"


def followups(tx: Transaction, live: Row) -> list[dict[str, Any]]:
    """The wakes that a live turn may take in, in their order, as `turns.wakes` gives them: said to its session in the
    same chat, by the role that its own wakes have, for the same engine; and edits of what it answers. None once it is
    to stop."""
    if live["state"] != "claimed" or live["stop_requested"]:
        return []
    return [turns.shown_as(row) for row in _waiting(tx, live)]


def _waiting(tx: Transaction, live: Row) -> list[Row]:
    return tx.all(
        f"{turns.WAKES} WHERE t.session = ? AND t.state = 'queued' AND t.recorded_at IS NULL AND t.retry_of IS NULL"
        " AND t.choice IS ? AND (t.channel, t.account, t.chat, t.thread) = (?, ?, ?, ?)"
        f" AND w.state = 'pending' AND w.kind IN ({_SPOKEN}) AND NOT EXISTS ("
        "  SELECT 1 FROM turn_wake mine JOIN wake own ON own.id = mine.wake"
        "  WHERE mine.turn IN (?, t.id) AND own.authority <> w.authority)"  # none of a turn that acts for several
        " UNION ALL"
        f" {turns.WAKES} WHERE tw.turn = ? AND w.state = 'pending' AND w.kind = 'edit'"
        " ORDER BY 1",
        *(live[name] for name in ("session", "choice", "channel", "account", "chat", "thread", "id", "id")),
    )


def join(tx: Transaction, turn: int, n: int, shown: Collection[int], now: str) -> list[int]:
    """The wakes among `shown` that are follow-ups become the live turn's own, from before its step `n`; what else is
    named (its own, what was stopped meanwhile, what is nobody's) changes nothing. Gives the turns that went up in it,
    whose deliveries it takes over."""
    live = turns.get(tx, turn)
    if live["state"] != "claimed" or live["stop_requested"]:
        return []
    waiting = _waiting(tx, live)
    joining = [row for row in waiting if row["id"] in shown]
    # No line is answered for itself: those of a turn go along with the last that it was to answer.
    stay = {row["turn"] for row in waiting if row["kind"] != "line" and row["id"] not in shown}
    go = {row["turn"] for row in joining} - stay
    joining += [row for row in waiting if row["kind"] == "line" and row["turn"] in go and row["id"] not in shown]
    for row in joining:
        tx.execute(
            "UPDATE turn_wake SET turn = ?, joined = ? WHERE wake = ? AND turn = ?", turn, n, row["id"], row["turn"]
        )
        tx.move("wake", row["id"], "take")
        if row["inbound"] is not None:
            tx.move("inbound", row["inbound"], "claim", turn=turn)
    if joining:
        turns.fall(tx, live["run"], min(row["trust"] for row in joining))
    emptied = [
        id
        for id in dict.fromkeys(row["turn"] for row in joining)
        if tx.one("SELECT 1 FROM turn_wake WHERE turn = ?", id) is None
    ]
    for id in emptied:
        tx.move("turn", id, "join", ended_at=now, recorded_at=now)
        said = tx.one("SELECT COUNT(*) AS n FROM delivery WHERE turn = ?", turn)
        assert said is not None
        tx.execute("UPDATE delivery SET turn = ?, n = n + ? WHERE turn = ?", turn, said["n"], id)
    return emptied


def leave(tx: Transaction, live: Row, shown: Collection[int] | None, now: str) -> int | None:
    """At its answer: the turn's wakes that the model was never shown, by `shown` or any step, wait again, in a new
    turn, which is given. An answer answers something: where nothing was shown, all was."""
    own = tx.all(
        "SELECT w.* FROM turn_wake tw JOIN wake w ON w.id = tw.wake"
        " WHERE tw.turn = ? AND w.kind <> 'edit' ORDER BY w.id",
        live["id"],
    )
    seen = set(shown if shown is not None else [row["id"] for row in own])
    for step in tx.all("SELECT shown FROM step WHERE turn = ? AND n >= ?", live["id"], live["base_steps"]):
        seen.update(json.loads(step["shown"]))
    left = [row for row in own if row["id"] not in seen]
    if len(left) == len(own) or all(row["kind"] == "line" for row in left):  # no line is answered for itself
        return None
    authority, taint = lowest(Role(row["authority"]) for row in left), min(row["trust"] for row in left)
    turn = turns.queue(tx, live, authority, taint, now, choice=live["choice"])
    for row in left:
        tx.execute("UPDATE turn_wake SET turn = ?, joined = 0 WHERE turn = ? AND wake = ?", turn, live["id"], row["id"])
        tx.move("wake", row["id"], "give_back")
        if row["inbound"] is not None:
            tx.move("inbound", row["inbound"], "requeue", turn=turn)
    return turn


def interrupt(tx: Transaction, turn: int, now: str) -> Row | None:
    """A turn was queued: the live one of its session, if it could be steered by it, is asked to stop instead, and its
    chat is told. Committed before anything is ended. Gives the live turn."""
    live = tx.one(
        "SELECT * FROM turn WHERE state = 'claimed' AND recorded_at IS NULL"
        " AND session = (SELECT session FROM turn WHERE id = ?)",
        turn,
    )
    if live is None or live["stop_requested"] or all(row["turn"] != turn for row in _waiting(tx, live)):
        return None
    tx.execute("UPDATE turn SET stop_requested = ? WHERE id = ?", NEWER, live["id"])
    deliveries.enqueue(
        tx,
        deliveries.Address.of(live),
        session=live["session"],
        kind="notice",
        text=INTERRUPTED,
        now=now,
        limits=NOTICE,
        turn=live["id"],
    )
    return live
