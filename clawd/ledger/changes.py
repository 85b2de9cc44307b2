"""Edits and deletions of what was accepted. Neither ever begins a turn.

Before a message is claimed an edit replaces its text and a deletion withdraws it. While its turn is at work an edit is
a wake of that turn, which `more` can hand out. What comes later, or what no model was shown, stays `received` until the
recorder has noted it in the session's file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from clawd.ledger import held, inbound
from clawd.ledger.db import Row, Transaction
from clawd.model import Incoming, Part
from clawd.trust import Role, at_least

Change = Literal["ignored", "replaced", "steers", "withdrawn", "noted"]


def edit(
    tx: Transaction, incoming: Incoming, role: Role, typed: Sequence[Part], now: str, person: str | None = None
) -> tuple[Change, Row | None]:
    """What became of an edit, and the message that it is of. One of a message that we do not have, that is somebody
    else's, that is older than one we have, or that changes nothing is ignored."""
    row = _original(tx, incoming)
    if row is None or row["sender"] != incoming.sender or row["state"] in ("withdrawn", "stale") or not typed:
        return "ignored", row
    newest = tx.one(
        f"SELECT * FROM inbound WHERE {_SAME} AND kind IN ('edit', 'delete') ORDER BY kind = 'delete' DESC, rev DESC",
        *_of(row),
    )
    if newest is not None and (newest["rev"] >= incoming.rev or newest["kind"] == "delete"):
        return "ignored", row
    new = [asdict(part) for part in typed]
    waits = row["state"] in ("received", "held")
    if waits and not at_least(role, Role(row["role"])):  # it would act for whom its sender was when they said it
        return "ignored", row
    if [part for part in json.loads((newest or row)["parts"]) if part["kind"] == "typed"] == new:
        return "ignored", row
    seq = inbound.insert(
        tx, incoming, group=row["grp"], session=row["session"], role=role, parts=typed, now=now, person=person
    )
    if waits:
        _replace(tx, row, new)
        settled(tx, seq)
        return "replaced", row
    if row["state"] == "claimed" and _may_steer(tx, row, role):
        wake = inbound.add_wake(tx, inbound.get(tx, seq), kind="edit")
        tx.execute("INSERT INTO turn_wake (turn, wake) VALUES (?, ?)", row["turn"], wake)
        return "steers", row
    if row["turn"] is None:
        settled(tx, seq)
        return "ignored", row
    return "noted", row


def delete(tx: Transaction, incoming: Incoming, now: str) -> tuple[Change, Row | None]:
    """What became of a deletion, whoever deleted: the platform says that the message is gone."""
    row = _original(tx, incoming)
    if row is None or row["state"] in ("withdrawn", "stale"):
        return "ignored", row
    if tx.one(f"SELECT * FROM inbound WHERE {_SAME} AND kind = 'delete'", *_of(row)):  # by the index on platform_id
        return "ignored", row
    seq = inbound.insert(tx, incoming, group=row["grp"], session=row["session"], role=Role.NONE, parts=[], now=now)
    if row["state"] in ("received", "held"):
        _withdraw(tx, row, now)
    elif row["turn"] is not None:
        return "noted", row
    settled(tx, seq)
    return "withdrawn", row


def to_note(tx: Transaction) -> list[tuple[Row, Row]]:
    """Each change that its conversation is to have a note of, with the message that it is of: its turn is recorded, and
    no turn is going to be shown it."""
    rows = tx.all("SELECT * FROM inbound WHERE state = 'received' AND kind IN ('edit', 'delete') ORDER BY seq")
    found = []
    for row in rows:
        message = tx.one(f"SELECT * FROM inbound WHERE {_SAME} AND kind = 'message' ORDER BY seq LIMIT 1", *_of(row))
        turn = tx.one("SELECT recorded_at FROM turn WHERE id = ?", message["turn"]) if message is not None else None
        waits = tx.one("SELECT 1 FROM wake WHERE inbound = ? AND state IN ('pending', 'taken')", row["seq"])
        if message is not None and turn is not None and turn["recorded_at"] is not None and waits is None:
            found.append((row, message))
    return found


def settled(tx: Transaction, seq: int) -> None:
    """Nothing more becomes of a change."""
    for event in ("answer", "deliver", "record"):
        tx.move("inbound", seq, event)


