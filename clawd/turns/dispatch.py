"""The dispatcher: groups get sandboxes fairly, runners get turns, and every turn gets an end.

It is the Desk of the run's socket. What is in memory here (live turns, waiting workers) can be lost at any moment: the
ledger holds who claimed what, and `recover` brings back the rest.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import anyio
from anyio.abc import TaskGroup

from clawd import faults
from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.context.compose import Composer
from clawd.errors import ClawdError, LeaseLost, SandboxUnavailable, StorageError, UnsafePath
from clawd.files import Blobs, walk_beneath
from clawd.ledger import runs as run_rows
from clawd.ledger import turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.sandbox.protocol import Exit
from clawd.signals import News, Signals
from clawd.turns import leases
from clawd.turns.desk import Control, Final, Lease, Offer
from clawd.turns.leases import LiveTurn
from clawd.turns.record import Recorder
from clawd.turns.runs import Run, Runs
from clawd.turns.slots import TURNS_A_TERM, Place, decide

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 100 << 20
# A run that dies so often without finishing a turn is not started again at once: its turns are held.
BARREN_LIVES = 3
NOTICE_LIMIT = 4000  # every platform takes a notice of this size
LONGEST_HOLD_S = 60.0


class Dispatcher:
    """Implements `turns.desk.Desk`."""

    def __init__(
        self,
        *,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        composer: Composer,
        recorder: Recorder,
        tasks: TaskGroup,
        deliver: Callable[[Address], None],
        text_limit: Callable[[str], int],
        max_live: Callable[[], int],
        parallel: Callable[[], int],
        warm_seconds: Callable[[str], float],
    ) -> None:
        self.home, self._ledger, self._clock, self._signals = home, ledger, clock, signals
        self._composer, self._recorder, self._tasks = composer, recorder, tasks
        self._deliver, self._text_limit = deliver, text_limit
        self._max_live, self._parallel, self._warm_seconds = max_live, parallel, warm_seconds
        self._blobs = Blobs(home.blobs)
        self.runs: Runs  # set by whoever builds both: a run's socket needs this desk
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
        dead = await self.runs.sweep()
        for run in dead:
            await self._ledger.do(lambda tx, run=run: run_rows.ended(tx, run))  # type: ignore[misc]
            await self._give_back(run, None)
        for group in await self._ledger.do(turns.groups_held):
            await self._ledger.do(lambda tx, group=group: turns.release(tx, group))  # type: ignore[misc]
        for turn in await self._ledger.do(turns.to_record):
            self._tasks.start_soon(self.record, turn, True, name=f"record {turn}")
        for group in await self._ledger.do(turns.waiting_groups):
            self.wake(group)

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

    def record_soon(self, turn: int) -> None:
        """A turn ended elsewhere (it was cleared from the queue): record it."""
        self._tasks.start_soon(self.record, turn, name=f"record {turn}")

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
        """Run a command in a second sandbox beside the group's runner, on the caller's streams; gives its exit code."""
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
        try:
            await run.sandbox.kill()
        except SandboxUnavailable as error:
            log.error("run %s of group %s: %s", run.id, run.group, error)

    async def _life(self, group: str) -> None:
        run, exit, trouble = None, None, None
        try:
            run = await self.runs.new(group)
            self.active[group] = run
            self._by_id[run.id] = run
            self._signals.emit(News("run", group=group, data={"run": run.id, "state": "starting"}))
            exit = await self.runs.live(run, self._on_ready)
        except (ClawdError, OSError) as error:
            trouble = error
        finally:
            self.active.pop(group, None)
            if run is not None:
                self._by_id.pop(run.id, None)
                run.gone.set()
                run.ready.set()
        await self._after(group, run, exit, trouble)

    def _on_ready(self, run: Run) -> None:
        run.last_worked = self._clock.monotonic()
        self._failures.pop(run.group, None)
        self._tasks.start_soon(self._watch, run, name=f"watch {run.group}")
        self._signals.emit(News("run", group=run.group, data={"run": run.id, "state": "ready"}))

    async def _after(self, group: str, run: Run | None, exit: Exit | None, trouble: Exception | None) -> None:
        """A run is over. Its turns go on elsewhere, wait, or fail; the group is looked at again."""
        if run is not None:
            why = None if run.ending else f"its sandbox ended ({exit.reason if exit else trouble})"
            finished = await self._give_back(run.id, why, run)
            fruitless = not run.ending and not run.handed_out
            self._barren[group] = self._barren.get(group, 0) + 1 if fruitless and not finished else 0
        self._signals.emit(News("run", group=group, data={"state": "gone"}))
        if self.closing:
            return
        if trouble is not None or self._barren.get(group, 0) >= BARREN_LIVES:
            self._tasks.start_soon(
                self._hold, group, trouble or SandboxUnavailable("its sandbox ends at once, again and again")
            )
        elif group in await self._ledger.do(turns.waiting_groups):
            self._wanting[group] = None
        self._decide()

    async def _give_back(self, run_id: str, why: str | None, run: Run | None = None) -> int:
        """The run is known dead: its turns are queued again, and those that are to blame bear the fault."""
        rows = await self._ledger.do(lambda tx: turns.claimed_by(tx, run_id))
        for row in rows:
            live = run.live.pop(row["id"], None) if run is not None else None
            blame = live.why if live is not None and live.why else why
            limit = self._text_limit(row["channel"])

            def give_back(
                tx: Transaction, id: int = row["id"], blame: str | None = blame, limit: int = limit
            ) -> turns.Ended:
                if blame is None:
                    return turns.requeue(tx, id, self._now())
                return turns.fault(tx, id, blame, self._now(), limit=limit)

            await self._ended(await self._ledger.do(give_back), Address.of(row), row["grp"])
        return len(rows)

    async def _hold(self, group: str, trouble: Exception) -> None:
        """No sandbox can be made: the group's turns wait, are told why once, and are tried again by and by."""
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
        await self._ledger.do(lambda tx: turns.release(tx, group))
        if group in await self._ledger.do(turns.waiting_groups):
            self.wake(group)

    async def _hold_turns(self, group: str) -> None:
        reason = self._holding[group]
        for each in await self._ledger.do(lambda tx: turns.hold(tx, group, reason, self._now(), limit=NOTICE_LIMIT)):
            if each.deliveries:
                row = await self._ledger.do(lambda tx, turn=each.turn: turns.get(tx, turn))  # type: ignore[misc]
                self._deliver(Address.of(row))
            self._tell(group, each.session, each.turn, "held", {"reason": reason})
        self._signals.emit(News("held", group=group, data={"reason": reason}))

    async def _watch(self, run: Run) -> None:
        """While the run lives: its turns' leases and limits, the size of its work tree, and how long it is kept warm."""
        while not run.gone.is_set():
            now = self._clock.monotonic()
            if run.live:
                pause = min(leases.next_look(live, now) for live in run.live.values())
            elif run.ending:
                await self._kill(run)
                return
            else:
                pause = max(0.05, run.last_worked + self._warm_seconds(run.group) - now)
            run.watch_news = anyio.Event()
            with anyio.move_on_after(pause):
                await run.watch_news.wait()
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
        limits = run.spec.limits

        def measure() -> tuple[int, int]:
            size = count = 0
            for _, status in walk_beneath(run.spec.work):
                size, count = size + status.st_blocks * 512, count + 1
                if size > limits.work_bytes or count > limits.work_files:
                    break
            return size, count

        size, count = await anyio.to_thread.run_sync(measure)
        if size <= limits.work_bytes and count <= limits.work_files:
            return
        allowed = f"{limits.work_bytes >> 20} MB, {limits.work_files} files"
        for live in list(run.live.values()):
            if live.stopping is None:
                self._ask_to_stop(
                    run, live, f"the group's work/ is over its limit ({allowed}); remove something from it"
                )

    def _ask_to_stop(self, run: Run, live: LiveTurn, why: str | None) -> None:
        live.stopping = self._clock.monotonic()
        live.why = why
        run.tell(Control(live.turn, "stop"))
        run.look_again()

    # ── the desk ──

    def _run(self, run: str) -> Run:
        found = self._by_id.get(run)
        if found is None:
            raise LeaseLost(f"run {run} is over")
        return found

    def _live(self, lease: Lease) -> tuple[Run, LiveTurn]:
        run = self._run(lease.run)
        live = run.live.get(lease.turn)
        if live is None or (live.attempt, live.worker) != (lease.attempt, lease.worker):
            raise LeaseLost(f"turn {lease.turn} is not held by attempt {lease.attempt} of this run")
        live.heard, live.confirmed = self._clock.monotonic(), True
        return run, live

    async def hello(self, run: str, engine: str, version: str) -> dict[str, Any]:
        found = self._run(run)
        await self._ledger.do(lambda tx: run_rows.ready(tx, run))
        found.ready.set()
        return {"token": found.token, "limits": {"parallel": self._parallel()}, "clock": self._now()}

    async def next_turn(self, run: str, worker: int, wait: float) -> Offer | None:
        found = self._run(run)
        poll = found.polls[worker] = found.polls.get(worker, 0) + 1
        with anyio.move_on_after(wait):
            while not found.gone.is_set():
                if found.ending or self.closing:
                    await found.gone.wait()
                    break
                if found.polls[worker] != poll:  # the worker asked again: this answer would go nowhere
                    found.nudge()
                    return None
                version = found.version
                if (offer := await self._offer(found, worker)) is not None:
                    found.nudge()
                    return offer
                if found.version != version:
                    continue
                if found.wanted and not found.live:
                    found.wanted = False
                    if self._wanting:
                        self._decide()
                event = anyio.Event()
                found.waiters.append(event)
                try:
                    await event.wait()
                finally:
                    if not event.is_set():
                        found.waiters.remove(event)
        return None

    async def _offer(self, run: Run, worker: int) -> Offer | None:
        now = self._clock.monotonic()
        for live in run.live.values():
            mine = live.worker == worker
            if mine or (leases.verdict(live, now) == "unconfirmed"):
                return await self._offer_again(run, live, worker)
        if self._wanting and run.handed_out >= TURNS_A_TERM and not run.ending:
            self._decide()
            if run.ending:
                return None
        claim = await self._ledger.do(lambda tx: turns.claim(tx, run.id, run.group, worker, self._now()))
        if claim is None:
            return None
        faults.passing("claimed")
        run.handed_out += 1
        row = claim.turn
        run.live[row["id"]] = LiveTurn(row["id"], row["session"], claim.attempt, worker, now, now)
        if len(run.live) == 1:
            run.look_again()
        self._tell(run.group, row["session"], row["id"], "claimed")
        try:
            self.runs.render(run)
            return self._composer.offer(claim)
        except ClawdError as error:
            # The turn cannot be put together (a script is missing, say): that is the turn's end, told in its chat.
            await self._fail(run, Lease(run.id, row["id"], claim.attempt, worker), error.message)
            return None

    async def _offer_again(self, run: Run, live: LiveTurn, worker: int) -> Offer:
        old = Lease(run.id, live.turn, live.attempt, live.worker)

        def read(tx: Transaction) -> turns.Claim:
            if worker != old.worker:
                turns.hand_over(tx, old, worker)
            return turns.reclaim(tx, live.turn)

        claim = await self._ledger.do(read)
        live.worker, live.began, live.heard = worker, self._clock.monotonic(), self._clock.monotonic()
        live.confirmed = False
        return self._composer.offer(claim)

    async def _fail(self, run: Run, lease: Lease, why: str) -> None:
        row = await self._ledger.do(lambda tx: turns.get(tx, lease.turn))
        limit = self._text_limit(row["channel"])
        ended = await self._ledger.do(lambda tx: turns.fault(tx, lease.turn, why, self._now(), limit=limit, final=True))
        self._forget(run, lease.turn)
        await self._ended(ended, Address.of(row), run.group)

    async def control(self, run: str, wait: float) -> list[Control]:
        found = self._run(run)
        if not found.controls:
            found.control_news = anyio.Event()
            with anyio.move_on_after(wait):
                await found.control_news.wait()
        controls, found.controls = found.controls, []
        return controls

    async def more(self, lease: Lease) -> list[Control]:
        _, live = self._live(lease)
        return [Control(live.turn, "stop")] if live.stopping is not None else []

    async def step(self, lease: Lease, n: int, message: dict[str, Any], shown: list[int]) -> None:
        self._live(lease)
        await self._ledger.do(lambda tx: turns.add_step(tx, lease, n, message, shown))
        faults.passing("step")

    async def events(self, lease: Lease, events: list[dict[str, Any]]) -> None:
        run, live = self._live(lease)
        for event in events:
            kind = event.get("type")
            if kind == "delta":
                data = {"turn": live.turn, "text": str(event.get("text", ""))}
                self._signals.emit(News("delta", run.group, live.session, data))
            elif kind == "tool":
                data = {
                    "turn": live.turn,
                    "name": str(event.get("name", "")),
                    "phase": str(event.get("phase", "")),
                }
                self._signals.emit(News("tool", run.group, live.session, data))

    async def effect(
        self,
        lease: Lease,
        tool: str,
        arguments: dict[str, Any],
        nth: int,
        act: Callable[[Transaction, int], dict[str, Any]],
    ) -> dict[str, Any]:
        self._live(lease)
        result = await self._ledger.do(lambda tx: turns.effect(tx, lease, tool, arguments, nth, act))
        row = await self._ledger.do(lambda tx: turns.get(tx, lease.turn))
        self._deliver(Address.of(row))
        return result

    async def final(self, lease: Lease, final: Final) -> None:
        run = self._run(lease.run)
        files, error = await self._keep_files(run, final)
        live = run.live.get(lease.turn)
        ours = live.why if live is not None else None  # we asked it to stop, for a limit
        row = await self._ledger.do(lambda tx: turns.get(tx, lease.turn))
        limit, now, engine = self._text_limit(row["channel"]), self._now(), self._composer.engine(run.group)

        def end(tx: Transaction) -> turns.Ended | None:
            said = final.text.strip() or files or tx.one("SELECT 1 FROM delivery WHERE turn = ?", lease.turn)
            why = ours or error or (None if said else "the agent ended without an answer")
            if why is not None and not row["stop_requested"]:
                turns.check_lease(tx, lease)
                return turns.fault(tx, lease.turn, why, now, limit=limit, final=ours is not None)
            return turns.answer(tx, lease, final, files, now, limit=limit, engine=engine, backend=run.backend)

        ended = await self._ledger.do(end)
        if ended is None:
            return
        if ended.state == "answered":
            faults.passing("answered")
        self._forget(run, lease.turn)
        await self._ended(ended, Address.of(row), run.group)

    async def _keep_files(self, run: Run, final: Final) -> tuple[list[tuple[str, str]], str | None]:
        kept = []
        for name in final.files:
            relative = name.removeprefix("/group/work/")
            try:
                blob, _ = await anyio.to_thread.run_sync(self._blobs.keep, run.spec.work, relative, MAX_FILE_BYTES)
            except (UnsafePath, OSError) as error:
                return [], f"the file {name!r} cannot be sent ({error})"
            kept.append((relative.rsplit("/", 1)[-1], blob))
        return kept, final.error

    # ── ends ──

    def _forget(self, run: Run, turn: int) -> None:
        run.live.pop(turn, None)
        run.last_worked = self._clock.monotonic()
        if not run.live:
            run.look_again()

    async def _ended(self, ended: turns.Ended, to: Address, group: str) -> None:
        """Both projections start: the record, and the delivery."""
        if ended.deliveries:
            self._deliver(to)
        self._tell(group, ended.session, ended.turn, ended.state)
        if ended.state == "queued":
            self.wake(group)
        else:
            self.record_soon(ended.turn)

    async def record(self, turn: int, redo: bool = False) -> None:
        """Write the turn into its session file; until that works, the session's next turn waits and the log says why."""
        pause = 1.0
        while True:
            try:
                row = await self._recorder.record(turn, redo=redo)
                break
            except (StorageError, OSError) as error:
                log.error("turn %s cannot be recorded: %s", turn, error)
                self._signals.emit(News("trouble", data={"what": f"turn {turn} cannot be recorded: {error}"}))
            await anyio.sleep(pause)
            pause, redo = min(pause * 2, LONGEST_HOLD_S), True
        faults.passing("recorded")
        self._tell(row["grp"], row["session"], turn, "recorded")
        self.wake_if_waiting(row["grp"])

    def wake_if_waiting(self, group: str) -> None:
        """The session is free again: its next turn, if any, may be claimed by the run that is there."""
        run = self.active.get(group)
        if run is not None and not run.ending:
            run.nudge()

    def _tell(self, group: str, session: str, turn: int, state: str, more: dict[str, Any] | None = None) -> None:
        self._signals.emit(News("turn", group, session, {"turn": turn, "state": state, **(more or {})}))
