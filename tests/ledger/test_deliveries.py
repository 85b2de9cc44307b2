"""The outbox's rows as a terminal that comes back finds them."""

import pytest

from clawd.channel import NOTICE
from clawd.ledger import deliveries
from clawd.ledger.deliveries import Address
from tests.ledger.conftest import NOW, Desk


@pytest.mark.parametrize(
    ("moves", "shown"),
    [
        ((), False),  # it is going to be sent to whoever is there then
        (("send",), True),  # perhaps before this terminal came, and not committed yet
        (("send", "arrive"), True),
        (("send", "doubt", "repeat"), True),
        (("send", "bounce"), False),
        (("cancel",), False),
    ],
)
def test_a_terminal_is_told_what_was_sent_while_it_was_away(desk: Desk, moves: tuple[str, ...], shown: bool) -> None:
    turn = desk.accept().turn
    to = Address("terminal", "", "main", "")
    [id] = desk.ledger.tx(
        lambda tx: deliveries.enqueue(tx, to, session="s", kind="text", text="a", now=NOW, limits=NOTICE, turn=turn)
    )
    for event in moves:
        desk.ledger.tx(lambda tx, event=event: tx.move("delivery", id, event))  # type: ignore[misc]
    for seen in (shown, False):
        rows = desk.ledger.tx(lambda tx: deliveries.unseen(tx, "main", ""))
        assert [row["id"] for row in rows] == ([id] if seen else [])
        desk.ledger.tx(lambda tx: deliveries.mark_seen(tx, [id]))
