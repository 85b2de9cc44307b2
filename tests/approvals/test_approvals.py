"""Asking, deciding and doing, over a real ledger and real files: each kind, once, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest

from clawd import faults
from clawd.approvals import alone, chats
from clawd.channel import ChannelLimits
from clawd.config.load import load_group
from clawd.errors import ClawdError, NotFound, UsageError
from clawd.ledger.forget import EVERY as FORGET
from clawd.ledger.forget import Terms
from clawd.people.roster import load
from clawd.schedules import edits
from clawd.trust import Role
from tests.approvals.conftest import ADA, EVERY, STRETCH, TERMINAL, World

pytestmark = pytest.mark.anyio


async def asked(world: World, kind: str) -> int:
    world.desk.accept()
    return await world.ask(kind)


def done(world: World, kind: str) -> None:
    """What a yes comes to, once."""
    found = world.effects()
    if kind == "person":
        dan = load(world.home).by_account("telegram:99")
        assert dan is not None and (dan.name, dan.role) == ("Dan", "member")
        assert found["bound"]["telegram:99"] == ("dan",) and found["groups"] == ["dan", "main"]
    elif kind == "group":
        assert found["bound"]["telegram:-100"] == ("family",) and found["groups"] == ["family", "main"]
        assert load_group(world.home, "family").answer == "mention"
    elif kind == "bind":
        assert found["bound"]["telegram:-100"] == ("main",)
        assert not world.ledger.tx(lambda tx: chats.must_ask(tx, "main", "telegram:-100"))
    elif kind == "budget":
        assert found["raises"] == 1
    elif kind == "schedule":
        assert found["files"] == {"stretch": STRETCH} and set(world.scheduled) <= {"main"}
    else:
        assert found["elsewhere"] == ["From terminal:main:\nhello"]


def prepare(world: World, kind: str) -> None:
    if kind == "group":  # a chat that is no group's yet
        world.write("main", 'bindings = ["terminal:main"]\n')


WORDS = {
    "person": ["may I let “Dan” speak with me, as a member?", "telegram:99", "will be “Dan”, in", "dan"],
    "group": ["may I work in the shared chat “Family” (telegram:-100)?", "“bob” spoke to me there", "family"],
    "bind": [
        "may I work in the shared chat “Family” (telegram:-100) as the group main?",
        "user_profile.md is not sent there",
        "> session terminal:main\n> memory/MEMORY.md",
    ],
    "budget": ["may I use $2.00 more today in the group main?"],
    "schedule": [
        "may I take up the schedule stretch of the group main?",
        "It is due every weekday at 09:00 (",
        "): 0 9 * * mon-fri; next: Wed",
        "next: Wed 2026-12-02 09:00, Thu 2026-12-03 09:00, Fri 2026-12-04 09:00.",
        "It ends on Sun 2027-05-30 09:00.",
        "Its answers go to telegram:-100.",
        "schedules/stretch.toml:\n> # Made by the agent in turn 1, which acts for member, and is trusted at 0.4.\n",
    ],
    "send": ["may I send this message to telegram:-100?", "> From terminal:main:\n> hello"],
}


@pytest.mark.parametrize("kind", EVERY)
async def test_a_yes_is_done_once_and_its_message_loses_its_buttons(world: World, kind: str) -> None:
    prepare(world, kind)
    number = await asked(world, kind)
    before = world.effects()
    [message] = world.sent()
    assert all(words in message["text"] for words in WORDS[kind]) and str(number) in message["text"]
    assert message["kind"] == "notice" and set(world.values(number)) == {"Approve", "Deny"}
    assert all(len(value.encode()) <= 64 for value in world.values(number).values())
    assert not (await world.approvals.ask(kind, EVERY[kind])).fresh and world.effects() == before
    async with world.working():
        assert await world.typed(number) == f"Approved: {number}."
    assert world.state(number) == "done"
    done(world, kind)
    edit, notice = world.sent()[1:]
    assert edit["edits"] == message["id"] and edit["buttons"] is None and edit["text"].startswith("Done: ")
    assert notice["text"].startswith(f"Approval {number}. Done: ")
    assert await world.typed(number) == f"Approval {number} is approved already."
    assert await world.typed(number, "deny") == f"Approval {number} is approved already."


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("point", ["approved", "executing", "edited", "executed"])
async def test_a_crash_on_the_way_and_it_is_still_done_once(world: World, kind: str, point: str) -> None:
    prepare(world, kind)
    number = await asked(world, kind)
    faults.load(f"raise@{point}")
    try:
        async with world.working():
            await world.typed(number)
    finally:
        faults.load(None)
    world.restart()
    for _ in range(2):
        async with world.working():
            await world.approvals.recover()
        assert world.state(number) == "done"
        done(world, kind)


def changed(world: World, kind: str) -> None:
    """Change what an approval rests on."""
    if kind == "person":
        people = world.home.people_file
        people.write_text(people.read_text().replace('"telegram:8"', '"telegram:8", "telegram:99"'))
    elif kind == "group":
        world.write("other", 'bindings = ["telegram:-100"]\n')
    elif kind == "bind":
        (world.home.group("main").memory / "secret.md").write_text("x")
    elif kind == "budget":
        world.write("main", 'bindings = ["terminal:main", "telegram:-100"]\n[budget]\nusd_per_day = 3\n')
    elif kind == "schedule":
        edits.put(world.home.group("main").schedules, "stretch", "# mine")
    else:
        world.write("main", 'bindings = ["terminal:main"]\n')


@pytest.mark.parametrize("kind", EVERY)
async def test_what_has_changed_since_it_was_asked_is_void_and_told(world: World, kind: str) -> None:
    prepare(world, kind)
    number = await asked(world, kind)
    changed(world, kind)
    before = world.effects()
    async with world.working():
        await world.typed(number)
    assert (world.state(number), world.effects()) == ("void", before)
    assert world.sent()[-1]["text"].startswith(f"Approval {number}. Nothing was done: ")
    if kind == "bind":  # it may be asked anew at once
        assert (await world.approvals.ask(kind, EVERY[kind])).fresh


async def test_content_that_changed_in_the_ledger_is_void(world: World) -> None:
    number = await asked(world, "send")
    effect = json.dumps({**json.loads(world.row(number)["effect"]), "text": "something else"})
    world.ledger.tx(lambda tx: tx.execute("UPDATE approval SET effect = ? WHERE number = ?", effect, number))
    async with world.working():
        await world.typed(number)
    assert world.state(number) == "void" and not world.effects()["elsewhere"]


async def test_who_said_yes_must_be_an_owner_when_it_is_done(world: World) -> None:
    number = await asked(world, "send")
    faults.load("raise@approved")
    async with world.working():
        await world.typed(number)
    faults.load(None)
    people = world.home.people_file
    people.write_text(people.read_text().replace('name = "Ada"\nrole = "owner"', 'name = "Ada"\nrole = "admin"'))
    world.restart()
    async with world.working():
        await world.approvals.recover()
    assert world.state(number) == "void" and not world.effects()["elsewhere"]


async def test_what_cannot_be_done_is_failed_and_told(world: World) -> None:
    number = await asked(world, "person")
    world.write("other", "nonsense = [")
    async with world.working():
        await world.typed(number)
    assert world.state(number) == "failed" and load(world.home).by_account("telegram:99") is None
    assert "could not be done" in world.sent()[-1]["text"]


async def test_a_defect_is_failed_and_told_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    number = await asked(world, "person")
    monkeypatch.setattr("clawd.approvals.chats._NewGroup.edit", lambda kind, effect: 1 / 0)
    async with world.working():
        await world.typed(number)
    assert world.state(number) == "failed" and "a defect of clawd (ZeroDivisionError)" in world.sent()[-1]["text"]


async def test_a_no_is_a_no_for_a_day(world: World) -> None:
    number = await asked(world, "send")
    async with world.working():
        assert await world.typed(number, "deny") == f"Denied: nothing was done ({number})."
    assert (await world.approvals.ask("send", EVERY["send"])).state == "denied"
    world.clock.advance(86_401)
    assert await world.ask("send")
    assert not world.effects()["elsewhere"]


async def test_a_budget_is_asked_about_once_a_period_whatever_was_said(world: World) -> None:
    number = await asked(world, "budget")
    async with world.working():
        await world.typed(number, "deny")
    world.clock.advance(86_400)
    assert not (await world.approvals.ask("budget", EVERY["budget"])).fresh
    with pytest.raises(UsageError, match="2026-12-01 is over"):
        await world.approvals.ask("budget", {**EVERY["budget"], "group": "other"})
    assert world.effects()["raises"] == 0


async def test_five_strangers_may_wait_for_an_answer(world: World) -> None:
    world.desk.accept()
    for n in range(5):
        account = f"telegram:{n + 100}"
        await world.ask("person", account=account, binding=account, name=f"n{n}", group=f"g{n}")
    with pytest.raises(UsageError, match="wait for the owner already"):
        await world.ask("person")


async def test_nobody_answers_and_it_is_over_also_after_a_restart(world: World) -> None:
    number, other = await asked(world, "budget"), await asked(world, "bind")
    world.arrive(number)
    world.restart()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.approvals.run)
        await world.ledger.do(lambda tx: None)
        world.clock.advance(86_401)
        world.approvals.look_again()
        with anyio.fail_after(10):
            while await world.ledger.do(lambda tx: tx.one("SELECT 1 FROM approval WHERE state = 'open'")):
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    assert (world.state(number), world.state(other)) == ("expired", "expired") and ADA in world.told
    assert world.sent()[-1]["text"].startswith("Nobody answered in time: nothing was done.")
    assert await world.typed(number) == f"Approval {number} is over: nobody decided in time already."


async def test_a_late_yes_is_none_also_before_the_timer_saw_it(world: World) -> None:
    number = await asked(world, "send")
    world.clock.advance(86_400)
    async with world.working():
        assert "Nobody answered in time" in await world.typed(number)
    assert world.state(number) == "expired" and not world.effects()["elsewhere"]


@pytest.mark.parametrize("end", ["done", "denied", "expired", "void", "failed"])
async def test_the_agent_that_asked_is_told_and_acts_for_nobody_above_it(world: World, end: str) -> None:
    turn = world.turn(Role.MEMBER, 0.2)
    number = world.ask_for(turn, text="From terminal:main:\nsay \u202e“hi”")
    if end == "void":
        world.write("main", 'bindings = ["terminal:main"]\n')
    if end == "failed":
        world.write("main", "nonsense = [")
    if end == "expired":
        world.clock.advance(86_400)
    async with world.working():
        await world.typed(number, "deny" if end == "denied" else "approve")
    assert world.state(number) == end and "main" in world.woken
    wakes = world.ledger.tx(lambda tx: tx.all("SELECT * FROM wake WHERE kind = 'approval'"))
    [wake] = wakes
    queued = world.ledger.tx(
        lambda tx: tx.one("SELECT t.* FROM turn t JOIN turn_wake w ON w.turn = t.id WHERE w.wake = ?", wake["id"])
    )
    assert (wake["authority"], wake["trust"], wake["origin"]) == ("member", 0.2, "system")
    assert queued is not None
    assert (queued["authority"], queued["taint"], queued["session"]) == ("member", 0.2, "terminal:main")
    [part] = json.loads(wake["text"])
    assert part["kind"] == "quoted" and "You asked to send a message to telegram:-100:" in part["text"]
    assert str(number) not in part["text"]  # which only the owner knows
    assert len(world.effects()["elsewhere"]) == (end == "done")


async def test_a_text_that_does_not_fit_is_shown_whole_as_a_file(world: World) -> None:
    world.desk.accept()
    text = "From terminal:main:\n" + "line\u202e\n" * 2000
    number = await world.ask("send", text=text)
    file, message = world.sent()
    kept = (world.home.blobs / file["blob"]).read_text()
    assert kept.count("line⟨U+202E⟩") == 2000 and "\u202e" not in kept
    assert len(message["text"]) < 1000 and "in the file above" in message["text"] and message["buttons"]
    async with world.working():
        await world.typed(number)
    assert "".join(world.effects()["elsewhere"]).count("line\u202e") == 2000  # what was asked, as it was


async def test_a_file_goes_with_the_question_and_then_where_it_was_to_go(world: World) -> None:
    world.desk.accept()
    blob = world.approvals._blobs.add(b"hello")
    number = await world.ask("send", kind="file", text="From terminal:main:", blob=blob, name="a.txt")
    file, message = world.sent()
    assert (file["blob"], file["name"]) == (blob, "a.txt") and "the file “a.txt”" in message["text"]
    async with world.working():
        await world.typed(number)
    elsewhere = world.ledger.tx(lambda tx: tx.all("SELECT * FROM delivery WHERE chat = '-100'"))
    assert [(row["kind"], row["blob"], row["name"]) for row in elsewhere] == [("file", blob, "a.txt")]


@pytest.mark.parametrize(
    ("live", "but_not", "at"),
    [
        ({"telegram", "slack"}, None, ADA),
        ({"telegram"}, "telegram", TERMINAL),
        (set(), None, TERMINAL),
    ],
)
async def test_where_the_owner_is_asked(world: World, live: set[str], but_not: str | None, at: Any) -> None:
    world.desk.accept()
    world.live.clear()
    world.live |= live
    asked = await world.approvals.ask("bind", EVERY["bind"], but_not=but_not)
    row = world.row(asked.number)
    assert (row["channel"], row["chat"]) == (at.channel, at.chat) and len(world.sent(at)) == 1
    if at == TERMINAL:
        [message] = world.sent(at)
        assert message["buttons"] is None and f"Say /approve {asked.number} or" in message["text"]
        async with world.working():
            await world.typed(asked.number, sender="owner", channel="terminal", chat="main", direct=0)
        assert world.state(asked.number) == "done" and len(world.sent(at)) == 2


async def test_the_command_line_decides_with_a_daemon_and_without(world: World) -> None:
    first, second = await asked(world, "send"), await world.ask("budget")
    async with world.working():
        assert (await world.approvals.by_hand(first, "approve"))["state"] == "done"
        with pytest.raises(ClawdError, match="approved already"):
            await world.approvals.by_hand(first, "deny")
        with pytest.raises(NotFound):
            await world.approvals.by_hand(999_999, "deny")
    without = alone.approvals(world.home, world.ledger, world.clock)
    assert (await without.by_hand(second, "approve"))["state"] == "approved"
    assert world.effects()["raises"] == 0
    world.restart()
    async with world.working():
        await world.approvals.recover()
    assert (world.effects()["raises"], world.raised) == (1, 1)


async def test_a_standing_yes_is_never_forgotten(world: World) -> None:
    numbers = [await asked(world, kind) for kind in ("bind", "send")]
    async with world.working():
        for number in numbers:
            world.arrive(number)
            await world.typed(number)
    world.ledger.tx(lambda tx: tx.execute("UPDATE delivery SET state = 'sent', seen = 1"))
    over = world.clock.now() + timedelta(days=400)
    for each in FORGET * 3:
        world.ledger.tx(lambda tx, each=each: each(tx, Terms(over, over, over), 0))  # type: ignore[misc]
    rows = world.ledger.tx(lambda tx: tx.all("SELECT kind, words FROM approval"))
    assert [(row["kind"], row["words"]) for row in rows] == [("bind", "")]
    assert not world.ledger.tx(lambda tx: chats.must_ask(tx, "main", "telegram:-100"))


def _reads(world: World, work: Callable[[], object]) -> int:
    """How many rows are asked for."""
    asked: list[str] = []
    world.ledger.tx(lambda tx: tx._connection.set_trace_callback(asked.append))
    work()
    world.ledger.tx(lambda tx: tx._connection.set_trace_callback(None))
    return sum(each.startswith("SELECT") for each in asked)


async def test_a_group_without_private_sessions_need_not_ask(world: World) -> None:
    must_ask = lambda: world.ledger.tx(lambda tx: chats.must_ask(tx, "main", "telegram:-100"))  # noqa: E731
    assert not must_ask()
    world.meet("telegram", "-200", "telegram:8", "bob", direct=False)
    own = [f"telegram:{chat}{thread}" for chat in ("-100", "-1005", "-200") for thread in ("", ":5", ":9", ":9@main")]
    world.meet("telegram", "-1005", "telegram:8", "bob", direct=False)
    for session in own:
        world.desk.accept(session=session)
        assert not must_ask()
    steps = _reads(world, must_ask)
    for thread in range(100, 120):
        world.desk.accept(session=f"telegram:-200:{thread}")
    assert not must_ask() and _reads(world, must_ask) == steps  # threads are not looked at one by one
    for session in ("telegram:-200:10:1", "telegram:7", "telegram:-200:9:1"):
        world.meet("telegram", session.partition(":")[2], "telegram:8", "bob", direct=True)
        world.desk.accept(session=session)
        private = world.ledger.tx(lambda tx: list(chats.private_sessions(tx, "main", "telegram:-100")))
        assert session in private and must_ask()
    world.meet("telegram", "-100", "telegram:8", "bob", direct=False)
    assert world.ledger.tx(lambda tx: chats.is_barred(tx, "main", "telegram:-100"))
    assert not world.ledger.tx(lambda tx: chats.is_barred(tx, "main", "telegram:-300"))  # nobody spoke there


async def test_a_message_edit_is_left_out_where_there_are_none(world: World) -> None:
    world.channels["telegram"] = ChannelLimits()
    number = await asked(world, "send")
    assert world.sent()[0]["buttons"] is None
    async with world.working():
        await world.typed(number)
    assert [row["edits"] for row in world.sent()] == [None, None]
