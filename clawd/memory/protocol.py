"""The protocol of memory: three backends have it, and whoever uses one need not know which.

Who writes and reads, and how far they are trusted, is bound to a memory when it is opened (`Voice`), by the daemon from
what it knows itself; nothing that a caller passes in `metadata` can say it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from clawd.memory.record import MemoryRecord
from clawd.trust import Origin, Role


@dataclass(frozen=True, slots=True)
class Heard:
    """A part that the owner typed and that may be cited: of which message, its text, when it came, and whether they
    were alone."""

    inbound: int
    text: str
    at: datetime | None = None
    private: bool = False


@dataclass(frozen=True, slots=True)
class Voice:
    """For whom a memory is opened. `taint` is the turn's; `source` says where it comes from (`telegram:7#12`).
    `private`: it is a private session. `others`: others than the owner read along, so nothing private is found. `heard`
    may be cited. `namespace` is where it writes, "" the group itself, and `spaces` what it reads of the group's memory:
    the owner, of whom nobody is set apart, reads all of it."""

    origin: Origin = Origin.OWNER
    authority: Role = Role.OWNER
    taint: float = 1.0
    source: str = "command line"
    turn: int | None = None
    private: bool = False
    others: bool = False
    heard: Sequence[Heard] = ()
    namespace: str = ""
    spaces: frozenset[str] = frozenset({""})

    def sees(self, namespace: str) -> bool:
        return self.origin is Origin.OWNER or namespace in self.spaces


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """What was found, the best first. `text` is what may be shown (of a citation in a lesser turn the quote alone), at
    most some thousand characters around what was looked for; `trust` is that of what is shown."""

    record: MemoryRecord
    text: str
    score: float
    trust: float
    parts: Mapping[str, float]


class Memory(Protocol):
    """The memory of one group, for one voice."""

    lanes: Sequence[str]
    """Of the last search: the methods that were used, and what was amiss."""

    async def write(self, content: str, *, kind: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Keep something; gives its id. `metadata` may have event_time (RFC 3339), tags, derived_from (ids), supersedes
        (an id), key (of a fact), said ({quote, inbound}); anything else is refused. Raises UsageError, NotFound,
        StorageError."""
        ...

    async def read(self, memory_id: str) -> MemoryRecord:
        """Raises NotFound, also for what this voice may not see."""
        ...

    async def search(self, query: str, *, k: int = 10, filters: Mapping[str, Any] | None = None) -> list[MemoryHit]:
        """`filters`: kind, since, until, include_untrusted. Raises UsageError."""
        ...

    async def update(self, memory_id: str, new_content: str) -> None:
        """Raises NotFound, and Refused where this voice has less trust than what it would replace."""
        ...

    async def delete(self, memory_id: str) -> None:
        """Forget it: the file, the index and what was derived from it alone. Raises NotFound, Refused."""
        ...

    async def consolidate(self) -> int:
        """Merge, supersede, summarise; gives how many memories were changed."""
        ...

    async def reflect(self, context: Mapping[str, Any]) -> str | None:
        """A lesson of a turn that failed or was corrected, kept as a reflection: its id, None where there is none.
        `context`: goal, steps, error, correction."""
        ...
