"""What changes a home on a person's word: the same functions behind the control socket and, without a daemon, under
the home's lock. Each takes the request's params and gives JSON-ready data."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from clawd.approvals import context as asking
from clawd.approvals.approvals import Approvals
from clawd.clock import Clock, SystemClock, rfc3339
from clawd.commands import arrivals, external, memory, people, schedules
from clawd.commands import contexts as by_hand
from clawd.commands.standing import missing, segment
from clawd.config.begin import ensure_group, init_home
from clawd.config.edit import set_value
from clawd.config.group import Effective, GroupConfig
from clawd.config.home import Home, group_folders
from clawd.config.load import load_config, load_group, merged
from clawd.errors import ClawdError, NotFound, UsageError
from clawd.files import read_beneath
from clawd.ids import check_session_id, folder_name
from clawd.ledger import contexts, ends, groups, turns
from clawd.ledger.approvals import Verdict, shown_as
from clawd.ledger.db import Ledger, Transaction
from clawd.lifecycle import state
from clawd.lifecycle.state import State
from clawd.people.roster import LiveRoster
from clawd.sessions import reading
from clawd.sessions.names import rebuild
from clawd.turns.dispatch import Dispatcher
from clawd.turns.injecting import Injector
from clawd.turns.memory import Memories
from clawd.turns.redaction import Redaction
from clawd.turns.tending import Tending
from clawd.usage.books import Rules
from clawd.usage.budgets import period

log = logging.getLogger(__name__)

Params = dict[str, Any]
Operation = Callable[[Params], Awaitable[Any]]


def text(params: Params, name: str) -> str:
    """A parameter that must be a non-empty string."""
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} is missing")
    return value


class Operations:
    """With a dispatcher: in the daemon. Without: in a command that holds the lock."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        dispatcher: Dispatcher | None = None,
        approvals: Approvals | None = None,
    ) -> None:
        self._home, self._ledger, self._clock, self._dispatcher = home, ledger, clock, dispatcher
        self._approvals, self.clock = approvals, clock
        self.settled: Callable[[str], None] = lambda session: None
        """Hears of a session whose files are to be written."""

    def table(self) -> dict[str, Operation]:
        return {name: partial(operation, self) for name, operation in _OPERATIONS.items()}

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    async def make_group(self, name: str) -> groups.GroupRow:
        """The group with its folder and its two files, made where they are missing."""
        folder_name(name)
        row = await self._ledger.do(lambda tx: groups.add(tx, name, self._now()))
        ensure_group(self._home, row.folder)
        return row

    async def adopt_folders(self) -> None:
        """Folders that a person made by hand under groups/ are groups."""
        known = {row.folder for row in await self._ledger.do(groups.every)}
        for entry in sorted(os.scandir(self._home.groups), key=lambda entry: entry.name):
            if entry.name in known or not entry.is_dir(follow_symlinks=False):
                continue
            try:
                await self.make_group(entry.name)
            except (ClawdError, OSError) as error:
                log.warning("groups/%s is no group: %s", entry.name, error)

    async def adopt_sessions(self) -> None:
        """Session files that a person put into a group's folder are its sessions, under the ids that they name."""
        known, ids = await self._ledger.do(lambda tx: (groups.stems(tx), groups.session_ids(tx)))

        def look() -> list[tuple[dict[str, Any], State | None]]:
            return [
                (each, _state(self._home.group(name).sessions, each["stem"]))
                for name in group_folders(self._home)
                for each in dropped(self._home, name, known.get(name, ()), ids)
            ]

        found = await asyncio.to_thread(look)
        for session, _ in found:
            await self.group(session["group"])
            await self._ledger.do(partial(groups.take_in, now=self._now(), **session))
        for session, kept in found:  # all are there now: one may name another
            if kept is not None:
                columns, pins = state.columns(kept), state.pins(kept)
                await self._ledger.do(
                    partial(contexts.take_back, session=session["id"], columns=columns, pins=pins, now=self._now())
                )

    async def add_group(self, params: Params) -> Params:
        row = await self.make_group(text(params, "name"))
        return {"group": row.name, "folder": str(self._home.group(row.folder).root)}

    async def group(self, name: str) -> groups.GroupRow:
        """The group: `main` is made on first use, a folder that a person made is adopted. Raises NotFound."""
        known = await self._ledger.do(lambda tx: groups.find(tx, name))
        if known is not None:
            return known
        if name != "main" and name not in group_folders(self._home):
            raise NotFound(f"there is no group {name!r}", hint=f"clawd groups add {name}")
        return await self.make_group(name)

    async def _known(self, params: Params) -> groups.GroupRow:
        return await self.group(text(params, "name"))

    async def set_group(self, params: Params) -> Params:
        row = await self._known(params)
        file, key = self._home.group(row.folder).config_file, text(params, "key")
        await asyncio.to_thread(set_value, file, key, str(params.get("value", "")))  # its library takes time to load
        if self._dispatcher is not None:
            self._dispatcher.spending.tick()
        return {"group": row.name, "key": params["key"], "value": params.get("value")}

    async def clean_group(self, params: Params) -> Params:
        """A fresh work/, the old one kept aside, and the group's authority lifted again."""
        row = await self._known(params)
        async with self._dispatcher.without_run(row.name) if self._dispatcher is not None else nullcontext():
            kept = await self._fresh_work(row)
        return {"group": row.name, "kept": str(kept) if kept else None}

    async def _fresh_work(self, row: groups.GroupRow) -> Path | None:
        work, kept = self._home.group(row.folder).work, None
        if work.is_symlink():
            raise ClawdError(f"{work} is a link; remove it by hand")
        if work.exists():
            kept = work.with_name(f"work.{datetime.now():%Y%m%d-%H%M%S}.{os.urandom(2).hex()}")
            work.rename(kept)
        ensure_group(self._home, row.folder)
        await self._ledger.do(lambda tx: groups.lift(tx, row.name))
        return kept

    async def trust_group(self, params: Params) -> Params:
        row = await self._known(params)
        await self._ledger.do(lambda tx: groups.lift(tx, row.name, sessions=True, now=self._now()))
        return {"group": row.name, "authority": "owner", "taint": 1.0}

    async def resume(self, params: Params) -> Params:
        """A session that is paused goes on; a plain id is the newest part of its conversation. Raises NotFound, and
        ClawdError for one that is over."""
        id = text(params, "session")

        def resume(tx: Transaction) -> tuple[str, str, str]:
            row = segment(tx, id)
            if row is None or not row.stem:
                raise missing(id, None, None)
            return row.id, row.group, asking.resume(tx, row.id, self._now())

        id, group, status = await self._ledger.do(resume)
        self.settled(id)
        if self._dispatcher is not None:
            self._dispatcher.wake(group)
        return {"session": id, "group": group, "status": status}

    async def retry(self, params: Params) -> Params:
        id = params.get("id")
        if not isinstance(id, int):
            raise UsageError("id is missing")
        turn = await self._ledger.do(lambda tx: turns.get(tx, ends.retry(tx, id, self._now())))
        if self._dispatcher is not None:
            self._dispatcher.wake(turn["grp"])
        return {"id": id, "turn": turn["id"], "state": "received"}

    async def raise_budget(self, params: Params) -> Params:
        """Raise the limits of a group for one day or month; turns that wait for that go on."""
        from clawd.usage import reports

        row, usd, tokens = await self._known(params), params.get("usd"), params.get("tokens")
        if usd is None and tokens is None:
            raise UsageError("say by how much: --usd N or --tokens N")
        settings = await asyncio.to_thread(self.settings, row.folder)
        when, span = period(self._clock.now(), settings.timezone), text(params, "span")
        rules = Rules(row.name, settings.budget, None, None)
        result = await self._ledger.do(lambda tx: reports.raised(tx, rules, when, span, usd, tokens, self._now()))
        if self._dispatcher is not None:
            self._dispatcher.spending.look()
        return result

    def settings(self, folder: str) -> Effective:
        return merged(load_config(self._home, dict(os.environ)), load_group(self._home, folder))

    def own_config(self, folder: str) -> GroupConfig:
        return load_group(self._home, folder)

    async def approve(self, params: Params) -> Params:
        return await self._decide(params, "approve")

    async def deny(self, params: Params) -> Params:
        return await self._decide(params, "deny")

    async def _decide(self, params: Params, verdict: Verdict) -> Params:
        """Without a daemon it is decided, and executed at the next start."""
        from clawd.approvals import alone

        id = params.get("id")
        if not isinstance(id, int):
            raise UsageError("id is missing")
        room = self._approvals or alone.approvals(self._home, self._ledger, self._clock)
        return shown_as(await room.by_hand(id, verdict))

    async def sandboxes(self, params: Params) -> list[Params]:
        return [] if self._dispatcher is None else self._dispatcher.sandboxes()

    async def stop_sandbox(self, params: Params) -> Params:
        group = text(params, "group")
        if self._dispatcher is None or not await self._dispatcher.end_run(group):
            raise NotFound(f"group {group!r} has no sandbox now", hint="clawd sandbox list")
        return {"group": group, "state": "gone"}


