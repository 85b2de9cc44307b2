"""Schedules on a person's word: looking reads the files and the ledger, whether a daemon runs or not; changing is the
same behind the control socket and under the home's lock, but for `run`, which needs the daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

from clawd.clock import Clock, rfc3339
from clawd.config.group import Effective, GroupConfig
from clawd.config.home import Home, group_folders
from clawd.config.load import load_config, load_group, machine_zone, merged
from clawd.config.schema import Config
from clawd.config.values import check_zone
from clawd.errors import ClawdError, ConfigError, NotFound, UsageError
from clawd.ids import free
from clawd.ledger import authored, firings
from clawd.ledger.db import Ledger, Transaction, peek
from clawd.ledger.groups import GroupRow
from clawd.schedules import edits, listing, making
from clawd.schedules.file import ScheduleFile
from clawd.schedules.times import instant, rule_of, upcoming

if TYPE_CHECKING:
    from clawd.wakes.clockwork import Clockwork

T = TypeVar("T")
Params = dict[str, Any]
Place = tuple[str, str]  # group and id
_MOST = 1000
ENDED = ("ran", "late", "skipped", "missed", "failed")
_KEYS = ("prompt", "tz", "skill", "session", "deliver_to", "catch_up", "catch_up_within", "jitter", "check", "until",
         "budget")  # fmt: skip


# ── looking ──


def listed(home: Home, group: str | None) -> list[Params]:
    """Every schedule, of one group or all: {id, group, expr, tz, next, last, enabled, proposed, error}. Raises
    NotFound."""
    config, now = load_config(home, dict(os.environ)), datetime.now(UTC)
    folders = group_folders(home)
    if group is not None and group not in folders:
        raise NotFound(f"there is no group {group!r}", hint=f"clawd groups add {group}")
    asked = [group] if group is not None else folders

    def read(tx: Transaction | None) -> list[Params]:
        some = {place[0] for place in _proposed(tx)}
        there = [each for each in asked if each in some or home.group(each).schedules.is_dir()]
        return [
            row
            for each in there
            for row in listing.of_group(tx, home, each, _settings(home, config, each).timezone, now)
        ]

    return _read(home, read)


def show(home: Home, named: str, group: str | None) -> Params:
    """One, with all that is known of it. Raises NotFound, UsageError where several groups have one of this name."""
    config, now = load_config(home, dict(os.environ)), datetime.now(UTC)

    def read(tx: Transaction | None) -> Params:
        where, id = place(home, named, group, _proposed(tx))
        found = listing.details(tx, home, where, id, _settings(home, config, where).timezone, now)
        if found is None:
            raise _unknown(named)
        return {**found, "history": history_of(tx, where, id, 5)}

    return _read(home, read)


def history(home: Home, named: str | None, group: str | None) -> list[Params]:
    """What became of runs, the newest first: {id, due, fired, outcome, reason, turn}. Raises NotFound."""

    def read(tx: Transaction | None) -> list[Params]:
        if named is None:
            return history_of(tx, group, None)
        where, id = place(home, named, group, [*_proposed(tx), *_fired(tx)])
        return history_of(tx, where, id)

    return _read(home, read)


def history_of(tx: Transaction | None, group: str | None, id: str | None, limit: int = 1000) -> list[Params]:
    """Of runs that are over."""
    rows = firings.history(tx, group, id, limit) if tx is not None else []
    return [row for row in rows if row["outcome"] in ENDED]


def place(home: Home, named: str, group: str | None, also: Collection[Place] = ()) -> Place:
    """Which schedule `<group>/<id>` is, or the bare id where it is unique, among the files and `also`. Raises NotFound,
    UsageError."""
    said, slash, id = named.rpartition("/")
    wanted = said if slash else group
    found = {where for where, each in also if each == id}
    if edits.is_id(id):
        files = ((where, home.group(where).schedules / f"{id}.toml") for where in group_folders(home))
        found |= {where for where, file in files if file.is_file()}
    found = {where for where in found if wanted in (None, where)}
    if not found:
        raise _unknown(named)
    if len(found) > 1:
        several = " and ".join(f"{where}/{id}" for where in sorted(found))
        raise UsageError(f"{id!r} is in more than one group: say {several}")
    return found.pop(), id


def _unknown(named: str) -> NotFound:
    return NotFound(f"there is no schedule {named!r}", hint="clawd schedule list")


def _read(home: Home, read: Callable[[Transaction | None], T]) -> T:
    found = peek(home.ledger_file, read)
    return read(None) if found is None else found


def _proposed(tx: Transaction | None) -> list[Place]:
    return [(each["group"], each["id"]) for each in listing.proposed(tx)]


def _fired(tx: Transaction | None) -> list[Place]:
    rows = tx.all("SELECT DISTINCT grp, schedule FROM firing") if tx is not None else []
    return [(row["grp"], row["schedule"]) for row in rows]


def _settings(home: Home, config: Config, group: str) -> Effective:
    """What holds for a group; where its file is broken, the home's."""
    try:
        return merged(config, load_group(home, group))
    except ConfigError:
        return merged(config, GroupConfig())


