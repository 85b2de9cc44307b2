"""Upkeep: what grows is cut back, once after the start and then once a day, in slices that nobody waits for; and
whether the disk has room for a turn.

Whatever one part of it meets, the others are done, and the next day brings it again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import anyio

from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.config.schema import Retention
from clawd.errors import StorageError
from clawd.files import Blobs
from clawd.ledger import forget, held, runs
from clawd.ledger.db import Ledger
from clawd.ledger.forget import Terms
from clawd.log import drop_old
from clawd.skills.shelf import Shelf

log = logging.getLogger(__name__)

PERIOD_S = 86400.0
MONEY_DAYS = 400  # that what was paid is known: a year and a month
BLOB_GRACE_S = 86400.0  # a copy that was just kept is not collected before its row can be there
_SHARE = 10  # of a small disk so much is kept free


class Upkeep:
    """`retention` gives the config as it is now, `tell` has the owner told."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        retention: Callable[[], Retention],
        tell: Callable[[str], None] = lambda text: None,
        shelf: Shelf | None = None,
    ) -> None:
        self._home, self._ledger, self._clock, self._retention, self._tell = home, ledger, clock, retention, tell
        self._shelf = shelf
        self._tight = False  # the disk had no room when it was last asked for

    async def run(self) -> None:
        """For ever: now, and every day."""
        while True:
            await self.once()
            await anyio.sleep(PERIOD_S)

    async def once(self) -> None:
        """Cut everything back."""
        before = self._clock.monotonic()
        steps: tuple[Callable[[], Awaitable[object]], ...] = (
            self._forget,
            self._collect,
            self._clear_shelf,
            self._shrink,
            self._drop_logs,
        )
        for step in steps:
            try:
                await step()
            except Exception:
                log.exception("upkeep: %s", step.__name__)
        log.info("upkeep took %.1f s", self._clock.monotonic() - before)

    async def _forget(self) -> None:
        self._ledger.check_room()  # what is left of a full disk is for what was accepted
        now, retention = self._clock.now(), self._retention()
        text, keys = timedelta(days=retention.text_days), timedelta(days=max(retention.key_days, retention.text_days))
        terms = Terms(now - text, now - keys, now - timedelta(days=MONEY_DAYS))
        await self._ledger.do(lambda tx: held.expire_lines(tx, rfc3339(now)))
        for look in forget.EVERY:
            after: int | None = 0
            while after is not None:
                after = await self._ledger.do(lambda tx, look=look, after=after: look(tx, terms, after))  # type: ignore[misc]

    async def _collect(self) -> None:
        before = self._clock.now().timestamp() - BLOB_GRACE_S
        # Asked before they are looked at: what came since is younger than the grace.
        wanted = await self._ledger.do(forget.blobs)
        await anyio.to_thread.run_sync(Blobs(self._home.blobs).collect, wanted, before)

    async def _clear_shelf(self) -> None:
        if (shelf := self._shelf) is not None:
            living = await self._ledger.do(lambda tx: {row["id"] for row in runs.alive(tx)})
            await anyio.to_thread.run_sync(shelf.collect, living)

    async def _shrink(self) -> None:
        self._ledger.check_room()
        while await self._ledger.do(forget.shrink):
            pass
        await anyio.to_thread.run_sync(self._ledger.checkpoint)

    async def _drop_logs(self) -> None:
        now = self._clock.now().timestamp()
        await anyio.to_thread.run_sync(drop_old, self._home.log_file, self._retention().log_days, now)

    def check_room(self) -> None:
        """Raises StorageError while the disk has less room than a turn may need; the owner is told when that begins."""
        for directory in (self._home.state, self._home.groups):
            if is_tight(directory, self._retention().keep_free):
                if not self._tight:
                    self._tell(f"The disk that holds {directory} is nearly full: no turn begins before some is free.")
                self._tight = True
                raise StorageError("the disk is nearly full")
        self._tight = False


def is_tight(directory: Path, keep_free: int) -> bool:
    """Whether its disk has less room than is to be kept free: so many bytes, or a tenth of a small one. One that cannot
    be asked, because somebody removed the directory, is not: that is mended, or told, where it is used."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < min(keep_free, disk.f_blocks * disk.f_frsize // _SHARE)
