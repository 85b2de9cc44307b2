"""The outbox: one row a chunk, frozen text, decided once. A chat's rows leave in the order of their ids."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from clawd.channel import ChannelLimits
from clawd.ids import new_id
from clawd.ledger.db import Row, Transaction
from clawd.ledger.moves import DECIDED, inbound_events
from clawd.markdown import pieces
from clawd.model import DeliveryKind


@dataclass(frozen=True, slots=True)
class Address:
    """Where an answer goes: a thread of a chat of an account on a channel."""

    channel: str
    account: str
    chat: str
    thread: str

    @classmethod
    def of(cls, row: Row) -> Address:
        return cls(row["channel"], row["account"], row["chat"], row["thread"])


def binding_of(address: Address) -> str:
    """A chat as `bindings` in `group.toml` names it: `telegram:-100123`, `slack:T012/C345`."""
    account = f"{address.account}/" if address.account else ""
    return f"{address.channel}:{account}{address.chat}"


def address_of(binding: str) -> Address:
    """The chat that a binding names."""
    channel, _, rest = binding.partition(":")
    account, _, chat = rest.rpartition("/")
    return Address(channel, account, chat, "")


def enqueue(
    tx: Transaction,
    to: Address,
    *,
    session: str,
    kind: DeliveryKind,
    text: str,
    now: str,
    limits: ChannelLimits,
    turn: int | None = None,
    effect: int | None = None,
    inbound: int | None = None,
    blob: str | None = None,
    name: str | None = None,
    target: str | None = None,
) -> list[int]:
    """Put what is to be said into the outbox, in pieces that its channel takes. Gives the rows' ids."""
    first = tx.one("SELECT COUNT(*) AS n FROM delivery WHERE turn = ?", turn)
    start = first["n"] if first and turn is not None else 0
    return [
        tx.insert(
            "delivery",
            turn=turn,
            effect=effect,
            inbound=inbound,
            session=session,
            channel=to.channel,
            account=to.account,
            chat=to.chat,
            thread=to.thread,
            n=start + n,
            kind=kind,
            text=chunk,
            blob=blob,
            name=name,
            target=target,
            nonce=new_id(),
            state="pending",
            made=now,
        )
        for n, chunk in enumerate(pieces(text, limits))
    ]


def waiting_chats(tx: Transaction) -> list[Address]:
    """Every chat that has something undecided."""
    rows = tx.all(
        "SELECT DISTINCT channel, account, chat, '' AS thread FROM delivery"
        " WHERE state IN ('draft', 'pending', 'sending', 'unknown')"
    )
    return [Address.of(row) for row in rows]


def head(tx: Transaction, channel: str, account: str, chat: str) -> Row | None:
    """The oldest undecided row of a chat: nothing behind it leaves before it is decided."""
    return tx.one(
        "SELECT * FROM delivery WHERE channel = ? AND account = ? AND chat = ?"
        " AND state IN ('draft', 'pending', 'sending', 'unknown') ORDER BY id LIMIT 1",
        channel,
        account,
        chat,
    )


def decide(
    tx: Transaction, delivery: int, event: str, *, platform_id: str | None = None, error: str | None = None
) -> str:
    """Move a delivery; once it is decided, its message may have become delivered or recorded."""
    state = tx.move("delivery", delivery, event, error=error)
    if platform_id is not None:
        tx.execute("UPDATE delivery SET platform_id = ? WHERE id = ?", platform_id, delivery)
    if state in DECIDED:
        row = tx.one("SELECT turn, inbound FROM delivery WHERE id = ?", delivery)
        assert row is not None
        if row["turn"] is not None:
            settle_turn(tx, row["turn"])
        if row["inbound"] is not None:
            _settle(tx, row["inbound"], "inbound", row["inbound"], recorded=True)
    return state


def settle_turn(tx: Transaction, turn: int) -> None:
    """Bring the messages of a turn to the state that its deliveries and its record have earned."""
    row = tx.one("SELECT recorded_at FROM turn WHERE id = ?", turn)
    assert row is not None
    for inbound in tx.all("SELECT seq FROM inbound WHERE turn = ?", turn):
        _settle(tx, inbound["seq"], "turn", turn, recorded=row["recorded_at"] is not None)


def _settle(tx: Transaction, seq: int, owner: str, key: int, *, recorded: bool) -> None:
    row = tx.one("SELECT state FROM inbound WHERE seq = ?", seq)
    states = [each["state"] for each in tx.all(f"SELECT state FROM delivery WHERE {owner} = ?", key)]
    assert row is not None
    for event in inbound_events(row["state"], states, recorded):
        tx.move("inbound", seq, event)
    if "failed" in states:
        tx.execute("UPDATE inbound SET reason = 'delivery_failed' WHERE seq = ?", seq)


def failures_to_note(tx: Transaction) -> list[sqlite3.Row]:
    """Deliveries of recorded turns that failed for good and that their conversation does not know of yet."""
    return tx.all(
        "SELECT d.id, d.turn, d.channel, d.chat, d.error FROM delivery d JOIN turn t ON t.id = d.turn"
        " WHERE d.state = 'failed' AND d.noted = 0 AND t.recorded_at IS NOT NULL ORDER BY d.id"
    )


def noted(tx: Transaction, delivery: int) -> None:
    tx.execute("UPDATE delivery SET noted = 1 WHERE id = ?", delivery)


def take(tx: Transaction, channel: str, account: str, chat: str) -> Row | None:
    """The chat's oldest undecided row, as it was; one that was pending is being sent from now on."""
    row = head(tx, channel, account, chat)
    if row is not None and row["state"] == "pending":
        tx.move("delivery", row["id"], "send")
        tx.execute("UPDATE delivery SET attempts = attempts + 1 WHERE id = ?", row["id"])
    return row


def unseen(tx: Transaction, chat: str, thread: str) -> list[sqlite3.Row]:
    """What no person has seen yet of what the terminal was sent for this chat, oldest first. What is just being sent
    belongs to it: a terminal that comes between the sending and its commit would hear of it by neither."""
    return tx.all(
        "SELECT * FROM delivery WHERE channel = 'terminal' AND seen = 0 AND chat = ? AND thread = ?"
        " AND state IN ('sending', 'sent', 'resent') ORDER BY id",
        chat,
        thread,
    )


def mark_seen(tx: Transaction, ids: list[int]) -> None:
    for id in ids:
        tx.execute("UPDATE delivery SET seen = 1 WHERE id = ? AND channel = 'terminal'", id)
