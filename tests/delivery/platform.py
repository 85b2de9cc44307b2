"""A stand-in adapter that does to each send what its script says, and keeps what it was sent."""

from collections.abc import Mapping
from typing import Any

import anyio

from clawd.channel import Adapter, ChannelLimits, Unsure
from clawd.model import Outgoing

LOST = "stored, answer lost"
HANGS = "hangs"


class Platform(Adapter):
    """Each entry of a script is what happens to one send: "ok", LOST, HANGS, or an exception that is raised. `scripts`
    are those of single chats."""

    def __init__(
        self,
        script: list[Any] | None = None,
        *,
        name: str = "platform",
        scripts: Mapping[str, list[Any]] | None = None,
        **limits: Any,
    ) -> None:
        self.name, self.script, self.scripts = name, script or [], scripts or {}
        self.limits = ChannelLimits(**{"text": 4000, "buttons": True, **limits})
        self.tried: list[Outgoing] = []
        self.stored: list[Outgoing] = []

    async def send(self, message: Outgoing) -> str:
        self.tried.append(message)
        script = self.scripts.get(message.chat, self.script)
        step = script.pop(0) if script else "ok"
        if isinstance(step, Exception):
            raise step
        if step == HANGS:
            await anyio.sleep_forever()
        self.stored.append(message)
        if step == LOST:
            raise Unsure("timeout")
        return message.edits or f"id{len(self.stored)}"

    async def find(self, message: Outgoing) -> str | None:
        return next((f"id{n}" for n, each in enumerate(self.stored, 1) if each.nonce == message.nonce), None)

    def shown(self, chat: str = "c1") -> list[str]:
        """What a person sees there now."""
        texts: dict[str, str] = {}
        for n, each in enumerate(self.stored, 1):
            if each.chat == chat:
                texts[each.edits or f"id{n}"] = each.text
        return list(texts.values())
