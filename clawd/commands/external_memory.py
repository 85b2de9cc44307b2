"""What other programs keep in the memory of a group. The same behind the control socket and under the home's lock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from clawd.config.external import allows
from clawd.config.home import Home, group_folders
from clawd.config.load import load_group
from clawd.errors import ConfigError, NotFound, Refused, UsageError
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.ledger.groups import GroupRow
from clawd.memory.outside import Kept, Outside, namespace, noted
from clawd.memory.store import GroupMemory
from clawd.turns.memory import Memories

Params = dict[str, Any]
_ONE = ("text", "fact", "at", "tags", "key")


class ExternalMemory:
    """`group` finds a group, makes it where it may, or raises NotFound."""

    def __init__(
        self, home: Home, ledger: Ledger, memories: Memories, group: Callable[[str], Awaitable[GroupRow]]
    ) -> None:
        self._home, self._ledger, self._memories, self._group = home, ledger, memories, group

    def table(self) -> dict[str, Callable[[Params], Awaitable[Params]]]:
        return {name: partial(operation, self) for name, operation in _OPERATIONS.items()}

    async def remember(self, params: Params) -> Params:
        """{session, group?, text, fact?, at?, tags?, key?} → {group, id, status, trust, why?, state: kept|known}; with
        `entries[{text, fact?, at?, tags?, key?}]` in their place {group, entries[{id, status, trust, why?, state:
        kept|known|refused}]}, in their order. Raises UsageError, and nothing is kept then; Refused, NotFound."""
        session, many = params.get("session"), params.get("entries")
        if not isinstance(session, str):
            raise UsageError("session is missing: whose memory it is, like mmkr:agent-1")
        namespace(session)
        said = [{name: params[name] for name in _ONE if params.get(name) is not None}] if many is None else many
        if not isinstance(said, list) or not all(isinstance(each, Mapping) for each in said):
            raise UsageError("entries is a list of {text, fact?, at?, tags?, key?}")
        group = await self._place(session, params.get("group"))

        def keep(memory: GroupMemory) -> list[Kept]:
            notes = [noted(session, each, memory.now()) for each in said]
            return Outside(memory, session).keep(notes)

        kept = await self._memories.do(group, keep)
        if any(each.status == "proposed" and each.state == "kept" for each in kept):
            self._memories.waits(group)
        if many is not None:
            return {"group": group, "entries": [_shown(each) for each in kept]}
        if kept[0].state == "refused":
            raise Refused(kept[0].why)
        return {"group": group, **_shown(kept[0])}

    async def _place(self, session: str, named: Any) -> str:
        """The group: the one that was named, else the one that has the session, else the only one that allows it; it
        must allow it in any case."""
        known = await self._ledger.do(lambda tx: groups.session(tx, session))
        if named is not None or known is not None:
            name = str(named) if named is not None else known.group  # type: ignore[union-attr]
            row = await self._group(name)
            if not await asyncio.to_thread(self._allows, row.folder, session):
                raise _closed(session, row.name)
            return row.name
        found = list[str]()
        for name in group_folders(self._home):
            with suppress(ConfigError):  # it is of another group, most likely, and told elsewhere
                if await asyncio.to_thread(self._allows, name, session):
                    found.append(name)
        if len(found) > 1:
            raise UsageError(f"{', '.join(found)} take {session}: say which group it is for", hint="--group G")
        if not found:
            raise _closed(session, "main")
        return (await self._group(found[0])).name

    def _allows(self, folder: str, session: str) -> bool:
        try:
            return allows(load_group(self._home, folder).external, session)
        except NotFound:
            return False


def _closed(session: str, group: str) -> Refused:
    pattern = f"{session.partition(':')[0]}:*" if ":" in session else session
    return Refused(
        f"the group {group} takes nothing from {session}",
        hint=f"clawd groups set {group} external '[\"{pattern}\"]' lets it in",
    )


def _shown(kept: Kept) -> Params:
    why = {"why": kept.why} if kept.why else {}
    return {"id": kept.id, "status": kept.status, "trust": kept.trust, **why, "state": kept.state}


_OPERATIONS = {"memory.external": ExternalMemory.remember}
OPERATIONS = tuple(_OPERATIONS)
