"""What is decided after a turn: the table of the precedence, and what policies may and may not do."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.lifecycle.deciding import Decision, Facts, Thresholds, decide
from clawd.lifecycle.policies import Blockers, Cost

CODING = Thresholds("coding", 250_000, 350_000)
LOW = Facts(1_000, CODING)
RANK = {"continue": 0, "compact": 1, "handoff": 2}


class Says:
    """A policy that gives the same each time, or raises it."""

    def __init__(self, answer: Any, name: str = "says") -> None:
        self.name, self._answer = name, answer

    def decide(self, facts: Facts) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("facts", "action", "trigger"),
    [
        ({"tokens": 100_000}, "continue", "none"),
        ({"tokens": 249_999}, "continue", "none"),
        ({"tokens": 250_000}, "compact", "soft_compact"),
        ({"tokens": 260_000}, "compact", "soft_compact"),
        ({"tokens": 349_999}, "compact", "soft_compact"),
        ({"tokens": 350_000}, "handoff", "hard_handoff"),
        ({"tokens": 360_000}, "handoff", "hard_handoff"),
        ({"tokens": 0, "cumulative": 10**9}, "continue", "none"),
        ({"verify_failed": True}, "handoff", "verify_fail"),
        ({"fruitless": 1}, "continue", "none"),
        ({"fruitless": 2}, "handoff", "compact_ineffective"),
        ({"failures": 2, "tokens": 260_000}, "compact", "soft_compact"),
        ({"failures": 3, "tokens": 260_000}, "handoff", "verify_fail"),
        ({"phase_done": True}, "handoff", "phase_boundary"),
        ({"wanted": "compact"}, "compact", "manual"),
        ({"wanted": "handoff", "tokens": 260_000}, "handoff", "manual"),
        ({"wanted": "continue", "tokens": 260_000}, "compact", "soft_compact"),
        # the first that holds
        (
            {"tokens": 360_000, "verify_failed": True, "phase_done": True, "wanted": "compact"},
            "handoff",
            "hard_handoff",
        ),
        ({"verify_failed": True, "fruitless": 2, "phase_done": True}, "handoff", "verify_fail"),
        ({"fruitless": 2, "phase_done": True}, "handoff", "compact_ineffective"),
        ({"phase_done": True, "wanted": "compact", "tokens": 260_000}, "handoff", "phase_boundary"),
        ({"wanted": "compact", "tokens": 260_000}, "compact", "manual"),
    ],
)
def test_the_first_rule_that_holds_decides(facts: dict[str, Any], action: str, trigger: str) -> None:
    decided = decide(replace(LOW, **facts))
    assert (decided.action, decided.trigger, decided.policy) == (action, trigger, None)
    assert decided.reason


@pytest.mark.parametrize(
    ("answers", "facts", "action", "trigger"),
    [
        (["handoff"], {}, "handoff", "policy:p0"),
        (["compact"], {}, "compact", "policy:p0"),
        ([None, "continue", "compact"], {}, "compact", "policy:p2"),
        (["compact", "handoff"], {}, "handoff", "policy:p1"),
        (["handoff", "handoff"], {}, "handoff", "policy:p0"),
        # no policy lowers what a rule says
        (["continue"], {"tokens": 360_000}, "handoff", "hard_handoff"),
        (["compact"], {"tokens": 360_000}, "handoff", "hard_handoff"),
        (["handoff"], {"tokens": 360_000}, "handoff", "hard_handoff"),
        (["continue", None], {"tokens": 260_000}, "compact", "soft_compact"),
        (["compact"], {"verify_failed": True}, "handoff", "verify_fail"),
        (["compact"], {"phase_done": True}, "handoff", "phase_boundary"),
        # a policy comes before the rules that say the same
        (["handoff"], {"phase_done": True}, "handoff", "policy:p0"),
        (["compact"], {"tokens": 260_000}, "compact", "policy:p0"),
    ],
)
def test_policies_may_only_escalate(answers: list[Any], facts: dict[str, Any], action: str, trigger: str) -> None:
    decided = decide(replace(LOW, **facts), [Says(answer, f"p{n}") for n, answer in enumerate(answers)])
    assert (decided.action, decided.trigger) == (action, trigger)
    assert decided.policy == (trigger.partition(":")[2] or None)


@pytest.mark.parametrize("answer", [RuntimeError("no"), "pause", "HANDOFF", 3, ["handoff"], {}, True])
def test_a_policy_that_fails_is_logged_and_ignored(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert decide(LOW, [Says(answer, "broken")]).action == "continue"
        assert decide(LOW, [Says(answer, "broken"), Says("compact", "sound")]).policy == "sound"
    assert "broken" in caplog.text


def test_a_policy_without_a_name_is_called_by_its_class() -> None:
    class Nameless:
        def decide(self, facts: Facts) -> Any:
            return "handoff"

    assert decide(LOW, [Nameless()]).action == "continue"  # type: ignore[list-item]


FACTS = st.builds(
    Facts,
    st.integers(0, 500_000),
    st.just(CODING),
    verify_failed=st.booleans(),
    phase_done=st.booleans(),
    fruitless=st.integers(0, 3),
    failures=st.integers(0, 4),
    wanted=st.sampled_from([None, "continue", "compact", "handoff"]),
)
ANSWERS = st.lists(st.sampled_from([None, "continue", "compact", "handoff", "x", ValueError()]), max_size=4)


@given(FACTS, ANSWERS)
def test_with_policies_never_less_is_done_than_without(facts: Facts, answers: list[Any]) -> None:
    without, decided = decide(facts), decide(facts, [Says(answer) for answer in answers])
    asked = max((RANK[each] for each in answers if isinstance(each, str) and each in RANK), default=0)
    assert RANK[decided.action] == max(RANK[without.action], asked)
    assert decided.trigger == without.trigger or decided.policy == "says"
    if facts.tokens >= CODING.hard:
        assert decided == without == replace(decided, action="handoff", trigger="hard_handoff")


def test_blockers_hand_over_unless_the_session_began_with_them() -> None:
    decided = decide(replace(LOW, blockers=["no key"]), [Blockers()])
    assert (decided.action, decided.trigger) == ("handoff", "policy:blockers")
    inherited = replace(LOW, pinned={"blockers": ["no key"]})
    assert decide(inherited, [Blockers()]).action == "continue"


@pytest.mark.parametrize(
    ("usd", "limit", "steps", "compacted", "action"),
    [
        (None, 2.0, 5, 0, "continue"),
        (5.0, None, 5, 0, "continue"),
        (0.99, 2.0, 5, 0, "continue"),
        (1.0, 2.0, 5, 0, "compact"),
        (1.0, 2.0, 5, 1, "continue"),  # it was compacted already
        (1.99, 2.0, 5, 1, "continue"),
        (2.0, 2.0, 5, 1, "handoff"),
        (3.0, 2.0, 1, 0, "compact"),  # one turn alone cost all of it: a successor's first one would, too
        (3.0, 2.0, 1, 1, "continue"),
        (3.0, 2.0, 2, 0, "handoff"),
        (0.0, 2.0, 1, 0, "continue"),  # a successor
    ],
)
def test_cost_compacts_at_half_and_hands_over_at_all(
    usd: float | None, limit: float | None, steps: int, compacted: int, action: str
) -> None:
    facts = replace(LOW, usd=usd, usd_limit=limit, step_index=steps, compact_count=compacted)
    assert decide(facts, [Cost()]).action == action


def test_a_decision_is_a_value() -> None:
    assert decide(LOW) == Decision("continue", "none", "1000 tokens, below 250000")
