"""Turns in the ledger: claim, steps, effects, the answer, faults, stop, hold, retry, record.

A turn is held by a lease (run, attempt, worker); whatever arrives under another lease raises LeaseLost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clawd.errors import ClawdError, LeaseLost, NotFound
from clawd.ledger import deliveries, groups
from clawd.ledger.db import Row, Transaction
from clawd.ledger.moves import after_fault
from clawd.model import Final, Lease, Usage
from clawd.trust import Role, lowest

# Effects of one turn, by host tool: enough for any honest turn.
QUOTAS = {"send_message": 20, "send_file": 10}


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed turn: the row as it was read, its wakes with their messages, and the steps so far."""

    turn: Row
    attempt: int
    authority: Role
    taint: float
    wakes: list[dict[str, Any]]
    steps: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Ended:
    """What a change did to a turn: its new state and the deliveries that were made."""

    turn: int
    session: str
    state: str
    deliveries: list[int]


def get(tx: Transaction, turn: int) -> Row:
    row = tx.one("SELECT * FROM turn WHERE id = ?", turn)
    if row is None:
        raise NotFound(f"there is no turn {turn}")
    return row


def next_claimable(tx: Transaction, group: str) -> Row | None:
    """The turn of the group that is next in fairness: one a session, in order within it, not before the session's last
    turn is recorded; the session that was served longest ago first."""
    return tx.one(
        "SELECT t.* FROM turn t JOIN session s ON s.id = t.session"
        " WHERE t.grp = ? AND t.state = 'queued' AND t.recorded_at IS NULL AND NOT EXISTS ("
        "  SELECT 1 FROM turn b WHERE b.session = t.session AND b.recorded_at IS NULL AND b.id <> t.id"
        "  AND (b.state IN ('claimed', 'answered', 'stopped', 'failed') OR b.id < t.id))"
        " ORDER BY s.served, t.id LIMIT 1",
        group,
    )


def waiting_groups(tx: Transaction) -> list[str]:
    """Groups with a queued turn, the longest-waiting first."""
    rows = tx.all(
        "SELECT grp, MIN(id) AS first FROM turn WHERE state = 'queued' AND recorded_at IS NULL GROUP BY grp ORDER BY first"
    )
    return [row["grp"] for row in rows]


def claim(tx: Transaction, run: str, group: str, worker: int, now: str) -> Claim | None:
    """Hand out the next turn of the group to a worker of its run, or None when there is none that may start now.

    Turns run side by side only at equal authority: one of another authority waits until the run is empty, and nothing
    behind it is handed out, so that it cannot be starved.
    """
    row = next_claimable(tx, group)
    if row is None:
        return None
    tree = groups.get(tx, group).authority
    authority, taint = lowest([tree.role, Role(row["authority"])]), min(tree.taint, row["taint"])
    live = tx.one("SELECT authority FROM turn WHERE run = ? AND state = 'claimed' LIMIT 1", run)
    if live is not None and live["authority"] != authority:
        return None
    tx.move("turn", row["id"], "claim", run=run, worker=worker, claimed_at=now, authority=authority, taint=taint)
    served = tx.one("SELECT COALESCE(MAX(served), 0) + 1 AS n FROM session WHERE grp = ?", group)
    assert served is not None
    tx.execute("UPDATE session SET served = ? WHERE id = ?", served["n"], row["session"])
    for wake in tx.all(
        "SELECT w.id, w.inbound FROM turn_wake tw JOIN wake w ON w.id = tw.wake WHERE tw.turn = ? AND w.state = 'pending'",
        row["id"],
    ):
        tx.move("wake", wake["id"], "take")
        if wake["inbound"] is not None:
            tx.move("inbound", wake["inbound"], "claim")
    tx.move("run", run, "take")
    return Claim(row, row["attempt"], authority, taint, wakes(tx, row["id"]), steps(tx, row["id"]))


def reclaim(tx: Transaction, turn: int) -> Claim:
    """The same claim once more, for the run that holds it: its first answer was lost."""
    row = get(tx, turn)
    return Claim(row, row["attempt"], Role(row["authority"]), row["taint"], wakes(tx, turn), steps(tx, turn))


