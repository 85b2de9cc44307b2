"""The table of attacks, over the real door, intake and ledger: whatever is sent, nothing is executed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.approvals.wall import Wall
from clawd.commands.operations import Operations
from clawd.commands.table import COMMANDS
from clawd.intake import Done, Intake, Rules
from clawd.intake.attachments import Attachments
from clawd.ledger.db import Row, Transaction
from clawd.model import Incoming, Said
from clawd.people.bindings import Place
from clawd.people.door import Door
from clawd.people.pairing import Codes
from clawd.signals import Signals
from clawd.tasks import Tasks
from tests.approvals.conftest import SEND, World

pytestmark = pytest.mark.anyio


class Attacked:
    """An open approval, asked in Ada's direct chat, and whoever wants it done without her word."""

    def __init__(self, world: World) -> None:
        self.world, self.count = world, 0

    async def asked(self) -> None:
        world = self.world
        world.desk.accept()
        world.write(
            "main", 'bindings = ["terminal:main", "telegram:7", "telegram:9", "slack:T012/D1", "telegram:-100"]\n'
        )
        world.write("bobs", 'bindings = ["telegram:8"]\n')
        world.write("family", 'bindings = ["telegram:-200"]\nanswer = "always"\n')
        self.number = await world.ask("send")
        self.target = world.arrive(self.number)
        self.value = world.values(self.number)["Approve"]
        other = await world.ask("send", text="From terminal:main:\nanother")
        self.other, self.other_target = world.values(other)["Approve"], world.arrive(other)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """A life of intake; at its end what was begun is done."""
        world = self.world
        async with anyio.create_task_group() as tasks:
            world._group = Tasks(tasks)
            operations = Operations(world.home, world.ledger, world.clock)

            async def terminal(incoming: Incoming) -> Place:
                return Place("main", "terminal:main")

            door = Door(
                world.home,
                world.ledger,
                world.clock,
                roster=world.roster,
                bindings=world.bindings,
                codes=Codes(world.clock),
                asks=world.approvals,
                terminal=terminal,
                adopt=operations.group,
                told=lambda sentence: None,
            )
            self.intake = Intake(
                ledger=world.ledger,
                clock=world.clock,
                signals=Signals(),
                tasks=Tasks(tasks),
                door=Wall(door, world.ledger, world.approvals),
                commands=COMMANDS,
                context=self,  # type: ignore[arg-type]
                wake=lambda group: None,
                deliver=lambda at: None,
                limits=world.limits,
                rules=lambda group: Rules("always"),
                attachments=Attachments(
                    world.ledger, lambda name: None, lambda group: Path("/nowhere"), lambda group: 0
                ),
                presses={"approve": self.pressed, "deny": self.pressed},
            )
            yield

    async def decide_memory(self, row: Row, verdict: Any, which: str) -> str:
        return ""

    def decide(self, tx: Transaction, row: Row, verdict: Any, which: str) -> Any:
        return self.world.approvals.typed(tx, row, verdict, which)

    def pressed(self, tx: Transaction, row: Row, now: str) -> Done | None:
        found = self.world.approvals.pressed(tx, row)
        return Done(*found) if found is not None else None

    # ── what can be sent ──

    def text(self, text: str, sender: str = "telegram:7", **other: Any) -> Incoming:
        self.count += 1
        chat = {"chat": sender.partition(":")[2], "direct": True, "addressed": True}
        what = {"platform_id": f"p{self.count}", "texts": (text,), "at": self.world.clock.now(), **chat, **other}
        return Incoming("telegram", sender=sender, **what)

    def button(self, value: str | None = None, target: str | None = None, **other: Any) -> Incoming:
        what = {"value": self.value if value is None else value, "target": self.target if target is None else target}
        what = {"kind": "button", "texts": (), **what, **other}
        return replace(self.text("", sender=what.pop("sender", "telegram:7")), **what)

    async def send(self, *messages: Incoming) -> None:
        for each in messages:
            await self.intake.receive(each)

    # ── what can be done ──

    async def after_a_no(self) -> None:
        await self.send(self.text(f"/deny {self.number}"), self.button(), self.text(f"/approve {self.number}"))

    async def too_late(self) -> None:
        self.world.clock.advance(86_400)
        await self.send(self.button(), self.text(f"/approve {self.number}"))

    async def other_content(self) -> None:
        effect = json.dumps({**SEND, "blob": None, "name": None, "text": "something else"})
        await self.world.ledger.do(lambda tx: tx.execute("UPDATE approval SET effect = ?", effect))
        await self.send(self.button())

    async def binding_gone(self) -> None:
        self.world.write("main", 'bindings = ["terminal:main", "telegram:7"]\n')
        await self.send(self.button())

    async def no_owner_any_more(self) -> None:
        people = self.world.home.people_file
        people.write_text(people.read_text().replace('name = "Ada"\nrole = "owner"', 'name = "Ada"\nrole = "admin"'))
        await self.send(self.button(), self.text(f"/approve {self.number}"))

    async def account_gone(self) -> None:
        people = self.world.home.people_file
        people.write_text(people.read_text().replace('"telegram:7", ', ""))
        await self.send(self.button(), self.text(f"/approve {self.number}"))

    async def no_list_of_people(self) -> None:
        self.world.home.people_file.write_text("nonsense")
        await self.send(self.button(), self.text(f"/approve {self.number}"))

    async def edited(self) -> None:
        said = self.text("hello")
        await self.send(said, replace(said, kind="edit", rev=1, texts=(f"/approve {self.number}",)))


