"""Four weeks of use over the real rooms, on a clock that the test turns: what a daemon keeps, in memory and on the disk,
is flat. The sandboxes are objects, the platform is a stand-in; all else is what runs in the daemon."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any

import anyio
import anyio.abc
import pytest

from channels.terminal import Terminal
from clawd import log
from clawd.channel import ChannelLimits, Inbox, NotSent, SendRefused
from clawd.commands.table import COMMANDS
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.context.compose import Composer
from clawd.delivery.outbox import Outbox
from clawd.errors import LeaseLost
from clawd.files import Blobs
from clawd.intake import Intake, Place
from clawd.ledger import groups, queries
from clawd.ledger.db import Ledger
from clawd.model import Final, Incoming, Lease, Offer, Outgoing
from clawd.sandbox.protocol import SandboxLimits
from clawd.signals import Signals
from clawd.tasks import Tasks
from clawd.trust import Role
from clawd.turns.counter import Counter
from clawd.turns.dispatch import Dispatcher
from clawd.turns.record import Recorder
from clawd.turns.runs import Run, Runs
from clawd.upkeep import Upkeep
from tests.turns.conftest import Box, BoxBackend

DAYS, GROUPS, ROUNDS = 28, 8, 20  # 160 turns a day, and what goes wrong beside them
WORKERS = 2
PATIENCE = 60.0
CONFIG = """schema = 1
[claw]
name = "t"
[retention]
text_days = 2
key_days = 5
log_days = 5
"""
logger = logging.getLogger("clawd.month")


class TurnedClock:
    """The machine's clock, which the test pushes ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Platform:
    """A channel that takes what it is sent; every fiftieth message it cannot have, and some it wants later."""

    limits = ChannelLimits(text=4000)
    name = "platform"

    def __init__(self) -> None:
        self.sent = 0

    async def run(self, inbox: Inbox) -> None: ...

    async def send(self, message: Outgoing) -> str:
        self.sent += 1
        if self.sent % 50 == 0:
            raise SendRefused("the chat is gone")
        if self.sent % 700 == 0:
            raise NotSent("later", retry_after=0.001)
        if message.path is not None:
            assert message.path.read_bytes()
        return f"m{message.delivery}"

    async def find(self, message: Outgoing) -> str | None:
        return None


class Life:
    """One life of the daemon's rooms. What happens in a turn is written in its message."""

    def __init__(self, home: Home, clock: TurnedClock, tasks: anyio.abc.TaskGroup, platform: Platform) -> None:
        self.home, self.clock, self._group = home, clock, tasks
        self.ledger, self.signals, self.tasks = Ledger.open(home.ledger_file), Signals(), Tasks(tasks)
        self.config = LiveConfig(home, {})
        self.told: list[str] = []
        self.outbox = Outbox(
            self.ledger, self.signals, clock, {"platform": platform, "terminal": Terminal({})}, home.blobs, self.tasks,
            failed=lambda: self.recorder.failed(),
        )  # fmt: skip
        self.recorder = Recorder(
            home, self.ledger, clock, self.signals, self.tasks, lambda group: self.dispatcher.wake(group)
        )
        self.dispatcher = Dispatcher(
            ledger=self.ledger,
            clock=clock,
            signals=self.signals,
            recorder=self.recorder,
            tasks=self.tasks,
            deliver=self.outbox.wake,
            text_limit=lambda channel: 4000,
            max_live=lambda: GROUPS,
            warm_seconds=lambda group: 600.0,
        )
        self.dispatcher.runs = Runs(
            home,
            home.root.parent / "run",
            self.ledger,
            clock,
            BoxBackend(lambda box: tasks.start_soon(self._runner, box)),
            _serve,
            limits=lambda group: SandboxLimits(),
            image=lambda group: "",
            wrong=lambda group: [],
            zone=lambda group: "UTC",
        )
        self.upkeep = Upkeep(home, self.ledger, clock, lambda: self.config.current.retention, self.told.append)
        self.dispatcher.runs.check_room = self.upkeep.check_room
        self.counter = Counter(
            dispatcher=self.dispatcher,
            ledger=self.ledger,
            clock=clock,
            signals=self.signals,
            composer=Composer(home, clock, self.config.for_group),
            blobs=Blobs(home.blobs),
            text_limit=lambda channel: 4000,
            parallel=lambda: WORKERS,
        )
        self.intake = Intake(
            ledger=self.ledger,
            clock=clock,
            signals=self.signals,
            tasks=self.tasks,
            place=self._place,
            role=lambda incoming: Role(incoming.sender),
            commands=COMMANDS,
            context=self,
            wake=self.dispatcher.wake,
            deliver=self.outbox.wake,
            text_limit=lambda channel: 4000,
        )

    def stopped(self, live: list[int], waiting: list[int]) -> None: ...

    def state_of(self, group: str) -> str:
        return "well"

    async def _place(self, incoming: Incoming) -> Place:
        ensure_group(self.home, incoming.chat)
        await self.ledger.do(lambda tx: groups.add(tx, incoming.chat, "now"))
        return Place(incoming.chat, f"platform:{incoming.chat}")

    async def _runner(self, box: Box) -> None:
        async with anyio.create_task_group() as tasks:
            await self.counter.hello(box.run, "offline", "1")
            for number in range(WORKERS):
                tasks.start_soon(self._work, box, number)
            await box.wait()
            self.dispatcher.runs.backend.boxes.remove(box)  # type: ignore[attr-defined]
            tasks.cancel_scope.cancel()

    async def _work(self, box: Box, number: int) -> None:
        with suppress(LeaseLost):
            while self.dispatcher.run_of(box.run):
                offer = await self.counter.next_turn(box.run, number, 60.0)
                if offer is not None:
                    await self._play(box, Lease(box.run, offer.turn, offer.attempt, number), offer)

    async def _play(self, box: Box, lease: Lease, offer: Offer) -> None:
        text = offer.wakes[0]["parts"][0]["text"]
        await self.counter.step(lease, 0, {"role": "assistant", "content": "a step " * 20}, [])
        if "crash" in text and offer.attempt == 1:
            box.end("crashed")
        elif "fail" in text:
            await self.counter.final(lease, Final("", error="it cannot be done"))
        elif "file" in text:
            (box.spec.work / "report").write_text(text * 50)
            await self.counter.final(lease, Final("here it is", ("report",)))
        else:
            await self.counter.final(lease, Final("an answer " * 30))

    async def say(self, said: list[int], group: int, text: str, role: str = "owner") -> None:
        incoming = Incoming("platform", f"g{group}", f"p{time.monotonic_ns()}", role, (text,), self.clock.now())
        receipt = await self.intake.receive(incoming)
        assert receipt.message is not None
        said.append(receipt.message)

    async def done(self, messages: list[int]) -> None:
        """Until all of these are at their end and nothing waits to be sent."""
        marks = ", ".join("?" * len(messages))
        open_ = f"SELECT 1 FROM inbound WHERE seq IN ({marks}) AND state NOT IN ('recorded', 'failed') LIMIT 1"
        with anyio.fail_after(PATIENCE):
            while await self.ledger.do(lambda tx: tx.one(open_, *messages)):
                await anyio.sleep(0.003)

    async def settle(self) -> None:
        """Everything is said, recorded and noted, and no sandbox is warm."""
        with anyio.fail_after(PATIENCE):
            while not self.outbox.idle or self.dispatcher.active or await self.ledger.do(_open_turns):
                for run in self.dispatcher.active.values():
                    run.look_again()
                await anyio.sleep(0.005)
        await self.recorder.note_failures()


