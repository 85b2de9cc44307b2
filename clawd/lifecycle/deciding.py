"""The decision that follows each turn: go on, compact, or hand over. Pure.

Precedence, the first that holds: the hard limit; policies, which may escalate alone; a compaction that could not be
verified or came to nothing; the end of a phase; what a person asked for; the soft limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

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
    for by hand. `usd`: what the session cost so far, None where that is not known."""

    tokens: int
    thresholds: Thresholds
    estimated: bool = False
    cumulative: int = 0
    usd: float | None = None
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
