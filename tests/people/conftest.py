"""A home with its ledger and its door; the owner is asked of a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clawd.clock import TurnedClock
from clawd.commands.operations import Operations
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.config.load import init_home, load_group
from clawd.errors import ClawdError
from clawd.ledger.db import Ledger
from clawd.model import Incoming
from clawd.people.bindings import Bindings, Place
from clawd.people.door import Admitted, Door
from clawd.people.pairing import Codes
from clawd.people.roster import LiveRoster, load

PEOPLE = """\
schema = 1
[[people]]
name = "Ada"
role = "owner"
accounts = ["telegram:7", "slack:T012/U345"]
[[people]]
name = "bob"
role = "member"
accounts = ["telegram:8"]
"""
DIRECT = Incoming("telegram", "7", "1", "telegram:7", ("hello",), datetime(2026, 12, 1, tzinfo=UTC), direct=True)
SHARED = replace(DIRECT, chat="-100", direct=False, addressed=True, title="Family & Friends")


@dataclass
class Asked:
    fresh: bool = True
    state: str = "open"


class World:
    """The door, and what it told and asked."""

    def __init__(self, home: Home, ledger: Ledger) -> None:
        self.home, self.ledger = home, ledger
        self.clock = TurnedClock(datetime(2026, 12, 1, tzinfo=UTC))
        self.told: list[str] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: Asked | ClawdError = Asked()
        self.roster = LiveRoster(home, self.told.append)
        self.config = LiveConfig(home, {})
        self.bindings = Bindings(home, self.config, ledger, self.told.append)
        self.codes = Codes(self.clock)
        self.operations = Operations(home, ledger, self.clock)
        self.door = self.another()

    def another(self) -> Door:
        return Door(
            self.home,
            self.ledger,
            self.clock,
            roster=self.roster,
            bindings=self.bindings,
            codes=self.codes,
            asks=self,
            terminal=self._terminal,
            adopt=self.operations.group,
            told=lambda text, but_not: self.told.append(f"{text} (not by {but_not})"),
        )

    async def ask(self, kind: str, effect: Mapping[str, Any]) -> Asked:
        if isinstance(self.answer, ClawdError):
            raise self.answer
        self.asked.append((kind, dict(effect)))
        return self.answer

    async def _terminal(self, incoming: Incoming) -> Place:
        return Place(incoming.chat, await self.bindings.base(incoming.chat))

    def people(self, text: str = PEOPLE) -> None:
        self.home.people_file.write_text(text)

    def group(self, name: str, text: str) -> None:
        folder = self.home.group(name)
        folder.root.mkdir(exist_ok=True)
        folder.config_file.write_text(f"schema = 1\n{text}\n")

    def bound(self, name: str = "main") -> list[str]:
        return load_group(self.home, name).bindings

    def accounts(self) -> dict[str, tuple[str, ...]]:
        return {person.name: person.accounts for person in load(self.home).people}

    async def admit(self, incoming: Incoming, *texts: str, **more: Any) -> Admitted:
        return await self.door.admit(replace(incoming, **({"texts": texts} if texts else {}), **more))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    home = Home(tmp_path / "h")
    init_home(home)
    ledger = Ledger.open(home.ledger_file)
    yield World(home, ledger)
    ledger.close()