def wakes(tx: Transaction, turn: int) -> list[dict[str, Any]]:
    """The wakes of a turn in order, as the runner is shown them."""
    rows = tx.all(
        "SELECT w.id, w.kind, w.authority, i.parts, i.sender, i.at, i.seq FROM turn_wake tw JOIN wake w ON w.id = tw.wake"
        " LEFT JOIN inbound i ON i.seq = w.inbound WHERE tw.turn = ? ORDER BY w.id",
        turn,
    )
    return [
        {
            "id": row["id"],
            "kind": row["kind"],
            "role": row["authority"],
            "sender": row["sender"],
            "at": row["at"],
            "parts": json.loads(row["parts"] or "[]"),
        }
        for row in rows
    ]


def steps(tx: Transaction, turn: int) -> list[dict[str, Any]]:
    """The durable messages of a turn, in order."""
    return [json.loads(row["message"]) for row in tx.all("SELECT message FROM step WHERE turn = ? ORDER BY n", turn)]


def check_lease(tx: Transaction, lease: Lease) -> Row:
    """The turn, if the lease still holds it. Raises LeaseLost."""
    row = get(tx, lease.turn)
    if row["state"] != "claimed" or not _is_lease_of(row, lease):
        raise LeaseLost(f"turn {lease.turn} is not held by attempt {lease.attempt} of this run")
    return row


def _is_lease_of(row: Row, lease: Lease) -> bool:
    return (row["run"], row["attempt"], row["worker"]) == (lease.run, lease.attempt, lease.worker)


def add_step(tx: Transaction, lease: Lease, n: int, message: dict[str, Any], shown: list[int]) -> None:
    """Keep message `n`. The same one again changes nothing; another one under the same number is refused."""
    check_lease(tx, lease)
    text = json.dumps(message, ensure_ascii=False, sort_keys=True)
    old = tx.one("SELECT message FROM step WHERE turn = ? AND n = ?", lease.turn, n)
    if old is not None:
        if old["message"] != text:
            raise LeaseLost(f"turn {lease.turn} has another step {n} already")
        return
    tx.insert("step", turn=lease.turn, n=n, attempt=lease.attempt, message=text, shown=json.dumps(shown))


def effect(
    tx: Transaction,
    lease: Lease,
    tool: str,
    arguments: dict[str, Any],
    nth: int,
    act: Callable[[Transaction, int], dict[str, Any]],
) -> dict[str, Any]:
    """Do a host tool's effect once, keyed by content; a repeated call gets the first one's result. Over its quota the
    refusal is the result, so that it too is given once and for all."""
    check_lease(tx, lease)
    digest = hashlib.sha256(json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    old = tx.one(
        "SELECT result FROM effect WHERE turn = ? AND tool = ? AND arguments = ? AND nth = ?",
        lease.turn,
        tool,
        digest,
        nth,
    )
    if old is not None:
        return dict(json.loads(old["result"]))
    used = tx.one("SELECT COUNT(*) AS n FROM effect WHERE turn = ? AND tool = ? AND state = 'done'", lease.turn, tool)
    assert used is not None
    over = used["n"] >= QUOTAS.get(tool, 100)
    id = tx.insert(
        "effect",
        turn=lease.turn,
        tool=tool,
        arguments=digest,
        nth=nth,
        state="refused" if over else "done",
        result="{}",
    )
    if over:
        result: dict[str, Any] = {"error": f"{tool} was used {used['n']} times in this turn, which is the limit"}
    else:
        result = act(tx, id)
    tx.execute("UPDATE effect SET result = ? WHERE id = ?", json.dumps(result, ensure_ascii=False), id)
    return result


def answer(
    tx: Transaction,
    lease: Lease,
    final: Final,
    files: list[tuple[str, str]],
    now: str,
    *,
    limit: int,
    engine: str,
    backend: str,
) -> Ended | None:
    """A turn's final, accepted once: its text and `files` [(name, blob)] go to the outbox frozen. None for a replay.

    A stop that was committed before it wins: then the turn is stopped and nothing is said.
    """
    row = get(tx, lease.turn)
    if row["state"] in ("answered", "stopped") and _is_lease_of(row, lease):
        return None
    check_lease(tx, lease)
    if row["stop_requested"]:
        return stopped(tx, lease.turn, now)
    usage = final.usage or Usage()
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
        engine=engine,
        backend=backend,
        model=final.model,
        input=usage.input if final.usage else None,
        output=usage.output if final.usage else None,
        cached=usage.cached if final.usage else None,
        usd=usage.usd,
    )
    _close_wakes(tx, lease.turn, "answer")
    made = []
    common: dict[str, Any] = {"session": row["session"], "now": now, "turn": lease.turn}
    to = deliveries.Address.of(row)
    if final.text:
        made += deliveries.enqueue(tx, to, kind="text", text=final.text, limit=limit, **common)
    for name, blob in files:
        made += deliveries.enqueue(tx, to, kind="file", text="", blob=blob, name=name, limit=limit, **common)
    _fall(tx, row)
    deliveries.settle_turn(tx, lease.turn)
    return Ended(lease.turn, row["session"], "answered", made)


