"""The real ledger, dispatcher, counter and recorder over a stand-in backend: its sandboxes are objects that the test
ends, and their runners are tasks that play turns as the test says."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from clawd.channel import ChannelLimits
from clawd.config.begin import ensure_group
from clawd.config.group import Effective
from clawd.config.home import Home
from clawd.config.load import load_config, load_group, merged
from clawd.context.compose import Composer
from clawd.errors import LeaseLost, SandboxUnavailable
from clawd.files import Blobs
from clawd.ids import new_id
from clawd.ledger import ends, groups, inbound, queries, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.model import Final, Incoming, Lease, Offer, Part
from clawd.sandbox.protocol import Exit, LeftOver, RunSpec, SandboxLimits
from clawd.signals import Signals
from clawd.skills.catalogue import Catalogue
from clawd.skills.shelf import Shelf
from clawd.tasks import Tasks
from clawd.trust import Role, origin_of
from clawd.turns.counter import Counter
from clawd.turns.dispatch import Dispatcher
from clawd.turns.execute import Executor
from clawd.turns.jobs import Jobs
from clawd.turns.leases import WALL_S
from clawd.turns.record import Recorder
from clawd.turns.road import RunCaller
from clawd.turns.run import Run
from clawd.turns.runs import Runs
from clawd.turns.skills import Skills
from clawd.usage.books import Books

NOW = "2026-12-01T09:00:00.000+00:00"
PATIENCE = 10.0

Play = Callable[["Ground", Lease, Offer], Awaitable[None]]


def scans(ledger: Ledger, said: Iterable[str]) -> set[str]:
    """The tables that any of these statements reads from end to end."""

    def plans(tx: Transaction) -> list[str]:
        asked = [sql for sql in said if sql.lstrip().startswith(("SELECT", "UPDATE", "DELETE"))]
        assert asked
        return [row["detail"] for sql in asked for row in tx.all(f"EXPLAIN QUERY PLAN {sql}")]

    steps = [plan.split() for plan in ledger.tx(plans) if plan.startswith("SCAN ") and " INDEX " not in plan]
    return {step[1] for step in steps if step[1] != "CONSTANT"}


class PushedClock:
    """The machine's clock, which a test can push ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Box:
    """A sandbox that is nothing but its end. `doing` is what each of its runner's workers has; it outlives a daemon."""

    limits = "rlimit"

    def __init__(self, maker: BoxBackend, spec: RunSpec) -> None:
        self.maker, self.spec, self.run = maker, spec, spec.run
        self.backend, self.pausable = maker.name, maker.pausable
        self.id = self.handle = f"box:{spec.run}"
        self._gone = anyio.Event()
        self.exit = Exit(1, "was ended")
        self.frozen = self.greeted = False
        self.calls: list[str] = []
        self.environment: dict[str, str] = {}  # of the newest command beside the runner
        self.doing: dict[int, tuple[Lease, Offer]] = {}

    @property
    def alive(self) -> bool:
        return not self._gone.is_set()

    def end(self, reason: str, *, outside: bool = False) -> None:
        if self.alive:
            self.exit = Exit(1, reason, outside)
        self._gone.set()

    async def wait(self) -> Exit:
        await self._gone.wait()
        return self.exit

    async def kill(self) -> Exit:
        self.calls.append("kill")
        if self.alive:
            self.maker.answer()
        if self.alive and self.maker.immortal:
            raise SandboxUnavailable(f"the sandbox of {self.spec.group} does not end")
        self.end("was ended")
        return await self.wait()

    async def pause(self) -> None:
        self.calls.append("pause")
        await self.maker.slow()
        self.maker.answer()
        self.frozen = True

    async def unpause(self) -> None:
        self.calls.append("unpause")
        await self.maker.slow()
        self.maker.answer()
        if self.maker.stiff:
            raise SandboxUnavailable(self.maker.stiff)
        self.frozen = False

    async def execute(self, argv: list[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
        assert not self.frozen
        self.environment = dict(environment)
        await self.maker.slow()
        return 0


class BoxBackend:
    """Makes boxes, as long as there is no `trouble`; they cannot be killed while it is `immortal`. While it is `away`
    it answers nothing; `stiff` boxes cannot be unpaused; with a `slowly` what is asked of a box waits for that. It
    outlives daemons, and its boxes can be adopted when they are pausable."""

    name = "bubblewrap"

    def __init__(self, pausable: bool = False) -> None:
        self.boxes: list[Box] = []
        self.trouble: str | None = None
        self.away: str | None = None
        self.stiff: str | None = None
        self.slowly: anyio.Event | None = None
        self.immortal = False
        self.pausable = pausable
        self.sweeps: list[tuple[set[str], set[str]]] = []
        self.started: Callable[[Box], None] = lambda box: None

    def answer(self) -> None:
        if self.away:
            raise SandboxUnavailable(self.away)

    async def slow(self) -> None:
        if self.slowly is not None:
            await self.slowly.wait()

    async def check(self, image: str = "") -> str:
        self.answer()
        if self.trouble:
            raise SandboxUnavailable(self.trouble)
        return self.name

    async def start(self, spec: RunSpec) -> Box:
        self.answer()
        if self.trouble:
            raise SandboxUnavailable(self.trouble)
        box = Box(self, spec)
        self.boxes.append(box)
        self.started(box)
        return box

    async def adopt(self, left: LeftOver, spec: RunSpec) -> Box | None:
        self.answer()
        for box in self.boxes:
            if box.alive and box.handle == left.handle and box.pausable:
                box.frozen = False
                self.started(box)
                return box
        return None

    async def sweep(self, left: Iterable[LeftOver], ours: Collection[str] = ()) -> list[str]:
        self.answer()
        runs = {each.run for each in left}
        self.sweeps.append((runs, set(ours)))
        if self.immortal:
            return []
        for box in self.boxes:
            if box.alive and box.run not in ours:
                box.end("was swept away")
        return list(runs)

    def alive(self) -> list[str]:
        return [box.spec.group for box in self.boxes if box.alive]


class Ground:
    """One life of the rooms of turns. `play` is what a runner's worker does with a turn; `workers` how many it has."""

    def __init__(
        self, path: Path, tasks: anyio.abc.TaskGroup, max_live: int, play: Play, workers: int, backend: BoxBackend
    ) -> None:
        self.home = Home(path / "home")
        self.home.create()
        self.home.config_file.write_text('schema = 1\n[claw]\nname = "t"\n')
        self.ledger = Ledger.open(self.home.ledger_file)
        self.clock, self.signals = PushedClock(), Signals()
        self.warm, self.play, self.workers, self._tasks = 600.0, play, workers, tasks
        self.limits = SandboxLimits()
        self.bundle: bytes | None = None
        self.delivered: list[Address] = []
        self.tasks = Tasks(tasks, lambda name, error: self.failures.append((name, error)))
        self.failures: list[tuple[str, Exception]] = []
        self.followups = "steer"
        self.skills = Skills(self.home, self.ledger, self.clock, Shelf(self.home, Catalogue(self.home)))
        self.composer = Composer(self.home, self.clock, self.settings, skills=self.skills.of)
        self.jobs = Jobs(self.ledger, self.clock, self.composer.engine, lambda group: self.dispatcher.wake(group))
        self.recorder = Recorder(
            self.home,
            self.ledger,
            self.clock,
            self.signals,
            self.tasks,
            self.jobs,
            lambda group: self.dispatcher.wake(group),
        )
        self.dispatcher = Dispatcher(
            ledger=self.ledger,
            clock=self.clock,
            signals=self.signals,
            recorder=self.recorder,
            tasks=self.tasks,
            deliver=self.delivered.append,
            limits=lambda channel: ChannelLimits(),
            max_live=lambda: max_live,
            warm_seconds=lambda group: self.warm,
            books=Books(self.ledger, self.clock, lambda: load_config(self.home, {}), self.settings),
            wall_seconds=lambda group: WALL_S,
        )
        self.backend = backend
        backend.started = self._started
        self.dispatcher.reconciler.runs = Runs(
            self.home,
            path / "run",
            self.ledger,
            self.clock,
            self.backend,
            _serve,
            limits=lambda group: self.limits,
            image=lambda group: "",
            wrong=lambda group: [],
            zone=lambda group: "UTC",
            bundle=self._bundle,
            skills=self.skills,
        )
        (path / "run").mkdir(exist_ok=True)
        self.counter = Counter(
            dispatcher=self.dispatcher,
            ledger=self.ledger,
            clock=self.clock,
            signals=self.signals,
            composer=self.composer,
            blobs=Blobs(self.home.blobs),
            limits=lambda channel: ChannelLimits(),
            parallel=lambda: self.workers,
            jobs=self.jobs,
            followups=lambda group: self.followups,
        )
        self.executor = Executor(
            self.dispatcher, self.ledger, self.clock, lambda group: {"ROAD": f"http://{{token}}@{group}"}
        )

    def settings(self, group: str) -> Effective:
        return merged(load_config(self.home, {}), load_group(self.home, group))

    async def _bundle(self, group: str) -> bytes | None:
        return self.bundle

    # ── runners ──

    def _started(self, box: Box) -> None:
        self._tasks.start_soon(self._runner, box)

    async def _runner(self, box: Box) -> None:
        """A runner lives as long as its box."""
        async with anyio.create_task_group() as tasks:
            if self.workers:
                await self.until(lambda: self.dispatcher.run_of(box.run))
                if not box.greeted:
                    await self.counter.hello(box.run, 1, 1)
                    box.greeted = True
                for number in range(self.workers):
                    tasks.start_soon(self._work, box, number)
            await box.wait()
            tasks.cancel_scope.cancel()

    async def _work(self, box: Box, number: int) -> None:
        while self.dispatcher.run_of(box.run):
            if number not in box.doing:
                try:
                    offer = await self.counter.next_turn(box.run, number, 60.0)
                except LeaseLost:  # its run is over, or just ending
                    return
                if offer is None:
                    continue
                assert not box.frozen
                box.doing[number] = Lease(box.run, offer.turn, offer.attempt, number), offer
            with suppress(LeaseLost):
                await self.play(self, *box.doing[number])
            box.doing.pop(number, None)

    # ── what tests do ──

    async def accept(
        self,
        group: str = "main",
        *,
        session: str | None = None,
        role: Role = Role.OWNER,
        text: str = "hi",
        choice: dict[str, str] | None = None,
    ) -> int:
        """A message, durable and told of; gives its number."""
        incoming = Incoming("terminal", group, new_id(), str(role), (text,), datetime.now(UTC), choice=choice or {})

        def work(tx: Transaction) -> int:
            groups.add(tx, group, NOW)
            opened = groups.open_session(tx, session or f"terminal:{group}", group, NOW)
            parts = [Part("typed", origin_of(role), text)]
            return inbound.accept(tx, incoming, group=group, session=opened.id, role=role, parts=parts, now=NOW).seq

        ensure_group(self.home, group)
        seq = await self.ledger.do(work)
        self.dispatcher.wake(group)
        return seq

    async def run(self, group: str = "main") -> Run:
        """The group's run, once it is ready. One without workers says hello here."""
        run: Run = await self.until(lambda: (run := self.dispatcher.active.get(group)) and run.sandbox and run)
        if not self.workers and not run.ready.is_set():
            await self.counter.hello(run.id, 1, 1)
        await run.ready.wait()
        return run

    def caller(self, run: Run) -> RunCaller:
        active, signals, notice = self.dispatcher.active, self.signals, self.counter.notice
        return RunCaller(run, active, self.ledger, signals, self.tasks, notice)

    def box(self, run: Run) -> Box:
        return next(box for box in self.backend.boxes if box.run == run.id)

    async def offer(self, run: Run, worker: int = 0, wait: float = PATIENCE) -> tuple[Lease, Offer]:
        offer = await self.counter.next_turn(run.id, worker, wait)
        assert offer is not None
        return Lease(run.id, offer.turn, offer.attempt, worker), offer

    async def message(self, seq: int) -> dict[str, Any]:
        return await self.ledger.do(lambda tx: queries.message(tx, seq))

    async def recorded(self, *messages: int) -> None:
        """Until every one of these is answered and in its session file."""
        for seq in messages:
            await self.until_turn(seq, lambda row: row["recorded_at"] is not None)

    async def turn(self, seq: int) -> Row:
        return await self.ledger.do(lambda tx: turns.get(tx, _turn(tx, seq)))

    async def until_turn(self, seq: int, holds: Callable[[Row], bool]) -> Row:
        with anyio.fail_after(PATIENCE):
            while not holds(row := await self.turn(seq)):
                await anyio.sleep(0.005)
        return row

    async def until_state(self, seq: int, state: str) -> Row:
        return await self.until_turn(seq, lambda row: row["state"] == state)

    async def until(self, found: Callable[[], Any]) -> Any:
        with anyio.fail_after(PATIENCE):
            while not (value := found()):
                await anyio.sleep(0.005)
        return value

    async def stop(self, session: str) -> list[int]:
        """What `/stop` does."""
        live = await self.ledger.do(lambda tx: ends.request_stop(tx, session))
        for turn in live:
            self.dispatcher.stop_live(turn)
        return live

    def crash(self) -> None:
        """As if this daemon were gone at once: it does nothing more to its sandboxes, and says nothing of them."""
        for run in self.dispatcher.active.values():
            run.left = True

    def pass_time(self, seconds: float) -> None:
        """Push the clock ahead, and have every run looked at."""
        self.clock.ahead += seconds
        for run in self.dispatcher.active.values():
            if run is not None:
                run.look_again()

    async def notices(self) -> list[str]:
        rows = await self.ledger.do(lambda tx: tx.all("SELECT text FROM delivery WHERE kind = 'notice' ORDER BY id"))
        return [row["text"] for row in rows]

    def trouble(self) -> list[str]:
        return [str(each.data["what"]) for each in self._news.arrived() if each.kind == "trouble"]


def _turn(tx: Transaction, seq: int) -> int:
    row = tx.one("SELECT turn FROM inbound WHERE seq = ?", seq)
    assert row is not None
    return int(row["turn"])


@asynccontextmanager
async def _serve(run: Run) -> AsyncIterator[None]:
    yield


async def answer(ground: Ground, lease: Lease, offer: Offer) -> None:
    """Every turn is answered at once."""
    await ground.counter.final(lease, Final("a reply"))


@asynccontextmanager
async def opened(
    path: Path,
    *,
    max_live: int = 4,
    play: Play = answer,
    workers: int = 4,
    backend: BoxBackend | None = None,
) -> AsyncIterator[Ground]:
    with anyio.fail_after(6 * PATIENCE):
        async with anyio.create_task_group() as tasks:
            ground = Ground(path, tasks, max_live, play, workers, backend or BoxBackend())
            with ground.signals.subscribe() as ground._news:
                try:
                    yield ground
                    assert ground.failures == []
                    if backend is not None:  # it outlives this daemon
                        ground.crash()
                finally:
                    tasks.cancel_scope.cancel()
    ground.ledger.close()