def let_go(tx: Transaction, turn: int) -> None:
    """At a turn's end: edits that its model was not shown are none of its wakes any more, and wait to be noted."""
    for wake in tx.all(
        "SELECT w.id, w.inbound FROM turn_wake tw JOIN wake w ON w.id = tw.wake"
        " WHERE tw.turn = ? AND w.kind = 'edit' AND w.state = 'pending'",
        turn,
    ):
        _drop(tx, wake["id"], "the turn ended first")
        tx.execute("UPDATE inbound SET turn = NULL WHERE seq = ?", wake["inbound"])


_SAME = "channel = ? AND account = ? AND chat = ? AND platform_id = ?"


def _of(row: Row) -> tuple[str, ...]:
    return row["channel"], row["account"], row["chat"], row["platform_id"]


def _original(tx: Transaction, incoming: Incoming) -> Row | None:
    """The message that was changed; a command was carried out at once."""
    return tx.one(
        f"SELECT * FROM inbound WHERE {_SAME} AND kind = 'message' ORDER BY seq LIMIT 1",
        *(incoming.channel, incoming.account, incoming.chat, incoming.platform_id),
    )


def _replace(tx: Transaction, row: Row, typed: list[dict[str, Any]]) -> None:
    def replaced(parts: str) -> str:
        others = [part for part in json.loads(parts) if part["kind"] != "typed"]
        ours = [part for part in others if part["origin"] == "system"]  # the question that it answers
        return json.dumps([*ours, *typed, *(part for part in others if part not in ours)], ensure_ascii=False)

    tx.execute("UPDATE inbound SET parts = ? WHERE seq = ?", replaced(row["parts"]), row["seq"])
    for wake in tx.all("SELECT id, text FROM wake WHERE inbound = ? AND text IS NOT NULL", row["seq"]):
        tx.execute("UPDATE wake SET text = ? WHERE id = ?", replaced(wake["text"]), wake["id"])


def _may_steer(tx: Transaction, row: Row, role: Role) -> bool:
    """A wake of lower authority is never steered into a turn of higher authority."""
    turn = tx.one("SELECT authority FROM turn WHERE id = ?", row["turn"])
    return turn is not None and at_least(role, Role(turn["authority"]))


def _withdraw(tx: Transaction, row: Row, now: str) -> None:
    """Take a message out of the queue, and its turn with it, unless that answers others too."""
    tx.move("inbound", row["seq"], "withdraw", reason="deleted by its sender", told=1, turn=None)
    for wake in tx.all("SELECT id FROM wake WHERE inbound = ? AND state = 'pending'", row["seq"]):
        _drop(tx, wake["id"], "deleted")
    where = f"{_SAME} AND kind = 'edit' AND state IN ('received', 'held')"
    for edit in tx.all(f"SELECT seq, state FROM inbound WHERE {where}", *_of(row)):
        for wake in tx.all("SELECT id FROM wake WHERE inbound = ? AND state = 'pending'", edit["seq"]):
            _drop(tx, wake["id"], "deleted")
        if edit["state"] == "held":
            tx.move("inbound", edit["seq"], "release")
        settled(tx, edit["seq"])
    turn = row["turn"]
    left = tx.all("SELECT w.* FROM turn_wake tw JOIN wake w ON w.id = tw.wake WHERE tw.turn = ?", turn)
    if turn is None or any(wake["kind"] != "line" for wake in left):
        return
    for wake in left:  # lines that were to be read with it wait for another
        tx.execute("DELETE FROM turn_wake WHERE wake = ?", wake["id"])
        tx.execute("DELETE FROM wake WHERE id = ?", wake["id"])
        if inbound.get(tx, wake["inbound"])["state"] == "held":
            tx.move("inbound", wake["inbound"], "release")
        tx.move("inbound", wake["inbound"], "hold", reason=held.LISTENING, turn=None)
    tx.move("turn", turn, "withdraw", ended_at=now, recorded_at=now)


def _drop(tx: Transaction, wake: int, why: str) -> None:
    tx.move("wake", wake, "drop", why=why)
    tx.execute("DELETE FROM turn_wake WHERE wake = ?", wake)
