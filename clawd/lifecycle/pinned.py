"""What a session holds on to whatever its window loses: its goal, what was verified, constraints, blockers, decisions
and what is to be done next; each with where it came from and how far that is trusted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from clawd.trust import Origin

Class = Literal["goal", "verified", "constraints", "blockers", "decisions", "next_safe_action"]
CLASSES: tuple[Class, ...] = ("goal", "verified", "constraints", "blockers", "decisions", "next_safe_action")


@dataclass(frozen=True, slots=True)
class Item:
    """`turn` is where it was pinned, `at` when (RFC 3339). `inherited`: the session began with it."""

    cls: Class
    text: str
    origin: Origin
    trust: float
    turn: int | None = None
    at: str = ""
    id: int | None = None
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class Pinned:
    """All that is pinned, in the order in which that was done. Of goal and next_safe_action the last holds."""

    items: Sequence[Item] = ()

    def of(self, cls: Class) -> list[str]:
        return [item.text for item in self.items if item.cls == cls]

    @property
    def goal(self) -> str:
        return next(reversed(self.of("goal")), "")

    @property
    def next_safe_action(self) -> str:
        return next(reversed(self.of("next_safe_action")), "")

    @property
    def trust(self) -> float:
        """The lowest of its items."""
        return min((item.trust for item in self.items), default=1.0)
