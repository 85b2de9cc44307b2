"""Groups whose budget is spent: their turns wait, are told why once, and go on when the call that was refused would be
let through: at the next day or month, when a limit is raised or edited, or when calls under way took less than was
reserved. The owner is asked once whether they raise it; nothing of the group is started only to be refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from clawd.channel import NOTICE
from clawd.clock import Clock, rfc3339
from clawd.config.group import Effective
from clawd.errors import ClawdError
from clawd.ledger import ends, turns
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import Address
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.usage.books import Books
from clawd.usage.budgets import BudgetSpent

log = logging.getLogger(__name__)

_AGAIN_S = 60.0  # at the latest: the clock may be set, the machine may sleep, a config may be broken when it is time


@dataclass(frozen=True, slots=True)
class _Held:
    """What was refused, the config at that time, and the group's day."""

    spent: BudgetSpent
    settings: Effective
    day: str


class Spending:
    """`wake` has a group go on; `ask`, set by whoever can, asks the owner once whether to raise what is spent. One
    timer, while anything is held."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        tasks: Tasks,
        books: Books,
        *,
        deliver: Callable[[Address], None],
        wake: Callable[[str], None],
    ) -> None:
        self._ledger, self._clock, self._signals, self._tasks = ledger, clock, signals, tasks
        self.books, self._deliver, self._wake = books, deliver, wake
        self.ask: Callable[[str, BudgetSpent], None] = lambda group, spent: None
        self._held: dict[str, _Held] = {}
        self._news = anyio.Event()
        self._waiting = False
        self._looking = anyio.Lock()
        books.freed = self.look

    def knows(self, group: str) -> bool:
        """Whether turns of the group may have to wait."""
        return group in self._held

    def hold(self, group: str, spent: BudgetSpent) -> None:
        """A turn of the group was held because of this. Of several the smallest call decides when they go on."""
        known = self._held.get(group)
        if known is None or _size(known.spent) >= _size(spent):
            log.warning("group %s is held: %s", group, spent.message)
            self._keep(group, spent)
        self._tasks.start_soon(self._held_just_now, group)
        self.ask(group, spent)

    async def _held_just_now(self, group: str) -> None:
        await self._look()  # what stood in its way may have ended before it did
        await self.stops(group)

    async def recover(self, group: str) -> bool:
        """After a restart, of a group that has held turns: whether its budget still holds them."""
        if (spent := await self._stopped(group)) is not None:
            self._keep(group, spent)
            self.ask(group, spent)
        return spent is not None

    async def stops(self, group: str) -> bool:
        """Whether no model of the group can be called now; then its turns that wait are held. Those that chose a model
        for themselves are not."""
        if group not in self._held or (spent := await self._stopped(group)) is None:
            return False
        reason, now = str(spent), rfc3339(self._clock.now())
        for row, ended in await self._ledger.insist(
            lambda tx: ends.hold(tx, group, reason, now, limits=NOTICE, plain=True)
        ):
            if ended.deliveries:
                self._deliver(Address.of(row))
            data = {"turn": row["id"], "state": "held", "reason": reason}
            self._signals.emit(News("turn", group, row["session"], data))
        return True

    async def _stopped(self, group: str) -> BudgetSpent | None:
        try:
            return await self.books.stops(group)
        except ClawdError:  # its config is broken, or the disk is full: its next turn tells
            return None

    async def bars(self, group: str) -> bool:
        """Whether a sandbox would only be made to hear that no model can be called."""
        return await self.stops(group) and not await self._ledger.insist(
            lambda tx: turns.next_claimable(tx, group) is not None
        )

    def look(self) -> None:
        """What is reserved or limited may have changed: is there a group that can go on?"""
        if self._held:
            self._tasks.start_soon(self._look)

    def tick(self) -> None:
        """The same, where only a clock that was set or an edit of the config may have changed it."""
        if any(self._is_other(group, held) for group, held in self._held.items()):
            self.look()

    def _keep(self, group: str, spent: BudgetSpent) -> None:
        self._held[group] = _Held(spent, self.books.settings(group), self.books.period(group).day)
        self._news.set()
        if not self._waiting:
            self._waiting = True
            self._tasks.start_soon(self._wait, name="budgets")

    def _is_other(self, group: str, held: _Held) -> bool:
        try:
            return self.books.settings(group) is not held.settings or self.books.period(group).day != held.day
        except ClawdError:
            return False

    async def _wait(self) -> None:
        """Until the next of them opens, again and again."""
        while self._held:
            self._news = anyio.Event()
            left = (min(held.spent.opens for held in self._held.values()) - self._clock.now()).total_seconds()
            with anyio.move_on_after(min(left, _AGAIN_S) if left > 0 else _AGAIN_S):
                await self._news.wait()
            self.tick()
        self._waiting = False

    async def _look(self) -> None:
        async with self._looking:
            for group, held in list(self._held.items()):
                try:
                    spent = await self.books.refusal(held.spent.call)
                except ClawdError as error:
                    log.warning("the budget of group %s cannot be looked at: %s", group, error)
                    continue
                if spent is not None:
                    self._keep(group, spent)
                    continue
                del self._held[group]
                self._news.set()
                log.info("group %s is held no longer", group)
                await self._ledger.insist(lambda tx, group=group: ends.release(tx, group))  # type: ignore[misc]
                self._wake(group)


def _size(spent: BudgetSpent) -> int:
    return spent.call.input + spent.call.output
