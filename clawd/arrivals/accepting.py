"""The owner's yes to what lies in `import/<source>/`: each thing goes to its room, and the account says which bytes.

What is accepted is what was read in that moment, an edit by hand included. Each room takes a thing once, however often
it is given: so a run that was killed is ended by the next one, and the account may be behind.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext
from typing import Any

from anyio import to_thread

from clawd import faults
from clawd.arrivals import account, memories, own, sessions
from clawd.arrivals.account import Account, Entry
from clawd.arrivals.report import report
from clawd.arrivals.rooms import Done, Rooms
from clawd.clock import rfc3339
from clawd.errors import ClawdError, StorageError

log = logging.getLogger(__name__)

Row = dict[str, Any]
Take = Callable[[Rooms, str, str, Entry, Mapping[str, bytes]], Awaitable[Done]]

_TAKE: dict[str, Take] = {  # in this order: a schedule may name a skill
    "instructions": own.instructions,
    "profile": own.instructions,
    "facts": memories.memory,
    "index": memories.memory,
    "day": memories.memory,
    "note": memories.memory,
    "session": sessions.session,
    "skill": own.skill,
    "schedule": own.schedule,
}
ONLY = {
    "instructions": ("instructions", "profile"),
    "sessions": ("session",),
    "memory": ("facts", "index", "day", "note"),
    "skills": ("skill",),
    "schedules": ("schedule",),
}
_SOON, _TIMES = 50, 20  # things after which the account is written, which has all of them; of many, how often
_GONE = "it does not lie in import/ any more"
_HALF = "it was being brought in when that ended: bring it in again"
_BY_HAND = "as it was changed by hand in import/"


async def accept(rooms: Rooms, group: str, source: str, kinds: Collection[str]) -> tuple[list[Row], list[Row]]:
    """Of one group: [{kind, group, from, to, changed[]}] of what is in force since, [{group, from, why}] of what is
    left. Raises NotFound, Refused, StorageError."""
    place = rooms.home.group(group).arrivals / source
    lock = account.alone(place)
    await to_thread.run_sync(lock.__enter__)
    try:
        return await _Acceptance(rooms, group, source).all(kinds)
    finally:
        lock.__exit__(None, None, None)


class _Acceptance:
    def __init__(self, rooms: Rooms, group: str, source: str) -> None:
        self._rooms, self._group, self._source = rooms, group, source
        self._place = rooms.home.group(group).arrivals / source
        self._accepted, self._left = list[Row](), list[Row]()

    async def all(self, kinds: Collection[str]) -> tuple[list[Row], list[Row]]:
        before = await to_thread.run_sync(account.read, self._place)
        if before is None:
            return [], []
        order = list(_TAKE)
        known = {each.to: each for each in sorted(before.items, key=lambda each: order.index(each.kind))}
        todo = [each for each in known.values() if each.kind in kinds and each.state != "accepted"]
        soon = max(_SOON, len(todo) // _TIMES)
        try:
            remembers = any(_TAKE[each.kind] is memories.memory for each in todo)
            async with self._rooms.memories.held(self._group) if remembers else nullcontext():
                for n, entry in enumerate(todo, 1):
                    known[entry.to] = await self._one(entry)
                    faults.passing("accepted")
                    if n % soon == 0:
                        await self._write(before, known)
        finally:
            await self._write(before, known)
        return self._accepted, self._left

    async def _write(self, before: Account, known: Mapping[str, Entry]) -> None:
        items = tuple(sorted(known.values(), key=lambda each: (each.kind, each.to)))
        after = before.model_copy(update={"items": items})

        def write() -> None:
            with account.told(self._place):
                account.write(self._place, after)
                account.put(self._place, account.REPORT, report(self._group, after).encode())

        await to_thread.run_sync(write)

    async def _one(self, entry: Entry) -> Entry:
        if why := account.misplaced(entry.kind, entry.to):  # the account, too, is a file that anybody may have changed
            return self._is_left(entry, why)
        if _TAKE[entry.kind] is memories.memory:  # which knows itself what was forgotten
            return await self._taken(entry)
        lock = account.still(self._place)
        await to_thread.run_sync(lock.__enter__)
        try:
            return await self._taken(entry)
        finally:
            lock.__exit__(None, None, None)

    async def _taken(self, entry: Entry) -> Entry:
        try:
            files = await to_thread.run_sync(account.lying, self._place, entry.to)
        except (ClawdError, OSError) as error:
            why = error.message if isinstance(error, ClawdError) else f"it cannot be read ({error.strerror})"
            return self._is_left(entry, why)
        if files is None:
            return self._is_left(entry, _HALF if entry.coming else _GONE)
        if ("" in files) is (entry.kind == "skill"):
            return self._is_left(entry, "it is something else by now")
        sha256 = account.digest(files)
        try:
            done = await _TAKE[entry.kind](self._rooms, self._group, self._source, entry, files)
        except StorageError:
            raise
        except (ClawdError, OSError) as error:
            why = error.message if isinstance(error, ClawdError) else f"it cannot be written ({error.strerror})"
            return self._is_left(entry, why)
        log.info("accepted: %s", entry.kind, extra={"group": self._group, "left": bool(done.why)})
        if done.new or not done.why:
            by_hand = [_BY_HAND] if sha256 not in (entry.sha256, entry.coming) else []
            self._accepted.append(
                {"kind": entry.kind, "group": self._group, "from": entry.source, "to": done.to, "changed": by_hand}
            )
        after = entry.model_copy(update={"parts": dict(done.parts)})
        if done.why:
            return self._is_left(after, done.why)
        now = rfc3339(self._rooms.clock.now())
        return after.model_copy(update={"state": "accepted", "accepted": sha256, "why": "", "at": now})

    def _is_left(self, entry: Entry, why: str) -> Entry:
        self._left.append({"group": self._group, "from": entry.source, "why": why})
        if (entry.state, entry.why) == ("left", why):
            return entry
        now = rfc3339(self._rooms.clock.now())
        return entry.model_copy(update={"state": "left", "why": why, "at": now})
