"""How turns end, and how they wait: the answer, faults, stop, hold, retry, record.

Whatever ends a turn closes its wakes and messages, lets its authority and taint fall onto the work tree, and puts what
is to be said into the outbox, all in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clawd.channel import NOTICE, ChannelLimits
from clawd.errors import ClawdError, NotFound
from clawd.ids import is_job
from clawd.ledger import changes, contexts, deliveries, firings, groups, steering, streams, wakes
from clawd.ledger.db import Row, Transaction
from clawd.ledger.moves import after_fault
from clawd.ledger.turns import check_lease, get, is_lease_of, next_claimable, of_conversation, step_count
from clawd.model import Final, Lease
from clawd.trust import Role, at_least


@dataclass(frozen=True, slots=True)
class Ended:
    """What a change did to a turn: its new state and the deliveries that were made."""

    turn: int
    session: str
    state: str
    deliveries: list[int]


def answer(
    tx: Transaction,
    lease: Lease,
    final: Final,
    files: list[tuple[str, str]],
    now: str,
    *,
    limits: ChannelLimits,
    whole: str | None = None,
) -> Ended:
    """A turn's final, accepted once: its text and `files` [(name, blob)] go to the outbox frozen; `whole` is the text
    as a blob, if it is long. A replay changes nothing and gives how the turn ended. What the model was shown is closed
    with it; nothing of a job is delivered.

    A stop that was committed before it wins: then the turn is stopped and nothing is said.
    """
    row = get(tx, lease.turn)
    if row["state"] in ("answered", "stopped", "failed") and is_lease_of(row, lease):
        sent = tx.all("SELECT id FROM delivery WHERE turn = ? ORDER BY id", lease.turn)
        return Ended(lease.turn, row["session"], row["state"], [each["id"] for each in sent])
    check_lease(tx, lease)
    if row["stop_requested"]:
        return stopped(tx, lease.turn, now)
    if final.shown:
        steering.join(tx, lease.turn, step_count(tx, lease.turn), final.shown, now)
    steering.leave(tx, row, final.shown, now)
    _close_wakes(tx, lease.turn, "answer")
    tx.move(
        "turn",
        lease.turn,
        "answer",
        ended_at=now,
        final=json.dumps(
            {
                "text": final.text,
                "files": [name for name, _ in files],
                "stop_reason": final.stop_reason,
                "notes": final.notes,
            },
            ensure_ascii=False,
        ),
        model=final.model,
    )
    made, edits = [], streams.taken_over(tx, lease.turn)
    common: dict[str, Any] = {"session": row["session"], "now": now, "turn": lease.turn}
    to = deliveries.Address.of(row)
    silent = final.text.strip() == wakes.NOTHING and wakes.is_unasked(tx, lease.turn)
    if final.text and not is_job(row["session"]) and not silent:
        asked = deliveries.asked(tx, lease.turn)
        made += deliveries.enqueue(
            tx, to, kind="text", text=final.text, limits=limits, edits=edits, reply_to=asked, whole=whole, **common
        )
    for name, blob in files:
        made += deliveries.enqueue(tx, to, kind="file", text="", blob=blob, name=name, limits=limits, **common)
    _fall(tx, get(tx, lease.turn))  # what joined may have lowered it
    deliveries.settle_turn(tx, lease.turn)
    return Ended(lease.turn, row["session"], "answered", made)


def fault(tx: Transaction, turn: int, why: str, now: str, *, limits: ChannelLimits, final: bool = False) -> Ended:
    """A turn's own fault: another attempt, or after the third (or with `final`) the end, told in its chat."""
    row = get(tx, turn)
    if row["stop_requested"]:
        return stopped(tx, turn, now)
    faults = row["faults"] + 1
    _fall(tx, row)
    if not final and after_fault(faults) == "requeue":
        tx.move(
            "turn",
            turn,
            "requeue",
            faults=faults,
            attempt=row["attempt"] + 1,
            run=None,
            worker=None,
            error=why,
        )
        _give_back(tx, turn, "requeue")
        return Ended(turn, row["session"], "queued", [])
    tx.move("turn", turn, "fail", faults=faults, error=why, ended_at=now)
    paused = _close_wakes(tx, turn, "fail", reason=why)
    if is_job(row["session"]):
        return Ended(turn, row["session"], "failed", [])
    tried = f" It was tried {faults} times." if faults > 1 else ""
    message = _first_message(tx, turn)
    again = f" To try again: clawd messages retry {message}" if message else ""
    more = f"\n{paused}" if paused else ""
    said, asked = f"That did not work: {why.rstrip('.')}.{tried}{again}{more}", deliveries.asked(tx, turn)
    made = _notice(tx, row, said, now, limits, streams.taken_over(tx, turn), reply_to=asked)
    return Ended(turn, row["session"], "failed", made)


