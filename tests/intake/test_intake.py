"""Which messages are commands, and how often a sender may speak; what is durable is carried on, whoever goes away."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest

from clawd.clock import TurnedClock
from clawd.errors import DiskFull, StorageError, UsageError
from clawd.intake import parse
from clawd.intake.rates import RATE_MESSAGES, RATE_WINDOW_S, Rates
from clawd.ledger import ends, turns
from clawd.model import Incoming
from clawd.trust import Role
from tests.intake.conftest import World, opened
from tests.ledger.conftest import NOW


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


def typed(world: World, text: str, sender: str = "owner") -> Incoming:
    """Said at the terminal."""
    world.count += 1
    return Incoming("terminal", "main", f"i{world.count}", sender, (text,), datetime.now(UTC), direct=True)


@pytest.mark.anyio
async def test_a_message_is_durable_and_its_group_is_woken(world: World) -> None:
    async with opened(world):
        incoming = typed(world, "hi")
        receipt = await world.intake.receive(incoming)
        again = await world.intake.receive(incoming)
    assert (receipt.state, receipt.fresh, again.fresh, again.message) == ("received", True, False, receipt.message)
    assert world.woken == ["main"]


@pytest.mark.anyio
async def test_on_a_full_disk_nothing_is_taken_in_but_a_stop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.ledger, "lay_ballast", lambda: False)  # as while there is no room for it
    async with opened(world):
        for text in ("hi", "/new", "/status"):
            with pytest.raises(DiskFull):
                await world.intake.receive(typed(world, text))
        assert (await world.intake.receive(typed(world, "/stop"))).fresh


@pytest.mark.anyio
async def test_a_sender_that_goes_away_while_it_is_kept_loses_nothing(world: World) -> None:
    async with opened(world):
        async with anyio.create_task_group() as sender:
            sender.start_soon(world.intake.receive, typed(world, "hi"))
            sender.start_soon(world.intake.receive, typed(world, "/help"))
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            sender.cancel_scope.cancel()
        kept = await world.ledger.do(lambda tx: tx.all("SELECT kind, state FROM inbound ORDER BY kind"))
    assert [tuple(row) for row in kept] == [("command", "answered"), ("message", "received")]
    assert world.woken == ["main"] and len(world.delivered) == 1


@pytest.mark.anyio
async def test_a_stop_that_was_accepted_before_a_crash_is_carried_out_before_turns_go_on(world: World) -> None:
    async with opened(world):
        world.desk.accept("a long task")
        world.desk.run("r1")
        claim = world.ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
        world.desk.accept("and another")
        world.desk.accept("/stop all", kind="command", role=Role.MEMBER)  # whose it is not
        world.desk.accept("/stop", kind="command")  # and then the daemon died
        await world.intake.carry_out_open()
        assert claim is not None and world.ended == [([], []), ([claim.turn["id"]], [])]
        said = [row["text"] for row in world.ledger.tx(lambda tx: tx.all("SELECT text FROM delivery ORDER BY id"))]
        assert said[0].startswith("Nothing was stopped. What somebody with more rights has begun") and len(said) == 2
        assert world.ledger.tx(lambda tx: ends.requeue(tx, claim.turn["id"], NOW)).state == "stopped"


@pytest.mark.anyio
async def test_a_command_that_cannot_be_read_any_more_hinders_no_other(world: World) -> None:
    async with opened(world):
        first, second = world.desk.accept("/help", kind="command"), world.desk.accept("/help", kind="command")
        world.ledger.tx(lambda tx: tx.execute("UPDATE inbound SET parts = '[]' WHERE seq = ?", first.seq))
        await world.intake.carry_out_open()
        assert world.desk.state("inbound", second.seq) == "answered"


@pytest.mark.anyio
@pytest.mark.parametrize(("followups", "ended"), [("steer", False), ("queue", False), ("interrupt", True)])
async def test_a_newer_message_ends_what_is_at_work_where_the_group_says_so(
    world: World, followups: str, ended: bool
) -> None:
    async with opened(world):
        world.rules = replace(world.rules, followups=followups)
        world.desk.accept("a long task")
        world.desk.run("r1")
        claim = world.ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
        assert claim is not None
        durable: list[bool] = []

        def stopped(live: list[int], waiting: list[int], told: object = ()) -> None:
            durable.append(bool(world.ledger.tx(lambda tx: turns.get(tx, live[0]))["stop_requested"]))
            world.ended.append((live, waiting))

        world.stopped = stopped  # type: ignore[method-assign]
        await world.intake.receive(typed(world, "not this", "member:bob"))
        assert world.ended == []
        incoming = typed(world, "rather this")
        for _ in range(2):  # the platform sends it again
            await world.intake.receive(incoming)
        await world.intake.receive(typed(world, "and this"))
        assert world.ended == ([([claim.turn["id"]], [])] if ended else [])
        assert durable == [True] * len(world.ended)
        assert len(world.delivered) == len(world.ended) and world.woken == ["main"] * 3


@pytest.mark.anyio
async def test_a_message_that_waited_for_its_rate_ends_what_is_at_work_once_it_is_taken(world: World) -> None:
    async with opened(world):
        world.rules = replace(world.rules, followups="interrupt")
        world.desk.accept("a long task", role=Role.MEMBER)
        world.desk.run("r1")
        claim = world.ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
        held = world.desk.accept("rather this", role=Role.MEMBER, held="rate")
        await world.intake.recover()
        with anyio.fail_after(5):
            while not world.ended:
                await anyio.sleep(0.005)
        assert claim is not None and world.ended == [([claim.turn["id"]], [])]
        assert world.desk.state("inbound", held.seq) == "received"


@pytest.mark.anyio
async def test_beyond_its_rate_a_member_waits_and_is_told(world: World) -> None:
    async with opened(world):
        receipts = [await world.intake.receive(typed(world, "hi", "member:bob")) for _ in range(RATE_MESSAGES + 1)]
        more = await world.intake.receive(typed(world, "hi", "member:bob"))
        owners = await world.intake.receive(typed(world, "hi"))
    assert [each.state for each in receipts] == ["received"] * RATE_MESSAGES + ["held"]
    assert receipts[-1].told is not None and "kept" in receipts[-1].told
    assert (more.state, more.told) == ("held", None)  # once
    assert owners.state == "received"


@pytest.mark.anyio
@pytest.mark.parametrize(("text", "error"), [(" \n", UsageError), ("x" * 300_000, UsageError)])
async def test_what_cannot_be_a_message_is_refused(world: World, text: str, error: type[Exception]) -> None:
    async with opened(world):
        with pytest.raises(error):
            await world.intake.receive(typed(world, text))


@pytest.mark.anyio
async def test_strangers_leave_nothing_behind_and_nothing_comes_in_at_the_end(world: World) -> None:
    async with opened(world):
        receipt = await world.intake.receive(typed(world, "hi", "stranger:eve"))
        assert (receipt.message, receipt.state) == (None, "refused") and receipt.told
        world.intake.closed = True
        with pytest.raises(StorageError):
            await world.intake.receive(typed(world, "hi"))
        assert (await world.ledger.do(lambda tx: tx.all("SELECT * FROM inbound"))) == []
