"""The watch over one run: its turns' leases and limits, the size of work/, when it is frozen, how long it is kept."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from clawd.clock import Clock
from clawd.errors import UnsafePath
from clawd.files import free_bytes, walk_beneath
from clawd.turns import leases
from clawd.turns.leases import LiveTurn
from clawd.turns.run import Run

log = logging.getLogger(__name__)

LAST_WORD_S = 0.5  # how long a lost runner has to be heard after all
WALK_SHARE = 50  # a walk over work/ gets one part of so many of a CPU: 100,000 files take 0.5 s and more
FAR_OVER = 4  # times the files that there may be: nobody counts beyond that


class Watch:
    """Looks at a run whenever something is due or has changed. `kill` has its sandbox ended, whatever comes of it;
    `freeze` has it paused, if that is right."""

    def __init__(
        self,
        run: Run,
        clock: Clock,
        warm_seconds: Callable[[str], float],
        kill: Callable[[Run], Awaitable[None]],
        freeze: Callable[[Run], Awaitable[None]],
        wall_seconds: Callable[[str], float],
    ) -> None:
        self._run, self._clock, self._warm_seconds = run, clock, warm_seconds
        self._wall_seconds = wall_seconds
        self._kill, self._freeze = kill, freeze
        self._work_full = True  # work/ was over its limit at the last look, or nobody looked yet
        self._work_allowed: tuple[int, int] | None = None  # bytes and files over the limit that were found so
        self._next_walk = -math.inf  # not before, unless the disk has lost `_walk_room` since it had `_walk_free` bytes
        self._walk_free = self._walk_room = 0

    async def until_gone(self) -> None:
        run = self._run
        while not run.gone.is_set():
            run.watch_news = anyio.Event()
            try:
                pause = await self.look()
            except Exception:  # a defect of ours leaves the leases watched
                log.exception("group %s could not be looked at", run.group)
                pause = leases.LOOK_S
            run.resting = not run.live
            with anyio.move_on_after(pause):
                await run.watch_news.wait()
            run.resting = False

    async def look(self) -> float:
        """Do what its turns and the run itself are due. Gives seconds until the next look."""
        run, now = self._run, self._clock.monotonic()
        if run.live:
            lost = [live for live in run.live.values() if self._judge(live, now)]
            if lost:  # what they said while this daemon was kept from running is read first
                await anyio.sleep(LAST_WORD_S)
                now = self._clock.monotonic()
                lost = [live for live in run.live.values() if self._judge(live, now)]
            for live in lost:
                live.why = live.why or "its runner did not answer"
                log.warning("turn %s of group %s: %s", live.turn, run.group, live.why)
            if lost:
                await self._kill(run)
            else:
                await self.look_at_work()
            now = self._clock.monotonic()
            return min((leases.next_look(live, now) for live in run.live.values()), default=0.05)
        return await self._look_at_rest(now)

    async def _look_at_rest(self, now: float) -> float:
        run = self._run
        left = run.last_worked + self._warm_seconds(run.group) - now
        if not run.asking and (run.ending or (left <= 0 and not run.used)):
            await self._kill(run)
        elif run.due_back is not None:  # its runner lived under an earlier daemon
            if run.due_back <= now:
                log.warning("group %s: its runner did not return", run.group)
                await self._kill(run)
            return max(0.05, run.due_back - now)
        elif run.parked:
            rest = max(run.last_worked, run.parked_at) + leases.PAUSE_AFTER_S - now
            if rest > 0:
                return min(rest, left)
            await self._freeze(run)
        return left if left > 0 else leases.LOOK_S

    def _judge(self, live: LiveTurn, now: float) -> bool:
        """Do what a live turn is due, but for the last: whether its sandbox must end."""
        verdict = leases.verdict(live, now, self._wall_seconds(self._run.group))
        if verdict == "unconfirmed":
            self._run.nudge()
        elif verdict == "late":
            self._run.ask_to_stop(live, now, "it took longer than a turn may")
        return verdict in ("lost", "stuck")

    async def look_at_work(self) -> None:
        """Over the limits of work/ a turn is stopped. One that finds it so may still make it smaller: what is there
        then is allowed, and any growth beyond it is not, until it is within the limits again.

        A look that takes long is taken less often, unless the disk has lost what would fill work/.
        """
        run, limits, now = self._run, self._run.spec.limits, self._clock.monotonic()
        free = await anyio.to_thread.run_sync(_free, run.spec.work)
        if now < self._next_walk and self._walk_free - free < self._walk_room:
            return
        size, count, cost = await anyio.to_thread.run_sync(measure, run.spec.work, limits.work_files)
        self._next_walk = now + max(leases.LOOK_S - 1, cost * WALK_SHARE)
        self._walk_free, self._walk_room = free, max(limits.work_bytes - size, limits.work_bytes // 10)
        if size <= limits.work_bytes and count <= limits.work_files:
            self._work_full, self._work_allowed = False, None
            return
        if self._work_full and self._work_allowed is None:
            self._work_allowed = size, count
        self._work_full = True
        if self._work_allowed is not None and size <= self._work_allowed[0] and count <= self._work_allowed[1]:
            return
        allowed = f"{limits.work_bytes >> 20} MB, {limits.work_files} files"
        why = f"the group's work/ is over its limit ({allowed}); remove something from it"
        for live in run.live.values():
            if live.stopping is None:
                run.ask_to_stop(live, self._clock.monotonic(), why)


def _free(work: Path) -> int:
    try:
        return free_bytes(work)
    except OSError:  # somebody took it away
        return 0


def measure(work: Path, most_files: int) -> tuple[int, int, float]:
    """Bytes on the disk and number of files beneath `work`, and the CPU seconds that the walk took. It ends where there
    are many more files than there may be, so that what it costs is bounded."""
    size = count = 0
    began = time.thread_time()
    try:
        for _, status in walk_beneath(work):
            size, count = size + status.st_blocks * 512, count + 1
            if count > FAR_OVER * most_files:
                break
    except (UnsafePath, OSError):  # it cannot be counted: nested too deep, say
        count = most_files + 1
    return size, count, time.thread_time() - began