def fault(tx: Transaction, turn: int, why: str, now: str, *, limit: int, final: bool = False) -> Ended:
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
    _close_wakes(tx, turn, "fail", reason=why)
    tried = f" It was tried {faults} times." if faults > 1 else ""
    made = deliveries.enqueue(
        tx,
        deliveries.Address.of(row),
        session=row["session"],
        kind="notice",
        text=f"That did not work: {why}.{tried} To try again: clawd messages retry {_first_message(tx, turn)}",
        now=now,
        limit=limit,
        turn=turn,
    )
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


def hand_over(tx: Transaction, lease: Lease, worker: int) -> None:
    """A turn that was handed out and never confirmed goes to another worker of the same run: the old lease is void."""
    check_lease(tx, lease)
    tx.execute("UPDATE turn SET worker = ? WHERE id = ?", worker, lease.turn)


def request_stop(tx: Transaction, session: str) -> int | None:
    """Commit the wish to stop the session's live turn, before anything is killed. Gives the turn."""
    row = tx.one(
        "SELECT id FROM turn WHERE session = ? AND state = 'claimed' AND recorded_at IS NULL AND stop_requested = 0",
        session,
    )
    if row is None:
        return None
    tx.execute("UPDATE turn SET stop_requested = 1 WHERE id = ?", row["id"])
    return int(row["id"])


def stopped(tx: Transaction, turn: int, now: str) -> Ended:
    """The end of a turn that was asked to stop. Who asked was told by the command's own reply."""
    row = get(tx, turn)
    tx.move("turn", turn, "stop", ended_at=now)
    _close_wakes(tx, turn, "stop", reason="stopped")
    if row["run"]:
        _fall(tx, row)
    return Ended(turn, row["session"], "stopped", [])


def stop_waiting(tx: Transaction, session: str, now: str) -> list[int]:
    """Clear the session's queue (`/stop all`). Gives the turns that were waiting."""
    rows = tx.all(
        "SELECT id FROM turn WHERE session = ? AND state IN ('queued', 'held') AND recorded_at IS NULL ORDER BY id",
        session,
    )
    return [stopped(tx, row["id"], now).turn for row in rows]


def waiting(tx: Transaction, session: str) -> int:
    row = tx.one(
        "SELECT COUNT(*) AS n FROM turn WHERE session = ? AND state IN ('queued', 'held') AND recorded_at IS NULL",
        session,
    )
    return int(row["n"]) if row else 0