def _open_turns(tx: Any) -> bool:
    return tx.one("SELECT 1 FROM turn WHERE recorded_at IS NULL") is not None


@asynccontextmanager
async def _serve(run: Run) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def lived(home: Home, clock: TurnedClock, platform: Platform) -> AsyncIterator[Life]:
    async with anyio.create_task_group() as tasks:
        life = Life(home, clock, tasks, platform)
        life.ledger._connection.execute("PRAGMA synchronous = OFF")
        await life.dispatcher.recover()
        await life.outbox.start()
        yield life
        tasks.cancel_scope.cancel()
    life.ledger.close()


async def live_a_day(life: Life, day: int) -> None:
    for n in range(ROUNDS):
        special = {3: "a file", 5: "crash", 7: "fail", 11: "a file"}.get(n, "a question " * 20)
        said: list[int] = []
        async with anyio.create_task_group() as saying:
            for group in range(GROUPS):
                saying.start_soon(life.say, said, group, f"{special} {day:02}.{n:02}.{group:02}")
        if n == 9:
            await life.say(said, 0, "/status")
            await life.say(said, 1, "hello", role="member")
        for number in range(20):
            logger.warning("a process outside its sandbox was refused: %d", number)
        await life.done(said)
    life.clock.ahead += 3600
    await life.settle()


def measured(home: Home) -> dict[str, float]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    sizes = {
        name: sum(path.stat().st_size for path in home.state.glob(pattern))
        for name, pattern in (("ledger", "ledger.db*"), ("blobs", "blobs/*"), ("logs", "logs/*"))
    }
    return {
        "blocks": sys.getallocatedblocks(),  # of small objects
        "resident": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": sum(not each.name.startswith("AnyIO worker") for each in threading.enumerate()),  # these come and go
        **sizes,
    }


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[TurnedClock]:
    """It is what log lines are stamped with, too."""
    clock = TurnedClock()
    made: Callable[..., logging.LogRecord] = logging.getLogRecordFactory()

    def make(*arguments: Any, **more: Any) -> logging.LogRecord:
        record = made(*arguments, **more)
        record.created += clock.ahead
        return record

    monkeypatch.setattr(logging, "_logRecordFactory", make)
    yield clock
    log.setup(None)


@pytest.mark.anyio
async def test_a_month_of_use_leaves_memory_descriptors_and_disk_flat(
    tmp_path: Path, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, platform = Home(tmp_path / "home"), Platform()
    home.create()
    home.config_file.write_text(CONFIG)
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own keep every line
    for sync in ("fsync", "fdatasync"):  # what a crash of the machine would leave is not tried here
        monkeypatch.setattr(os, sync, lambda descriptor: None)
    log.setup(home.log_file, days=5)
    seen: list[dict[str, float]] = []
    for until in (2, 4, 6, DAYS):  # the daemon is started again in the first week, then runs on
        async with lived(home, clock, platform) as life:
            while len(seen) < until:
                await live_a_day(life, len(seen))
                await life.upkeep.once()
                clock.ahead = (len(seen) + 1) * 86400.0
                seen.append(measured(home))
        assert life.told == []
    quarter = DAYS // 4
    if os.environ.get("MONTH"):
        for each in seen:
            print(each)
    second, last = (
        {name: mean(day[name] for day in seen[at * quarter : (at + 1) * quarter]) for name in seen[0]} for at in (1, 3)
    )
    for name in second:
        assert last[name] <= 1.05 * second[name], (
            f"{name}: {second[name]:.0f} in the second week, {last[name]:.0f} in the last"
        )
    assert last["blocks"] - second["blocks"] < 2 * quarter * GROUPS * ROUNDS, "something stays of every turn"
    assert "Traceback" not in home.log_file.read_text()
