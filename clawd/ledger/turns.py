"""Turns in the ledger while they live: queue, claim, steps. How they end is in `ends`.

A turn is held by a lease (run, attempt, worker); whatever arrives under another lease raises LeaseLost.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawd.errors import LeaseLost, NotFound, UsageError
from clawd.ids import is_job
from clawd.ledger import contexts, groups, recalled
from clawd.ledger.contexts import AS_IT_IS, Standing
from clawd.ledger.db import Row, Transaction
from clawd.model import Authority, Lease
from clawd.trust import Role, at_least, lowest

MOST_STEPS, MOST_STEP_BYTES = 1000, 16 << 20  # of one turn: they are read whole, by its next attempt and its record


_ANYBODY = Authority(Role.NONE)
_EFFECTS = (
    "SELECT tool, result, (SELECT text FROM delivery d WHERE d.turn = e.turn AND d.effect = e.id ORDER BY n) AS said"
    " FROM effect e WHERE turn = ? AND state = 'done' ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed turn: the row as it was read, its wakes with their messages, the steps so far, and whether the group
    has another turn that may be claimed now. `followed`: whether another turn of its session waits behind it. `stem`:
    of its session's file, None for one that has none yet. `others`: whether others than the owner ever spoke in the
    group. `job`: of a job what its room asks, {prompt, schema}. `effects`: what earlier attempts did, {tool, said,
    result}, whether or not a step tells of it. `forgot`: when something of the group's memory was forgotten last.
    `standing`: what its session's file is shown by."""

    turn: Row
    attempt: int
    authority: Role
    taint: float
    wakes: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    more: bool = False
    followed: bool = False
    stem: str | None = None
    others: bool = False
    job: dict[str, Any] | None = None
    effects: Sequence[dict[str, Any]] = ()
    forgot: str | None = None
    standing: Standing = AS_IT_IS


def get(tx: Transaction, turn: int) -> Row:
    row = tx.one("SELECT * FROM turn WHERE id = ?", turn)
    if row is None:
        raise NotFound(f"there is no turn {turn}")
    return row


def queue(tx: Transaction, place: Row | Mapping[str, Any], authority: Role, taint: float, now: str, **more: Any) -> int:
    """A new turn at the end of its session's queue, or of that of the session which goes on for it. `place` says whose
    it is and where its answer goes."""
    id = contexts.heir(tx, place["session"])
    session = tx.one("UPDATE session SET turns = turns + 1 WHERE id = ? RETURNING turns - 1 AS ordinal", id)
    assert session is not None
    return tx.insert(
        "turn",
        **{name: place[name] for name in ("grp", "channel", "account", "chat", "thread")},
        session=id,
        ordinal=session["ordinal"],
        state="queued",
        authority=authority,
        taint=taint,
        queued_at=now,
        **more,
    )


def next_claimable(tx: Transaction, group: str) -> Row | None:
    """The turn of the group that is next in fairness: one a session, in order within it, not before the session's last
    turn is recorded, none of one that is shut; the session that was served longest ago first, and jobs behind what
    people wait for."""
    return tx.one(
        "SELECT t.* FROM turn t JOIN session s ON s.id = t.session"
        " WHERE t.grp = ? AND t.state = 'queued' AND t.recorded_at IS NULL AND NOT EXISTS ("
        "  SELECT 1 FROM turn b WHERE b.session = t.session AND b.recorded_at IS NULL AND b.id <> t.id"
        "  AND (b.state IN ('claimed', 'answered', 'stopped', 'failed') OR b.id < t.id))"
        " AND NOT EXISTS (SELECT 1 FROM context c WHERE c.session = t.session AND c.gate IS NOT NULL)"
        " ORDER BY s.stem = '', s.served, t.id LIMIT 1",
        group,
    )


def waiting_groups(tx: Transaction) -> list[str]:
    """Groups with a queued turn of a session that is not shut, the longest-waiting first."""
    rows = tx.all(
        "SELECT grp, MIN(id) AS first FROM turn t WHERE state = 'queued' AND recorded_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM context c WHERE c.session = t.session AND c.gate IS NOT NULL)"
        " GROUP BY grp ORDER BY first"
    )
    return [row["grp"] for row in rows]


