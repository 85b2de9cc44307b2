"""Intake over a real ledger, with a channel that keeps what it is told and a door that knows three people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.channel import Adapter, ChannelLimits
from clawd.clock import SystemClock
from clawd.commands.table import COMMANDS
from clawd.intake import Intake, Place, Rules
from clawd.intake.attachments import Attachments, Listens
from clawd.intake.commands import Press
from clawd.ledger import ends, groups, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.turns import Claim
from clawd.model import Attachment, Final, Incoming, Lease, Receipt
from clawd.people.door import Admitted
from clawd.signals import Signals
from clawd.tasks import Tasks
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk

PEOPLE = {"chat:1": ("anna", Role.OWNER), "chat:2": ("bob", Role.MEMBER), "chat:3": ("carl", Role.MEMBER)}
SHARED = "-100"


class Channel(Adapter):
    """A platform whose files are `files`, by handle; one that is an exception is raised, once if it is in a list."""

    name = "chat"
    limits = ChannelLimits(buttons=True, fetch_bytes=1000)

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self.fetched: list[str] = []
        self.at_once = self.most = 0
        self.open = anyio.Event()
        self.open.set()

    async def fetch(self, attachment: Attachment, to: Path) -> None:
        handle = attachment.handle["id"]
        self.fetched.append(handle)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.open.wait()
            content = self.files[handle]
            if isinstance(content, list):
                content = content.pop(0)
            if isinstance(content, Exception):
                raise content
            to.write_bytes(content)
        finally:
            self.at_once -= 1


@dataclass
class World:
    """Intake and the rooms around it: what they were told."""

    ledger: Ledger
    inboxes: Path
    channel: Channel = field(default_factory=Channel)
    rules: Rules = field(default_factory=lambda: Rules("mention", "clawd"))
    presses: dict[str, Press] = field(default_factory=dict)
    speech: Listens | None = None
    quota: int = 10_000
    woken: list[str] = field(default_factory=list)
    delivered: list[Address] = field(default_factory=list)
    ended: list[tuple[list[int], list[int]]] = field(default_factory=list)
    noted: int = 0
    met: list[str] = field(default_factory=list)
    count: int = 0
    intake: Intake = field(init=False)

    def __post_init__(self) -> None:
        self.desk = Desk(self.ledger)
        self.ledger.tx(lambda tx: groups.add(tx, "main", NOW))

    # what intake asks

    def stopped(self, live: list[int], waiting: list[int], told: Any = ()) -> None:
        self.ended.append((live, waiting))

    async def usage(self, group: str, session: str) -> str:
        return f"{session}: nothing"

    async def model(self, group: str, words: str) -> str:
        return words

    async def pair(self, person: str | None) -> str:
        return "a code"

    async def context(self, row: Row) -> str:
        return "a window"

    def compact(self, tx: Transaction, row: Row) -> tuple[str, None]:
        return "less", None

    def freed(self, group: str) -> None: ...

    def state_of(self, group: str) -> str:
        return f"group {group}"

    async def admit(self, incoming: Incoming) -> Admitted:
        self.met += [incoming.name, incoming.title, incoming.chat]
        place = Place("main", f"{incoming.channel}:{incoming.chat}")
        if incoming.sender.startswith("stranger:"):
            return Admitted(Role.STRANGER, told="Who are you?")
        if incoming.channel == "terminal":
            return Admitted(Role(incoming.sender.partition(":")[0]), place=Place("main", "terminal:main"))
        if incoming.kind == "delete":
            return Admitted(Role.NONE, place=place)
        name, role = PEOPLE.get(incoming.sender, (None, Role.STRANGER))
        return Admitted(role, name, place) if name else Admitted(role, told="Who are you?" if incoming.direct else None)

    def note(self) -> None:
        self.noted += 1

    # what a platform does

    def incoming(self, text: str = "", sender: str = "chat:1", **more: Any) -> Incoming:
        self.count += 1
        direct = more.pop("direct", True)
        chat = more.pop("chat", sender if direct else SHARED)
        said = {"texts": (text,) if text else (), "at": datetime.now(UTC), "direct": direct, **more}
        id = said.pop("id", None) or str(self.count)
        return Incoming("chat", chat, id, sender, **said)

    async def say(self, text: str = "", sender: str = "chat:1", **more: Any) -> Receipt:
        return await self.intake.receive(self.incoming(text, sender, **more))

    async def shared(self, text: str, sender: str = "chat:2", **more: Any) -> Receipt:
        return await self.say(text, sender, direct=False, **more)

    def file(self, id: str, content: Any, name: str = "notes.txt", **more: Any) -> Attachment:
        self.channel.files[id] = content
        return Attachment(name, {"id": id}, **more)

    # what became of it

    def rows(self, sql: str, *values: Any) -> list[Row]:
        return self.ledger.tx(lambda tx: tx.all(sql, *values))

    def row(self, seq: int | None) -> Row:
        return self.rows("SELECT * FROM inbound WHERE seq = ?", seq)[0]

    def states(self) -> list[tuple[str, str | None]]:
        return [(row["state"], row["reason"]) for row in self.rows("SELECT state, reason FROM inbound ORDER BY seq")]

    def told(self) -> list[str]:
        return [row["text"] for row in self.rows("SELECT text FROM delivery ORDER BY id")]

    def claim(self, run: str = "r1") -> Claim:
        """The next turn, at work."""
        if not self.rows("SELECT 1 FROM run WHERE id = ?", run):
            self.desk.run(run)
        claim = self.ledger.tx(lambda tx: turns.claim(tx, run, "main", 0, NOW))
        assert claim is not None
        return claim

    def end(self, turn: int, shown: list[int] | None = None) -> None:
        """The turn that is at work answers, and is recorded."""

        def answer(tx: Transaction) -> None:
            row = turns.get(tx, turn)
            lease = Lease(row["run"], turn, row["attempt"], row["worker"])
            ends.answer(tx, lease, Final("", shown=shown), [], NOW, limits=ChannelLimits())
            ends.recorded(tx, turn, NOW)

        self.ledger.tx(answer)

    def shown(self, claim: Claim | None = None) -> list[list[tuple[str, str]]]:
        """What the wakes of a turn say, each as its parts' kinds and texts."""
        claim = claim or self.claim()
        return [[(part["kind"], part["text"]) for part in wake["parts"]] for wake in claim.wakes]

    async def until(self, what: Callable[[], Any]) -> Any:
        with anyio.fail_after(10):
            while not (found := what()):
                await anyio.sleep(0.005)
        return found


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[World]:
    """One life of intake; a second one is after a restart."""
    async with anyio.create_task_group() as tasks:
        world.intake = Intake(
            ledger=world.ledger,
            clock=SystemClock(),
            signals=Signals(),
            tasks=Tasks(tasks),
            door=world,
            commands=COMMANDS,
            context=world,
            wake=world.woken.append,
            deliver=world.delivered.append,
            limits=lambda channel: ChannelLimits(),
            rules=lambda group: world.rules,
            attachments=Attachments(
                world.ledger,
                {"chat": world.channel}.get,
                lambda group: world.inboxes / group,
                lambda group: world.quota,
                world.speech,
            ),
            presses=world.presses,
            noted=world.note,
        )
        yield world
        tasks.cancel_scope.cancel()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.db")


@pytest.fixture
def world(ledger: Ledger, tmp_path: Path) -> World:
    return World(ledger, tmp_path)


LONG_AGO = timedelta(hours=30)
