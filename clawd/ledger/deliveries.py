"""The outbox: one row a chunk, frozen text, decided once. A chat's rows leave in the order of their ids."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clawd.channel import ChannelLimits
from clawd.ids import new_id
from clawd.ledger import chats
from clawd.ledger.db import Row, Transaction
from clawd.ledger.moves import DECIDED, inbound_events
from clawd.markdown import pieces
from clawd.model import Button, DeliveryKind, Incoming
from clawd.text import units

REPEAT = "(may be a repeat)\n\n"
"""Begins a message that may have arrived already: every text leaves room for it."""
CAPTION = 1000
"""UTF-16 units: a longer text of a file goes out before it. The shortest caption that a platform takes, with room."""
LONG = 8000
"""A text of fewer characters needs no blob of the whole."""
_WHOLE, _MORE = "answer.md", "\n\n(The whole of it is in the file.)"


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


def binding_of(chat: Address | Incoming) -> str:
    """A chat as `bindings` in `group.toml` names it: `telegram:-100123`, `slack:T012/C345`."""
    account = f"{chat.account}/" if chat.account else ""
    return f"{chat.channel}:{account}{chat.chat}"


def address_of(binding: str) -> Address:
    """The chat that a binding names."""
    channel, _, rest = binding.partition(":")
    account, _, chat = rest.rpartition("/")
    return Address(channel, account, chat, "")


TERMINAL = Address("terminal", "", "main", "")  # where the owner is told what no other channel can tell


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
    edits: int | None = None,
    reply_to: str | None = None,
    buttons: Sequence[Button] = (),
    whole: str | None = None,
) -> list[int]:
    """Put what is to be said into the outbox, in pieces that its channel takes. Gives the rows' ids.

    The first one is given to the message of the row `edits`, or is a reply; the last one has the buttons. `whole` is
    the text as a blob: where it would be more messages than `limits.pieces`, its beginning and that file go out.
    """
    first = tx.one("SELECT COUNT(*) AS n FROM delivery WHERE turn = ?", turn)
    start = first["n"] if first and turn is not None else 0
    rows = _messages(kind, text, limits, blob, name, whole)
    rows[0] |= {"edits": edits, "reply_to": reply_to}
    if buttons:
        rows[-1]["buttons"] = json.dumps([[each.label, each.value] for each in buttons], ensure_ascii=False)
    chat = chats.first_of(tx, to.channel, to.account, to.chat)
    return [
        tx.insert(
            "delivery",
            turn=turn,
            effect=effect,
            inbound=inbound,
            session=session,
            channel=to.channel,
            account=to.account,
            chat=chat,
            thread=to.thread,
            n=start + n,
            target=target,
            nonce=new_id(),
            state="pending",
            made=now,
            **row,
        )
        for n, row in enumerate(rows)
    ]


def room(limits: ChannelLimits) -> ChannelLimits:
    """What a piece of a text may take."""
    return replace(limits, text=max(limits.text - len(REPEAT), limits.text // 2))


def _messages(
    kind: DeliveryKind, text: str, limits: ChannelLimits, blob: str | None, name: str | None, whole: str | None
) -> list[dict[str, object]]:
    """What a row has of its own, for each message that it takes."""
    space = room(limits)
    if blob is not None:
        before = pieces(text, space) if units(text) > CAPTION else []
        rows: list[dict[str, object]] = [{"kind": "text", "text": piece} for piece in before]
        return [*rows, {"kind": kind, "text": "" if before else text, "blob": blob, "name": name}]
    if whole is None or not limits.files:
        return [{"kind": kind, "text": piece} for piece in pieces(text, space)]
    if len(text) <= limits.text * limits.pieces:  # more is not looked at: that would take long
        parts = pieces(text, space)
        if len(parts) <= limits.pieces:
            return [{"kind": kind, "text": piece} for piece in parts]
    beginning = pieces(text[: 2 * limits.text], replace(space, text=space.text - len(_MORE)))[0].rstrip() + _MORE
    return [{"kind": kind, "text": beginning}, {"kind": "file", "text": "", "blob": whole, "name": _WHOLE}]


def asked(tx: Transaction, turn: int) -> str | None:
    """In a shared chat the platform's id of the newest message that a turn answers: what it says first replies to
    that."""
    row = tx.one(
        "SELECT i.platform_id FROM turn t JOIN turn_wake tw ON tw.turn = t.id JOIN wake w ON w.id = tw.wake"
        " JOIN inbound i ON i.seq = w.inbound AND (i.channel, i.account, i.chat) = (t.channel, t.account, t.chat)"
        " WHERE t.id = ? AND i.direct = 0 AND i.kind = 'message' ORDER BY i.seq DESC LIMIT 1",
        turn,
    )
    return row["platform_id"] if row else None


def waiting_chats(tx: Transaction) -> list[Address]:
    """Every chat that has something undecided."""
    rows = tx.all(
        "SELECT DISTINCT channel, account, chat, '' AS thread FROM delivery"
        " WHERE state IN ('draft', 'pending', 'sending', 'unknown')"
    )
    return [Address.of(row) for row in rows]


def head(tx: Transaction, channel: str, account: str, chat: str) -> Row | None:
    """The oldest undecided row of a chat: nothing behind it leaves before it is decided. Beside it `now`, what the
    platform calls the chat; `direct`, 0 also for one that is not known; `edited`, the platform's id of the message
    that it edits, None where that did not arrive."""
    return tx.one(
        "SELECT d.*, COALESCE(a.now, d.chat) AS now, COALESCE(c.direct, 0) AS direct, e.platform_id AS edited"
        " FROM delivery d LEFT JOIN delivery e ON e.id = d.edits AND e.state IN ('sent', 'resent')"
        " LEFT JOIN alias a ON a.channel = d.channel AND a.account = d.account AND a.chat = d.chat"
        " LEFT JOIN chat c ON c.channel = d.channel AND c.account = d.account AND c.chat = d.chat"
        " WHERE d.channel = ? AND d.account = ? AND d.chat = ?"
        " AND d.state IN ('draft', 'pending', 'sending', 'unknown') ORDER BY d.id LIMIT 1",
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
        identify(tx, delivery, platform_id)
    if state in DECIDED:
        row = tx.one("SELECT turn, inbound FROM delivery WHERE id = ?", delivery)
        assert row is not None
        if row["turn"] is not None:
            settle_turn(tx, row["turn"])
        if row["inbound"] is not None:
            _settle(tx, row["inbound"], "inbound", row["inbound"], recorded=True)
    return state


def as_new(tx: Transaction, delivery: int) -> None:
    """The message that it should have edited is gone."""
    tx.execute("UPDATE delivery SET edits = NULL WHERE id = ?", delivery)


def identify(tx: Transaction, delivery: int, platform_id: str) -> None:
    tx.execute("UPDATE delivery SET platform_id = ? WHERE id = ?", platform_id, delivery)


def settle_turn(tx: Transaction, turn: int) -> None:
    """Bring the messages of a turn to the state that its deliveries and its record have earned."""
    row = tx.one("SELECT recorded_at FROM turn WHERE id = ?", turn)
    assert row is not None
    for inbound in tx.all("SELECT seq FROM inbound WHERE turn = ?", turn):
        _settle(tx, inbound["seq"], "turn", turn, recorded=row["recorded_at"] is not None)


def _settle(tx: Transaction, seq: int, owner: str, key: int, *, recorded: bool) -> None:
    row = tx.one("SELECT state FROM inbound WHERE seq = ?", seq)
    found = tx.all(f"SELECT kind, state FROM delivery WHERE {owner} = ?", key)
    assert row is not None
    for event in inbound_events(row["state"], [each["state"] for each in found], recorded):
        tx.move("inbound", seq, event)
    if any(each["state"] == "failed" and each["kind"] != "stream" for each in found):
        tx.execute("UPDATE inbound SET reason = 'delivery_failed' WHERE seq = ?", seq)


def failures_to_note(tx: Transaction) -> list[sqlite3.Row]:
    """Deliveries of recorded turns that failed for good and that their conversation does not know of yet."""
    return tx.all(
        "SELECT d.id, d.turn, d.channel, d.chat, d.error FROM delivery d JOIN turn t ON t.id = d.turn"
        " WHERE d.state = 'failed' AND d.kind <> 'stream' AND d.noted = 0 AND t.recorded_at IS NOT NULL ORDER BY d.id"
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
