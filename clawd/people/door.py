"""The door: who a message is from, whether they may speak, and which conversation it belongs to. Intake asks here.

`admit` is called before anything of a message is kept, fetched or shown to anybody:

- Admitted with a `place`: take it in, with `role` and `person`. `told` is a notice for its chat, if any.
- Without a `place`: nothing of it is kept, fetched or counted. `told`, if any, is said in its chat without a row, best
  effort (a stranger's line, what became of a pairing code, that the owner was asked privately); None is silence.
- A `delete` need not say who deletes: it has its chat's place and the role NONE, and may only take back.

A person is an account that the adapter vouches for (`Incoming.sender`), as `people.toml` has it; never a name that
somebody chose. An empty sender (an anonymous admin, a channel's post) is a stranger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from clawd.model import Incoming
from clawd.trust import Role


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message belongs: its group and the plain id of its conversation."""

    group: str
    base: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """`person` is the name in `people.toml`; None for strangers and at the terminal."""

    role: Role
    person: str | None = None
    place: Place | None = None
    told: str | None = None


class Admits(Protocol):
    """What intake needs of the door."""

    async def admit(self, incoming: Incoming) -> Admitted:
        """Never raises for what a message holds, nor for a people.toml or group.toml that is broken."""
        ...
