"""What the daemon gives to conversations at the terminal: `control.chat.ChatHost`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from clawd.commands.operations import Operations
from clawd.config.home import Home
from clawd.control.chat import TerminalLike
from clawd.delivery.message import outgoing
from clawd.ids import check_session_id
from clawd.intake import Place
from clawd.ledger import deliveries, groups, queries
from clawd.ledger.db import Ledger
from clawd.model import Incoming, Outgoing, Receipt
from clawd.signals import Signals


class Conversations:
    """Implements `control.chat.ChatHost`."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        signals: Signals,
        operations: Operations,
        terminal: Any,
        base: Callable[[str], Awaitable[str]],
    ) -> None:
        """`base` gives the plain id of a group's own conversation."""
        self._home, self._ledger, self.signals = home, ledger, signals
        self._operations, self._terminal, self._base = operations, terminal, base

    @property
    def terminal(self) -> TerminalLike:
        return self._terminal  # type: ignore[no-any-return]

    async def open(self, group: str | None, session: str | None) -> tuple[str, str]:
        """The group and the session that the plain id reaches now."""
        if session is not None:
            check_session_id(session)
            known = await self._ledger.do(lambda tx: groups.session(tx, session))
            if known is None:  # its file may have been put there just now
                await self._operations.adopt_sessions()
                known = await self._ledger.do(lambda tx: groups.session(tx, session))
            if known is not None:
                return known.group, known.id
        name = group or "main"
        await self._operations.group(name)
        if session is not None:
            return name, session
        base = await self._base(name)
        row = await self._ledger.do(lambda tx: groups.session(tx, base))
        return name, row.id if row else base

    async def place(self, incoming: Incoming) -> Place:
        """Where a message from the terminal belongs: its conversation was opened first."""
        return Place(incoming.chat, incoming.session or await self._base(incoming.chat))

    async def receive(self, incoming: Incoming) -> Receipt:
        return await self._terminal.receive(incoming)  # type: ignore[no-any-return]

    async def outcome(self, message: int) -> dict[str, Any] | None:
        found = await self._ledger.do(lambda tx: queries.outcome(tx, message))
        if found is not None:
            for file in found["files"]:
                path = self._home.blobs / file.pop("blob")
                file.update(path=str(path), bytes=path.stat().st_size if path.exists() else 0)
        return found

    async def unseen(self, chat: str, thread: str) -> list[Outgoing]:
        rows = await self._ledger.do(lambda tx: deliveries.unseen(tx, chat, thread))
        return [outgoing(row, self._home.blobs) for row in rows]

    async def seen(self, shown: list[int]) -> None:
        await self._ledger.do(lambda tx: deliveries.mark_seen(tx, shown))
