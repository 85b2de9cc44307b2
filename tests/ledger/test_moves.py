"""The law: every state and event of every table, allowed or not, and the decisions beside it."""

import itertools

import pytest

from clawd.errors import IllegalMove
from clawd.ledger import moves

ENDS = {
    "firing": {"ran", "late", "skipped", "failed", "missed"},
    "injected": {"recorded"},
    "inbound": {"recorded", "withdrawn", "stale", "stopped"},
    "wake": {"closed", "dropped"},
    "turn": {"answered", "stopped", "failed", "joined", "withdrawn"},
    "delivery": {"sent", "failed", "cancelled"},
    "run": {"gone"},
    "reservation": {"settled", "released", "assumed"},
    "question": {"answered", "expired", "withdrawn"},
    "approval": {"done", "failed", "denied", "expired", "void"},
}


@pytest.mark.parametrize("table", moves.TABLES)
def test_only_what_the_table_says_is_a_move(table: str) -> None:
    law = moves.TABLES[table]
    states = {state for state, _ in law} | set(law.values())
    events = {event for _, event in law}
    for state, event in itertools.product(states, events):
        if (state, event) in law:
            assert moves.move(table, state, event) == law[state, event]
        else:
            with pytest.raises(IllegalMove):
                moves.move(table, state, event)


@pytest.mark.parametrize("table", moves.TABLES)
def test_nothing_leaves_an_end_and_every_other_state_can_reach_one(table: str) -> None:
    law = moves.TABLES[table]
    states = {state for state, _ in law} | set(law.values())
    assert {state for state, _ in law}.isdisjoint(ENDS[table])
    reach = set(ENDS[table])
    for _ in states:
        reach |= {state for (state, _), after in law.items() if after in reach}
    assert states - reach == set()


@pytest.mark.parametrize(("faults", "after"), [(1, "requeue"), (2, "requeue"), (3, "fail"), (9, "fail")])
def test_after_fault(faults: int, after: str) -> None:
    assert moves.after_fault(faults) == after


@pytest.mark.parametrize(
    ("state", "deliveries", "recorded", "events"),
    [
        ("answered", ["sent"], True, ["deliver", "record"]),
        ("answered", ["sent"], False, ["deliver"]),
        ("answered", ["sent", "sending"], True, []),
        ("answered", ["unknown"], True, []),
        ("answered", ["resent", "failed", "cancelled"], True, ["deliver", "record"]),
        ("answered", [], True, ["deliver", "record"]),
        ("delivered", ["sent"], True, ["record"]),
        ("delivered", ["sent"], False, []),
        ("claimed", ["sent"], True, []),
        ("failed", ["sent"], True, []),
    ],
)
def test_what_a_message_is_due(state: str, deliveries: list[str], recorded: bool, events: list[str]) -> None:
    assert moves.inbound_events(state, deliveries, recorded) == events


@pytest.mark.parametrize(
    ("tells", "found", "decision"), [(True, True, "find"), (True, False, "miss"), (False, False, "repeat")]
)
def test_a_send_in_doubt(tells: bool, found: bool, decision: str) -> None:
    assert moves.delivery_after_doubt(tells, found) == decision
    assert moves.move("delivery", "unknown", decision) in ("sent", "pending", "resent")
