"""Compactions: what a session's window loses, and the proof that nothing was lost that it holds on to."""

from __future__ import annotations


class Compactor:
    async def act(self, session: str) -> None:
        """Go on with the session's open compaction."""
