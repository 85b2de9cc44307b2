"""A home with its people, its ledger and its approvals. Two owners, Ada and Cleo, of whom Ada spoke last; bob is a
member. Messages are sent by giving their rows a platform's id."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.approvals.approvals import Approvals
from clawd.approvals.context import Confirming, Context
from clawd.approvals.kinds import kinds
from clawd.channel import ChannelLimits
from clawd.clock import TurnedClock, rfc3339
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.ledger import chats, contexts, deliveries, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.lifecycle.deciding import Decision
from clawd.lifecycle.journal import Confirm
from clawd.model import Incoming
from clawd.owner import Owner
from clawd.people.bindings import Bindings
from clawd.people.roster import LiveRoster
from clawd.schedules import edits, store
from clawd.tasks import Tasks
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk

PEOPLE = """\
schema = 1
[[people]]
name = "Ada"
role = "owner"
accounts = ["telegram:7", "slack:T012/U345"]
[[people]]
name = "Cleo"
role = "owner"
accounts = ["telegram:9"]
[[people]]
name = "bob"
role = "member"
accounts = ["telegram:8"]
"""
ADA = Address("telegram", "", "7", "")
TERMINAL = Address("terminal", "", "main", "")
BUTTONS = ChannelLimits(buttons=True, edits=True)
LET_IN = {
    "account": "telegram:99",
    "name": "Dan",
    "role": "member",
    "binding": "telegram:99",
    "group": "dan",
    "called": "Dan",
}
GROUP = {"binding": "telegram:-100", "group": "family", "shared": True, "title": "Family", "person": "bob"}
BIND = {"group": "main", "binding": "telegram:-100", "title": "Family"}
RAISE = {"group": "main", "span": "day", "period": "2026-12-01", "unit": "usd", "amount": 2 * 10**9}
SEND = {
    "group": "main",
    "session": "terminal:main",
    "source": "terminal:main",
    "to": "telegram:-100",
    "kind": "text",
    "text": "From terminal:main:\nhello",
}
STRETCH = """\
# Made by the agent in turn 1, which acts for member, and is trusted at 0.4.
schema = 1
cron = "0 9 * * mon-fri"
prompt = "Remind me: stretch"
deliver_to = "telegram:-100"
until = "2027-05-30T09:00:00+00:00"
"""
SCHEDULE = {"group": "main", "id": "stretch", "action": "add", "text": STRETCH, "sha256": edits.digest(STRETCH)}
EVERY = {"person": LET_IN, "group": GROUP, "bind": BIND, "budget": RAISE, "send": SEND, "schedule": SCHEDULE}


class World:
    """`restart` is another life over the same home."""

    def __init__(self, home: Home, ledger: Ledger) -> None:
        self.home, self.ledger, self.desk = home, ledger, Desk(ledger)
        self.clock = TurnedClock(datetime(2026, 12, 1, 9, tzinfo=UTC))
        self.channels = {"terminal": ChannelLimits(text=60_000), "telegram": BUTTONS, "slack": BUTTONS}
        self.live = {"telegram", "slack"}
        self.woken: list[str] = []
        self.told: list[Address] = []
        self.raised = 0
        self.scheduled: list[str] = []
        self.carried: list[tuple[str, Decision, str | None]] = []
        self._group: Any = None
        self.seen = 0
        self.restart()
        self.write("main", 'bindings = ["terminal:main", "telegram:-100"]\n[budget]\nusd_per_day = 2\n')
        home.people_file.write_text(PEOPLE)
        self.meet("telegram", "9", "telegram:9", "Cleo")
        self.meet("telegram", "7", "telegram:7", "Ada")

    def restart(self) -> None:
        self.roster = LiveRoster(self.home)
        self.config = LiveConfig(self.home, {})
        self.bindings = Bindings(self.home, self.config, self.ledger, lambda sentence: None)
        self.owner = Owner(
            self.ledger,
            self.clock,
            self,  # type: ignore[arg-type]
            self.told.append,
            self.roster,
            self.live.__contains__,
            self.limits,
        )
        self.approvals = Approvals(
            self.ledger,
            self.clock,
            self.start_soon,
            kinds(
                self.home,
                self.clock,
                self.bindings,
                self.roster,
                limits=self.channels.get,
                deliver=self.told.append,
                raised=self._more,
                scheduled=self.scheduled.append,
                watched=lambda group: None,
                context=Context(
                    lambda tx, session, decision, by: self.carried.append((session, decision, by)),
                    self._journal,
                    wake=self.woken.append,
                    limits=self.limits,
                ),
            ),
            self.owner,
            limits=self.limits,
            deliver=self.told.append,
            wake=self.woken.append,
            blobs=self.home.blobs,
        )
        self.confirming = Confirming(self.approvals, self.limits)

    def limits(self, channel: str) -> ChannelLimits:
        return self.channels[channel]

    def _journal(self, tx: Transaction, session: str, decision: Decision, confirm: Confirm) -> None:
        line = {"action": decision.action, "trigger": decision.trigger, "confirm": asdict(confirm)}
        contexts.note(tx, session, "decisions", line)

    def _more(self) -> None:
        self.raised += 1

    def start_soon(self, work: Any, *arguments: Any, name: str | None = None) -> None:
        self._group.start_soon(work, *arguments, name=name)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """At its end what was begun is done."""
        async with anyio.create_task_group() as tasks:
            self._group = Tasks(tasks)
            yield

    # ── what there is ──

    def write(self, group: str, text: str) -> None:
        file = self.home.group(group).config_file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"schema = 1\n{text}")
        file.chmod(0o600)

    def meet(self, channel: str, chat: str, sender: str, person: str, direct: bool = True) -> None:
        """Somebody speaks in a chat, later than all before."""
        self.seen += 1
        at = Incoming(channel, chat, "1", sender, ("hi",), self.clock.now(), direct=direct, title="T")
        seen = f"2026-12-01T08:00:0{self.seen}+00:00"
        self.ledger.tx(lambda tx: chats.met(tx, at, person, seen))

    def turn(self, role: Role = Role.MEMBER, taint: float = 0.4) -> int:
        """A turn of main's that asks."""
        self.desk.accept(role=role)
        self.desk.run("r")
        claimed = self.ledger.tx(lambda tx: turns.claim(tx, "r", "main", 0, NOW))
        assert claimed is not None
        self.ledger.tx(lambda tx: turns.fall(tx, "r", taint))
        return int(claimed.turn["id"])

    async def ask(self, kind: str, /, **other: Any) -> int:
        asked = await self.approvals.ask(kind, {**EVERY[kind], **other})
        assert asked.fresh
        return asked.number

    def ask_for(self, turn: int, /, **other: Any) -> int:
        return self.ledger.tx(lambda tx: self.approvals.ask_in(tx, "send", {**SEND, **other}, turn=turn)).number

    def row(self, number: int) -> Row:
        row = self.ledger.tx(lambda tx: tx.one("SELECT * FROM approval WHERE number = ?", number))
        assert row is not None
        return row

    def state(self, number: int) -> str:
        return str(self.row(number)["state"])

    def sent(self, at: Address = ADA) -> list[Row]:
        return self.ledger.tx(
            lambda tx: tx.all(
                "SELECT * FROM delivery WHERE (channel, account, chat) = (?, ?, ?) ORDER BY id",
                at.channel,
                at.account,
                at.chat,
            )
        )

    def arrive(self, number: int) -> str:
        """The approval's message is sent: its id on the platform."""
        delivery, id = self.row(number)["delivery"], f"m{number}"

        def arrive(tx: Transaction) -> None:
            tx.move("delivery", delivery, "send")
            deliveries.decide(tx, delivery, "arrive", platform_id=id)

        self.ledger.tx(arrive)
        return id

    def values(self, number: int) -> dict[str, str]:
        """What the buttons say, by their labels."""
        id = self.row(number)["delivery"]
        delivery = self.ledger.tx(lambda tx: tx.one("SELECT * FROM delivery WHERE id = ?", id))
        assert delivery is not None
        return dict(json.loads(delivery["buttons"]))

    def effects(self) -> Mapping[str, Any]:
        """All that approvals could have done."""

        def look(tx: Transaction) -> dict[str, Any]:
            return {
                "groups": [row["name"] for row in tx.all("SELECT name FROM grp ORDER BY name")],
                "raises": len(tx.all("SELECT 1 FROM budget_raise")),
                "elsewhere": [row["text"] for row in tx.all("SELECT text FROM delivery WHERE chat = '-100'")],
            }

        directory = self.home.group("main").schedules
        files = {id: edits.read(directory, id) for id in sorted(store.stamps(directory))}
        bound = self.bindings.read().claims
        return {**self.ledger.tx(look), "people": self.home.people_file.read_text(), "bound": bound, "files": files}

    async def typed(self, number: int | str, verdict: str = "approve", sender: str = "telegram:7", **other: Any) -> str:
        """`/approve` by a message of this sender, in their own direct chat."""
        message = {"channel": "telegram", "account": "", "chat": sender.partition(":")[2], "direct": 1, **other}
        message = {"role": "owner", "sender": sender, **message}
        said, after = await self.ledger.do(
            lambda tx: self.approvals.typed(tx, message, verdict, str(number))  # type: ignore[arg-type]
        )
        if after is not None:
            after()
        return said

    def now(self) -> str:
        return rfc3339(self.clock.now())


@pytest.fixture
def world(tmp_path: Path) -> Any:
    home = Home(tmp_path / "h")
    init_home(home, user="Ada")
    ledger = Ledger.open(home.ledger_file)
    yield World(home, ledger)
    ledger.close()
