"""Four weeks of use over the real rooms, on a clock that the test turns: what a daemon keeps, in memory and on the
disk, is flat. The sandboxes are objects, the platform is a stand-in; all else is what runs in the daemon."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
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
from clawd.config.schema import Retention
from clawd.delivery.outbox import Outbox
from clawd.ids import new_id
from clawd.intake import Intake, Place, Rules
from clawd.intake.attachments import Attachments
from clawd.ledger import groups
from clawd.model import Final, Incoming, Lease, Offer, Outgoing
from clawd.people.door import Admitted
from clawd.trust import Role
from clawd.upkeep import Upkeep
from tests.turns.conftest import BoxBackend, Ground

DAYS, GROUPS, ROUNDS = 28, 8, 16  # 128 turns a day, and what goes wrong beside them
PATIENCE = 60.0
RETENTION = Retention(text_days=2, key_days=5, log_days=5)
logger = logging.getLogger("clawd.month")


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


class Life(Ground):
    """One life of the daemon's rooms. What happens in a turn is written in its message."""

    def __init__(self, path: Path, tasks: anyio.abc.TaskGroup, backend: BoxBackend, platform: Platform) -> None:
        super().__init__(path, tasks, GROUPS, play, 2, backend)
        self.ledger._connection.execute("PRAGMA synchronous = OFF")
        self.told: list[str] = []
        channels = {"platform": platform, "terminal": Terminal({})}
        self.outbox = Outbox(
            self.ledger, self.signals, self.clock, channels, self.home.blobs, self.tasks, failed=self.recorder.failed
        )
        self.dispatcher.deliver = self.outbox.wake
        self.upkeep = Upkeep(self.home, self.ledger, self.clock, lambda: RETENTION, self.told.append)
        self.dispatcher.runs.check_room = self.upkeep.check_room
        self.intake = Intake(
            ledger=self.ledger,
            clock=self.clock,
            signals=self.signals,
            tasks=self.tasks,
            door=self,
            commands=COMMANDS,
            context=self,
            wake=self.dispatcher.wake,
            deliver=self.outbox.wake,
            limits=lambda channel: ChannelLimits(),
            rules=lambda group: Rules("always"),
            attachments=Attachments(self.ledger, channels.get, lambda group: Path(), lambda group: 0),
        )

    def stopped(self, live: list[int], waiting: list[int], told: Any = ()) -> None: ...

    async def context(self, row: Any) -> str:
        return "a window"

    def compact(self, tx: Any, row: Any) -> tuple[str, None]:
        return "less", None

    def freed(self, group: str) -> None: ...

    def state_of(self, group: str) -> str:
        return "well"

    async def admit(self, incoming: Incoming) -> Admitted:
        ensure_group(self.home, incoming.chat)
        await self.ledger.do(lambda tx: groups.add(tx, incoming.chat, "now"))
        return Admitted(Role(incoming.sender), place=Place(incoming.chat, f"platform:{incoming.chat}"))

    async def say(self, said: list[int], group: int, text: str, role: str = "owner") -> None:
        incoming = Incoming("platform", f"g{group}", new_id(), role, (text,), self.clock.now())
        receipt = await self.intake.receive(incoming)
        assert receipt.message is not None
        said.append(receipt.message)

    async def done(self, messages: list[int]) -> None:
        """Until all of these are at their end."""
        marks = ", ".join("?" * len(messages))
        open_ = f"SELECT 1 FROM inbound WHERE seq IN ({marks}) AND state NOT IN ('recorded', 'failed') LIMIT 1"
        with anyio.fail_after(PATIENCE):
            while await self.ledger.do(lambda tx: tx.one(open_, *messages)):
                await anyio.sleep(0.003)

    async def settle(self) -> None:
        """Until everything is said, recorded and noted, and no sandbox is warm."""
        unrecorded = "SELECT 1 FROM turn WHERE recorded_at IS NULL"
        with anyio.fail_after(PATIENCE):
            while not self.outbox.idle or self.dispatcher.active or await self.ledger.do(lambda tx: tx.one(unrecorded)):
                self.pass_time(0)
                await anyio.sleep(0.005)
        await self.recorder.add_notes()
        self.backend.boxes.clear()


