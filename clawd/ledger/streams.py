"""Messages that grow with a turn's text: one a turn, a row of kind `stream`, on the disk before it is sent.

What grows is shown on the platform alone; the ledger holds the first text. What the turn says at its end, however it
ends, is given to that message; so is what another attempt writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from clawd.channel import ChannelLimits
from clawd.ledger import chats, deliveries
from clawd.ledger.db import Row, Transaction
from clawd.ledger.deliveries import Address


@dataclass(frozen=True, slots=True)
class Showing:
    """A live turn, where it is shown: `chat` as the platform calls it now, `row` and `message` (the platform's id) of
    what grows, if it did not fail."""

    session: str
    to: Address
    chat: str
    shared: bool
    row: int | None = None
    message: str | None = None


def showing(tx: Transaction, turn: int) -> Showing | None:
    """None once the turn is live no more, or is to stop."""
    row = tx.one(
        "SELECT t.*, COALESCE(c.direct, 0) AS direct FROM turn t"
        " LEFT JOIN chat c ON (c.channel, c.account, c.chat) = (t.channel, t.account, t.chat)"
        " WHERE t.id = ? AND t.state = 'claimed' AND t.stop_requested = 0",
        turn,
    )
    if row is None:
        return None
    grows, to = _growing(tx, turn), Address.of(row)
    sent = grows is not None and grows["state"] in ("sent", "resent")
    return Showing(
        session=row["session"],
        to=to,
        chat=chats.now_of(tx, to.channel, to.account, to.chat),
        shared=not row["direct"],
        row=grows["id"] if grows else None,
        message=grows["platform_id"] if grows and sent else None,
    )


def begin(tx: Transaction, turn: int, text: str, now: str, *, limits: ChannelLimits) -> int | None:
    """Put a message that will grow into the outbox; `text` is one piece. None if the turn is not live, or has one."""
    shown = showing(tx, turn)
    if shown is None or shown.row is not None:
        return None
    asked = deliveries.asked(tx, turn)
    made = deliveries.enqueue(
        tx, shown.to, session=shown.session, kind="stream", text=text, now=now, limits=limits, turn=turn, reply_to=asked
    )
    return made[0]


def taken_over(tx: Transaction, turn: int) -> int | None:
    """The turn says something: the row whose message is given it, if there is one that has arrived or may have. One
    that was not sent yet is taken back."""
    row = _growing(tx, turn)
    if row is None:
        return None
    if row["state"] == "pending":
        tx.move("delivery", row["id"], "cancel")
        return None
    return int(row["id"])


def _growing(tx: Transaction, turn: int) -> Row | None:
    return tx.one(
        "SELECT id, state, platform_id FROM delivery WHERE turn = ? AND kind = 'stream'"
        " AND state NOT IN ('failed', 'cancelled') ORDER BY id DESC LIMIT 1",
        turn,
    )