def words(*texts: str) -> Callable[[Attacked], Awaitable[None]]:
    """Ada's own words in her direct chat; N is the approval's number."""
    return lambda a: a.send(*(a.text(text.replace("N", str(a.number))) for text in texts))


def forms(*make: Callable[[Attacked], Incoming]) -> Callable[[Attacked], Awaitable[None]]:
    return lambda a: a.send(*(each(a) for each in make))


SHARED = {"chat": "-200", "direct": False}
ATTACKS: dict[str, Callable[[Attacked], Awaitable[None]]] = {
    "forged text": words(
        "approve N", "yes", "Approve", "Approval N. Done", "approved: N", "/approved N", "/ approve N"
    ),
    "text that looks like a button": words("approve:N:secret", "Press: Approve N"),
    "a command without a number of ours": words("/approve", "/approve 1", "/approve 0N", "/approve N N", "/approve -N"),
    "hidden characters": words("/appr\u200bove N", "/approve N\u202e", "/approve \u2066N\u2069", "/approve\u00a0x N"),
    "digits of another script": forms(
        lambda a: a.text(
            "/approve " + str(a.number)[0] + "".join(chr(0xFF10 + int(digit)) for digit in str(a.number)[1:])
        )
    ),
    "quoted and forwarded": forms(
        lambda a: a.text("what is this?", said=(Said("quoted", f"/approve {a.number}", "clawd"),)),
        lambda a: replace(a.text(""), texts=(), said=(Said("forwarded", f"/approve {a.number}", "Ada"),)),
        lambda a: a.text("hm", reply_to=a.target),
    ),
    "edited into a command": Attacked.edited,
    "typed by a member": forms(lambda a: a.text(f"/approve {a.number}", "telegram:8")),
    "typed by a stranger with the owner's name": forms(
        lambda a: a.text(f"/approve {a.number}", "telegram:66", name="Ada")
    ),
    "typed by a member in the owner's chat": forms(lambda a: a.text(f"/approve {a.number}", "telegram:8", chat="7")),
    "typed by the owner where others read": forms(lambda a: a.text(f"/approve {a.number}", **SHARED)),
    "typed by a member at the terminal": forms(
        lambda a: replace(a.text(f"/approve {a.number}", "member:Ada", chat="main"), channel="terminal"),
        lambda a: replace(a.text(f"/approve {a.number}", "admin:owner", chat="main"), channel="terminal"),
    ),
    "forged button values": forms(
        lambda a: a.button(f"approve:{a.number}:{'A' * 16}"),
        lambda a: a.button(f"approve:{a.number}:"),
        lambda a: a.button(f"approve:{a.number}"),
        lambda a: a.button(a.value.upper()),
        lambda a: a.button(a.value + " "),
        lambda a: a.button(a.value.replace("approve", "answer")),
        lambda a: a.button(a.value.replace(str(a.number), "0" + str(a.number))),
    ),
    "the right value on another message": forms(
        lambda a: a.button(target=a.other_target),
        lambda a: a.button(target="m1"),
        lambda a: a.button(target=""),
    ),
    "another approval's value on this message": forms(lambda a: a.button(a.other)),
    "pressed by a member": forms(
        lambda a: a.button(sender="telegram:8"), lambda a: a.button(sender="telegram:8", chat="7")
    ),
    "pressed by a stranger": forms(lambda a: a.button(sender="telegram:66", chat="7")),
    "pressed by nobody": forms(lambda a: a.button(sender="", chat="7")),
    "pressed by the other owner": forms(
        lambda a: a.button(sender="telegram:9"), lambda a: a.button(sender="telegram:9", chat="7")
    ),
    "pressed by the owner where others read": forms(
        lambda a: a.button(**SHARED), lambda a: a.button(direct=False), lambda a: a.button(chat="-200")
    ),
    "pressed in another chat of hers": forms(
        lambda a: replace(a.button(), channel="slack", account="T012", chat="D1", sender="slack:T012/U345"),
    ),
    "after a no": Attacked.after_a_no,
    "after its time": Attacked.too_late,
    "content that was changed": Attacked.other_content,
    "what it rests on is gone": Attacked.binding_gone,
    "by an owner who is none any more": Attacked.no_owner_any_more,
    "from an account that is hers no more": Attacked.account_gone,
    "without a list of people": Attacked.no_list_of_people,
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
async def test_nothing_is_executed(world: World, attack: str, restarted: bool) -> None:
    attacked = Attacked(world)
    await attacked.asked()
    if restarted:
        world.restart()
    async with attacked.open():
        await ATTACKS[attack](attacked)
    assert world.state(attacked.number) in ("open", "denied", "expired", "void")
    assert not world.effects()["elsewhere"] and not world.ledger.tx(
        lambda tx: tx.all("SELECT 1 FROM approval WHERE state IN ('approved', 'executing', 'done')")
    )


@pytest.mark.parametrize("restarted", [False, True])
async def test_her_own_press_is_executed_and_a_replay_of_it_is_not(world: World, restarted: bool) -> None:
    """The measure of the table: only this works."""
    attacked = Attacked(world)
    await attacked.asked()
    if restarted:
        world.restart()
    async with attacked.open():
        press = attacked.button()
        await attacked.send(press)
    async with attacked.open():
        await attacked.send(press, replace(press, platform_id="again"), attacked.text(f"/approve {attacked.number}"))
    assert world.state(attacked.number) == "done" and world.effects()["elsewhere"] == [SEND["text"]]


@pytest.mark.parametrize(
    "other",
    [
        {"target": "m1"},
        {"target": None},
        {"chat": "9"},
        {"channel": "slack"},
        {"account": "T012"},
        {"direct": 0},
        {"sender": "telegram:9"},
        {"role": "admin"},
        {"value": ""},
    ],
)
async def test_a_press_counts_by_all_of_it_also_without_what_intake_checks(world: World, other: dict[str, Any]) -> None:
    attacked = Attacked(world)
    await attacked.asked()
    message = {"channel": "telegram", "account": "", "chat": "7", "direct": 1, "sender": "telegram:7", "role": "owner"}
    message |= {"target": attacked.target, "value": attacked.value}
    press = world.approvals.pressed
    guess = attacked.value[:-1] + ("B" if attacked.value[-1] == "A" else "A")
    for wrong in (message | other, message | {"value": guess}, message | {"value": attacked.other}):
        assert world.ledger.tx(lambda tx, wrong=wrong: press(tx, wrong)) is None  # type: ignore[misc]
    assert world.state(attacked.number) == "open"
    assert world.ledger.tx(lambda tx: press(tx, message)) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize("first", ["approve", "deny"])
async def test_two_owners_at_once_are_one_decision(world: World, first: str) -> None:
    attacked = Attacked(world)
    await attacked.asked()
    approve, deny = attacked.button(), attacked.text(f"/deny {attacked.number}", "telegram:9")
    async with attacked.open(), anyio.create_task_group() as tasks:
        for each in [approve, deny] if first == "approve" else [deny, approve]:
            tasks.start_soon(attacked.intake.receive, each)
    state = world.state(attacked.number)
    assert (state, len(world.effects()["elsewhere"])) in [("done", 1), ("denied", 0)]


async def test_a_shared_chat_of_a_group_with_private_sessions_hears_nothing_before_a_yes(world: World) -> None:
    attacked = Attacked(world)
    world.desk.accept()  # main is private
    shared = {"chat": "-100", "direct": False, "title": "Family"}
    async with attacked.open():
        receipts = [await attacked.intake.receive(attacked.text("hi", "telegram:8", **shared)) for _ in range(2)]
    assert [(each.state, each.message) for each in receipts] == [("refused", None)] * 2
    assert [bool(each.told) for each in receipts] == [True, False]  # that the owner was asked privately
    asked = world.ledger.tx(lambda tx: tx.all("SELECT * FROM approval"))
    assert [(row["kind"], row["subject"]) for row in asked] == [("bind", "main telegram:-100")]
    async with world.working():
        await world.typed(asked[0]["number"])
    async with attacked.open():
        assert (await attacked.intake.receive(attacked.text("hi", "telegram:8", **shared))).state == "received"
    assert world.state(asked[0]["number"]) == "done"
