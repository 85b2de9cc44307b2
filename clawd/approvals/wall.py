"""The door of shared chats: a chat that is bound to a group with private sessions is not worked in before the owner
said yes to that. What is said there meanwhile is not kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawd.approvals.chats import must_ask
from clawd.errors import ClawdError, StorageError
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import binding_of
from clawd.model import Incoming
from clawd.people.door import Admits, Admitted, Asks

_ASKED = "I asked my owner privately whether I may work in this chat. Say it again once they have said yes."


class Wall:
    """Admits as another door does, but not there."""

    def __init__(self, door: Admits, ledger: Ledger, asks: Asks) -> None:
        self._door, self._ledger, self._asks = door, ledger, asks

    async def admit(self, incoming: Incoming) -> Admitted:
        admitted = await self._door.admit(incoming)
        place = admitted.place
        if place is None or incoming.direct or incoming.channel == "terminal":
            return admitted
        group, binding = place.group, binding_of(incoming)
        if not await self._ledger.do(lambda tx: must_ask(tx, group, binding)):
            return admitted
        told = None
        if incoming.kind in ("message", "command") and incoming.addressed:
            told = await self._asked({"group": group, "binding": binding, "title": incoming.title})
        return Admitted(admitted.role, admitted.person, None, told)

    async def _asked(self, effect: Mapping[str, Any]) -> str | None:
        try:
            return _ASKED if (await self._asks.ask("bind", effect)).fresh else None
        except StorageError:
            raise
        except ClawdError as error:
            return f"I cannot work in this chat yet: {error}"
