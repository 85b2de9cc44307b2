"""Who asks at the gateway: a run, as its own socket knows it. Nothing of this comes from a request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from clawd.trust import Role
from clawd.usage.budgets import BudgetSpent

# What a run's token looks like, alone or inside a placeholder of a vendor's shape.
TOKEN = re.compile(r"claw-[A-Za-z0-9_-]{43}")
TOKEN_LENGTH = 48


@dataclass(frozen=True, slots=True)
class Road:
    """What is live in a run just now: the lowest role that anything in it acts for, and the turn, when only one is.
    `jobs`: nothing but jobs is live, which may call the model's own service alone."""

    role: Role
    turn: int | None
    jobs: bool = False


class Caller(Protocol):
    """One run. `owner_of`, `road` and `told` are asked anew for each request."""

    run: str
    group: str

    def road(self) -> Road | None:
        """None while neither a turn nor a command of the owner is live: then there is no road."""
        ...

    def owner_of(self, token: str) -> str | None:
        """The living run of this daemon whose token this is, None when it is nobody's."""
        ...

    def turn_of(self, session: str) -> int | None:
        """The live turn of a session, as a request's `X-Clawd-Session` names it: whose call it is, nothing else."""
        ...

    def spent(self, turn: int | None, reason: BudgetSpent) -> None:
        """A model call was refused because a budget is spent: that turn, or with None every live one, is held at its
        end instead of failing."""
        ...

    def paid(self, turn: int | None) -> None:
        """A model call was let through: what was said of a spent budget is over (a fallback took its place)."""
        ...

    async def taint(self, trust: float) -> None:
        """Text of this trust is about to enter: whatever is live falls to it, durably, before a byte is passed on."""
        ...

    def told(self, sentence: str) -> None:
        """A request was refused: the person whose turn it is hears of the first one of a turn."""
        ...

    def alarm(self, sentence: str) -> None:
        """Somebody tried what no honest program does: the owner hears of it."""
        ...