def next_role(tx: Transaction, group: str) -> Role:
    """For whom the group's next turn will act, with what its work tree has fallen to."""
    row, tree = next_claimable(tx, group), groups.get(tx, group).authority
    return lowest([tree.role, Role(row["authority"])]) if row else tree.role


def claim(
    tx: Transaction,
    run: str,
    group: str,
    worker: int,
    now: str,
    engine: str | None = None,
    within: Authority = _ANYBODY,
) -> Claim | None:
    """Hand out the next turn of the group to a worker of its run, or None when there is none that may start now.
    `engine` is who is going to answer it; `within` is the lowest role that its sandbox may be lent to, and the trust of
    what that shows.

    Turns run side by side only at equal authority: one of another authority waits until the run is empty, and nothing
    behind it is handed out, so that it cannot be starved. Raises LeaseLost when the run is over.
    """
    row = next_claimable(tx, group)
    if row is None:
        return None
    if tx.one("SELECT 1 FROM run WHERE id = ? AND state <> 'gone'", run) is None:
        raise LeaseLost(f"run {run} is over")
    tree = groups.get(tx, group).authority
    authority, taint = lowest([tree.role, Role(row["authority"])]), row["taint"]
    if not at_least(authority, within.role):
        return None
    live = tx.one(
        "SELECT authority, MIN(CASE WHEN session LIKE 'job:%' THEN 1.0 ELSE taint END) AS taint FROM turn"
        " WHERE run = ? AND state = 'claimed' GROUP BY run",
        run,
    )
    if live is not None and live["authority"] != authority:
        return None
    if not is_job(row["session"]):  # one sees nothing of its sandbox
        beside = live["taint"] if live is not None else 1.0
        taint = min(taint, tree.taint, within.taint, beside, trust_of_session(tx, row["session"]))
    tx.move("turn", row["id"], "claim", run=run, worker=worker, claimed_at=now, authority=authority, taint=taint)
    tx.execute("UPDATE run SET authority = ? WHERE id = ?", authority, run)
    if not is_job(row["session"]):
        fall(tx, run, taint)  # those beside it see what it sees
    tx.execute(
        "UPDATE turn SET engine = COALESCE(json_extract(choice, '$.engine'), ?),"
        " backend = (SELECT backend FROM run WHERE id = ?) WHERE id = ?",
        engine,
        run,
        row["id"],
    )
    served = tx.one("SELECT COALESCE(MAX(served), 0) + 1 AS n FROM session WHERE grp = ?", group)
    assert served is not None
    tx.execute("UPDATE session SET served = ? WHERE id = ?", served["n"], row["session"])
    for wake in tx.all(
        "SELECT w.id, w.inbound FROM turn_wake tw JOIN wake w ON w.id = tw.wake"
        " WHERE tw.turn = ? AND w.state = 'pending'",
        row["id"],
    ):
        tx.move("wake", wake["id"], "take")
        if wake["inbound"] is not None:
            tx.move("inbound", wake["inbound"], "claim", turn=row["id"])
    tx.move("run", run, "take")
    more = next_claimable(tx, group) is not None
    return _claimed(tx, row, authority, taint, more)


def _begin_again(tx: Transaction, turn: int) -> None:
    """Who answers it now may not know what was done: each effect is to be given once more before it is done again."""
    tx.execute("UPDATE effect SET attempt = NULL WHERE turn = ?", turn)