def dropped(home: Home, group: str, known: Collection[str], ids: Collection[str]) -> list[dict[str, Any]]:
    """{id, group, stem, trust} of a group's session files whose stems are not known, nor the `ids` that they name."""
    directory, found = home.group(group).sessions, []
    for id, stem in rebuild(directory, known).items() if directory.is_dir() else ():
        if id in ids:
            continue
        try:
            check_session_id(id)
            trust = reading.trust(directory / f"{stem}.md")
            found.append({"id": id, "group": group, "stem": stem, "trust": trust})
        except (ClawdError, OSError) as error:
            log.warning("groups/%s/sessions/%s.md is no session: %s", group, stem, error)
    return found


def _state(directory: Path, stem: str) -> State | None:
    """What lies beside a session's file of its context; what cannot be used is told."""
    name = f"{stem}.state.json"
    try:
        return state.read(read_beneath(directory, name, state.MOST_BYTES + 1), name)
    except FileNotFoundError:
        return None
    except (ClawdError, OSError) as error:
        log.warning("groups/%s/sessions: %s", directory.parent.name, error)
        return None


def init(home: Home) -> Params:
    """Make a home that works as it is; what is there stays."""
    return {"home": str(home.root), "made": [str(path) for path in init_home(home)]}


def offline(home: Home) -> dict[str, Operation]:
    """The operations for a command that holds the home's lock; the ledger is opened with the first of them."""

    def opened(name: str) -> Operation:
        async def operation(params: Params) -> Any:
            ledger = await asyncio.to_thread(Ledger.open, home.ledger_file, home.backups)
            clock = SystemClock()
            speakers, own = people.PeopleOperations(LiveRoster(home), ledger, clock), Operations(home, ledger, clock)
            known = schedules.ScheduleOperations(home, ledger, clock, own.group)
            memories = Memories(
                home, ledger, clock, lambda group: own.settings(group).memory,
                forgotten=Redaction(home, ledger, clock).redact,
            )  # fmt: skip
            kept = memory.MemoryOperations(memories, Tending(home, ledger, clock, memories), own.group)
            injector = Injector(home, ledger, clock)
            outside = external.ExternalOperations(
                home, ledger, own, injector, memories, lambda name: own.own_config(name).external
            )
            arrived = arrivals.ArrivalOperations(arrivals.alone(home, ledger, clock, memories, own.settings), own.group)
            try:
                rooms: list[Any] = [own, speakers, known, kept, outside, arrived]
                if name in by_hand.OPERATIONS:
                    rooms.append(by_hand.alone(home, ledger, clock, own))
                return await {name: each for room in rooms for name, each in room.table().items()}[name](params)
            finally:
                await memories.close()
                ledger.close()

        return operation

    return {
        name: opened(name)
        for name in (
            *_OPERATIONS,
            *people.OPERATIONS,
            *schedules.OPERATIONS,
            *memory.OPERATIONS,
            *external.OPERATIONS,
            *arrivals.OPERATIONS,
            *by_hand.OPERATIONS,
        )
    }


_OPERATIONS = {
    "groups.add": Operations.add_group,
    "groups.set": Operations.set_group,
    "groups.clean": Operations.clean_group,
    "groups.trust": Operations.trust_group,
    "messages.retry": Operations.retry,
    "session.resume": Operations.resume,
    "budget.raise": Operations.raise_budget,
    "approvals.approve": Operations.approve,
    "approvals.deny": Operations.deny,
    "sandbox.list": Operations.sandboxes,
    "sandbox.stop": Operations.stop_sandbox,
}
