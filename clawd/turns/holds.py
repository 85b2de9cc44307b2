"""Groups that can have no sandbox just now: their turns wait, are told why once, and are tried again by and by.

Once nothing stands in the way any more the group gets its sandbox; its turns wait no longer when that is ready: what
fails at the start is a hold that never ended.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from clawd.channel import NOTICE
from clawd.clock import Clock, rfc3339
from clawd.ledger import ends, runs, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.signals import News, Signals
from clawd.tasks import Tasks

log = logging.getLogger(__name__)

LONGEST_HOLD_S = 60.0


class Holds:
    """`able` raises as long as a group must wait; `wake` has it go on; `ready` tells whether it has a sandbox,
    `unknown` whether it has a run of which nobody can say whether it lives."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        tasks: Tasks,
        *,
        deliver: Callable[[Address], None],
        able: Callable[[str], Awaitable[object]],
        wake: Callable[[str], None],
        ready: Callable[[str], bool],
        unknown: Callable[[str], bool],
    ) -> None:
        self._ledger, self._clock, self._signals, self._tasks = ledger, clock, signals, tasks
        self._deliver, self._able, self._wake, self._ready, self._unknown = deliver, able, wake, ready, unknown
        self.reasons: dict[str, str] = {}
        self._resuming: set[str] = set()  # groups whose turns are released when their sandbox is ready

    def hold(self, group: str, trouble: object, pause: float = 1.0) -> None:
        """The group's turns wait; in `pause` seconds it is looked whether they still must."""
        fresh = group not in self.reasons
        self.reasons[group] = str(trouble)
        self.tell(group)
        if fresh:
            log.error("group %s is held: %s", group, trouble)
            self._tasks.start_soon(self._try_again, group, pause)

    def tell(self, group: str) -> None:
        """A turn of a held group has come: it waits too."""
        self._tasks.start_soon(self._hold_turns, group)

    async def resume(self, group: str) -> None:
        """Nothing stands in the group's way any more: its turns go on as soon as it has a sandbox."""
        held, waiting = await self._ledger.insist(lambda tx: (ends.groups_held(tx), turns.waiting_groups(tx)))
        if group in held:
            self._resuming.add(group)
        if group in held or group in waiting:
            self._wake(group)
        if self._ready(group):
            self.release(group)

    def release(self, group: str) -> None:
        """The group has its sandbox."""
        if group in self._resuming:
            self._resuming.discard(group)
            self._tasks.start_soon(self._release, group)

    async def _release(self, group: str) -> None:
        await self._ledger.insist(lambda tx: ends.release(tx, group))
        self._wake(group)

    async def _try_again(self, group: str, pause: float) -> None:
        while True:
            await anyio.sleep(min(pause, LONGEST_HOLD_S))
            try:
                await self._able(group)
                break
            except Exception as error:
                self.reasons[group] = str(error)
                pause *= 2
        del self.reasons[group]
        log.info("group %s is held no longer", group)
        await self.resume(group)

    async def _hold_turns(self, group: str) -> None:
        if (reason := self.reasons.get(group)) is None:
            return  # who let go of them looked after this was asked
        unknown = self._unknown(group)

        def hold(tx: Transaction) -> list[tuple[Row, list[int]]]:
            now = rfc3339(self._clock.now())
            told = runs.tell_unknown(tx, group, reason, now, limits=NOTICE) if unknown else []
            held = ends.hold(tx, group, reason, now, limits=NOTICE)
            return told + [(row, ended.deliveries) for row, ended in held]

        for row, made in await self._ledger.insist(hold):
            if made:
                self._deliver(Address.of(row))
            if row["state"] == "queued":
                data = {"turn": row["id"], "state": "held", "reason": reason}
                self._signals.emit(News("turn", group, row["session"], data))
        self._signals.emit(News("held", group=group, data={"reason": reason}))
        if group not in self.reasons:  # the disk was full, say, and it took so long
            await self.resume(group)
