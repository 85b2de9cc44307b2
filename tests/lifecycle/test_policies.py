"""Which policies there are, and that one is in force only where the config says so."""

from __future__ import annotations

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


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two policies of packages, one that cannot be loaded, and one that would stand in the place of ours."""
    entries = [
        metadata.EntryPoint(name, f"{__name__}:{what}", policies.GROUP)
        for name, what in (("quiet", "Brought"), ("broken", "Broken"), ("gone", "Nothing"), ("blockers", "Brought"))
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries if group == policies.GROUP else [])
    policies._brought.cache_clear()
    yield
    policies._brought.cache_clear()


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
    assert "did you mean blockers?" in told[0] and "blockers, broken, cost, gone, quiet" in told[0]
    assert "no licence" in told[1] and "gone" in told[2]
    assert policies.known() == ["blockers", "broken", "cost", "gone", "quiet"]
