"""The end of what nobody answers, in the ledger: one timer, to the next of them. The ledger knows when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

import anyio

from clawd.clock import Clock
from clawd.ledger.db import Ledger, Transaction

T = TypeVar("T")


class Deadlines(Generic[T]):
    """`expire` ends what is over at a moment, and gives what there is to tell, and when the next one is over. `tell` is
    told each of these once that is durable."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        expire: Callable[[Transaction, datetime], tuple[list[T], datetime | None]],
        tell: Callable[[T], None],
    ) -> None:
        self._ledger, self._clock, self._expire, self._tell = ledger, clock, expire, tell
        self._news = anyio.Event()

    def look_again(self) -> None:
        """There is something new that may end."""
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._news = anyio.Event()
            now = self._clock.now()
            ended, following = await self._end(now)
            for each in ended:
                self._tell(each)
            with anyio.move_on_after((following - now).total_seconds() if following else None):
                await self._news.wait()

    async def _end(self, now: datetime) -> tuple[list[T], datetime | None]:
        return await self._ledger.insist(lambda tx: self._expire(tx, now))
