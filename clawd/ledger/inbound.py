"""Accepting messages: one transaction makes the message, its wake and its turn, or finds that they were there.

What cannot have its turn yet is `held` (`ledger.held`); edits and deletions of what was accepted are in
`ledger.changes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from clawd.channel import ChannelLimits
from clawd.clock import rfc3339
from clawd.ledger import deliveries, held, questions, turns
from clawd.ledger.db import Row, Transaction
from clawd.ledger.moves import inbound_events
from clawd.model import Incoming, Part
from clawd.trust import TRUST, Role, lowest, origin_of

# So many turns may wait in a session; further messages join the last of them.
MAX_QUEUED = 50
MOST_TYPED = 200  # messages of before that a memory may cite
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
    """The same message, if it came before: in whatever thread, and whether or not it was taken for a command."""
    row = tx.one(
        "SELECT seq, state, session, turn FROM inbound WHERE channel = ? AND account = ? AND chat = ?"
        " AND platform_id = ? AND rev = ? AND replace(kind, 'command', 'message') = replace(?, 'command', 'message')",
        *(incoming.channel, incoming.account, incoming.chat, incoming.platform_id, incoming.rev, incoming.kind),
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
    person: str | None = None,
) -> Accepted:
    """Make a message durable, with the turn that will answer it unless it is a command or held."""
    if old := known(tx, incoming):
        return old
    seq = insert(tx, incoming, group=group, session=session, role=role, parts=parts, now=now, person=person)
    if incoming.kind == "command":
        return Accepted(seq, "received", session, None)
    if held:
        tx.move("inbound", seq, "hold", reason=held)
        return Accepted(seq, "held", session, None)
    return enqueue(tx, [seq], now, incoming.choice if role is Role.OWNER else {})


def insert(
    tx: Transaction,
    incoming: Incoming,
    *,
    group: str,
    session: str,
    role: Role,
    parts: Sequence[Part],
    now: str,
    person: str | None = None,
) -> int:
    """The row of what was received, and nothing else."""
    if role is not Role.OWNER or not incoming.direct:
        tx.execute("UPDATE grp SET others = 1 WHERE name = ? AND NOT others", group)
    return tx.insert(
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
        name=person,
        direct=incoming.direct,
        reply_to=incoming.reply_to,
        album=incoming.album,
        target=incoming.target,
        value=incoming.value or None,
        attachments=json.dumps([asdict(each) for each in incoming.attachments]) if incoming.attachments else None,
    )


_TYPED = (
    "SELECT seq, parts, received, channel, direct FROM inbound WHERE grp = ? AND role = 'owner'"
    " AND kind IN ('message', 'edit') AND parts <> '[]' AND state NOT IN ('held', 'withdrawn', 'stale')"
)


def typed_by_owner(tx: Transaction, turn: Row, alone: bool) -> list[tuple[int, str, str, bool]]:
    """(message, text, when it was received, whether nobody read along) of what the owner typed to a turn, and of the
    newest that they typed in its group before: with `alone` in its session only, for the others are private."""
    of_turn = "SELECT w.inbound FROM turn_wake tw JOIN wake w ON w.id = tw.wake WHERE tw.turn = ?"
    own = tx.all(f"{_TYPED} AND seq IN ({of_turn}) ORDER BY seq DESC", turn["grp"], turn["id"])
    where, more = (" AND session = ?", (turn["session"],)) if alone else ("", ())
    rows = own + tx.all(f"{_TYPED}{where} ORDER BY seq DESC LIMIT {MOST_TYPED}", turn["grp"], *more)
    parts = [(row, part) for row in {row["seq"]: row for row in rows}.values() for part in json.loads(row["parts"])]
    return [(row["seq"], part["text"], row["received"], row["channel"] == "terminal" or bool(row["direct"]))
            for row, part in parts
            if (part["kind"], part["origin"]) == ("typed", "owner")]  # fmt: skip


def is_ours(tx: Transaction, incoming: Incoming) -> bool:
    """Whether a message replies to one of ours."""
    return incoming.reply_to is not None and _sent(tx, incoming, incoming.reply_to) is not None


def is_ours_to_press(tx: Transaction, incoming: Incoming) -> bool:
    """Whether a button is on the very message on which we put it."""
    row = _sent(tx, incoming, incoming.target or "")
    return row is not None and incoming.value in [value for _, value in json.loads(row["buttons"] or "[]")]


def _sent(tx: Transaction, incoming: Incoming, platform_id: str) -> Row | None:
    return tx.one(
        "SELECT * FROM delivery WHERE channel = ? AND account = ? AND chat = ? AND platform_id = ?"
        " ORDER BY buttons IS NULL, id DESC LIMIT 1",
        *(incoming.channel, incoming.account, incoming.chat, platform_id),
    )


def enqueue(tx: Transaction, seqs: Sequence[int], now: str, choice: Mapping[str, str] = _NO_CHOICE) -> Accepted:
    """Give received messages their wakes and one turn, with what was chosen for that alone; and with them what was only
    listened to in their chat before."""
    rows = [get(tx, seq) for seq in seqs]
    row = rows[-1]
    wakes = [add_wake(tx, line, kind="line") for line in held.take_lines(tx, row, now)]
    wakes += [add_wake(tx, each, questions.answered(tx, each)) for each in rows]
    acting = [tx.one("SELECT authority, trust, inbound FROM wake WHERE id = ?", wake) for wake in wakes]
    role = lowest(Role(each["authority"]) for each in acting if each)
    trust = min(each["trust"] for each in acting if each)
    last = tx.one(
        "SELECT COUNT(*) AS n, MAX(id) AS id FROM turn WHERE session = ? AND recorded_at IS NULL"
        " AND state IN ('queued', 'held')",
        row["session"],
    )
    assert last is not None
    chosen = json.dumps(dict(choice), sort_keys=True) if choice else None
    turn, merged = last["id"], last["n"] >= MAX_QUEUED
    if merged:
        waiting = turns.get(tx, turn)
        # A wake of another authority is never merged: it would lower or raise what the turn may do. Nor is one of
        # another chat or thread: its answer would go to the turn's.
        merged = (waiting["authority"], waiting["choice"]) == (role, chosen)
        merged = merged and deliveries.Address.of(waiting) == deliveries.Address.of(row)
        if merged:
            tx.execute("UPDATE turn SET taint = MIN(taint, ?) WHERE id = ?", trust, turn)
    if not merged:
        turn = turns.queue(tx, row, role, trust, now, choice=chosen)
    for wake, each in zip(wakes, acting, strict=True):
        tx.execute("INSERT INTO turn_wake (turn, wake) VALUES (?, ?)", turn, wake)
        tx.execute("UPDATE inbound SET turn = ? WHERE seq = ?", turn, each["inbound"] if each else None)
    return Accepted(row["seq"], "received", row["session"], turn, merged=merged)


def get(tx: Transaction, seq: int) -> Row:
    row = tx.one("SELECT * FROM inbound WHERE seq = ?", seq)
    assert row is not None, f"message {seq} does not exist"
    return row


def add_wake(tx: Transaction, row: Row, answer: questions.Answer | None = None, kind: str = "message") -> int:
    """The wake of a message, which may be the `answer` to a question: then it acts for nobody above the turn that
    asked, whose words it brings back."""
    role, trust = Role(row["role"]), _trust(row)
    if answer is None:
        what: dict[str, object] = {"kind": kind, "authority": role, "trust": trust}
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


def release(tx: Transaction, seqs: Sequence[int], now: str) -> Accepted | None:
    """Messages that were held are taken now, those that still are, in one turn."""
    waiting = [seq for seq in seqs if get(tx, seq)["state"] == "held"]
    for seq in waiting:
        tx.move("inbound", seq, "release", reason=None)
    return enqueue(tx, waiting, now) if waiting else None


def open_commands(tx: Transaction) -> list[int]:
    """Commands that were accepted and not yet carried out, oldest first: work for the start."""
    return [
        row["seq"]
        for row in tx.all("SELECT seq FROM inbound WHERE kind = 'command' AND state = 'received' ORDER BY seq")
    ]


def answer_command(
    tx: Transaction, seq: int, reply: str, now: str, limits: ChannelLimits, file: tuple[str, str] | None = None
) -> list[int]:
    """A command is answered by the daemon: the notice, with a `file` (blob, name) before it, and the new state in one
    transaction. Gives the deliveries."""
    row = tx.one("SELECT * FROM inbound WHERE seq = ?", seq)
    assert row is not None
    if row["state"] != "received":
        return []
    tx.move("inbound", seq, "answer")
    if not reply:  # what was pressed shows itself what became of it
        for event in inbound_events("answered", (), recorded=True):
            tx.move("inbound", seq, event)
        return []
    say = partial(
        deliveries.enqueue, tx, deliveries.Address.of(row), session=row["session"], now=now, limits=limits, inbound=seq
    )
    before: list[int] = say(kind="file", text="", blob=file[0], name=file[1]) if file is not None else []
    reply_to = None if row["direct"] or row["kind"] != "command" else row["platform_id"]
    return before + say(kind="notice", text=reply, reply_to=reply_to)


def choose(tx: Transaction, row: Row, now: str) -> Accepted | str | None:
    """A button `answer:<question>:<n>` was pressed: its choice answers the question as if it had been typed. Gives what
    is told where that is too late or not for whoever pressed it, None for a button of no question here."""
    _, question, n = row["value"].split(":")
    asked = tx.one(
        "SELECT q.* FROM question q JOIN delivery d ON d.turn = q.turn WHERE q.id = ? AND d.platform_id = ?"
        " AND d.channel = ? AND d.account = ? AND d.chat = ?",
        *(int(question), row["target"], row["channel"], row["account"], row["chat"]),
    )
    if asked is None:
        return None
    if asked["state"] != "open":
        return f"That question is {asked['state']} already."
    part = Part("typed", origin_of(Role(row["role"])), json.loads(asked["choices"])[int(n) - 1])
    said = json.dumps([asdict(part)], ensure_ascii=False)
    tx.execute("UPDATE inbound SET parts = ?, session = ? WHERE seq = ?", said, asked["session"], row["seq"])
    if questions.answered(tx, get(tx, row["seq"])) is None:
        return "That question is for somebody with more rights."
    return enqueue(tx, [row["seq"]], now)


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
