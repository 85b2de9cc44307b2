"""The dispatcher: groups get sandboxes fairly, and what a run leaves behind goes on.

What is in memory here (who has a place, live turns) can be lost at any moment: `recover` brings it back.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from clawd.channel import ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.errors import ClawdError, SandboxUnavailable
from clawd.ledger import ends, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.locks import KeyedLocks
from clawd.sandbox.protocol import Exit
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.turns.holds import Holds
from clawd.turns.reconcile import Reconciler
from clawd.turns.record import Recorder
from clawd.turns.run import Run
from clawd.turns.runs import Runs
from clawd.turns.slots import TURNS_A_TERM, Place, decide
from clawd.turns.spending import Spending
from clawd.turns.watch import Watch
from clawd.usage.books import Books

log = logging.getLogger(__name__)

# Runs of a group that end one after another without having handed out a turn: then its turns are held.
BARREN_LIVES = 3
END_S = 5.0  # at the end: how long all sandboxes together may take to die
THAW_S = 2.0  # of that: for an Engine that hangs, before it is ended without its help
GONE_S = 1.0  # one that cannot be unpaused may have ended: how long that may take to be known


class Dispatcher:
    """Places and lives of runs. `reconciler.runs` is set by whoever builds both: a run's socket needs the counter."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        recorder: Recorder,
        tasks: Tasks,
        deliver: Callable[[Address], None],
        limits: Callable[[str], ChannelLimits],
        max_live: Callable[[], int],
        warm_seconds: Callable[[str], float],
        books: Books,
        wall_seconds: Callable[[str], float],
    ) -> None:
        self._ledger, self._clock, self._signals = ledger, clock, signals
        self._recorder, self._tasks = recorder, tasks
        self.deliver, self._limits = deliver, limits
        self._max_live, self._warm_seconds, self._wall_seconds = max_live, warm_seconds, wall_seconds
        self.active: dict[str, Run] = {}
        self._wanting: dict[str, None] = {}  # groups that have no run, or one that ends, in their order
        self._barred: set[str] = set()  # groups that must not have one just now
        self._barring = KeyedLocks()
        self._barren: dict[str, int] = {}  # lives of a group's runs, one after another, that handed out nothing
        self.closing = False
        self.reconciler = Reconciler(
            ledger, clock, signals, tasks, active=self.active, take=self._take, hold=self._hold, ended=self.ended
        )
        self.holds = Holds(
            ledger,
            clock,
            signals,
            tasks,
            deliver=deliver,
            able=self._able,
            wake=self.wake,
            ready=lambda group: (run := self.active.get(group)) is not None and run.ready.is_set(),
            unknown=lambda group: group in self.reconciler.unknown,
        )
        self.spending = Spending(ledger, clock, signals, tasks, books, deliver=deliver, wake=self.wake)

    @property
    def runs(self) -> Runs:
        return self.reconciler.runs

    # ── what the rooms above and beside it ask ──

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    async def recover(self) -> None:
        """After a restart: sandboxes that are left go on with their turns, or are ended and their turns start again;
        what ended is recorded."""
        await self.reconciler.begin(self._decide)
        for group in await self._ledger.do(ends.groups_held):
            if group not in self.holds.reasons and not await self.spending.recover(group):
                await self.holds.resume(group)
        for turn in await self._ledger.do(turns.to_record):
            self._recorder.soon(turn, redo=True)
        for group in await self._ledger.insist(turns.waiting_groups):
            self.wake(group)

    def wake(self, group: str) -> None:
        """A turn of this group may be claimable."""
        run = self.active.get(group)
        if run is not None:
            run.woken += 1
        if run is not None and not run.ending:
            run.wanted = True
            run.nudge()
        elif group in self.holds.reasons:
            self.holds.tell(group)
        elif self.spending.knows(group):
            self._tasks.start_soon(self._want_unless_spent, group)
        else:
            self._want(group)

    def _want(self, group: str) -> None:
        self._wanting[group] = None
        self._decide()

    async def _want_unless_spent(self, group: str) -> None:
        if not await self.spending.bars(group):
            self._want(group)

    async def ensure(self, group: str) -> Run:
        """The group's run, ready, started if there is none. Raises SandboxUnavailable."""
        while not self.closing:
            run = self.active.get(group)
            if run is not None and run.ending:
                await run.gone.wait()
            elif run is not None:
                await run.ready.wait()
                if run.gone.is_set():
                    raise SandboxUnavailable(f"the sandbox of group {group} did not start")
                return run
            elif group in self.holds.reasons:
                raise SandboxUnavailable(self.holds.reasons[group])
            else:
                with self._signals.subscribe() as news:
                    self._want(group)
                    if group not in self.active:
                        async for each in news:
                            if each.kind in ("run", "held") and each.group == group:
                                break
        raise SandboxUnavailable("clawd is ending")

    async def end_run(self, group: str, why: str | None = None) -> bool:
        """End the group's sandbox now; its turns are queued again, and bear the fault if there is a `why`. False when
        it has none. Raises SandboxUnavailable when it does not end."""
        run = self.active.get(group)
        if run is None:
            if group in self.reconciler.unknown:
                raise SandboxUnavailable(self.reconciler.unknown[group])
            return False
        for live in run.live.values():
            live.why = live.why or why
        await self._kill(run)
        await run.gone.wait()
        if not run.dead:
            raise SandboxUnavailable(f"the sandbox of group {group} does not end")
        return True

    @asynccontextmanager
    async def without_run(self, group: str) -> AsyncIterator[None]:
        """While this is open the group has no sandbox. Raises SandboxUnavailable when the one that it has does not
        end."""
        async with self._barring.hold(group):
            self._barred.add(group)
            try:
                await self.end_run(group)
                yield
            finally:
                self._barred.discard(group)
                self._decide()

    def stop_live(self, turn: int) -> None:
        """A stop was committed for this turn: say so to its runner."""
        for run in self.active.values():
            if (live := run.live.get(turn)) is not None:
                run.ask_to_stop(live, self._clock.monotonic(), None)

    def run_of(self, id: str) -> Run | None:
        return next((run for run in self.active.values() if run.id == id), None)

    def reconsider(self) -> None:
        """A run has become idle: a group that waits may take its place."""
        if self._wanting:
            self._decide()

    def must_rest(self, run: Run) -> bool:
        """Whether a run hands out nothing more, because its term is over and another group waits, because somebody has
        put another `work/` in the place of its own or edited what it was made from, or because the disk has no room for
        a turn."""
        if not run.ending and (self.runs.outlived(run) or not self.runs.has_room()):
            run.ending = True
        elif self._wanting and run.handed_out >= TURNS_A_TERM and not run.ending:
            self._decide()
        return run.ending

    async def awake(self, run: Run) -> bool:
        """Have a run's sandbox go on before it is given anything. False when it does not: then its group waits."""
        try:
            await self.runs.thaw(run)
        except SandboxUnavailable as error:
            with anyio.move_on_after(GONE_S):
                await run.gone.wait()
            if not run.gone.is_set():
                self._hold(run.group, error)
            return False
        if not run.ending and not await self.runs.fits(run):  # the next turn must be shown other directories
            run.ending = True
        return not run.ending

    async def close(self, grace: float, *, keep: bool = False) -> None:
        """Hand out nothing more, let live turns end for `grace` seconds, then end every sandbox, or leave those that
        the next daemon can go on with, with the turns that they have."""
        self.closing = self.reconciler.closed = True
        with anyio.move_on_after(grace):
            while any(run.busy for run in self.active.values()):
                await anyio.sleep(0.02)
        with anyio.move_on_after(END_S):
            async with anyio.create_task_group() as endings:
                for run in self.active.values():
                    endings.start_soon(self._leave if keep and run.stays else self._kill, run)
            while self.active:
                await anyio.sleep(0.01)

    def sandboxes(self) -> list[dict[str, Any]]:
        """Every living sandbox under the contract's names."""
        return [run.listed() for run in self.active.values()]

    # ── places ──

    def _decide(self) -> None:
        if self.closing:
            return
        places = [
            Place(
                group,
                live=len(run.live) + run.asking + run.wanted + run.exec_count,
                handed_out=run.handed_out,
                last_worked=run.last_worked,
                ending=run.ending,
            )
            for group, run in self.active.items()
        ]
        barred = self._barred | self.reconciler.unknown.keys()
        decision = decide([group for group in self._wanting if group not in barred], places, self._max_live())
        for group in decision.start:
            self._take(self.runs.new(group))
        for group in decision.end:
            self.active[group].ending = True
            self._tasks.start_soon(self._kill, self.active[group])
        for group in decision.drain:
            self.active[group].ending = True
            self.active[group].look_again()

    def _take(self, run: Run) -> None:
        """A run begins here, or goes on."""
        self.active[run.group] = run
        self._wanting.pop(run.group, None)
        self.reconciler.ours.add(run.id)
        self.reconciler.watch()
        self._tasks.start_soon(self._life, run, name=f"run {run.group}")

    async def _leave(self, run: Run) -> None:
        """It goes on without this daemon; unpaused, so that its runner ends it when no other one comes."""
        run.left = True
        try:
            await self.runs.thaw(run)
        except ClawdError as error:
            log.warning("run %s of group %s is left as it is: %s", run.id, run.group, error)
        run.given_up.set()

    async def _kill(self, run: Run) -> None:
        """Have it ended; one that is just being made ends when it is there."""
        run.ending = True
        if run.sandbox is None:
            return
        run.killed = True
        with anyio.move_on_after(THAW_S), suppress(ClawdError):  # it is ended all the same
            await self.runs.thaw(run)
        try:
            await run.sandbox.kill()
        except (SandboxUnavailable, OSError) as error:
            run.killed = False
            log.error("run %s of group %s: %s", run.id, run.group, error)
            run.given_up.set()

    async def _life(self, run: Run) -> None:
        exit: Exit | None = None
        trouble: Exception | None = None
        self._signals.emit(News("run", group=run.group, data={"run": run.id, "state": "starting"}))
        try:
            exit = await self.runs.live(run, self._on_ready)
        except Exception as error:  # one group's trouble alone, whatever it is
            if not isinstance(error, ClawdError | OSError):
                log.exception("the run of group %s failed", run.group)
            trouble = error
        outside = exit is not None and exit.outside
        if exit is not None and not run.ending and not run.left:
            try:  # what took its Engine away took it too
                await self.runs.check(run.group)
            except Exception as error:
                outside, trouble = True, error
        with anyio.CancelScope(shield=True):
            await self._bury(run, f"its sandbox ended ({exit.reason if exit else trouble})", outside)
            if not run.dead and not run.left:
                self.reconciler.unknown[run.group] = str(trouble)
        fruitless = not run.ending and not run.handed_out and not outside
        barren = self._barren[run.group] = self._barren.get(run.group, 0) + 1 if fruitless else 0
        if trouble is None and barren >= BARREN_LIVES and exit is not None:
            trouble = SandboxUnavailable(f"its sandbox ends at once, again and again: it {exit.reason}")
        await self._after(run.group, trouble)

    async def _bury(self, run: Run, why: str, outside: bool) -> None:
        """The run is over. Its turns are given back only if it is known dead: they are never started twice."""
        try:
            if run.dead:
                await self._give_back(run, None if run.ending else why, outside)
            elif not run.left:
                log.error("the sandbox of group %s (run %s) does not end; its turns wait for that", run.group, run.id)
        except Exception:
            log.exception("the turns of run %s were not given back", run.id)
        del self.active[run.group]
        self.reconciler.ours.discard(run.id)
        run.gone.set()
        run.ready.set()
        run.look_again()

    def _on_ready(self, run: Run) -> None:
        run.last_worked = self._clock.monotonic()
        watch = Watch(run, self._clock, self._warm_seconds, self._kill, self.runs.freeze, self._wall_seconds)
        self._tasks.start_soon(watch.until_gone, name=f"watch {run.group}")
        self._signals.emit(News("run", group=run.group, data={"run": run.id, "state": "ready"}))
        self.holds.release(run.group)

    async def _after(self, group: str, trouble: Exception | None) -> None:
        """A run is over: the group is looked at again."""
        self._signals.emit(News("run", group=group, data={"state": "gone"}))
        if self.closing:
            return
        if trouble is not None:
            self._hold(group, trouble)
        else:  # its turns may be held until it has a sandbox: this one was not it
            await self.holds.resume(group)
        self._decide()

    async def _give_back(self, run: Run, why: str | None, outside: bool) -> None:
        """The run is known dead: its turns are queued again, and those that are to blame bear the fault. What ended
        by something `outside` has no fault."""
        blamed = {} if outside else {live.turn: live.why for live in run.live.values() if live.why}
        why = None if outside else why

        def give_back(tx: Transaction) -> list[tuple[Row, ends.Ended]]:
            given = []
            for row in turns.claimed_by(tx, run.id):
                if (blame := blamed.get(row["id"], why)) is None:
                    ended = ends.requeue(tx, row["id"], self._now())
                else:
                    limits = self._limits(row["channel"])
                    ended = ends.fault(tx, row["id"], blame, self._now(), limits=limits)
                given.append((row, ended))
            return given

        given = await self._ledger.insist(give_back)
        run.live.clear()
        for row, ended in given:
            self.ended(ended, Address.of(row), row["grp"])

    # ── groups that can have none ──

    def _hold(self, group: str, trouble: object) -> None:
        self._wanting.pop(group, None)
        self.holds.hold(group, trouble, 2.0 ** (min(self._barren.get(group, 1), 7) - 1))

    async def _able(self, group: str) -> None:
        """Raises SandboxUnavailable as long as the group must wait."""
        if group in self.reconciler.unknown:
            await self.reconciler.look()
        if (run := self.active.get(group)) is not None:
            await self.runs.thaw(run)
        elif group in self.reconciler.unknown:
            raise SandboxUnavailable(self.reconciler.unknown[group])
        else:
            await self.runs.check(group)

    def ended(self, ended: ends.Ended, to: Address, group: str) -> None:
        """Both projections start: the record, and the delivery."""
        if ended.deliveries:
            self.deliver(to)
        self.tell(group, ended.session, ended.turn, ended.state)
        if ended.state == "queued":
            self.wake(group)
        elif ended.state != "held":
            self._recorder.soon(ended.turn)

    def tell(self, group: str, session: str, turn: int, state: str, more: dict[str, Any] | None = None) -> None:
        self._signals.emit(News("turn", group, session, {"turn": turn, "state": state, **(more or {})}))