def hold(tx: Transaction, group: str, reason: str, now: str, *, limit: int) -> list[Ended]:
    """Every queued turn of the group waits, with a reason that its chat is told once."""
    held = []
    for row in tx.all(
        "SELECT * FROM turn WHERE grp = ? AND state = 'queued' AND recorded_at IS NULL ORDER BY id", group
    ):
        tx.move("turn", row["id"], "hold", held=reason)
        made: list[int] = []
        told = True
        for inbound in tx.all("SELECT seq, state, told FROM inbound WHERE turn = ?", row["id"]):
            tx.move("inbound", inbound["seq"], "hold", reason=reason)
            told = told and bool(inbound["told"])
            tx.execute("UPDATE inbound SET told = 1 WHERE seq = ?", inbound["seq"])
        if not told:
            made = deliveries.enqueue(
                tx,
                deliveries.Address.of(row),
                session=row["session"],
                kind="notice",
                text=f"Your message is kept and will be answered as soon as that is possible: {reason}",
                now=now,
                limit=limit,
                turn=row["id"],
            )
        held.append(Ended(row["id"], row["session"], "held", made))
    return held


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
    row = tx.one("SELECT state, turn FROM inbound WHERE seq = ?", seq)
    if row is None:
        raise NotFound(f"there is no message {seq}", hint="clawd messages list")
    if row["state"] != "failed" or row["turn"] is None:
        raise ClawdError(f"message {seq} is {row['state']}; only a failed one can be tried again")
    old = get(tx, row["turn"])
    session = tx.one("UPDATE session SET turns = turns + 1 WHERE id = ? RETURNING id", old["session"])
    assert session is not None
    copied = ("grp", "session", "ordinal", "authority", "taint", "channel", "account", "chat", "thread")
    done = len(steps(tx, old["id"]))
    turn = tx.insert(
        "turn",
        **{name: old[name] for name in copied},
        state="queued",
        queued_at=now,
        retry_of=old["id"],
        base_steps=done,
    )
    for wake in tx.all("SELECT w.* FROM turn_wake tw JOIN wake w ON w.id = tw.wake WHERE tw.turn = ?", old["id"]):
        again = {name: wake[name] for name in ("kind", "inbound", "authority", "trust", "origin")}
        id = tx.insert("wake", key=f"retry:{turn}:{wake['id']}", state="pending", **again)
        tx.execute("INSERT INTO turn_wake (turn, wake) VALUES (?, ?)", turn, id)
    for each in tx.all("SELECT seq FROM inbound WHERE turn = ? AND state = 'failed'", old["id"]):
        tx.move("inbound", each["seq"], "retry", reason=None, told=0, turn=turn)
    tx.execute("INSERT INTO step SELECT ?, n, attempt, message, shown FROM step WHERE turn = ?", turn, old["id"])
    tx.execute(
        "INSERT INTO effect (turn, tool, arguments, nth, state, result)"
        " SELECT ?, tool, arguments, nth, state, result FROM effect WHERE turn = ? AND state = 'done'",
        turn,
        old["id"],
    )
    return turn


def to_record(tx: Transaction) -> list[int]:
    """Turns that ended and are not in their session file yet, oldest first."""
    return [
        row["id"]
        for row in tx.all(
            "SELECT id FROM turn WHERE recorded_at IS NULL AND state IN ('answered', 'stopped', 'failed') ORDER BY id"
        )
    ]


def recorded(tx: Transaction, turn: int, now: str) -> None:
    """The turn's blocks are in the session file, durably."""
    tx.execute("UPDATE turn SET recorded_at = ? WHERE id = ? AND recorded_at IS NULL", now, turn)
    deliveries.settle_turn(tx, turn)


def claimed_by(tx: Transaction, run: str) -> list[Row]:
    """The turns that a run holds."""
    return tx.all("SELECT * FROM turn WHERE run = ? AND state = 'claimed'", run)


def _first_message(tx: Transaction, turn: int) -> int:
    row = tx.one("SELECT MIN(seq) AS seq FROM inbound WHERE turn = ?", turn)
    return int(row["seq"] or 0) if row else 0


def _close_wakes(tx: Transaction, turn: int, event: str, reason: str | None = None) -> None:
    for wake in tx.all("SELECT w.id FROM turn_wake tw JOIN wake w ON w.id = tw.wake WHERE tw.turn = ?", turn):
        tx.move("wake", wake["id"], "close")
    for inbound in tx.all("SELECT seq FROM inbound WHERE turn = ?", turn):
        tx.move("inbound", inbound["seq"], event, reason=reason, told=1)


def _give_back(tx: Transaction, turn: int, event: str) -> None:
    for wake in tx.all(
        "SELECT w.id, w.inbound FROM turn_wake tw JOIN wake w ON w.id = tw.wake WHERE tw.turn = ? AND w.state = 'taken'",
        turn,
    ):
        tx.move("wake", wake["id"], "give_back")
        if wake["inbound"] is not None:
            tx.move("inbound", wake["inbound"], event)


def _fall(tx: Transaction, turn: Row) -> None:
    """At a turn's end, however it ends, its authority and taint fall onto the group's work tree."""
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
