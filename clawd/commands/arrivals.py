"""What was brought in from other claws, on the owner's word: looking, and saying yes. Saying yes is the same behind the
control socket and under the home's lock. What does the work is imported when there is some: a daemon seldom needs it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from clawd.arrivals.items import Brought
from clawd.arrivals.rooms import Rooms
from clawd.clock import Clock
from clawd.config.group import Effective
from clawd.config.home import Home, group_folders
from clawd.errors import ClawdError, NotFound, UsageError
from clawd.ledger.db import Ledger
from clawd.ledger.groups import GroupRow
from clawd.tasks import Whole
from clawd.turns.memory import Memories

Params = dict[str, Any]


def listed(home: Home, group: str | None) -> list[Params]:
    """[{source, group, home, brought, kinds{kind: {waits, accepted, left}}, path, error}]: `error` is a sentence
    where the account cannot be used, and nothing else is known then. Raises NotFound."""
    from clawd.arrivals import account
    from clawd.arrivals.account import STATES
    from clawd.arrivals.report import KINDS

    if group is not None and group not in group_folders(home):
        raise NotFound(f"there is no group {group!a}", hint="clawd groups list")
    rows = []
    for folder, source in account.places(home, group=group):
        place = home.group(folder).arrivals / source
        found, error = None, None
        try:
            found = account.read(place)
        except (ClawdError, OSError) as wrong:
            error = str(wrong)
        items = found.items if found is not None else ()
        states = Counter((each.kind, each.state) for each in items)
        kinds = {each.kind for each in items}
        rows.append(
            {
                "source": source,
                "group": folder,
                "home": found.home if found is not None else None,
                "brought": found.brought if found is not None else None,
                "kinds": {kind: {state: states[kind, state] for state in STATES} for kind in KINDS if kind in kinds},
                "path": str(place),
                "error": error,
            }
        )
    return rows


def said(home: Home, source: str, group: str | None) -> str:
    """How far it is with what came from there, in words. Raises nothing."""
    states = Counter[str]()
    with suppress(ClawdError, OSError):
        for row in listed(home, group):
            for counts in row["kinds"].values() if row["source"] == source else ():
                states.update(counts)
    return f"{states['accepted']:,} of {states.total():,} things are accepted"


def staged(home: Home, brought: Brought, *, dry_run: bool) -> Params:
    """`staging.stage`, and groups that are not there are made by whoever holds the home."""
    from clawd.arrivals import staging
    from clawd.commands import writing

    make = partial(writing.call, home, "groups.add")
    return staging.stage(home, brought, dry_run=dry_run, make=lambda name: make(name=name))


def alone(home: Home, ledger: Ledger, clock: Clock, memories: Memories, settings: Callable[[str], Effective]) -> Rooms:
    """The rooms of a command that holds the home's lock: nobody records, and no clock runs."""

    async def renew(group: str) -> None:
        pass

    return Rooms(home, ledger, clock, memories, settings, lambda session: nullcontext(), renew)


class ArrivalOperations:
    """`adopt` gives a group, made on first use."""

    def __init__(self, rooms: Rooms, adopt: Callable[[str], Awaitable[GroupRow]]) -> None:
        self._rooms, self._adopt = rooms, adopt
        self._whole = Whole()

    def table(self) -> dict[str, Callable[[Params], Awaitable[Params]]]:
        return {name: partial(operation, self) for name, operation in _OPERATIONS.items()}

    async def accept(self, params: Params) -> Params:
        """{source, group?, only?[]} → {source, accepted[{kind, group, from, to, changed[]}], left[{group, from, why}]}.
        Raises NotFound, Refused, StorageError."""
        return await self._whole(self._accept(params))

    async def _accept(self, params: Params) -> Params:
        accepting, account = await asyncio.to_thread(_working)
        source, group = params.get("source"), params.get("group")
        only = params.get("only") or list(accepting.ONLY)
        if not isinstance(source, str) or not isinstance(group, str | None):
            raise UsageError("source is missing")
        if not isinstance(only, list) or not all(each in accepting.ONLY for each in only):
            raise UsageError(f"only is some of {', '.join(accepting.ONLY)}")
        kinds = {kind for each in only for kind in accepting.ONLY[each]}
        accepted, left = list[Params](), list[Params]()
        for folder in await asyncio.to_thread(account.known, self._rooms.home, source, group):
            row = await self._adopt(folder)
            taken, not_taken = await accepting.accept(self._rooms, row.folder, source, kinds)
            accepted += taken
            left += not_taken
        return {"source": source, "accepted": accepted, "left": left}


def _working() -> tuple[ModuleType, ModuleType]:
    return import_module("clawd.arrivals.accepting"), import_module("clawd.arrivals.account")


_OPERATIONS = {"bridge.accept": ArrivalOperations.accept}
OPERATIONS = tuple(_OPERATIONS)
