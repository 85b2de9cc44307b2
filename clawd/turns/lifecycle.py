"""The context life cycle of all sessions: a decision follows each turn, in the transaction that says the turn is
recorded; what it asks for is done afterwards, and again after a crash until it is done.

`settle` decides, `act` does what is open: compactions (`compacting.py`), handovers (`handing_over.py`), files
(`projecting.py`). All that is to be done stands in the ledger; a task that is lost is begun again by `recover`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio

from clawd.approvals.context import Confirming
from clawd.clock import Clock, rfc3339
from clawd.ids import is_job
from clawd.ledger import contexts
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.lifecycle.deciding import Decision, Thresholds
from clawd.locks import KeyedLocks
from clawd.model import Block
from clawd.tasks import Tasks
from clawd.turns.compacting import Compactor
from clawd.turns.handing_over import HandingOver
from clawd.turns.projecting import Projector

log = logging.getLogger(__name__)

AGAIN_S, LONGEST_S = 1.0, 60.0


class Lifecycle:
    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        tasks: Tasks,
        compactor: Compactor,
        handing: HandingOver,
        projector: Projector,
    ) -> None:
        self._ledger, self._clock, self._tasks = ledger, clock, tasks
        self._compactor, self._handing, self._projector = compactor, handing, projector
        self._one = KeyedLocks()
        self.confirming: Confirming | None = None

    def settle(self, tx: Transaction, turn: Row, blocks: Sequence[Block]) -> None:
        """A turn of a session ended, and `blocks` of it are in the file: what is to be held on to is pinned, its tokens
        counted, and a decision made. In the transaction that says that the turn is recorded; a second time it changes
        nothing."""
        if is_job(turn["session"]) or turn["recorded_at"] is not None:
            return
        row = contexts.of(tx, turn["session"], rfc3339(self._clock.now()))
        contexts.update(tx, row["session"], rfc3339(self._clock.now()), step_index=row["step_index"] + 1)

    def carry_out(self, tx: Transaction, session: str, decision: Decision, confirmed_by: str | None = None) -> None:
        """Do what was decided about a session."""
        now = rfc3339(self._clock.now())
        row = contexts.of(tx, session, now)
        if decision.action == "handoff":
            at = Thresholds(row["profile"] or "chat", row["soft"] or 60_000, row["hard"] or 100_000)
            self._handing.begin(tx, row, decision, at, now, confirmed_by)

    def soon(self, session: str) -> None:
        """Something of the session may be open."""
        self._tasks.start_soon(self._until_done, session, name=f"context {session}")

    async def _until_done(self, session: str) -> None:
        pause = AGAIN_S
        while True:
            try:
                await self.act(session)
                return
            except Exception:  # its files wait, and that is said
                log.exception("the context of session %s cannot be looked after", session)
            await anyio.sleep(pause)
            pause = min(pause * 2, LONGEST_S)

    async def act(self, session: str) -> None:
        """Do what is open, in this order: the successor's beginning, a compaction, the files. Safe to repeat."""
        async with self._one.hold(session):
            await self._handing.act(session)
            await self._compactor.act(session)
            await self._projector.act(session)

    async def recover(self) -> None:
        """After a start: all that an earlier daemon left open."""
        for session in await self._ledger.do(contexts.unfinished):
            self.soon(session)
