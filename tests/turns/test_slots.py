"""Who gets a place: a table of situations, and that nobody waits for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.turns.slots import TURNS_A_TERM, Decision, Place, decide


def place(group: str, live: int = 0, handed_out: int = 0, last: float = 0.0, ending: bool = False) -> Place:
    return Place(group, live, handed_out, last, ending)


@pytest.mark.parametrize(
    ("waiting", "places", "decision"),
    [
        ([], [], Decision()),
        (["a"], [], Decision(start=("a",))),
        (["a", "b", "c"], [], Decision(start=("a", "b"))),
        (["a"], [place("a")], Decision()),
        # full: the longest idle run makes room
        (["c"], [place("a", last=5), place("b", last=3)], Decision(end=("b",))),
        (["c", "d"], [place("a", last=5), place("b", live=1)], Decision(end=("a",))),
        # full and busy: only a run whose term is over makes room
        (["c"], [place("a", live=1), place("b", live=1)], Decision()),
        (["c"], [place("a", live=1, handed_out=TURNS_A_TERM), place("b", live=1)], Decision(drain=("a",))),
        # room is on its way already
        (["c"], [place("a", live=1, handed_out=99, ending=True), place("b", live=1, handed_out=99)], Decision()),
        # an idle run whose group has work is not idle
        (["c", "a"], [place("a"), place("b", live=1)], Decision()),
    ],
)
def test_decisions(waiting: list[str], places: list[Place], decision: Decision) -> None:
    assert decide(waiting, places, 2) == decision


@given(st.lists(st.sampled_from("abcdefgh"), unique=True), st.integers(1, 4))
def test_every_group_is_served_in_the_end(groups: list[str], max_live: int) -> None:
    """Every group has an endless backlog; still each one gets a term, and never more than `max_live` live at once."""
    waiting, live, served = list(groups), {}, set()  # type: ignore[var-annotated]
    for _ in range(200):
        places = [place(group, 1, count) for group, count in live.items()]
        decision = decide(waiting, places, max_live)
        for group in decision.start:
            waiting.remove(group)
            live[group] = 0
        assert len(live) <= max_live
        for group in decision.drain + decision.end:
            del live[group]
            waiting.append(group)
        for group in live:
            live[group] += 1
            served.add(group)
    assert served == set(groups)
