"""The end of questions that nobody answers: one timer, to the next of them. The ledger knows when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio

from clawd.clock import Clock
from clawd.ledger import questions
from clawd.ledger.db import Ledger


class Questions:
    """`wake` is told the group of a question that is over: its turn waits."""

    def __init__(self, ledger: Ledger, clock: Clock, wake: Callable[[str], None]) -> None:
        self._ledger, self._clock, self._wake = ledger, clock, wake
        self._news = anyio.Event()

    def look_again(self) -> None:
        """A question was asked."""
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._news = anyio.Event()
            now = self._clock.now()
            groups, following = await self._ledger.insist(partial(questions.expire, now=now))
            for group in groups:
                self._wake(group)
            with anyio.move_on_after((following - now).total_seconds() if following else None):
                await self._news.wait()