def fall(tx: Transaction, run: str, trust: float, *, role: Role = Role.OWNER, tree: bool = False) -> None:
    """Text of this trust, by whoever acts for this role, has come into a run: its live turns fall to it, and the
    group's work tree with `tree`; else that falls when they end."""
    for row in claimed_by(tx, run) if role is not Role.OWNER else ():
        if not is_job(row["session"]):
            acts = lowest([Role(row["authority"]), role])
            tx.execute("UPDATE turn SET authority = ? WHERE id = ?", acts, row["id"])
            tx.execute("UPDATE run SET authority = ? WHERE id = ?", acts, run)
    tx.execute(
        "UPDATE turn SET taint = MIN(taint, ?) WHERE run = ? AND state = 'claimed' AND session NOT LIKE 'job:%'",
        trust,
        run,
    )
    tx.execute("UPDATE run SET taint = MIN(taint, ?) WHERE id = ?", trust, run)
    if tree and (of := tx.one("SELECT grp FROM run WHERE id = ?", run)) is not None:
        groups.fall(tx, of["grp"], role, trust)


def narrow(tx: Transaction, turn: int, tools: Collection[str]) -> None:
    """No other host tools are left to a turn than these, of those that it has."""
    left = get(tx, turn)["tools"]
    kept = set(tools) if left is None else set(tools) & set(json.loads(left))
    tx.execute("UPDATE turn SET tools = ? WHERE id = ?", json.dumps(sorted(kept)), turn)


WAKES = (
    "SELECT w.*, tw.turn, tw.joined, i.parts, COALESCE(i.name, i.sender) AS sender, COALESCE(i.at, w.made) AS at"
    " FROM turn_wake tw JOIN wake w ON w.id = tw.wake"
    " JOIN turn t ON t.id = tw.turn LEFT JOIN inbound i ON i.seq = w.inbound"
)


def wakes(tx: Transaction, turn: int) -> list[dict[str, Any]]:
    """The wakes of a turn in the order in which it was shown them."""
    return [shown_as(row) for row in tx.all(f"{WAKES} WHERE tw.turn = ? ORDER BY tw.joined, w.id", turn)]


def shown_as(row: Row) -> dict[str, Any]:
    """A row of WAKES as the runner is shown it. `joined` is the step before which its turn took it in; `recorded`: its
    block is in the session's file, for an earlier turn failed at it."""
    return {
        "id": row["id"],
        "kind": row["kind"],
        "role": row["authority"],
        "sender": row["sender"],
        "at": row["at"],
        "parts": json.loads(row["text"] or row["parts"] or "[]"),
        "joined": row["joined"],
        "recorded": row["key"].startswith("retry:"),
    }


def steps(tx: Transaction, turn: int) -> list[dict[str, Any]]:
    """The durable messages of a turn, in order."""
    return [json.loads(row["message"]) for row in tx.all("SELECT message FROM step WHERE turn = ? ORDER BY n", turn)]


def step_count(tx: Transaction, turn: int) -> int:
    row = tx.one("SELECT COUNT(*) AS n FROM step WHERE turn = ?", turn)
    assert row is not None
    return int(row["n"])


def check_lease(tx: Transaction, lease: Lease) -> Row:
    """The turn, if the lease still holds it. Raises LeaseLost."""
    row = get(tx, lease.turn)
    if row["state"] != "claimed" or not is_lease_of(row, lease):
        raise LeaseLost(f"turn {lease.turn} is not held by attempt {lease.attempt} of this run")
    return row


def is_lease_of(row: Row, lease: Lease) -> bool:
    return (row["run"], row["attempt"], row["worker"]) == (lease.run, lease.attempt, lease.worker)


