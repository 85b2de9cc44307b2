"""The decision that follows each turn: go on, compact, or hand over. Pure, but for what it logs of policies.

Precedence, the first that holds: the hard limit; policies, which may escalate alone; a compaction that could not be
verified or came to nothing; the end of a phase; what a person asked for; the soft limit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

log = logging.getLogger(__name__)

FRUITLESS, FAILURES = 2, 3
"""Compactions in a row that freed less than a tenth, and summaries in a row that came to nothing, after which no
further one is tried."""

Action = Literal["continue", "compact", "handoff"]
Trigger = str
"""none, soft_compact, hard_handoff, verify_fail, phase_boundary, compact_ineffective, manual, or policy:<name>."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Tokens of the window: at `soft` it is compacted, at `hard` handed over. `profile` is where they are from."""

    profile: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a session after a turn. `tokens` are those of its window; `cumulative` cost, and decide nothing.
    `blockers` are those that were pinned in this session, not those that it began with. `fruitless`: compactions in a
    row that freed less than a tenth; `failures`: summaries in a row that came to nothing. `wanted`: what a person asked
    for by hand. `usd`: what the session itself cost so far, None where that is not known; `usd_limit`: `[context] usd`.
    """

    tokens: int
    thresholds: Thresholds
    estimated: bool = False
    cumulative: int = 0
    usd: float | None = None
    usd_limit: float | None = None
    verify_failed: bool = False
    phase_done: bool = False
    fruitless: int = 0
    failures: int = 0
    wanted: Action | None = None
    step_index: int = 0
    compact_count: int = 0
    pinned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    blockers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """`policy` is the name of the one that decided, None where none did; `reason` a sentence for the log."""

    action: Action
    trigger: Trigger
    reason: str = ""
    policy: str | None = None


class Policy(Protocol):
    """An entry point of the group `clawd.context_policies`: a class without arguments. It is asked after the hard limit
    and may escalate alone: what it gives that is less than what was decided without it has no effect. One that raises
    is logged and ignored."""

    name: str

    def decide(self, facts: Facts) -> Action | None: ...


_RANK: dict[Action, int] = {"continue": 0, "compact": 1, "handoff": 2}


def decide(facts: Facts, policies: Sequence[Policy] = ()) -> Decision:
    """What is to be done now. Of policies the strongest answer counts, of equal ones the first; it is told apart from
    the rules below it by its trigger, also where those would have said the same."""
    limits = facts.thresholds
    if facts.tokens >= limits.hard:
        return Decision("handoff", "hard_handoff", f"{facts.tokens} tokens, and {limits.hard} are the most")
    ruled = _ruled(facts)
    best: Decision | None = None
    for policy in policies:
        asked = _asked(policy, facts)
        if asked is not None and _RANK[asked.action] > _RANK[best.action if best else "continue"]:
            best = asked
    return best if best is not None and _RANK[best.action] >= _RANK[ruled.action] else ruled


def _ruled(facts: Facts) -> Decision:
    """What the rules below the policies say."""
    limits = facts.thresholds
    if facts.verify_failed:
        return Decision("handoff", "verify_fail", "a summary left out what the session holds on to")
    if facts.failures >= FAILURES:
        return Decision("handoff", "verify_fail", f"{facts.failures} summaries in a row came to nothing")
    if facts.fruitless >= FRUITLESS:
        why = f"{facts.fruitless} compactions in a row freed less than a tenth"
        return Decision("handoff", "compact_ineffective", why)
    if facts.phase_done:
        return Decision("handoff", "phase_boundary", "the phase is done")
    if facts.wanted in ("compact", "handoff"):
        return Decision(facts.wanted, "manual", "it was asked for")
    if facts.tokens >= limits.soft:
        return Decision("compact", "soft_compact", f"{facts.tokens} tokens, and from {limits.soft} on it is compacted")
    return Decision("continue", "none", f"{facts.tokens} tokens, below {limits.soft}")


def _asked(policy: Policy, facts: Facts) -> Decision | None:
    """What a policy wants, None where it wants nothing or cannot be understood."""
    name = type(policy).__name__
    try:
        name = str(policy.name)[:40]
        action = policy.decide(facts)
        if action is None or action == "continue":
            return None
        if action in _RANK:
            return Decision(action, f"policy:{name}", f"the policy {name} says so", name)
    except Exception:
        log.exception("the policy %s failed and is ignored", name)
        return None
    log.error("the policy %s gave something that is no decision and is ignored", name)
    return None
