"""Discord: not written yet."""

from __future__ import annotations

from typing import Any

from clawd.channel import Adapter, ChannelLimits, Fatal, Inbox


class Discord(Adapter):
    name = "discord"
    limits = ChannelLimits()

    def __init__(self, settings: dict[str, Any]) -> None:
        pass

    async def run(self, inbox: Inbox) -> None:
        raise Fatal("it is not built yet")
