"""The dispatcher: groups get sandboxes fairly, what a run leaves behind goes on, and what cannot go on waits
or ends.

What is in memory here (who has a place, live turns) can be lost at any moment: `recover` brings it back.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from clawd.clock import Clock, rfc3339
from clawd.errors import ClawdError, SandboxUnavailable, StorageError, UnsafePath
from clawd.files import walk_beneath
from clawd.ledger import ends, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.sandbox.protocol import Exit
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.turns import leases
from clawd.turns.leases import LiveTurn
from clawd.turns.record import Recorder
from clawd.turns.runs import Run, Runs
from clawd.turns.slots import TURNS_A_TERM, Place, decide

log = logging.getLogger(__name__)

# A run that dies so often without finishing a turn is not started again at once: its turns are held.
BARREN_LIVES = 3
NOTICE_LIMIT = 4000  # every platform takes a notice of this size
LONGEST_HOLD_S = RECONCILE_S = 60.0


class Dispatcher:
    """Places, lives and limits of runs. `runs` is set by whoever builds both: a run's socket needs the
    counter."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        recorder: Recorder,
        tasks: Tasks,
        deliver: Callable[[Address], None],
        text_limit: Callable[[str], int],
        max_live: Callable[[], int],
        warm_seconds: Callable[[str], float],
    ) -> None:
        self._ledger, self._clock, self._signals = ledger, clock, signals
        self._recorder, self._tasks = recorder, tasks
        self.deliver, self._text_limit = deliver, text_limit
        self._max_live, self._warm_seconds = max_live, warm_seconds
        self.runs: Runs
        self.active: dict[str, Run | None] = {}
        self._by_id: dict[str, Run] = {}
        self._wanting: dict[str, None] = {}
        self._barren: dict[str, int] = {}
        self._holding: dict[str, str] = {}  # group → why its turns wait
        self._failures: dict[str, int] = {}
        self.closing = False

    # ── what the rooms above and beside it ask ──

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    async def recover(self) -> None:
        """After a restart: sandboxes that are left are ended, their turns go on, what ended is recorded."""
        if not await self._sweep():
            self._tasks.start_soon(self._sweep_again, name="sweep")
        for group in await self._ledger.do(ends.groups_held):
            await self._ledger.do(lambda tx, group=group: ends.release(tx, group))  # type: ignore[misc]
        for turn in await self._ledger.do(turns.to_record):
            self._recorder.soon(turn, redo=True)
        for group in await self._ledger.insist(turns.waiting_groups):
            self.wake(group)

    async def _sweep(self) -> bool:
        """End what an earlier daemon left and give its turns back. False when something would not die: its
        turns stay claimed, because they are never started twice."""
        alive = await self.runs.sweep(self._by_id)
        for row in await self._ledger.insist(turns.orphaned):
            ended = await self._ledger.insist(lambda tx, id=row["id"]: ends.requeue(tx, id, self._now()))  # type: ignore[misc]
            await self.ended(ended, Address.of(row), row["grp"])
        if alive:
            log.error("sandboxes of an earlier daemon do not end: %s", ", ".join(alive))
        return not alive

    async def _sweep_again(self) -> None:
        await anyio.sleep(RECONCILE_S)
        while not await self._sweep():
            await anyio.sleep(RECONCILE_S)

    def wake(self, group: str) -> None:
        """A turn of this group may be claimable."""
        run = self.active.get(group)
        if run is not None and not run.ending:
            run.wanted = True
            run.nudge()
        elif group in self._holding:
            self._tasks.start_soon(self._hold_turns, group)
        else:
            self._wanting[group] = None
            self._decide()

    async def ensure(self, group: str) -> Run:
        """The group's run, ready, started if there is none. Raises SandboxUnavailable."""
        while True:
            run = self.active.get(group)
            if run is not None and not run.ending:
                await run.ready.wait()
                if run.sandbox is not None and not run.gone.is_set():
                    return run
                raise SandboxUnavailable(f"the sandbox of group {group} did not start")
            if group in self._holding:
                raise SandboxUnavailable(self._holding[group])
            self._wanting[group] = None
            self._decide()
            with self._signals.subscribe() as news:
                if self.active.get(group) is None:
                    async for each in news:
                        if each.kind in ("run", "held") and each.group == group:
                            break

    async def end_run(self, group: str) -> bool:
        """End the group's sandbox now; its turns are queued again. False when it has none."""
        run = self.active.get(group)
        if run is None:
            return False
        await self._kill(run)
        await run.gone.wait()
        return True

    def stop_live(self, turn: int) -> None:
        """A stop was committed for this turn: say so to its runner."""
        for run in self.active.values():
            if run is not None and (live := run.live.get(turn)) is not None:
                self._ask_to_stop(run, live, None)

    def run_of(self, id: str) -> Run | None:
        return self._by_id.get(id)

    def reconsider(self) -> None:
        """A run has become idle: a group that waits may take its place."""
        if self._wanting:
            self._decide()

    def must_rest(self, run: Run) -> bool:
        """Whether a run hands out nothing more, because its term is over and another group waits, or because somebody
        has put another `work/` in the place of its own."""
        if not run.ending and self.runs.outlived(run):
            run.ending = True
            run.look_again()
        elif self._wanting and run.handed_out >= TURNS_A_TERM and not run.ending:
            self._decide()
        return run.ending

    async def close(self, grace: float) -> None:
        """Hand out nothing more, let live turns end for `grace` seconds, then end every sandbox."""
        self.closing = True
        self._wanting.clear()
        with anyio.move_on_after(grace):
            while any(run is not None and run.live for run in self.active.values()):
                await anyio.sleep(0.02)
        for run in list(self.active.values()):
            if run is not None:
                await self._kill(run)
        while self.active:
            await anyio.sleep(0.01)

    def sandboxes(self) -> list[dict[str, Any]]:
        """Every living sandbox under the contract's names."""
        shown = []
        for group, run in self.active.items():
            if run is None:
                continue
            busy = "busy" if run.live else "ready" if run.ready.is_set() else "starting"
            shown.append(
                {
                    "group": group,
                    "run": run.id,
                    "backend": run.backend,
                    "state": "draining" if run.ending else busy,
                    "id": run.sandbox.id if run.sandbox else "",
                    "limits": run.sandbox.limits if run.sandbox else "rlimit",
                    "since": run.began,
                }
            )
        return shown

    async def execute(self, group: str, argv: list[str], environment: dict[str, str], streams: Sequence[int]) -> int:
        """Run a command in a second sandbox beside the group's runner, on the caller's streams; gives its
        exit code."""
        run = await self.ensure(group)
        assert run.sandbox is not None
        run.exec_count += 1
        try:
            command, passed = run.sandbox.exec_command(argv, environment)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=streams[0], stdout=streams[1], stderr=streams[2], pass_fds=passed
                )
            finally:
                for descriptor in passed:
                    os.close(descriptor)
            run.sandbox.adopt(process.pid)
            try:
                code = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    with anyio.CancelScope(shield=True):
                        await process.wait()
            return code if code >= 0 else 128 - code
        finally:
            run.exec_count -= 1
            run.last_worked = self._clock.monotonic()
            run.look_again()

    # ── places ──

    def _decide(self) -> None:
        if self.closing:
            return
        places = [
            Place(
                group,
                live=1 if run is None else len(run.live) + run.wanted + run.exec_count,
                handed_out=0 if run is None else run.handed_out,
                last_worked=0.0 if run is None else run.last_worked,
                ending=run is not None and run.ending,
            )
            for group, run in self.active.items()
        ]
        decision = decide(list(self._wanting), places, self._max_live())
        for group in decision.start:
            del self._wanting[group]
            self.active[group] = None
            self._tasks.start_soon(self._life, group, name=f"run {group}")
        for group in decision.end:
            if (run := self.active.get(group)) is not None:
                run.ending = True
                self._tasks.start_soon(self._kill, run)
        for group in decision.drain:
            if (run := self.active.get(group)) is not None:
                run.ending = True
                run.look_again()

    async def _kill(self, run: Run) -> None:
        run.ending = True
        if run.sandbox is None:
            run.look_again()
            return
        run.killed = True
        try:
            await run.sandbox.kill()
        except SandboxUnavailable as error:
            run.killed = False
            log.error("run %s of group %s: %s", run.id, run.group, error)

    async def _life(self, group: str) -> None:
        run: Run | None = None
        exit: Exit | None = None
        trouble: Exception | None = None
        try:
            run = await self.runs.new(group)
            run.ending = self.closing
            self.active[group] = run
            self._by_id[run.id] = run
            self._signals.emit(News("run", group=group, data={"run": run.id, "state": "starting"}))
            exit = await self.runs.live(run, self._on_ready)
        except (ClawdError, OSError) as error:
            trouble = error
        except Exception as error:  # a defect of ours in one group's run is that group's trouble alone
            log.exception("the run of group %s failed", group)
            trouble = error
        with anyio.CancelScope(shield=True):
            if run is not None:
                await self._bury(run, f"its sandbox ended ({exit.reason if exit else trouble})")
            self.active.pop(group, None)
            if exit is not None and self._barren[group] >= BARREN_LIVES:
                trouble = SandboxUnavailable(f"its sandbox ends at once, again and again: it {exit.reason}")
        await self._after(group, trouble)

    async def _bury(self, run: Run, why: str) -> None:
        """The run is over. Its turns are given back only if it is known dead: they are never started twice."""
        if run.dead:
            try:
                await self._give_back(run, None if run.ending else why)
            except StorageError as error:  # the daemon ends: the next one finds them
                log.error("turns of run %s were not given back: %s", run.id, error)
        else:
            log.error("the sandbox of group %s (run %s) does not end; its turns wait for that", run.group, run.id)
            self._tasks.start_soon(self._sweep_again, name="sweep")
        fruitless = not run.ending and not run.handed_out
        self._barren[run.group] = self._barren.get(run.group, 0) + 1 if fruitless else 0
        del self._by_id[run.id]
        run.gone.set()
        run.ready.set()
        run.look_again()

    def _on_ready(self, run: Run) -> None:
        run.last_worked = self._clock.monotonic()
        self._failures.pop(run.group, None)
        self._tasks.start_soon(self._watch, run, name=f"watch {run.group}")
        self._signals.emit(News("run", group=run.group, data={"run": run.id, "state": "ready"}))

    async def _after(self, group: str, trouble: Exception | None) -> None:
        """A run is over: the group is looked at again."""
        self._signals.emit(News("run", group=group, data={"state": "gone"}))
        if self.closing:
            return
        if trouble is not None:
            self._tasks.start_soon(self._hold, group, trouble)
        elif group in await self._ledger.insist(turns.waiting_groups):
            self._wanting[group] = None
        self._decide()

    async def _give_back(self, run: Run, why: str | None) -> None:
        """The run is known dead: its turns are queued again, and those that are to blame bear the fault."""
        rows = await self._ledger.insist(lambda tx: turns.claimed_by(tx, run.id))
        for row in rows:
            live = run.live.pop(row["id"], None)
            blame = live.why if live is not None and live.why else why
            limit = self._text_limit(row["channel"])

            def give_back(
                tx: Transaction, id: int = row["id"], blame: str | None = blame, limit: int = limit
            ) -> ends.Ended:
                if blame is None:
                    return ends.requeue(tx, id, self._now())
                return ends.fault(tx, id, blame, self._now(), limit=limit)

            await self.ended(await self._ledger.insist(give_back), Address.of(row), row["grp"])

    async def _hold(self, group: str, trouble: Exception) -> None:
        """No sandbox can be made: the group's turns wait, are told why once, and are tried again by and
        by."""
        failures = self._failures[group] = self._failures.get(group, 0) + 1
        self._holding[group] = str(trouble)
        log.error("group %s is held: %s", group, trouble)
        await self._hold_turns(group)
        pause = min(2.0 ** (failures - 1), LONGEST_HOLD_S)
        while True:
            await anyio.sleep(pause)
            try:
                await self.runs.backend.check()
                break
            except SandboxUnavailable as error:
                self._holding[group] = str(error)
                pause = min(pause * 2, LONGEST_HOLD_S)
        del self._holding[group]
        self._barren.pop(group, None)
        await self._ledger.insist(lambda tx: ends.release(tx, group))
        if group in await self._ledger.insist(turns.waiting_groups):
            self.wake(group)

    async def _hold_turns(self, group: str) -> None:
        reason = self._holding[group]
        for each in await self._ledger.insist(lambda tx: ends.hold(tx, group, reason, self._now(), limit=NOTICE_LIMIT)):
            if each.deliveries:
                row = await self._ledger.insist(lambda tx, turn=each.turn: turns.get(tx, turn))  # type: ignore[misc]
                self.deliver(Address.of(row))
            self.tell(group, each.session, each.turn, "held", {"reason": reason})
        self._signals.emit(News("held", group=group, data={"reason": reason}))

    async def _watch(self, run: Run) -> None:
        """While the run lives: its turns' leases and limits, the size of work/, and how long it is kept
        warm."""
        while not run.gone.is_set():
            now = self._clock.monotonic()
            if run.live:
                pause = min(leases.next_look(live, now) for live in run.live.values())
            elif run.ending:
                await self._kill(run)
                return
            else:
                pause = max(0.05, run.last_worked + self._warm_seconds(run.group) - now)
            run.watch_news, run.resting = anyio.Event(), not run.live
            with anyio.move_on_after(pause):
                await run.watch_news.wait()
            run.resting = False
            now = self._clock.monotonic()
            if not run.live and not run.exec_count and not run.wanted and not run.gone.is_set():
                if now - run.last_worked >= self._warm_seconds(run.group):
                    await self._kill(run)
                continue
            for live in list(run.live.values()):
                await self._look(run, live, leases.verdict(live, now))
            if run.live:
                await self._look_at_work(run)

    async def _look(self, run: Run, live: LiveTurn, verdict: str) -> None:
        if verdict == "unconfirmed":
            run.nudge()
        elif verdict == "late":
            self._ask_to_stop(run, live, "it took longer than a turn may")
        elif verdict in ("lost", "stuck"):
            live.why = live.why or "its runner did not answer"
            log.warning("turn %s of group %s: %s", live.turn, run.group, live.why)
            await self._kill(run)

    async def _look_at_work(self, run: Run) -> None:
        """Over the limits of work/ a turn is stopped. One that finds it so may still make it smaller: what is there
        then is allowed, and any growth beyond it is not, until it is within the limits again."""
        limits = run.spec.limits

        def measure() -> tuple[int, int]:
            size = count = 0
            try:
                for _, status in walk_beneath(run.spec.work):
                    size, count = size + status.st_blocks * 512, count + 1
            except UnsafePath:  # nested too deep to be counted
                count = limits.work_files + 1
            return size, count

        size, count = await anyio.to_thread.run_sync(measure)
        if size <= limits.work_bytes and count <= limits.work_files:
            run.work_full, run.work_allowed = False, None
            return
        if run.work_full and run.work_allowed is None:
            run.work_allowed = size, count
        run.work_full = True
        if run.work_allowed is not None and size <= run.work_allowed[0] and count <= run.work_allowed[1]:
            return
        allowed = f"{limits.work_bytes >> 20} MB, {limits.work_files} files"
        for live in list(run.live.values()):
            if live.stopping is None:
                why = f"the group's work/ is over its limit ({allowed}); remove something from it"
                self._ask_to_stop(run, live, why)

    def _ask_to_stop(self, run: Run, live: LiveTurn, why: str | None) -> None:
        live.stopping = self._clock.monotonic()
        live.why = why
        run.control_news.set()
        run.look_again()

    async def ended(self, ended: ends.Ended, to: Address, group: str) -> None:
        """Both projections start: the record, and the delivery."""
        if ended.deliveries:
            self.deliver(to)
        self.tell(group, ended.session, ended.turn, ended.state)
        if ended.state == "queued":
            self.wake(group)
        else:
            self._recorder.soon(ended.turn)

    def tell(self, group: str, session: str, turn: int, state: str, more: dict[str, Any] | None = None) -> None:
        self._signals.emit(News("turn", group, session, {"turn": turn, "state": state, **(more or {})}))

    def recorded(self, group: str) -> None:
        """A turn of the group is in its session file: the session's next one may be claimed by the run that
        is there."""
        run = self.active.get(group)
        if run is not None and not run.ending:
            run.nudge()