def add_step(
    tx: Transaction,
    lease: Lease,
    n: int,
    message: dict[str, Any],
    shown: list[int],
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Keep message `n`, and what its agent noted with it. The same one again changes nothing; another one under the
    same number is refused, and so is what would be too much for one turn."""
    turn = check_lease(tx, lease)
    old = tx.one("SELECT message FROM step WHERE turn = ? AND n = ?", lease.turn, n)
    if old is not None:
        if json.loads(old["message"]) != message:
            raise LeaseLost(f"turn {lease.turn} has another step {n} already")
        return
    text = json.dumps(message, ensure_ascii=False)
    kept = tx.one(
        "SELECT COUNT(*) AS n, COALESCE(SUM(LENGTH(message)), 0) AS size FROM step WHERE turn = ? AND n >= ?",
        lease.turn,
        turn["base_steps"],
    )
    assert kept is not None
    if kept["n"] >= MOST_STEPS or kept["size"] + len(text) > MOST_STEP_BYTES:
        raise UsageError(f"a turn may have {MOST_STEPS} steps and {MOST_STEP_BYTES >> 20} MB of them")
    tx.insert("step", turn=lease.turn, n=n, attempt=lease.attempt, message=text, shown=json.dumps(shown))
    if notes and not is_job(turn["session"]):
        contexts.add_noted(tx, lease.turn, notes)


def counted(tx: Transaction, turn: int, window: int | None) -> None:
    """What an engine says that its last call read and wrote; it counts where no call of the turn came by us."""
    tx.execute("UPDATE turn SET window_tokens = ? WHERE id = ?", window, turn)


def hand_over(tx: Transaction, lease: Lease, worker: int) -> Claim:
    """A claim once more, whose first answer was lost, to the same worker or to another of the same run: then the old
    lease is void."""
    row = check_lease(tx, lease)
    tx.execute("UPDATE turn SET worker = ? WHERE id = ?", worker, lease.turn)
    if not is_job(row["session"]) and (trust := trust_of_session(tx, row["session"])) < row["taint"]:
        fall(tx, lease.run, trust)  # it is shown the session as it is now
        row = get(tx, lease.turn)
    return _claimed(tx, row, Role(row["authority"]), row["taint"])


def _claimed(tx: Transaction, row: Row, authority: Role, taint: float, more: bool = False) -> Claim:
    id = row["id"]
    _begin_again(tx, id)
    stem, others = known(tx, row["grp"], row["session"])
    behind = "SELECT 1 FROM turn WHERE session = ? AND recorded_at IS NULL AND state = 'queued' LIMIT 1"
    followed = tx.one(behind, row["session"]) is not None
    return Claim(
        *(row, row["attempt"], authority, taint, wakes(tx, id), steps(tx, id), more, followed, stem, others),
        effects=[{**each, "result": json.loads(each["result"])} for each in tx.all(_EFFECTS, id)],
        forgot=recalled.forgot(tx, row["grp"]),
        standing=contexts.standing(tx, row["session"]),
    )


def trust_of_session(tx: Transaction, session: str) -> float:
    """The lowest trust of what was put into it from outside."""
    row = tx.one("SELECT taint FROM session WHERE id = ?", session)
    return float(row["taint"]) if row is not None else 1.0


def known(tx: Transaction, group: str, session: str) -> tuple[str | None, bool]:
    """`stem` and `others` of a claim."""
    place = tx.one("SELECT stem FROM session WHERE id = ?", session)
    spoke = tx.one("SELECT others FROM grp WHERE name = ?", group)
    return place["stem"] if place else None, bool(spoke and spoke["others"])


def of_conversation(tx: Transaction, session: str, *states: str) -> list[Row]:
    """The turns in one of `states` of every segment of the session's conversation, oldest first."""
    marks = ", ".join("?" * len(states))
    return tx.all(
        "SELECT t.* FROM turn t JOIN session s ON s.id = t.session JOIN session asked ON asked.base = s.base"
        f" WHERE asked.id = ? AND t.recorded_at IS NULL AND t.state IN ({marks}) ORDER BY t.id",
        session,
        *states,
    )


def to_record(tx: Transaction) -> list[int]:
    """Turns that ended and are not in their session file yet, oldest first."""
    return [
        row["id"]
        for row in tx.all(
            "SELECT id FROM turn WHERE recorded_at IS NULL AND state IN ('answered', 'stopped', 'failed') ORDER BY id"
        )
    ]


def orphaned(tx: Transaction) -> list[Row]:
    """Claimed turns whose run is known dead: a crash came between the end of the run and theirs."""
    return tx.all("SELECT t.* FROM turn t JOIN run r ON r.id = t.run WHERE t.state = 'claimed' AND r.state = 'gone'")


def claimed_by(tx: Transaction, run: str) -> list[Row]:
    """The turns that a run holds."""
    return tx.all("SELECT * FROM turn WHERE run = ? AND state = 'claimed'", run)
