"""What one group is given of another's memory: what lies in a namespace `shared/…` that both list, as the other group's
own search finds it, and never more trusted than what an agent notes that nothing from outside has reached.

It informs: an episode, an entity, a fact. What directs (procedures, lessons, profiles) stays where the owner agreed to
it, and a day's log in the group whose day it was. Nothing private passes, nothing that waits or is below the floor of
either group; who said it there is not said here, but for the group. It is read as it is, and changed there alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clawd.errors import NotFound, Refused
from clawd.memory import admission
from clawd.memory.protocol import MemoryHit, Voice
from clawd.memory.record import MemoryRecord
from clawd.trust import TRUST, Origin, Role

if TYPE_CHECKING:
    from clawd.memory.reading import ReadMemory

KINDS = frozenset({"episode", "entity", "fact"})
_ID = re.compile(r"group:([A-Za-z0-9][A-Za-z0-9_-]{0,63}):(.+)", re.DOTALL)


def parted(id: str) -> tuple[str, str] | None:
    """The group and the id there that an id of another group's memory is of; None for any other."""
    match = _ID.fullmatch(id)
    return (match[1], match[2]) if match else None


def find(memory: ReadMemory, query: str, spaces: Collection[str], *, k: int, floor: float, taint: float = 1.0,
         kinds: frozenset[str] = frozenset(), lowering: bool = True, **times: float | None
         ) -> list[MemoryHit]:  # fmt: skip
    """What a search in these namespaces of another group's memory finds for a turn of this `taint`, whose own group has
    this `floor`. `times`: since, until. Blocks."""
    sought = KINDS & kinds if kinds else KINDS
    if not sought or not spaces:
        return []
    hits, _ = memory.find(query, _voice(spaces, taint), k=k, kinds=sought, lowering=lowering, **_given(times))
    given = [replace(hit, record=_seen(memory, hit.record), trust=min(hit.trust, admission.CLEAN)) for hit in hits]
    return [hit for hit in given if hit.trust >= floor]


def get(memory: ReadMemory, id: str, spaces: Collection[str], floor: float) -> MemoryRecord:
    """One memory of another group, by its id there. Raises NotFound for whatever a search does not find."""
    try:
        record = memory.get(id, _voice(spaces, 1.0)) if spaces else None
    except (NotFound, Refused):
        record = None
    if record is not None and record.kind in KINDS and record.status == "active" and record.namespace in spaces:
        found = _seen(memory, record)
        if admission.shown(record, memory.floor)[1] >= memory.floor and found.trust >= floor:
            return found
    raise NotFound(f"there is no memory group:{memory.group}:{id}"[:200], hint="clawd memory list")


def merged(own: Sequence[MemoryHit], others: Sequence[MemoryHit], k: int) -> list[MemoryHit]:
    """The best `k` of both. Scores of two indexes are no measure of each other: at most half of it comes from other
    groups while there is enough of one's own."""
    texts = {hit.text for hit in own}
    theirs = sorted((hit for hit in others if hit.text not in texts), key=lambda hit: (-hit.score, hit.record.id))
    theirs = theirs[: max(k // 2, k - len(own))]
    both = [*own[: k - len(theirs)], *theirs]
    return sorted(both, key=lambda hit: -hit.score)  # of two alike one's own first


def _voice(spaces: Collection[str], taint: float) -> Voice:
    """Somebody who reads along, and no more."""
    return Voice(Origin.AGENT, Role.NONE, taint, others=True, spaces=frozenset(spaces))


def _seen(memory: ReadMemory, record: MemoryRecord) -> MemoryRecord:
    """As another group is given it. Of a citation the owner's words are text like any other there."""
    shown, trust, taint = admission.shown(record, memory.floor)
    agent = source[1] if (source := re.search(r"( \([^()\s]+\))\Z", record.source)) else ""
    return replace(
        record, id=f"group:{memory.group}:{record.id}", text=shown, source=f"group:{memory.group}{agent}",
        origin=record.origin if TRUST[record.origin] <= admission.CLEAN else Origin.AGENT,
        trust=min(trust, admission.CLEAN), taint=taint, derived_from=(), supersedes=None, tags=(), said=None, file="",
        head="",
    )  # fmt: skip


def _given(times: dict[str, float | None]) -> dict[str, Any]:
    return {name: at for name, at in times.items() if at is not None}