async def play(life: Ground, lease: Lease, offer: Offer) -> None:
    text = offer.wakes[0]["parts"][0]["text"]
    await life.counter.step(lease, 0, {"role": "assistant", "content": "a step " * 20}, [])
    if "crash" in text and offer.attempt == 1:
        next(box for box in life.backend.boxes if box.run == lease.run).end("crashed")
    elif "fail" in text:
        await life.counter.final(lease, Final("", error="it cannot be done"))
    elif "file" in text:
        run = life.dispatcher.run_of(lease.run)
        assert run is not None
        (run.spec.work / "report").write_text(text * 50)
        await life.counter.final(lease, Final("here it is", ("report",)))
    else:
        await life.counter.final(lease, Final("an answer " * 30))


@asynccontextmanager
async def lived(path: Path, backend: BoxBackend, platform: Platform) -> AsyncIterator[Life]:
    async with anyio.create_task_group() as tasks:
        life = Life(path, tasks, backend, platform)
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


class Malloc(ctypes.Structure):
    """glibc's own account, in bytes."""

    _NAMES = (
        *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
        *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
    )
    _fields_ = [(name, ctypes.c_size_t) for name in _NAMES]


def measured(home: Home) -> dict[str, float]:
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Malloc
    account = libc.mallinfo2()
    sizes = {
        name: sum(path.stat().st_size for path in home.state.glob(pattern))
        for name, pattern in (("ledger", "ledger.db*"), ("blobs", "blobs/*"), ("logs", "logs/*"))
    }
    return {
        "blocks": sys.getallocatedblocks(),  # of small objects
        "allocated": account.uordblks + account.hblkhd,  # by all else; the resident pages hold what malloc keeps, too
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": sum(not each.name.startswith("AnyIO worker") for each in threading.enumerate()),  # these come and go
        **sizes,
    }


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """How many seconds log lines are stamped ahead of the machine's clock."""
    ahead = [0.0]
    made: Callable[..., logging.LogRecord] = logging.getLogRecordFactory()

    def make(*arguments: Any, **more: Any) -> logging.LogRecord:
        record = made(*arguments, **more)
        record.created += ahead[0]
        return record

    monkeypatch.setattr(logging, "_logRecordFactory", make)
    yield ahead
    log.setup(None)


@pytest.mark.anyio
async def test_a_month_of_use_leaves_memory_descriptors_and_disk_flat(
    tmp_path: Path, ahead: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, platform, backend = Home(tmp_path / "home"), Platform(), BoxBackend()
    home.create()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own keep every line
    for sync in ("fsync", "fdatasync"):  # what a crash of the machine would leave is not tried here
        monkeypatch.setattr(os, sync, lambda descriptor: None)
    log.setup(home.log_file, days=RETENTION.log_days)
    seen: list[dict[str, float]] = []
    for until in (2, 4, 6, DAYS):  # the daemon is started again in the first week, then runs on
        async with lived(tmp_path, backend, platform) as life:
            while len(seen) < until:
                ahead[0] = life.clock.ahead = len(seen) * 86400.0
                await live_a_day(life, len(seen))
                await life.upkeep.once()
                seen.append(measured(home))
        assert (life.told, life.failures) == ([], [])
    quarter = DAYS // 4
    second, last = (
        {name: mean(day[name] for day in seen[at * quarter : (at + 1) * quarter]) for name in seen[0]} for at in (1, 3)
    )
    for name, before in second.items():
        assert last[name] <= 1.05 * before, f"{name}: {before:.0f} in the second week, {last[name]:.0f} in the last"
    assert last["blocks"] - second["blocks"] < 2 * quarter * GROUPS * ROUNDS, "something stays of every turn"
    assert "Traceback" not in home.log_file.read_text()
