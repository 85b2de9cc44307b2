"""Accepting messages: one transaction makes the message, its wake and its turn, or finds that they were there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from clawd.channel import ChannelLimits
from clawd.clock import rfc3339
from clawd.ledger import deliveries, questions, turns
from clawd.ledger.db import Row, Transaction
from clawd.model import Incoming, Part
from clawd.trust import TRUST, Role, lowest, origin_of

# So many turns may wait in a session; further messages join the last of them.
MAX_QUEUED = 50
_NO_CHOICE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the ledger did. `fresh` is False for one that it had already; `merged` when it joined a waiting turn."""

    seq: int
    state: str
    session: str
    turn: int | None
    fresh: bool = True
    merged: bool = False


def known(tx: Transaction, incoming: Incoming) -> Accepted | None:
    """The same message, if it came before."""
    row = tx.one(
        "SELECT seq, state, session, turn FROM inbound WHERE channel = ? AND account = ? AND chat = ? AND thread = ?"
        " AND kind = ? AND platform_id = ? AND rev = ?",
        incoming.channel,
        incoming.account,
        incoming.chat,
        incoming.thread,
        incoming.kind,
        incoming.platform_id,
        incoming.rev,
    )
    return Accepted(row["seq"], row["state"], row["session"], row["turn"], fresh=False) if row else None


def accept(
    tx: Transaction,
    incoming: Incoming,
    *,
    group: str,
    session: str,
    role: Role,
    parts: Sequence[Part],
    now: str,
    held: str | None = None,
) -> Accepted:
    """Make a message durable, with the turn that will answer it unless it is a command or held."""
    if old := known(tx, incoming):
        return old
    seq = tx.insert(
        "inbound",
        channel=incoming.channel,
        account=incoming.account,
        chat=incoming.chat,
        thread=incoming.thread,
        kind=incoming.kind,
        platform_id=incoming.platform_id,
        rev=incoming.rev,
        parts=json.dumps([asdict(part) for part in parts], ensure_ascii=False),
        sender=incoming.sender,
        role=role,
        at=rfc3339(incoming.at),
        received=now,
        grp=group,
        session=session,
        state="received",
    )
    if role is not Role.OWNER:
        tx.execute("UPDATE grp SET others = 1 WHERE name = ?", group)
    if incoming.kind == "command":
        return Accepted(seq, "received", session, None)
    if held:
        tx.move("inbound", seq, "hold", reason=held)
        return Accepted(seq, "held", session, None)
    return enqueue(tx, seq, now, incoming.choice if role is Role.OWNER else {})


def enqueue(tx: Transaction, seq: int, now: str, choice: Mapping[str, str] = _NO_CHOICE) -> Accepted:
    """Give a received message its wake and its turn, with what was chosen for that alone."""
    row = tx.one("SELECT * FROM inbound WHERE seq = ?", seq)
    assert row is not None
    wake = add_wake(tx, row, questions.answered(tx, row))
    acting = tx.one("SELECT authority, trust FROM wake WHERE id = ?", wake)
    assert acting is not None
    role, trust = Role(acting["authority"]), acting["trust"]
    last = tx.one(
        "SELECT COUNT(*) AS n, MAX(id) AS id FROM turn WHERE session = ? AND recorded_at IS NULL"
        " AND state IN ('queued', 'held')",
        row["session"],
    )
    assert last is not None
    chosen = json.dumps(dict(choice), sort_keys=True) if choice else None
    turn, merged = last["id"], last["n"] >= MAX_QUEUED
    if merged:
        waiting = tx.one("SELECT authority, taint, choice FROM turn WHERE id = ?", turn)
        # A wake of another authority is never merged: it would lower or raise what the turn may do.
        merged = waiting is not None and (waiting["authority"], waiting["choice"]) == (role, chosen)
        if merged:
            tx.execute("UPDATE turn SET taint = MIN(taint, ?) WHERE id = ?", trust, turn)
    if not merged:
        turn = turns.queue(tx, row, role, trust, now, choice=chosen)
    tx.execute("INSERT INTO turn_wake (turn, wake) VALUES (?, ?)", turn, wake)
    tx.execute("UPDATE inbound SET turn = ? WHERE seq = ?", turn, seq)
    return Accepted(seq, "received", row["session"], turn, merged=merged)


def add_wake(tx: Transaction, row: Row, answer: questions.Answer | None = None) -> int:
    """The wake of a message, which may be the `answer` to a question: then it acts for nobody above the turn that
    asked, whose words it brings back."""
    role, trust = Role(row["role"]), _trust(row)
    if answer is None:
        what: dict[str, object] = {"kind": "message", "authority": role, "trust": trust}
    else:
        parts = [answer.part, *json.loads(row["parts"])]
        what = {"kind": "answer", "authority": lowest([role, answer.authority]), "trust": min(trust, answer.taint)}
        what["text"] = json.dumps(parts, ensure_ascii=False)
    wake = tx.insert(
        "wake", key=f"message:{row['seq']}", inbound=row["seq"], origin=origin_of(role), state="pending", **what
    )
    if answer is not None:
        tx.move("question", answer.question, "answer", wake=wake)
    return wake


def _trust(row: Row) -> float:
    return min((TRUST[part["origin"]] for part in json.loads(row["parts"])), default=0.2)


def release(tx: Transaction, seq: int, now: str) -> Accepted | None:
    """A message that was held for its sender's rate is taken now."""
    row = tx.one("SELECT state FROM inbound WHERE seq = ?", seq)
    if row is None or row["state"] != "held":
        return None
    tx.move("inbound", seq, "release", reason=None)
    return enqueue(tx, seq, now)


def held_for_rate(tx: Transaction) -> list[Row]:
    """Every message that waits for its sender's rate, oldest first."""
    return tx.all("SELECT seq, sender, grp FROM inbound WHERE state = 'held' AND reason = 'rate' ORDER BY seq")


def open_commands(tx: Transaction) -> list[int]:
    """Commands that were accepted and not yet carried out, oldest first: work for the start."""
    return [
        row["seq"]
        for row in tx.all("SELECT seq FROM inbound WHERE kind = 'command' AND state = 'received' ORDER BY seq")
    ]


def answer_command(tx: Transaction, seq: int, reply: str, now: str, limits: ChannelLimits) -> list[int]:
    """A command is answered by the daemon: the notice and the new state in one transaction. Gives the deliveries."""
    row = tx.one("SELECT * FROM inbound WHERE seq = ?", seq)
    assert row is not None
    if row["state"] != "received":
        return []
    tx.move("inbound", seq, "answer")
    return deliveries.enqueue(
        tx,
        deliveries.Address.of(row),
        session=row["session"],
        kind="notice",
        text=reply,
        now=now,
        limits=limits,
        inbound=seq,
    )


def target(tx: Transaction, turn: int, wake: int = 0) -> str | None:
    """The platform's id of the message that a reaction of a turn goes to: the newest that the turn answers, or that of
    a wake of its session; None where it has none in its own chat."""
    row = tx.one(
        "SELECT i.platform_id FROM turn t JOIN inbound i ON i.session = t.session AND i.channel = t.channel"
        " AND i.account = t.account AND i.chat = t.chat JOIN wake w ON w.inbound = i.seq"
        " WHERE t.id = ? AND i.kind = 'message' AND CASE ? WHEN 0"
        " THEN EXISTS (SELECT 1 FROM turn_wake tw WHERE tw.turn = t.id AND tw.wake = w.id) ELSE w.id = ? END"
        " ORDER BY i.seq DESC LIMIT 1",
        turn,
        wake,
        wake,
    )
    return row["platform_id"] if row else None