def requeue(tx: Transaction, turn: int, now: str) -> Ended:
    """Back to the queue through no fault of its own: the daemon or its sandbox was ended. Its sandbox is known dead."""
    row = get(tx, turn)
    if row["stop_requested"]:
        return stopped(tx, turn, now)
    _fall(tx, row)
    tx.move("turn", turn, "requeue", run=None, worker=None)
    _give_back(tx, turn, "requeue")
    return Ended(turn, row["session"], "queued", [])


def request_stop(
    tx: Transaction, session: str, role: Role = Role.OWNER, by: deliveries.Address | None = None
) -> list[int]:
    """Commit the wish of somebody with this role to stop what is live in the conversation for nobody above, before
    anything is killed. `by` is where it was said: any other chat is told. Gives the turns: more than one when `/new`
    opened another segment meanwhile."""
    live = [row for row in _stoppable(tx, session, role, "claimed") if not row["stop_requested"]]
    for row in live:
        tx.execute("UPDATE turn SET stop_requested = ? WHERE id = ?", _asked(row, by), row["id"])
    return [row["id"] for row in live]


def _asked(turn: Row, by: deliveries.Address | None) -> int:
    return 1 if by in (None, deliveries.Address.of(turn)) else steering.ELSEWHERE


def stopped(tx: Transaction, turn: int, now: str) -> Ended:
    """The end of a turn that was asked to stop. Who asked was told by the command's own reply, or by a notice; what had
    begun to be shown says so too, and so is its chat told where that was asked in another."""
    row = get(tx, turn)
    why = steering.STOPPED[row["stop_requested"] or 1]
    tx.move("turn", turn, "stop", ended_at=now)
    _close_wakes(tx, turn, "stop", reason=why)
    if row["run"]:
        _fall(tx, row)
    made: list[int] = []
    edits = streams.taken_over(tx, turn)
    if edits is not None or row["stop_requested"] == steering.ELSEWHERE:
        made = _notice(tx, row, f"{why.capitalize()}.", now, NOTICE, edits)
    return Ended(turn, row["session"], "stopped", made)


def stop_waiting(
    tx: Transaction, session: str, now: str, role: Role = Role.OWNER, by: deliveries.Address | None = None
) -> list[int]:
    """Clear the conversation's queue (`/stop all`) of what waits for nobody above this role. Gives the turns."""
    waiting = _stoppable(tx, session, role, "queued", "held")
    for row in waiting:
        tx.execute("UPDATE turn SET stop_requested = ? WHERE id = ?", _asked(row, by), row["id"])
    return [stopped(tx, row["id"], now).turn for row in waiting]


def stop_of(tx: Transaction, senders: Sequence[str], now: str) -> tuple[list[int], list[int]]:
    """Who may not speak any more: every turn that is only for messages of theirs is asked to stop, or stopped where it
    waits, and what of theirs was not taken yet is withdrawn. Gives the live turns and those that waited."""
    marks = ", ".join("?" * len(senders))
    rows = tx.all(
        "SELECT t.id, t.state FROM turn t WHERE t.recorded_at IS NULL AND t.state IN ('claimed', 'queued', 'held')"
        " AND EXISTS (SELECT 1 FROM turn_wake tw WHERE tw.turn = t.id) AND NOT EXISTS (SELECT 1 FROM turn_wake tw"
        " JOIN wake w ON w.id = tw.wake LEFT JOIN inbound i ON i.seq = w.inbound WHERE tw.turn = t.id"
        f" AND (i.sender IS NULL OR i.sender NOT IN ({marks}))) ORDER BY t.id",
        *senders,
    )
    live = [row["id"] for row in rows if row["state"] == "claimed"]
    for turn in live:
        tx.execute("UPDATE turn SET stop_requested = 1 WHERE id = ? AND stop_requested = 0", turn)
    waiting = [stopped(tx, row["id"], now).turn for row in rows if row["state"] != "claimed"]
    untaken = f"SELECT seq FROM inbound WHERE state = 'held' AND turn IS NULL AND sender IN ({marks})"
    for row in tx.all(untaken, *senders):
        tx.move("inbound", row["seq"], "withdraw", reason="its sender may not speak any more")
    return live, waiting


