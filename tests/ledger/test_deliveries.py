"""The outbox's rows as a terminal that comes back finds them."""

import pytest

from clawd.channel import NOTICE
from clawd.ledger import chats, deliveries
from clawd.ledger.db import Transaction
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


@pytest.mark.parametrize(("direct", "reply_to"), [(False, "b"), (True, None)])
def test_in_a_shared_chat_an_answer_replies_to_the_newest_message_that_it_answers(
    desk: Desk, direct: bool, reply_to: str | None
) -> None:
    turn = desk.accept(id="a").turn
    desk.accept(id="b")
    desk.accept(id="later")
    desk.ledger.tx(lambda tx: tx.execute("UPDATE inbound SET direct = ?", direct))
    desk.ledger.tx(lambda tx: tx.execute("UPDATE turn_wake SET turn = ? WHERE wake <= 2", turn))
    assert desk.ledger.tx(lambda tx: deliveries.asked(tx, turn or 0)) == reply_to


def test_a_chat_that_moved_and_moved_again_is_one(desk: Desk) -> None:
    def names(tx: Transaction) -> tuple[list[str], str]:
        return [chats.first_of(tx, "t", "", name) for name in "abcd"], chats.now_of(tx, "t", "", "a")

    assert desk.ledger.tx(names) == (["a", "b", "c", "d"], "a")
    for _ in range(2):
        desk.ledger.tx(lambda tx: chats.move(tx, "t", "", "a", "b"))
        assert desk.ledger.tx(names) == (["a", "a", "c", "d"], "b")
    for name in "ba":
        desk.ledger.tx(lambda tx, name=name: chats.move(tx, "t", "", name, "c"))  # type: ignore[misc]
        assert desk.ledger.tx(names) == (["a", "b", "a", "d"], "c")


def test_a_failed_stream_is_no_failed_delivery(desk: Desk) -> None:
    accepted = desk.accept()
    to, what = Address("terminal", "", "main", ""), {"session": "s", "now": NOW, "limits": NOTICE}
    for kind in ("stream", "text"):
        [id] = desk.ledger.tx(
            lambda tx, kind=kind: deliveries.enqueue(tx, to, kind=kind, text="a", turn=accepted.turn, **what)  # type: ignore[misc]
        )
        desk.ledger.tx(lambda tx, id=id: deliveries.decide(tx, id, "fail"))  # type: ignore[misc]
        reason = desk.ledger.tx(lambda tx: tx.one("SELECT reason FROM inbound"))
        assert reason is not None and reason["reason"] == (None if kind == "stream" else "delivery_failed")
    desk.ledger.tx(lambda tx: tx.execute("UPDATE turn SET recorded_at = ?", NOW))
    assert [row["id"] for row in desk.ledger.tx(deliveries.failures_to_note)] == [id]
