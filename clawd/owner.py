"""What the owner is told beside any turn: a line at the terminal, now or when it next opens."""

from __future__ import annotations

import logging
from collections.abc import Callable

from clawd.channel import NOTICE
from clawd.clock import Clock, rfc3339
from clawd.ledger import deliveries
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.signals import Signals
from clawd.tasks import Tasks

log = logging.getLogger(__name__)

AGAIN_S = 86400.0  # what goes wrong in the same words is told again after so long
_TERMINAL = Address("terminal", "", "main", "")


class Owner:
    def __init__(self, ledger: Ledger, clock: Clock, tasks: Tasks, deliver: Callable[[Address], None]) -> None:
        self._ledger, self._clock, self._tasks, self._deliver = ledger, clock, tasks, deliver

    async def tell(self, text: str) -> None:
        """Once while nobody has seen it."""
        log.error("%s", text)
        now = rfc3339(self._clock.now())

        def tell(tx: Transaction) -> None:
            if text not in [row["text"] for row in deliveries.unseen(tx, _TERMINAL.chat, _TERMINAL.thread)]:
                deliveries.enqueue(
                    tx, _TERMINAL, session="terminal:main", kind="notice", text=text, now=now, limits=NOTICE
                )

        await self._ledger.insist(tell)
        self._deliver(_TERMINAL)

    def tell_soon(self, text: str) -> None:
        self._tasks.start_soon(self.tell, text)

    async def troubles(self, signals: Signals) -> None:
        """What goes wrong beside a turn, each sentence once a day."""
        told: dict[str, float] = {}
        with signals.subscribe() as news:
            async for each in news:
                now = self._clock.monotonic()
                told = {what: since for what, since in told.items() if now - since < AGAIN_S}
                if each.kind == "trouble" and (what := str(each.data["what"])) not in told:
                    told[what] = now
                    await self.tell(what)
