"""Compactions: what a session's window loses, and the proof that nothing was lost that it holds on to."""

from __future__ import annotations

from clawd.ledger.db import Row, Transaction


class Compactor:
    def begin(self, tx: Transaction, row: Row, cause: str, turn: int | None, now: str) -> None:
        """Open a compaction of the session of `row`."""

    async def act(self, session: str) -> None:
        """Go on with the session's open compaction."""
