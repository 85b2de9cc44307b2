"""What other programs keep in the memory of a group, whose `external` was found to take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawd.errors import Refused, UsageError
from clawd.memory.outside import Kept, Outside, noted
from clawd.memory.store import GroupMemory
from clawd.turns.memory import Memories

Params = dict[str, Any]
_ONE = ("text", "fact", "at", "tags", "key")


async def remember(memories: Memories, session: str, group: str, params: Params) -> Params:
    """{text, fact?, at?, tags?, key?} → {group, id, status, trust, why?, state: kept|known}; with `entries` of such in
    their place {group, entries[{id, status, trust, why?, state: kept|known|refused}]}, in their order. Raises
    UsageError, and nothing is kept then; Refused, StorageError."""
    many = params.get("entries")
    said = [{name: params[name] for name in _ONE if params.get(name) is not None}] if many is None else many
    if not isinstance(said, list) or not all(isinstance(each, Mapping) for each in said):
        raise UsageError("entries is a list of {text, fact?, at?, tags?, key?}")
    if many is not None and any(name in params for name in _ONE):
        raise UsageError("entries says all of it: text, fact, at, tags and key stand in them")

    def keep(memory: GroupMemory) -> list[Kept]:
        notes = [noted(session, each, memory.now()) for each in said]
        return Outside(memory, session).keep(notes)

    kept = await memories.do(group, keep)
    if any(each.status == "proposed" and each.state == "kept" for each in kept):
        memories.waits(group)
    if many is not None:
        return {"group": group, "entries": [_shown(each) for each in kept]}
    if kept[0].state == "refused":
        raise Refused(kept[0].why)
    return {"group": group, **_shown(kept[0])}


def _shown(kept: Kept) -> Params:
    why = {"why": kept.why} if kept.why else {}
    return {"id": kept.id, "status": kept.status, "trust": kept.trust, **why, "state": kept.state}