def next_times(home: Home, expr: str, zone: str | None, after: str | None, count: int) -> Params:
    """When a cron line, a span, a moment or plain words are due next: {times[], said, error|null}, each time with the
    offset of its zone. Without a zone it is the home's, which need not exist."""
    from clawd.schedules.words import expression

    try:
        zone = _zone(home, zone)
        moment = datetime.now(UTC) if after is None else instant(after, zone, "--after")
        found = expression(expr, zone, moment)
        rule = rule_of(ScheduleFile.model_validate({**found.fields, "prompt": "x"}), zone)
        times = islice(upcoming(rule, moment, since=moment), min(count, _MOST))
        return {
            "times": [due.astimezone(ZoneInfo(zone)).isoformat() for due in times],
            "said": found.said,
            "error": None,
        }
    except ClawdError as error:
        return {"times": [], "said": None, "error": str(error)}


def _zone(home: Home, named: str | None) -> str:
    if named is None:
        try:
            return load_config(home, dict(os.environ)).claw.timezone or machine_zone()
        except NotFound:
            return machine_zone()
    try:
        return check_zone(named)
    except ValueError as error:
        raise UsageError(f"--tz: {error}") from None


# ── in words, for chats ──


def lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """The schedules of one group, a line each."""
    said = []
    for row in rows:
        when = f"next {row['next'][:16].replace('T', ' ')}" if row["next"] else "not due"
        state = "proposed" if row["proposed"] else when if row["enabled"] else row["error"] or "paused"
        said.append(f"{row['id'].rpartition('/')[2]}: {row['expr'] or 'not understood'} ({state})")
    return "\n".join(said) or "There are no schedules here. /schedule in 10 minutes: stretch makes one."


def understood(made: Mapping[str, Any]) -> str:
    """What was made, as it is repeated to whoever asked."""
    dues = listing.locals_(map(datetime.fromisoformat, made["next"]), made["tz"])
    return f"{made['id']}: {made['understood']}; next: {dues}."


# ── changing ──


