"""What the ledger says is alive and what is: runs of an earlier daemon are gone on with, what nobody holds is ended.

A turn is given back only when its sandbox is known dead. Where nobody can say whether one lives, its group has no
other: two sandboxes never share a `work/` unknowingly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import anyio

from clawd.clock import Clock, rfc3339
from clawd.errors import ClawdError, SandboxUnavailable, StorageError
from clawd.ledger import ends, runs, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.turns.run import Run
from clawd.turns.runs import Runs, left_over

log = logging.getLogger(__name__)

RECONCILE_S = 60.0
START_S = 5.0  # how long a start waits for the first look: one that hangs must not keep the daemon from its people
NOT_YET = "what is left of the sandbox that it had is still being looked at"
UNDYING = "A sandbox does not end; the turns that it had wait for that. clawd sandbox list and ps may help."


class Reconciler:
    """`active` holds this daemon's runs; `take` has it go on with one more, `hold` has a group wait, `ended` hears of
    turns that were given back. `runs` is set by whoever builds both."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        tasks: Tasks,
        *,
        active: Mapping[str, Run],
        take: Callable[[Run], None],
        hold: Callable[[str, str], None],
        ended: Callable[[ends.Ended, Address, str], None],
    ) -> None:
        self._ledger, self._clock, self._signals, self._tasks = ledger, clock, signals, tasks
        self._active, self._take, self._hold, self._ended = active, take, hold, ended
        self.runs: Runs
        self.ours: set[str] = set()  # runs that no sweep may end: a backend may look here at any moment
        self.closed = False  # the daemon ends: what lives is the next one's
        self.unknown: dict[str, str] = {}  # group → why nobody can say whether a sandbox of it lives
        self._inherited: set[str] = set()  # runs of an earlier daemon that may be gone on with
        self._looking = anyio.Lock()
        self._watching = False

    async def begin(self, known: Callable[[], None]) -> None:
        """At the start: every run that the ledger has not seen end is gone on with, or ended. Where that takes long the
        groups of those runs wait for it, and nobody else; then `known` is called."""
        await self.runs.disown()
        rows = await self._ledger.do(runs.alive)
        self._inherited = {row["id"] for row in rows}
        self.ours |= self._inherited
        self.unknown = {row["grp"]: NOT_YET for row in rows}
        looked = anyio.Event()

        async def look() -> None:
            await self.look()
            looked.set()
            known()

        self._tasks.start_soon(look, name="first look")
        with anyio.move_on_after(START_S):
            await looked.wait()

    def watch(self) -> None:
        """Look by and by, as long as there is anything to look at."""
        if not self._watching:
            self._watching = True
            self._tasks.start_soon(self._watch, name="reconcile")

    async def _watch(self) -> None:
        try:
            while True:
                await anyio.sleep(RECONCILE_S)
                idle = not self._active  # what ends while it is looked is looked at once more
                if await self.look():
                    self._signals.emit(News("trouble", data={"what": UNDYING}))
                elif idle and not self._active and not self.unknown:
                    return
        finally:
            self._watching = False

    async def look(self) -> bool:
        """Once. True when something that should be dead does not end, or could not be looked at."""
        async with self._looking:
            try:
                undying = await self._look()
            except Exception:  # whatever it is: those turns wait, and that is said
                log.exception("what earlier runs left could not be looked at")
                undying = ["?"]
        if undying:
            log.error("sandboxes do not end: %s", ", ".join(undying))
        if undying or self.unknown or self._active:
            self.watch()
        for group, why in self.unknown.items():
            self._hold(group, why)
        return bool(undying)

    async def _look(self) -> list[str]:
        unknown: dict[str, str] = {}
        before = dict(self.unknown)
        away: dict[str, str] = {}  # backend → why it cannot say what is alive
        over: list[Row] = []
        for row in reversed(await self._ledger.do(runs.alive)):  # the newest of a group is the one to go on with
            held = self._active.get(row["grp"])
            if held is not None and held.id == row["id"]:
                continue
            if held is None and row["id"] in self._inherited:
                try:
                    if row["backend"] not in away and await self._adopted(row):
                        continue
                except (SandboxUnavailable, StorageError) as error:
                    away[row["backend"]] = str(error)
                if row["backend"] in away:  # all of its runs: asked about each, one that hangs would take minutes
                    unknown[row["grp"]] = away[row["backend"]]
                    self.ours.add(row["id"])
                    continue
            self.ours.discard(row["id"])
            self._inherited.discard(row["id"])
            over.append(row)
        undying: list[Row] = []
        try:
            dead = await self.runs.backend.sweep([left_over(row) for row in over], self.ours)
            for row in over:
                if row["id"] in dead:
                    await self.runs.buried(row)
            undying = [row for row in over if row["id"] not in dead]
            for row in undying:  # who does not answer at all did not say that it lives
                await self.runs.check(row["grp"])
        except (SandboxUnavailable, StorageError) as error:
            log.warning("what is left of sandboxes cannot be looked at: %s", error)
            unknown |= {row["grp"]: str(error) for row in undying or over if row["grp"] not in self._active}
        await self._give_back()
        # A run that ended in doubt meanwhile was not looked at.
        self.unknown = unknown | {group: why for group, why in self.unknown.items() if before.get(group) != why}
        return [row["id"] for row in undying]

    async def _adopted(self, row: Row) -> bool:
        self.ours.add(row["id"])
        try:
            run = await self.runs.adopt(row)
        except (SandboxUnavailable, StorageError):
            raise
        except (ClawdError, OSError) as error:
            log.warning("run %s of group %s is not gone on with: %s", row["id"], row["grp"], error)
            return False
        if run is None:
            return False
        if self.closed:  # taken now, it would be ended with what cannot be left
            return True
        log.info("run %s of group %s goes on", run.id, run.group)
        self._inherited.discard(run.id)  # one that was to end and did not is not gone on with again
        self._take(run)
        return True

    async def _give_back(self) -> None:
        """Turns whose run is known dead: a crash, or a defect, came between the end of the run and theirs."""

        def give_back(tx: Transaction) -> list[tuple[Row, ends.Ended]]:
            lost = [row for row in turns.orphaned(tx) if row["run"] not in self.ours]
            return [(row, ends.requeue(tx, row["id"], rfc3339(self._clock.now()))) for row in lost]

        for row, ended in await self._ledger.insist(give_back):
            self._ended(ended, Address.of(row), row["grp"])
