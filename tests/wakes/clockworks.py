"""A clockwork over a real home and ledger, with a clock that the test turns. What a turn would do is said in a line."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio

from clawd.channel import NOTICE
from clawd.clock import TurnedClock, rfc3339
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.config.load import init_home
from clawd.ledger import ends, firings, groups, runs, turns
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import Address, address_of
from clawd.ledger.firings import utc
from clawd.model import Authority, Final, Lease
from clawd.owner import Owner
from clawd.people.bindings import Bindings
from clawd.people.roster import LiveRoster
from clawd.signals import Signals
from clawd.tasks import Tasks
from clawd.trust import Role
from clawd.wakes.clockwork import Clockwork

START = datetime(2026, 11, 30, 8, tzinfo=UTC)


def home_at(root: Path, zone: str = "UTC", *names: str) -> Home:
    home = Home(root / "h")
    init_home(home)
    home.create()
    config = home.config_file.read_text()
    home.config_file.write_text(config.replace("[claw]\n", f'[claw]\ntimezone = "{zone}"\n', 1))
    for name in ("main", *names):
        home.group(name).schedules.mkdir(parents=True, exist_ok=True)
    return home


class Works:
    """One life of a clockwork. `checks` are what its checks answer, in order: (code, output), or an exception."""

    def __init__(self, home: Home, ledger: Ledger, clock: TurnedClock, tasks: Tasks) -> None:
        self.home, self.ledger, self.clock = home, ledger, clock
        self.config = LiveConfig(home, {})
        self.woken: list[str] = []
        self.checked: list[tuple[str, Sequence[str], Role]] = []
        self.checks: list[tuple[int, bytes] | Exception] = []
        signals = Signals()
        self.signals = signals
        bindings = Bindings(home, self.config, ledger, lambda sentence: None)
        owner = Owner(ledger, clock, tasks, lambda to: None, LiveRoster(home, lambda text: None), lambda channel: False)
        self.clockwork = Clockwork(
            home, ledger, clock, tasks, signals, self.config, owner, base=bindings.base, wake=self.woken.append,
            deliver=lambda to: None, limits=lambda channel: NOTICE, output=self._output,
        )  # fmt: skip

    async def _output(
        self, group: str, argv: Sequence[str], *, role: Role, seconds: float, most_bytes: int
    ) -> tuple[int, bytes]:
        self.checked.append((group, argv, role))
        answer = self.checks.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    # ── files ──

    def write(self, id: str, text: str, group: str = "main") -> Path:
        """A schedule's file, as a person's editor leaves it."""
        path = self.home.group(group).schedules / f"{id}.toml"
        new = path.with_suffix(".new")
        new.write_text(f"schema = 1\n{text}\n")
        new.replace(path)
        os.utime(path, ns=(path.stat().st_mtime_ns + 1, path.stat().st_mtime_ns + 1))
        return path

    def bind(self, text: str, group: str = "main") -> None:
        self.home.group(group).config_file.write_text(f"schema = 1\n{text}\n")

    async def written(self, id: str, text: str, group: str = "main") -> None:
        self.write(id, text, group)
        await self.clockwork.renew(group)

    # ── time ──

    async def at(self, moment: datetime) -> None:
        """Turn the clock to a moment, and do what there is to do then."""
        self.clock.advance((moment - self.clock.now()).total_seconds())
        await self.clockwork.tick()

    async def later(self, **span: float) -> None:
        await self.at(self.clock.now() + timedelta(**span))

    # ── turns ──

    def end(self, how: str = "answer", group: str = "main", why: str = "it fell over") -> dict[str, Any]:
        """Claim and end the group's next turn; gives what it was handed."""
        now = rfc3339(self.clock.now())

        def work(tx: Any) -> dict[str, Any]:
            if tx.one("SELECT 1 FROM run WHERE id = ?", group) is None:
                runs.begin(tx, group, group, backend="bubblewrap", directory="/nowhere", uid=None,
                           authority=Authority(Role.OWNER), now=now)  # fmt: skip
                runs.ready(tx, group, token_hash="", pid=1, start=1, parallel=4)
            claim = turns.claim(tx, group, group, 0, now)
            assert claim is not None, "nothing waits"
            lease = Lease(group, claim.turn["id"], claim.attempt, 0)
            if how == "answer":
                ends.answer(tx, lease, Final("done"), [], now, limits=NOTICE)
            elif how == "fail":
                ends.fault(tx, lease.turn, why, now, limits=NOTICE, final=True)
            elif how == "stop":
                ends.stopped(tx, lease.turn, now)
            if how == "hold":
                ends.hold_live(tx, lease.turn, "the budget is spent", now, limits=NOTICE)
            else:
                ends.recorded(tx, lease.turn, now)
            return {"turn": lease.turn, "session": claim.turn["session"], "to": Address.of(claim.turn),
                    "role": claim.authority, "taint": claim.taint, "wakes": claim.wakes,
                    "allowance": claim.turn["allowance"]}  # fmt: skip

        return self.ledger.tx(work)

    def wakes(self) -> int:
        return len(self.rows("SELECT id FROM wake"))

    # ── what is known ──

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in self.ledger.tx(lambda tx: tx.all(sql, *values))]

    def firings(self, id: str = "a", group: str = "main") -> list[tuple[str, str]]:
        """(due, outcome), the oldest first: the time alone."""
        rows = self.ledger.tx(lambda tx: firings.history(tx, group, id))
        return [(row["due"][11:16], row["outcome"]) for row in reversed(rows)]

    def reasons(self, id: str = "a", group: str = "main") -> list[str]:
        rows = self.ledger.tx(lambda tx: firings.history(tx, group, id))
        return [row["reason"] for row in reversed(rows)]

    def one(self, id: str = "a", group: str = "main") -> dict[str, Any]:
        """Its line of `schedule list`."""
        return next(row for row in self.ledger.tx(lambda tx: firings.listed(tx, group)) if row["id"] == f"{group}/{id}")

    def told(self, chat: str = "terminal:main") -> list[str]:
        to = address_of(chat)
        return [
            row["text"]
            for row in self.rows("SELECT text FROM delivery WHERE kind = 'notice' AND channel = ? AND chat = ?"
                                 " ORDER BY id", to.channel, to.chat)
        ]  # fmt: skip


@asynccontextmanager
async def works(root: Path, zone: str = "UTC", *names: str) -> AsyncIterator[Works]:
    """A clockwork that has begun."""
    home = home_at(root, zone, *names)
    ledger = Ledger.open(home.ledger_file)
    ledger._connection.execute("PRAGMA synchronous = OFF")  # no test here pulls the plug
    clock = TurnedClock(START)
    ledger.tx(lambda tx: [groups.add(tx, name, utc(START)) for name in ("main", *names)])
    try:
        async with life(home, ledger, clock) as made:
            yield made
    finally:
        ledger.close()


@asynccontextmanager
async def life(
    home: Home, ledger: Ledger, clock: TurnedClock, *checks: tuple[int, bytes] | Exception
) -> AsyncIterator[Works]:
    """Another one over the same home, as after a restart."""
    async with anyio.create_task_group() as tasks:
        made = Works(home, ledger, clock, Tasks(tasks))
        made.checks += checks
        await made.clockwork.begin()
        await made.clockwork.tick()
        yield made
        tasks.cancel_scope.cancel()
