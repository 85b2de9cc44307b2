"""The protocol of memory over a group's store. Its backends differ in how that searches (`GroupMemory.backend`),
and in nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anyio import to_thread

from clawd.clock import moment_of
from clawd.errors import UsageError
from clawd.memory import consolidate, reflect
from clawd.memory.protocol import MemoryHit, Voice
from clawd.memory.record import MemoryRecord
from clawd.memory.store import GroupMemory


class StoredMemory:
    """The store, for one voice."""

    def __init__(self, of: GroupMemory, voice: Voice) -> None:
        self._of, self._voice = of, voice
        self.lanes: Sequence[str] = ()

    async def write(self, content: str, *, kind: str, metadata: Mapping[str, Any] | None = None) -> str:
        return (await to_thread.run_sync(self._of.put, content, kind, metadata or {}, self._voice)).id

    async def read(self, memory_id: str) -> MemoryRecord:
        return await to_thread.run_sync(self._of.get, memory_id, self._voice)

    async def search(self, query: str, *, k: int = 10, filters: Mapping[str, Any] | None = None) -> list[MemoryHit]:
        filters = filters or {}
        if unknown := set(filters) - {"kind", "since", "until", "include_untrusted"}:
            raise UsageError(f"there is no filter {sorted(unknown)[0]!a}")
        times = {name: _instant(filters.get(name)) for name in ("since", "until")}
        hits, self.lanes = await to_thread.run_sync(
            lambda: self._of.find(
                query, self._voice, k=k, kinds=frozenset({filters["kind"]} if filters.get("kind") else ()),
                untrusted=bool(filters.get("include_untrusted")),
                since=times["since"],
                until=times["until"],
            )
        )  # fmt: skip
        return hits

    async def update(self, memory_id: str, new_content: str) -> None:
        await to_thread.run_sync(self._of.change, memory_id, new_content, self._voice)

    async def delete(self, memory_id: str) -> None:
        await to_thread.run_sync(self._of.forget, memory_id, self._voice)

    async def consolidate(self) -> int:
        return await to_thread.run_sync(self._consolidate)

    def _consolidate(self) -> int:
        of = self._of
        done = consolidate.apply(of, consolidate.plan(of.every(self._voice), of.now(), floor=of.floor))
        return consolidate.changed(done)

    async def reflect(self, context: Mapping[str, Any]) -> str | None:
        if (lesson := reflect.lesson(context)) is None:
            return None
        put = self._of.put
        return (
            await to_thread.run_sync(lambda: put(lesson, "reflection", {}, self._voice, key=f"reflect {lesson}"))
        ).id


BACKENDS = ("file", "vector", "hybrid", "mem0")  # words alone, meaning alone, both, another program


def _instant(text: str | None) -> float | None:
    """Raises UsageError for what is no time."""
    if not text:
        return None
    if (moment := moment_of(text)) is None:
        raise UsageError(f"{text!a} is no time: write it like 2026-12-01T09:00:00+01:00")
    return moment.timestamp()
