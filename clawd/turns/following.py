"""The memories of groups that are open, in step with their files. Those of the few groups that were used last are
watched, so that a search has what a person edited a moment ago, and what they are to know of it is said. Where nothing
tells us, each search looks for itself. With nothing edited nothing is done: there is no timer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio import CapacityLimiter, to_thread

from clawd.memory.store import GroupMemory
from clawd.tasks import Tasks

log = logging.getLogger(__name__)

MOST_WATCHED = 16
SETTLE_S = 0.2  # after a notice: an editor writes more than once
LOOKS = 4  # at one time, also of those that nobody waits for any more


class Watches(Protocol):
    """What is asked of the watcher: it tells paths beneath a root that may have changed, "" for all of it, and that
    once it has begun to."""

    def watch(
        self,
        name: str,
        root: Path,
        hit: Callable[[frozenset[str]], None],
        *,
        deep: bool,
        skip: Callable[[str], bool] = ...,
    ) -> None: ...

    def unwatch(self, name: str) -> None: ...


@dataclass(slots=True, eq=False)
class _Open:
    """`asked`: it is to be watched. `watched`: what is not `pending` is as the index has it. `told` still holds."""

    memory: GroupMemory
    asked: bool = False
    watched: bool = False
    pending: set[str] = field(default_factory=set)
    following: bool = False
    told: set[str] = field(default_factory=set)
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Following:
    """`make` opens a group's memory, and gives the one that it is shown where that is still as the config has it.
    `watcher` gives who tells of edits, None where nobody does; `tell` is given sentences for the owner."""

    def __init__(
        self,
        make: Callable[[str, GroupMemory | None], GroupMemory],
        tasks: Tasks | None,
        watcher: Callable[[], Watches | None],
        tell: Callable[[str], None],
    ) -> None:
        self._make, self._tasks, self._watcher, self._tell = make, tasks, watcher, tell
        self._open: dict[str, _Open] = {}  # the one that was used last at the end
        self._limiter = CapacityLimiter(LOOKS)

    def of(self, group: str) -> GroupMemory:
        """A group's memory, perhaps behind its files."""
        return self._opened(group).memory

    def _opened(self, group: str) -> _Open:
        known = self._open.get(group)
        memory = self._make(group, known.memory if known else None)
        if known is None or known.memory is not memory:
            known = self._open[group] = _Open(memory)
        return known

    async def in_step(self, group: str) -> GroupMemory:
        """A group's memory, in which is found what its files say now. Raises what a look raises."""
        found = self._opened(group)
        self._open[group] = self._open.pop(group)
        await self._watch(group, found)
        if found.pending or not found.watched:
            await self._look(group, found)
        return found.memory

    async def _watch(self, group: str, found: _Open) -> None:
        if found.asked or self._tasks is None or (watcher := self._watcher()) is None:
            return
        found.asked = True
        with suppress(OSError):  # then it is missing, and told when it comes
            await to_thread.run_sync(lambda: found.memory.root.mkdir(mode=0o700, exist_ok=True))
        watcher.watch(_name(group), found.memory.root, partial(self._hit, group, found), deep=True, skip=is_passing)
        while len(self._open) > MOST_WATCHED:
            # Not closed: who uses it does so to the end, and then it goes by itself.
            oldest = next(iter(self._open))
            del self._open[oldest]
            watcher.unwatch(_name(oldest))

    def _hit(self, group: str, found: _Open, paths: frozenset[str]) -> None:
        found.pending |= paths
        found.watched |= "" in paths
        if not found.following and self._tasks is not None:
            found.following = True
            self._tasks.start_soon(self._follow, group, found, name=_name(group))

    async def _follow(self, group: str, found: _Open) -> None:
        """Look at what was edited, though nobody searches: there may be something to tell of it."""
        await anyio.sleep(SETTLE_S)
        found.following = False
        if self._open.get(group) is found and found.pending:
            try:
                await self._look(group, found)
            except Exception:  # who searches next is told
                log.exception("edits in the memory of %s were not taken up", group)

    async def _look(self, group: str, found: _Open) -> None:
        async with found.lock:
            paths, found.pending = found.pending, set()
            whole = not found.watched or "" in paths
            if not whole and not paths:
                return
            try:
                wrong = await to_thread.run_sync(
                    found.memory.look, None if whole else sorted(paths), abandon_on_cancel=True, limiter=self._limiter
                )
            except BaseException:
                found.pending |= paths
                raise
        before, found.told = found.told, {each for each in found.told if not whole and not _names(each, paths)}
        found.told |= set(wrong)
        for sentence in wrong:
            log.info("memory of %s: %s", group, sentence)
            if sentence not in before and not sentence.startswith("rebuilt"):
                self._tell(f"groups/{group}: {sentence}")


def _names(sentence: str, paths: set[str]) -> bool:
    return any(path in sentence for path in paths)


def _name(group: str) -> str:
    return f"memory:{group}"


def is_passing(path: str) -> bool:
    """Whether a name is one that an editor makes and takes away, or hidden."""
    name = path.rpartition("/")[2]
    return name.startswith(".") or name.endswith(("~", "#")) or name == "4913"
