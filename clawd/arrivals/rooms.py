"""What accepting needs of the rooms that things go to, and what became of one thing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from clawd.clock import Clock
from clawd.config.group import Effective
from clawd.config.home import Home
from clawd.ledger.db import Ledger
from clawd.turns.memory import Memories

TRUST = 0.6  # of what the owner says yes to without having written it: as of a file made by hand
_TOLD = 12


@dataclass(frozen=True, slots=True)
class Rooms:
    """`alone` holds a session against whoever records its turns; `settings` is what holds for a group now; `renew` has
    the schedules of a group looked at."""

    home: Home
    ledger: Ledger
    clock: Clock
    memories: Memories
    settings: Callable[[str], Effective]
    alone: Callable[[str], AbstractAsyncContextManager[None]]
    renew: Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Done:
    """`to` is where it is in force now, beneath the group. `new`: something was changed by it. `why` is a sentence's
    end on what was left. `parts`: see `account.Entry`."""

    to: str
    new: bool = True
    why: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)


def several(sentences: list[str]) -> str:
    """The first of them."""
    more = len(sentences) - _TOLD
    return "; ".join(sentences[:_TOLD]) + (f"; and {more} more" if more > 0 else "")
