"""What sleeps until the clockwork has something to do: APScheduler with one job, in memory.

It is imported with the first instant that there is to wait for, in a thread. How far away that is, our own clock says:
whoever sets it does so again now and then, for a machine may sleep, and its clock may be set. Its own timers would not
tell: after the clock was set back by hours an interval of it waits for hours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from anyio import to_thread

from clawd.channel import imported
from clawd.clock import Clock

_JOB = "next"
_LONGEST_S = 30 * 86400.0
_DRIFT_S = 1.0
_NEEDED = ("apscheduler.schedulers.asyncio", "apscheduler.executors.asyncio", "apscheduler.triggers.date")


class Alarm:
    """`ring` is called in the event loop when the time has come."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock, self._ring = clock, ring
        self._scheduler: Any = None
        self._set: tuple[datetime, float] | None = None

    async def set(self, at: datetime | None) -> None:
        """Ring then, and not as it was set before; None: there is nothing to wait for. The same again changes nothing,
        unless the clock was set."""
        if at is None:
            self.off()
            return
        seconds = (at - self._clock.now()).total_seconds()
        ends = self._clock.monotonic() + seconds
        if self._set is not None and self._set[0] == at and abs(self._set[1] - ends) <= _DRIFT_S:
            return
        self._set = (at, ends)
        if self._scheduler is None:
            await to_thread.run_sync(imported, *_NEEDED)
            from apscheduler.schedulers.asyncio import AsyncIOScheduler

            logging.getLogger("apscheduler").setLevel(logging.WARNING)
            self._scheduler = AsyncIOScheduler(timezone=UTC)
            self._scheduler.start()
        from apscheduler.triggers.date import DateTrigger

        when = datetime.now(UTC) + timedelta(seconds=min(max(seconds, 0.0), _LONGEST_S))
        self._scheduler.add_job(
            self._rings, DateTrigger(when), id=_JOB, replace_existing=True, misfire_grace_time=None, max_instances=1
        )

    def off(self) -> None:
        self._set = None
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
            self._scheduler = None

    async def _rings(self) -> None:  # a coroutine is run in the event loop, anything else in a thread
        self._ring()
