"""Handovers: a session ends, and a successor begins with its manifest alone."""

from __future__ import annotations


class HandingOver:
    async def act(self, session: str) -> None:
        """Write the manifest of a session that was handed over, and the beginning of its successor."""
