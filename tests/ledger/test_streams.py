"""Messages that grow: who takes them over, however their turn ends."""

from collections.abc import Callable

import pytest

from clawd.channel import ChannelLimits
from clawd.ledger import deliveries, ends, streams, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.model import Final, Lease
from tests.ledger.conftest import NOW, Desk

LIMITS = ChannelLimits(text=100)


def live(desk: Desk) -> Lease:
    """A turn at work, its message sent by the terminal's stand-in of the conftest."""
    desk.accept()
    desk.run("r1")
    claim = desk.ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
    assert claim is not None
    return Lease("r1", claim.turn["id"], claim.attempt, 0)


def begin(ledger: Ledger, turn: int, *events: str) -> int | None:
    """A message that grows, after these events."""

    def work(tx: Transaction) -> int | None:
        row = streams.begin(tx, turn, "so far", NOW, limits=LIMITS)
        for event in events if row is not None else ():
            deliveries.decide(tx, row, event, platform_id="p1" if event in ("arrive", "find") else None)
        return row

    return ledger.tx(work)


def rows(ledger: Ledger) -> list[tuple[str, str, str, int | None]]:
    found = ledger.tx(lambda tx: tx.all("SELECT kind, state, text, edits FROM delivery ORDER BY id"))
    return [(row["kind"], row["state"], row["text"], row["edits"]) for row in found]


def answer(tx: Transaction, lease: Lease) -> ends.Ended:
    return ends.answer(tx, lease, Final("one two " * 20), [], NOW, limits=LIMITS)


def fail(tx: Transaction, lease: Lease) -> ends.Ended:
    return ends.fault(tx, lease.turn, "it broke", NOW, limits=LIMITS, final=True)


def stop(tx: Transaction, lease: Lease) -> ends.Ended:
    ends.request_stop(tx, turns.get(tx, lease.turn)["session"])
    return ends.stopped(tx, lease.turn, NOW)


def hold(tx: Transaction, lease: Lease) -> ends.Ended:
    return ends.hold_live(tx, lease.turn, "no sandbox", NOW, limits=LIMITS)


ENDINGS = [(answer, "one two", "text"), (fail, "That did not work", "notice"), (stop, "Stopped.", "notice")]
ENDINGS.append((hold, "Your message is kept", "notice"))


@pytest.mark.parametrize(("end", "said", "kind"), ENDINGS, ids=lambda each: getattr(each, "__name__", ""))
@pytest.mark.parametrize(
    ("events", "state", "edits"),
    [
        ((), "cancelled", False),
        (("send",), "sending", True),  # by the time of its answer it is decided
        (("send", "arrive"), "sent", True),
        (("send", "doubt"), "unknown", True),
        (("send", "doubt", "fail"), "failed", False),
    ],
)
def test_what_a_turn_says_at_its_end_is_given_to_its_message(
    desk: Desk,
    end: Callable[[Transaction, Lease], ends.Ended],
    said: str,
    kind: str,
    events: tuple[str, ...],
    state: str,
    edits: bool,
) -> None:
    lease = live(desk)
    row = begin(desk.ledger, lease.turn, *events)
    ended = desk.ledger.tx(lambda tx: end(tx, lease))
    first, *more = rows(desk.ledger)
    assert first == ("stream", state, "so far", None)
    if end is stop and not edits:
        assert more == [] and ended.deliveries == []
        return
    assert more[0][0] == kind and more[0][2].startswith(said)
    assert [each[3] for each in more] == [row if edits else None] + [None] * (len(more) - 1)
    assert len(ended.deliveries) == len(more)


def test_a_turn_has_one_message_which_another_attempt_goes_on_with(desk: Desk) -> None:
    lease = live(desk)
    row = begin(desk.ledger, lease.turn, "send", "arrive")
    assert row is not None and begin(desk.ledger, lease.turn) is None
    desk.ledger.tx(lambda tx: ends.requeue(tx, lease.turn, NOW))
    assert desk.ledger.tx(lambda tx: streams.showing(tx, lease.turn)) is None
    assert begin(desk.ledger, lease.turn) is None  # it is not at work
    assert desk.ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW)) is not None
    shown = desk.ledger.tx(lambda tx: streams.showing(tx, lease.turn))
    assert shown is not None and (shown.row, shown.message) == (row, "p1")


def test_a_turn_that_is_to_stop_begins_no_message(desk: Desk) -> None:
    lease = live(desk)
    desk.ledger.tx(lambda tx: ends.request_stop(tx, turns.get(tx, lease.turn)["session"]))
    assert begin(desk.ledger, lease.turn) is None