def _stoppable(tx: Transaction, session: str, role: Role, *states: str) -> list[Row]:
    """Nobody ends what those with more rights have begun."""
    return [row for row in of_conversation(tx, session, *states) if at_least(role, Role(row["authority"]))]


def hold(
    tx: Transaction, group: str, reason: str, now: str, *, limits: ChannelLimits, plain: bool = False
) -> list[tuple[Row, Ended]]:
    """Every queued turn of the group waits, with a reason that its chat is told once; with `plain` those do not that
    chose an engine or a model for themselves. Gives each row as it was."""
    rows = tx.all(
        "SELECT * FROM turn WHERE grp = ? AND state = 'queued' AND recorded_at IS NULL"
        " AND (choice IS NULL OR NOT ?) ORDER BY id",
        group,
        plain,
    )
    return [(row, _hold(tx, row, reason, now, limits)) for row in rows]


def hold_live(tx: Transaction, turn: int, reason: str, now: str, *, limits: ChannelLimits) -> Ended:
    """A claimed turn waits, through no fault of its own: attempt and steps are kept. Its chat is told once."""
    row = get(tx, turn)
    _fall(tx, row)
    _give_back(tx, turn, "requeue")
    return _hold(tx, row, reason, now, limits)


def _hold(tx: Transaction, row: Row, reason: str, now: str, limits: ChannelLimits) -> Ended:
    tx.move("turn", row["id"], "hold", held=reason, run=None, worker=None)
    made: list[int] = []
    told = True
    for inbound in tx.all("SELECT seq, state, told FROM inbound WHERE turn = ?", row["id"]):
        tx.move("inbound", inbound["seq"], "hold", reason=reason)
        told = told and bool(inbound["told"])
        tx.execute("UPDATE inbound SET told = 1 WHERE seq = ?", inbound["seq"])
    if not told:
        said = f"Your message is kept and will be answered as soon as that is possible: {reason}"
        made = _notice(tx, row, said, now, limits, streams.taken_over(tx, row["id"]))
    return Ended(row["id"], row["session"], "held", made)


def _notice(
    tx: Transaction, turn: Row, text: str, now: str, limits: ChannelLimits, edits: int | None, **more: Any
) -> list[int]:
    """What a turn's chat is told of it, in the message that grew, if there is one."""
    to, session = deliveries.Address.of(turn), turn["session"]
    what: dict[str, Any] = {"session": session, "turn": turn["id"], "edits": edits, **more}
    return deliveries.enqueue(tx, to, kind="notice", text=text, now=now, limits=limits, **what)


def release(tx: Transaction, group: str) -> int:
    """The reason is gone: the group's held turns are queued again, in their order."""
    rows = tx.all("SELECT id FROM turn WHERE grp = ? AND state = 'held' AND recorded_at IS NULL", group)
    for row in rows:
        tx.move("turn", row["id"], "release", held=None, run=None, worker=None)
        for inbound in tx.all("SELECT seq, state FROM inbound WHERE turn = ? AND state = 'held'", row["id"]):
            tx.move("inbound", inbound["seq"], "release", reason=None)
    return len(rows)


def groups_held(tx: Transaction) -> list[str]:
    return [row["grp"] for row in tx.all("SELECT DISTINCT grp FROM turn WHERE state = 'held' AND recorded_at IS NULL")]


