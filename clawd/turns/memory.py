"""The memory of all groups, for the rooms that use it: opened at first need, kept in step with the files while it is
open, and bound to the turn that reads or writes. What a turn is given is in the ledger, and lowers it first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from anyio import to_thread

from clawd.clock import Clock
from clawd.config.home import Home
from clawd.config.schema import MemoryTable
from clawd.ledger import turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.memory.protocol import MemoryHit, Voice
from clawd.memory.record import MemoryRecord
from clawd.memory.store import GroupMemory, Written
from clawd.model import Lease
from clawd.trust import Origin, Role

T = TypeVar("T")


class Memories:
    """`settings` gives a group's `[memory]` as it is now."""

    def __init__(self, home: Home, ledger: Ledger, clock: Clock, settings: Callable[[str], MemoryTable]) -> None:
        self._home, self._ledger, self._clock, self._settings = home, ledger, clock, settings
        self._open: dict[str, GroupMemory] = {}

    def of(self, group: str) -> GroupMemory:
        """The memory of a group; its calls block."""
        table = self._settings(group)
        known = self._open.get(group)
        if known is None or (known.backend, known.floor) != (table.backend, table.floor):
            root = self._home.group(group).memory
            known = self._open[group] = GroupMemory(
                root, self._home.state, group, self._clock, backend=table.backend, floor=table.floor
            )
        return known

    async def do(self, group: str, work: Callable[[GroupMemory], T]) -> T:
        """Have a thread work with the memory of a group."""
        return await to_thread.run_sync(work, self.of(group))

    async def voice(self, turn: int, origin: Origin = Origin.AGENT) -> Voice:
        """Who writes in a turn, as the ledger has it now."""
        return await self._ledger.do(lambda tx: voice_of(tx, turn, origin))


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
