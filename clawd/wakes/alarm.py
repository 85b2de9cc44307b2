"""What sleeps until the clockwork has something to do: APScheduler with one job, in memory.

It is imported with the first instant that there is to wait for, in a thread. How far away that is, our own clock says;
so whoever sets it looks at that clock again now and then: a machine may sleep, and its clock may be set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from anyio import to_thread

from clawd.channel import imported

_JOB = "next"
_LONGEST_S = 30 * 86400.0
_NEEDED = ("apscheduler.schedulers.asyncio", "apscheduler.executors.asyncio", "apscheduler.triggers.date")


class Alarm:
    """`ring` is called in the event loop when the time has come."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._scheduler: Any = None

    async def set(self, seconds: float | None) -> None:
        """Ring in so many seconds, and not as it was set before; None: there is nothing to wait for."""
        if seconds is None:
            self.off()
            return
        if self._scheduler is None:
            await to_thread.run_sync(imported, *_NEEDED)
            from apscheduler.schedulers.asyncio import AsyncIOScheduler

            logging.getLogger("apscheduler").setLevel(logging.WARNING)
            self._scheduler = AsyncIOScheduler(timezone=UTC)
            self._scheduler.start()
        from apscheduler.triggers.date import DateTrigger

        at = datetime.now(UTC) + timedelta(seconds=min(max(seconds, 0.0), _LONGEST_S))
        self._scheduler.add_job(
            self._rings, DateTrigger(at), id=_JOB, replace_existing=True, misfire_grace_time=None, max_instances=1
        )

    def off(self) -> None:
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
            self._scheduler = None

    async def _rings(self) -> None:  # a coroutine is run in the event loop, anything else in a thread
        self._ring()