def retry(tx: Transaction, seq: int, now: str) -> int:
    """`messages retry`: a new turn for a failed message, which goes on after the failed one's steps and knows its
    effects, so that none is done again. Gives the new turn."""
    row = tx.one("SELECT state, turn, parts FROM inbound WHERE seq = ?", seq)
    if row is None:
        raise NotFound(f"there is no message {seq}", hint="clawd messages list")
    if row["state"] != "failed" or row["turn"] is None:
        raise ClawdError(f"message {seq} is {row['state']}; only a failed one can be tried again")
    if row["parts"] == "[]":
        raise ClawdError(f"the text of message {seq} has left the ledger; whoever sent it must send it again")
    old = get(tx, row["turn"])
    copied = ("grp", "ordinal", "authority", "taint", "channel", "account", "chat", "thread", "choice", "tools")
    session = contexts.heir(tx, old["session"])
    turn = tx.insert(
        "turn",
        **{name: old[name] for name in copied},
        session=session,
        state="queued",
        queued_at=now,
        retry_of=old["id"],
        base_steps=step_count(tx, old["id"]),
    )
    for wake in tx.all(
        "SELECT w.*, tw.joined FROM turn_wake tw JOIN wake w ON w.id = tw.wake WHERE tw.turn = ? ORDER BY w.id",
        old["id"],
    ):
        again = {name: wake[name] for name in ("kind", "inbound", "authority", "trust", "origin", "text")}
        id = tx.insert("wake", key=f"retry:{turn}:{wake['id']}", state="pending", **again)
        tx.execute("INSERT INTO turn_wake (turn, wake, joined) VALUES (?, ?, ?)", turn, id, wake["joined"])
    for each in tx.all("SELECT seq FROM inbound WHERE turn = ? AND state = 'failed'", old["id"]):
        tx.move("inbound", each["seq"], "retry", reason=None, told=0, turn=turn, session=session)
    tx.execute("INSERT INTO step SELECT ?, n, attempt, message, shown FROM step WHERE turn = ?", turn, old["id"])
    tx.execute(
        "INSERT INTO effect (turn, tool, arguments, nth, state, result)"
        " SELECT ?, tool, arguments, nth, state, result FROM effect WHERE turn = ? AND state = 'done'",
        turn,
        old["id"],
    )
    return turn


def recorded(tx: Transaction, turn: int, now: str) -> bool:
    """The turn's blocks are in its file, durably. Gives whether its group has a turn that may be claimed now."""
    tx.execute("UPDATE turn SET recorded_at = ? WHERE id = ? AND recorded_at IS NULL", now, turn)
    deliveries.settle_turn(tx, turn)
    return next_claimable(tx, get(tx, turn)["grp"]) is not None


def _first_message(tx: Transaction, turn: int) -> int:
    row = tx.one("SELECT MIN(seq) AS seq FROM inbound WHERE turn = ?", turn)
    return int(row["seq"] or 0) if row else 0


def _close_wakes(tx: Transaction, turn: int, event: str, reason: str | None = None) -> str:
    """Gives what its chat is to hear of schedules that pause because of that."""
    changes.let_go(tx, turn)
    for wake in tx.all("SELECT w.id FROM turn_wake tw JOIN wake w ON w.id = tw.wake WHERE tw.turn = ?", turn):
        tx.move("wake", wake["id"], "close")
    for inbound in tx.all("SELECT seq FROM inbound WHERE turn = ?", turn):
        tx.move("inbound", inbound["seq"], event, reason=reason, told=1)
    return firings.close(tx, turn, event, reason)


def _give_back(tx: Transaction, turn: int, event: str) -> None:
    for wake in tx.all(
        "SELECT w.id, w.inbound FROM turn_wake tw JOIN wake w ON w.id = tw.wake"
        " WHERE tw.turn = ? AND w.state = 'taken'",
        turn,
    ):
        tx.move("wake", wake["id"], "give_back")
        if wake["inbound"] is not None:
            tx.move("inbound", wake["inbound"], event)


def _fall(tx: Transaction, turn: Row) -> None:
    """At a turn's end, however it ends, its authority and taint fall onto the group's work tree."""
    if not is_job(turn["session"]):
        groups.fall(tx, turn["grp"], Role(turn["authority"]), turn["taint"])
    others = tx.one(
        "SELECT COUNT(*) AS n FROM turn WHERE run = ? AND state = 'claimed' AND id <> ?",
        turn["run"],
        turn["id"],
    )
    if turn["run"] and others is not None and not others["n"]:
        run = tx.one("SELECT state FROM run WHERE id = ?", turn["run"])
        if run is not None and run["state"] != "gone":
            tx.move("run", turn["run"], "park")
