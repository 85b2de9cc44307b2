"""Tending a group's memory on the owner's word, rather than at night and after a turn: the same behind the control
socket and under the home's lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from clawd.errors import UsageError
from clawd.ledger.groups import GroupRow
from clawd.turns.tending import Tending, changed

Params = dict[str, Any]
OPERATIONS = ("memory.consolidate", "memory.reflect")


class TendingOperations:
    """`group` finds the group, makes it where it may, or raises NotFound."""

    def __init__(self, tending: Tending, group: Callable[[str], Awaitable[GroupRow]]) -> None:
        self._tending, self._group = tending, group

    def table(self) -> dict[str, Callable[[Params], Awaitable[Params]]]:
        return {"memory.consolidate": self.consolidate, "memory.reflect": self.reflect}

    async def consolidate(self, params: Params) -> Params:
        """{group, changed, actions[{action: merge|supersede|summarise|conflict, ids, into, why}]}: with `dry_run` what
        would be done, and nothing is changed."""
        group, dry = await self._named(params), bool(params.get("dry_run"))
        steps = await self._tending.consolidate(group, dry_run=dry)
        return {"group": group, "changed": 0 if dry else changed(steps), "actions": [step.shown() for step in steps]}

    async def reflect(self, params: Params) -> Params:
        """{group, reflections[{id, status, text, turn}]}: of one turn, or of those that nobody looked at yet. Raises
        NotFound, UsageError."""
        group, turn = await self._named(params), params.get("turn")
        if turn is not None and not isinstance(turn, int):
            raise UsageError("turn is the number of a turn")
        found = await self._tending.reflect(group, turn)
        return {"group": group, "reflections": [each.shown() for each in found]}

    async def _named(self, params: Params) -> str:
        return (await self._group(str(params.get("group") or "main"))).name
