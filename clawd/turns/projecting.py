"""The files beside a session, written from the ledger: state.json, decisions.jsonl, metrics.jsonl. Each write is safe
to repeat."""

from __future__ import annotations

from clawd.clock import Clock
from clawd.config.home import Home
from clawd.ledger.db import Ledger


class Projector:
    def __init__(self, home: Home, ledger: Ledger, clock: Clock) -> None:
        self._home, self._ledger, self._clock = home, ledger, clock

    async def act(self, session: str) -> None:
        """Bring the session's files up to the ledger."""