class ScheduleOperations:
    """`adopt` gives a group, made on first use. With a clockwork: in the daemon."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        adopt: Callable[[str], Awaitable[GroupRow]],
        clockwork: Clockwork | None = None,
    ) -> None:
        self._home, self._ledger, self._clock, self._adopt = home, ledger, clock, adopt
        self._clockwork = clockwork

    def table(self) -> dict[str, Callable[[Params], Awaitable[Any]]]:
        return {name: partial(operation, self) for name, operation in OPERATIONS.items()}

    async def add(self, params: Params) -> Params:
        more = {key: params.get(key) for key in _KEYS}
        when, group = str(params.get("when") or ""), str(params.get("group") or "main")
        return await self.made(group, when, more, id=str(params.get("id") or ""))

    async def made(
        self, group: str, when: str, more: Mapping[str, Any], *, id: str = "", now: datetime | None = None
    ) -> Params:
        """A new file: {id, group, file, expr, tz, understood, next[], prompt}. The same one again is the same. Raises
        UsageError."""
        row, now = await self._adopt(group), now or self._clock.now()
        result = await asyncio.to_thread(self._written, row.folder, when, more, id, now)
        await self._renew(row.name)
        return result

    def _written(self, group: str, when: str, more: Mapping[str, Any], id: str, now: datetime) -> Params:
        settings = merged(load_config(self._home, dict(os.environ)), load_group(self._home, group))
        draft, directory = making.drafted(when, more, settings.timezone, now), self._home.group(group).schedules
        if (why := edits.unheard(draft.file, group, settings.group.bindings)) is not None:
            raise UsageError(why)
        text = making.written(draft.fields)
        id = id or free(draft.id, lambda each: edits.read(directory, each) in (None, text))
        edits.put(directory, id, text)
        return {
            "id": f"{group}/{id}",
            "group": group,
            "file": str(directory / f"{id}.toml"),
            "expr": draft.expr,
            "tz": draft.zone,
            "understood": draft.said,
            "next": [rfc3339(due) for due in draft.next],
            "prompt": draft.fields.get("prompt"),
        }

    async def pause(self, params: Params) -> Params:
        return await self._switch(params, False)

    async def resume(self, params: Params) -> Params:
        """Also one that paused itself."""
        return await self._switch(params, True)

    async def _switch(self, params: Params, on: bool) -> Params:
        group, id = await self._place(params)
        directory, now = self._home.group(group).schedules, self._clock.now()
        before = await asyncio.to_thread(edits.read, directory, id) or ""
        after = await asyncio.to_thread(edits.switched, before, on, f"groups/{group}/schedules/{id}.toml")
        known = (edits.digest(before), edits.digest(after))
        await self._ledger.do(lambda tx: authored.carry(tx, "schedule", group, *known, rfc3339(now)))
        await asyncio.to_thread(edits.switch, directory, id, before, on)
        await self._renew(group)
        if on and await self._ledger.do(lambda tx: firings.find(tx, (group, id)) is not None):
            if self._clockwork is not None:
                await self._clockwork.resume(group, id)
            else:
                await self._ledger.do(lambda tx: firings.resume(tx, (group, id), now))
        return {"id": f"{group}/{id}", "group": group, "enabled": on}

    async def remove(self, params: Params) -> Params:
        """{id, group, kept}: where its file is now."""
        group, id = await self._place(params)
        kept: Path = await asyncio.to_thread(edits.retire, self._home.group(group).schedules, id)
        await self._renew(group)
        return {"id": f"{group}/{id}", "group": group, "kept": str(kept)}

    async def run(self, params: Params) -> Params:
        """Its line of the history, which is not over yet. Raises UsageError while its last run is not over."""
        group, id = await self._place(params)
        if self._clockwork is None:
            raise ClawdError("a schedule is run by the daemon, and none runs", hint="clawd run")
        await self._renew(group)
        return await self._clockwork.run_now(group, id)

    async def _renew(self, group: str) -> None:
        """What the files say is in force."""
        if self._clockwork is not None:
            await self._clockwork.renew(group)

    async def _place(self, params: Params) -> Place:
        """Raises NotFound, also for what is only proposed."""
        named, group = str(params.get("id") or ""), params.get("group")
        proposed = await self._ledger.do(_proposed)
        where, id = await asyncio.to_thread(place, self._home, named, group, proposed)
        if (where, id) in proposed and edits.read(self._home.group(where).schedules, id) is None:
            raise NotFound(f"{where}/{id} is only proposed", hint="clawd approvals list")
        return where, id


OPERATIONS: dict[str, Callable[[ScheduleOperations, Params], Awaitable[Any]]] = {
    "schedule.add": ScheduleOperations.add,
    "schedule.pause": ScheduleOperations.pause,
    "schedule.resume": ScheduleOperations.resume,
    "schedule.remove": ScheduleOperations.remove,
    "schedule.run": ScheduleOperations.run,
}
