"""The memory of all groups, for the rooms that use it: opened at first need, kept in step with the files while it is
open, and bound to the turn that reads or writes. What a turn is given is in the ledger, and lowers it first."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyio import CapacityLimiter, to_thread

from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.config.schema import MemoryTable
from clawd.context.memories import Recalled, query
from clawd.ledger import recalled, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.turns import Claim
from clawd.memory.protocol import MemoryHit, Voice
from clawd.memory.record import MemoryRecord
from clawd.memory.store import GroupMemory, Written
from clawd.model import Lease
from clawd.tasks import Tasks
from clawd.trust import Origin, Role
from clawd.turns.following import Following, Watches

log = logging.getLogger(__name__)

SEARCHES = 4  # recalls at one time, also of those that nobody waits for any more


class Memories:
    """`settings` gives a group's `[memory]` as it is now. With `tasks` and a `watcher` edits are followed, and `tell`
    is given sentences on them for the owner; without, each search looks at the files."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        settings: Callable[[str], MemoryTable],
        tasks: Tasks | None = None,
        watcher: Callable[[], Watches | None] = lambda: None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._home, self._ledger, self._clock, self._settings = home, ledger, clock, settings
        self._following = Following(self._made, tasks, watcher, tell)
        self._limiter = CapacityLimiter(SEARCHES)

    def of(self, group: str) -> GroupMemory:
        """The memory of a group, perhaps behind its files; its calls block."""
        return self._following.of(group)

    async def current(self, group: str) -> GroupMemory:
        """The same, brought to what its files say now."""
        return await self._following.in_step(group)

    def _made(self, group: str, known: GroupMemory | None) -> GroupMemory:
        table = self._settings(group)
        if known is not None and (known.backend, known.floor) == (table.backend, table.floor):
            return known
        root = self._home.group(group).memory
        return GroupMemory(root, self._home.state, group, self._clock, backend=table.backend, floor=table.floor)

    async def recall(self, claim: Claim) -> Recalled:
        """What memory gives a turn of itself. May be cancelled, and raises what a search raises."""
        group = claim.turn["grp"]
        if not (k := self._settings(group).recall_k) or not query(claim.wakes).strip():
            return Recalled()
        memory = await self.current(group)
        return await to_thread.run_sync(recalled_of, memory, claim, k, abandon_on_cancel=True, limiter=self._limiter)

    async def shown(self, turn: int, memories: Sequence[str]) -> None:
        """These are put before the model of a turn."""
        if memories:
            now = rfc3339(self._clock.now())
            await self._ledger.do(lambda tx: recalled.note(tx, turns.get(tx, turn)["grp"], memories, turn, now))

    async def voice(self, turn: int, origin: Origin = Origin.AGENT) -> Voice:
        """Who writes in a turn, as the ledger has it now."""
        return await self._ledger.do(lambda tx: voice_of(tx, turn, origin))


def recalled_of(memory: GroupMemory, claim: Claim, k: int) -> Recalled:
    """What a claimed turn is given of a memory by itself: the best `k` that do not lower it, and how many of the best
    `k` of all would. Blocks."""
    row, asked = claim.turn, query(claim.wakes)
    voice = Voice(Origin.AGENT, claim.authority, claim.taint, f"{row['session']}#{row['id']}", row["id"],
                  private=not claim.others, others=claim.others)  # fmt: skip
    hits, lanes = memory.find(asked, voice, k=k, lowering=False)
    log.debug("turn %s: %s memories by %s", row["id"], len(hits), ", ".join(lanes))
    best, _ = memory.find(asked, voice, k=k)
    return Recalled(hits, sum(hit.record.taint < claim.taint for hit in best))


def voice_of(tx: Transaction, turn: int, origin: Origin = Origin.AGENT) -> Voice:
    row: Row = turns.get(tx, turn)
    _, others = turns.known(tx, row["grp"], row["session"])
    return Voice(origin, Role(row["authority"]), row["taint"], f"{row['session']}#{turn}", turn,
                 private=not others, others=others, heard=())  # fmt: skip


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """The memory of one turn, for the tools that it calls. `fall` lowers the turn's trust, durably, before anything is
    given to it."""

    _memories: Memories
    _group: str
    _lease: Lease
    _fall: Callable[[float], Awaitable[None]]

    async def write(self, content: str, kind: str, metadata: Mapping[str, Any], key: str) -> Written:
        """`key` is what makes this call the same one: its canonical arguments. Raises ClawdError."""
        voice = await self._memories.voice(self._lease.turn)
        memory, seed = self._memories.of(self._group), f"{self._lease.turn} {key}"
        return await to_thread.run_sync(lambda: memory.put(content, kind, metadata, voice, key=seed))

    async def search(self, query: str, k: int, **filters: Any) -> tuple[list[MemoryHit], list[str]]:
        voice = await self._memories.voice(self._lease.turn)
        hits, lanes = await to_thread.run_sync(
            lambda: self._memories.of(self._group).find(query, voice, k=k, **filters)
        )
        if hits:
            await self._fall(min(hit.record.taint for hit in hits))
        return hits, lanes

    async def read(self, id: str) -> MemoryRecord:
        voice = await self._memories.voice(self._lease.turn)
        record = await to_thread.run_sync(self._memories.of(self._group).get, id, voice)
        await self._fall(record.taint)
        return record
