"""Which messages are commands, and how often a sender may speak; what is durable is carried on, whoever goes away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from clawd.channel import ChannelLimits
from clawd.clock import SystemClock, TurnedClock
from clawd.commands.table import COMMANDS
from clawd.errors import DiskFull, StorageError, UsageError
from clawd.intake import RATE_MESSAGES, RATE_WINDOW_S, Intake, Place, Rates, parse
from clawd.ledger import ends, groups, turns
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import Address
from clawd.model import Incoming
from clawd.signals import Signals
from clawd.tasks import Tasks
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/help", ("help", "")),
        ("  /stop all ", ("stop", "all")),
        ("/status@clawd_bot now", ("status", "now")),
        ("/new\nand more", ("new", "and more")),
        ("/etc/passwd", None),
        ("/ help", None),
        ("/Help", None),
        ("help", None),
        ("see /help", None),
        ("/" + "x" * 33, None),
        ("", None),
    ],
)
def test_a_command_is_one_word_behind_a_slash_at_the_start(text: str, command: tuple[str, str] | None) -> None:
    assert parse(text) == command


def test_who_speaks_too_often_waits_until_the_window_has_room_and_others_do_not() -> None:
    clock = TurnedClock(datetime.now(UTC))
    rates = Rates(clock)
    for _ in range(RATE_MESSAGES):
        assert rates.wait("member:max") == 0
        clock.advance(1)
    assert rates.wait("member:max") == RATE_WINDOW_S - RATE_MESSAGES
    assert rates.wait("member:ada") == 0
    clock.advance(RATE_WINDOW_S - RATE_MESSAGES)
    assert rates.wait("member:max") == 0
    assert rates.wait("member:max") > 0


def test_senders_that_are_quiet_are_forgotten() -> None:
    clock = TurnedClock(datetime.now(UTC))
    rates = Rates(clock)
    for number in range(1000):
        rates.wait(f"member:{number}")
    clock.advance(RATE_WINDOW_S + 1)
    rates.wait("member:new")
    assert list(rates._times) == ["member:new"]


class Around:
    """The rooms around intake: what they were told."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.desk = ledger, Desk(ledger)
        self.woken: list[str] = []
        self.delivered: list[Address] = []
        self.ended: list[tuple[list[int], list[int]]] = []
        self.count = 0
        self.followups = "steer"

    def stopped(self, live: list[int], waiting: list[int]) -> None:
        self.ended.append((live, waiting))

    async def usage(self, group: str, session: str) -> str:
        return f"{session}: nothing"

    def state_of(self, group: str) -> str:
        return f"group {group}"

    async def place(self, incoming: Incoming) -> Place:
        return Place("main", "terminal:main")

    def incoming(self, text: str, sender: str = "owner") -> Incoming:
        self.count += 1
        return Incoming("terminal", "main", f"i{self.count}", sender, (text,), datetime.now(UTC))


@asynccontextmanager
async def opened(ledger: Ledger) -> AsyncIterator[tuple[Intake, Around]]:
    around = Around(ledger)
    ledger.tx(lambda tx: groups.add(tx, "main", NOW))
    async with anyio.create_task_group() as tasks:
        intake = Intake(
            ledger=ledger,
            clock=SystemClock(),
            signals=Signals(),
            tasks=Tasks(tasks),
            place=around.place,
            role=lambda incoming: Role(incoming.sender.partition(":")[0]),
            commands=COMMANDS,
            context=around,
            wake=around.woken.append,
            deliver=around.delivered.append,
            limits=lambda channel: ChannelLimits(),
            followups=lambda group: around.followups,
        )
        yield intake, around
        tasks.cancel_scope.cancel()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.db")


@pytest.mark.anyio
async def test_a_message_is_durable_and_its_group_is_woken(ledger: Ledger) -> None:
    async with opened(ledger) as (intake, around):
        incoming = around.incoming("hi")
        receipt = await intake.receive(incoming)
        again = await intake.receive(incoming)
    assert (receipt.state, receipt.fresh, again.fresh, again.message) == ("received", True, False, receipt.message)
    assert around.woken == ["main"]


@pytest.mark.anyio
async def test_on_a_full_disk_nothing_is_taken_in_but_a_stop(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "lay_ballast", lambda: False)  # as while there is no room for it
    async with opened(ledger) as (intake, around):
        for text in ("hi", "/new", "/status"):
            with pytest.raises(DiskFull):
                await intake.receive(around.incoming(text))
        assert (await intake.receive(around.incoming("/stop"))).fresh


@pytest.mark.anyio
async def test_a_sender_that_goes_away_while_it_is_kept_loses_nothing(ledger: Ledger) -> None:
    async with opened(ledger) as (intake, around):
        async with anyio.create_task_group() as sender:
            sender.start_soon(intake.receive, around.incoming("hi"))
            sender.start_soon(intake.receive, around.incoming("/help"))
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            sender.cancel_scope.cancel()
        kept = await ledger.do(lambda tx: tx.all("SELECT kind, state FROM inbound ORDER BY kind"))
    assert [tuple(row) for row in kept] == [("command", "answered"), ("message", "received")]
    assert around.woken == ["main"] and len(around.delivered) == 1


