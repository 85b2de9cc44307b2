"""Which policies there are, and that one is in force only where the config says so."""

from __future__ import annotations

import threading
from importlib import metadata
from typing import Any

import pytest

from clawd.lifecycle import policies
from clawd.lifecycle.deciding import Facts, Thresholds, decide

FACTS = Facts(10, Thresholds("chat", 60_000, 100_000), blockers=["x"])


class Brought:
    name = "called something else"

    def decide(self, facts: Facts) -> str:
        return "compact"


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class Hostile:
    name = "hostile"
    does: Any = None
    asked = 0

    def decide(self, facts: Facts) -> Any:
        Hostile.asked += 1
        return Hostile.does(facts)


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two policies of packages, one that cannot be loaded, and one that would stand in the place of ours."""
    entries = [
        metadata.EntryPoint(name, f"{__name__}:{what}", policies.GROUP)
        for name, what in (
            ("quiet", "Brought"),
            ("broken", "Broken"),
            ("gone", "Nothing"),
            ("blockers", "Brought"),
            ("hostile", "Hostile"),
        )
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries if group == policies.GROUP else [])
    policies._brought.cache_clear()
    yield
    policies._brought.cache_clear()
    policies._hanging.clear()


def test_none_is_in_force_by_itself() -> None:
    assert policies.in_force([]) == ([], [])
    assert decide(FACTS, policies.in_force([])[0]).action == "continue"


def test_those_that_are_named_are_in_their_order_once() -> None:
    found, told = policies.in_force(["quiet", "blockers", "cost", "quiet"])
    assert [each.name for each in found] == ["quiet", "blockers", "cost"] and told == []
    assert decide(FACTS, found[:1]).trigger == "policy:quiet"  # as the config calls it
    assert decide(FACTS, found).trigger == "policy:blockers"


def test_a_package_replaces_none_that_ships() -> None:
    found, _ = policies.in_force(["blockers"])
    assert decide(FACTS, found).action == "handoff"


def test_what_cannot_be_had_is_told_and_left_out() -> None:
    found, told = policies.in_force(["blokers", "broken", "gone", "cost"])
    assert [each.name for each in found] == ["cost"] and len(told) == 3
    assert "did you mean blockers?" in told[0] and "blockers, broken, cost, gone, hostile, quiet" in told[0]
    assert "no licence" in told[1] and "gone" in told[2]
    assert policies.known() == ["blockers", "broken", "cost", "gone", "hostile", "quiet"]


def _raises(error: BaseException) -> Any:
    def raising(facts: Facts) -> Any:
        raise error

    return raising


@pytest.mark.parametrize(
    "does",
    [_raises(SystemExit(1)), _raises(KeyboardInterrupt()), _raises(RecursionError()), lambda facts: [1],
     lambda facts: 7, lambda facts: "explode", lambda facts: {}, lambda facts: facts.pinned.clear()],
)  # fmt: skip
def test_a_hostile_one_decides_nothing(does: Any) -> None:
    Hostile.does = does
    assert decide(FACTS, policies.in_force(["hostile"])[0]).action == "continue"


def test_one_that_does_not_come_back_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "PATIENCE_S", 0.01)
    end = threading.Event()
    Hostile.does, Hostile.asked = lambda facts: end.wait(60) and None, 0
    try:
        assert decide(FACTS, policies.in_force(["hostile"])[0]).action == "continue"
        found, told = policies.in_force(["hostile", "quiet"])
        assert decide(FACTS, found).trigger == "policy:quiet"
        assert Hostile.asked == 1 and len(told) == 1 and "hostile did not answer" in told[0]
    finally:
        end.set()
