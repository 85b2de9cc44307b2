"""The memories that are open, in step with their files. They are watched, so that a search has what a person edited a
moment ago, and what they are to know of an edit is told. Where nobody tells us, each search looks for itself. With
nothing edited nothing is done: there is no timer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio import to_thread

from clawd.memory.store import GroupMemory
from clawd.signals import Watches
from clawd.tasks import Tasks

log = logging.getLogger(__name__)

SETTLE_S = 0.2  # after a notice: an editor writes more than once


@dataclass(slots=True, eq=False)
class _Followed:
    """`watched`: what is not `pending` is as the index has it. `soon`: that is about to be looked at. `told` are
    sentences that still hold."""

    memory: GroupMemory
    watched: bool = False
    pending: set[str] = field(default_factory=set)
    soon: bool = False
    told: set[str] = field(default_factory=set)
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Following:
    """`watcher` gives who tells of edits, `tell` is given sentences for the owner. Without `tasks` nothing is watched.
    In the event loop."""

    def __init__(
        self,
        tasks: Tasks | None = None,
        watcher: Callable[[], Watches] | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._tasks, self._watcher, self._tell = tasks, watcher, tell
        self._followed: dict[str, _Followed] = {}

    async def in_step(self, memory: GroupMemory) -> None:
        """Bring what is found in an open memory to what its files say now. Raises what a look raises."""
        found = self._followed.get(memory.group)
        if found is None or found.memory is not memory:
            found = self._followed[memory.group] = _Followed(memory)
            await self._watch(found)
        if found.pending or not found.watched:
            await self._look(found)

    def drop(self, group: str) -> None:
        """It is not open any more."""
        if self._followed.pop(group, None) is not None and self._watcher is not None:
            self._watcher().unwatch(_name(group))

    async def _watch(self, found: _Followed) -> None:
        if self._tasks is None or self._watcher is None:
            return
        memory = found.memory
        with suppress(OSError):  # then it is missing, and told when it comes
            await to_thread.run_sync(lambda: memory.root.mkdir(mode=0o700, exist_ok=True))
        hit = partial(self._hit, self._tasks, found)
        self._watcher().watch(_name(memory.group), memory.root, hit, deep=True, skip=is_passing)

    def _hit(self, tasks: Tasks, found: _Followed, paths: frozenset[str]) -> None:
        found.pending |= paths
        found.watched |= "" in paths
        if not found.soon:
            found.soon = True
            tasks.start_soon(self._follow, found, name=_name(found.memory.group))

    async def _follow(self, found: _Followed) -> None:
        """Look at what was edited, though nobody searches: there may be something to tell of it."""
        await anyio.sleep(SETTLE_S)
        found.soon = False
        if self._followed.get(found.memory.group) is found and found.pending:
            try:
                await self._look(found)
            except Exception:  # whoever searches next is told
                log.exception("edits in the memory of %s were not taken up", found.memory.group)

    async def _look(self, found: _Followed) -> None:
        async with found.lock:
            paths, found.pending = found.pending, set()
            whole = not found.watched or "" in paths
            if not whole and not paths:
                return
            try:
                wrong = await to_thread.run_sync(found.memory.look, None if whole else sorted(paths))
            except BaseException:
                found.pending |= paths
                raise
        group, before = found.memory.group, found.told
        found.told = {each for each in before if not whole and not any(path in each for path in paths)} | {*wrong}
        for sentence in wrong:
            if sentence not in before:
                log.info("memory of %s: %s", group, sentence)
                self._tell(f"groups/{group}: {sentence}")


def _name(group: str) -> str:
    return f"memory:{group}"


def is_passing(path: str) -> bool:
    """Whether a name is hidden, or one that an editor makes and takes away."""
    name = path.rpartition("/")[2]
    return name.startswith(".") or name.endswith(("~", "#")) or name == "4913"