@pytest.mark.anyio
async def test_a_stop_that_was_accepted_before_a_crash_is_carried_out_before_turns_go_on(ledger: Ledger) -> None:
    async with opened(ledger) as (intake, around):
        around.desk.accept("a long task")
        around.desk.run("r1")
        claim = ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
        around.desk.accept("and another")
        around.desk.accept("/stop all", kind="command", role=Role.MEMBER)  # whose it is not
        around.desk.accept("/stop", kind="command")  # and then the daemon died
        await intake.carry_out_open()
        assert claim is not None and around.ended == [([], []), ([claim.turn["id"]], [])]
        said = [row["text"] for row in ledger.tx(lambda tx: tx.all("SELECT text FROM delivery ORDER BY id"))]
        assert said[0].startswith("Nothing was stopped. What somebody with more rights has begun") and len(said) == 2
        assert ledger.tx(lambda tx: ends.requeue(tx, claim.turn["id"], NOW)).state == "stopped"


@pytest.mark.anyio
async def test_a_command_that_cannot_be_read_any_more_hinders_no_other(ledger: Ledger) -> None:
    async with opened(ledger) as (intake, around):
        first, second = around.desk.accept("/help", kind="command"), around.desk.accept("/help", kind="command")
        ledger.tx(lambda tx: tx.execute("UPDATE inbound SET parts = '[]' WHERE seq = ?", first.seq))
        await intake.carry_out_open()
        assert around.desk.state("inbound", second.seq) == "answered"


@pytest.mark.anyio
@pytest.mark.parametrize(("followups", "ended"), [("steer", False), ("queue", False), ("interrupt", True)])
async def test_a_newer_message_ends_what_is_at_work_where_the_group_says_so(
    ledger: Ledger, followups: str, ended: bool
) -> None:
    async with opened(ledger) as (intake, around):
        around.followups = followups
        around.desk.accept("a long task")
        around.desk.run("r1")
        claim = ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
        assert claim is not None
        durable: list[bool] = []

        def stopped(live: list[int], waiting: list[int]) -> None:
            durable.append(bool(ledger.tx(lambda tx: turns.get(tx, live[0]))["stop_requested"]))
            around.ended.append((live, waiting))

        around.stopped = stopped  # type: ignore[method-assign]
        await intake.receive(around.incoming("not this", "member:bob"))
        assert around.ended == []
        incoming = around.incoming("rather this")
        for _ in range(2):  # the platform sends it again
            await intake.receive(incoming)
        await intake.receive(around.incoming("and this"))
        assert around.ended == ([([claim.turn["id"]], [])] if ended else [])
        assert durable == [True] * len(around.ended)
        assert len(around.delivered) == len(around.ended) and around.woken == ["main"] * 3


@pytest.mark.anyio
async def test_a_message_that_waited_for_its_rate_ends_what_is_at_work_once_it_is_taken(ledger: Ledger) -> None:
    async with opened(ledger) as (intake, around):
        around.followups = "interrupt"
        around.desk.accept("a long task", role=Role.MEMBER)
        around.desk.run("r1")
        claim = ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
        held = around.desk.accept("rather this", role=Role.MEMBER, held="rate")
        await intake.recover()
        with anyio.fail_after(5):
            while not around.ended:
                await anyio.sleep(0.005)
        assert claim is not None and around.ended == [([claim.turn["id"]], [])]
        assert around.desk.state("inbound", held.seq) == "received"


@pytest.mark.anyio
async def test_beyond_its_rate_a_member_waits_and_is_told(ledger: Ledger) -> None:
    async with opened(ledger) as (intake, around):
        receipts = [await intake.receive(around.incoming("hi", "member:bob")) for _ in range(RATE_MESSAGES + 1)]
        more = await intake.receive(around.incoming("hi", "member:bob"))
        owners = await intake.receive(around.incoming("hi"))
    assert [each.state for each in receipts] == ["received"] * RATE_MESSAGES + ["held"]
    assert receipts[-1].told is not None and "kept" in receipts[-1].told
    assert (more.state, more.told) == ("held", None)  # once
    assert owners.state == "received"


@pytest.mark.anyio
@pytest.mark.parametrize(("text", "error"), [(" \n", UsageError), ("x" * 300_000, UsageError)])
async def test_what_cannot_be_a_message_is_refused(ledger: Ledger, text: str, error: type[Exception]) -> None:
    async with opened(ledger) as (intake, around):
        with pytest.raises(error):
            await intake.receive(around.incoming(text))


@pytest.mark.anyio
async def test_strangers_leave_nothing_behind_and_nothing_comes_in_at_the_end(ledger: Ledger) -> None:
    async with opened(ledger) as (intake, around):
        receipt = await intake.receive(around.incoming("hi", "stranger:eve"))
        assert (receipt.message, receipt.state) == (None, "refused") and receipt.told
        intake.closed = True
        with pytest.raises(StorageError):
            await intake.receive(around.incoming("hi"))
        assert (await ledger.do(lambda tx: tx.all("SELECT * FROM inbound"))) == []
