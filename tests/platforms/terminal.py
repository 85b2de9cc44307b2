"""The terminal as a platform: a client of the control socket in the place of a person. `home` is set before `up`."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web

from clawd.control.client import ConnectionLost, ControlClient, NoDaemon
from tests.platforms import Platform, Sent
from tests.system.conftest import Home


class Terminal(Platform):
    """One attached terminal a chat, which is a group's name; it comes again when the daemon does."""

    name = "terminal"
    shared = ""  # there is none
    owner, member, stranger = "owner", "member:bob", "stranger:eve"
    threads = typing = deletes = edits = albums = streams = False
    config = ""
    env: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.home: Home | None = None
        self._seen: set[int] = set()
        self._attached: dict[str, Any] = {}
        self._ready = threading.Event()
        self._last: dict[str, Any] = {}

    def account(self, user: str) -> str:
        return user

    def binding(self, chat: str) -> str:
        return f"terminal:{chat}"

    def direct(self, user: str) -> str:
        return "main"

    def attach(self, home: Home) -> None:
        """Follow the chat of the group `main`."""
        self.home = home
        self._attached["main"] = asyncio.run_coroutine_threadsafe(self._hear("main"), self._loop)

    async def _hear(self, chat: str) -> None:
        assert self.home is not None
        while True:
            try:
                async with ControlClient(self.home.layout.state) as client:
                    await client.call("chat.open", group=chat, replay=True)
                    self.live = 1
                    async for kind, data in client.events():
                        if kind == "message":
                            await self._shown(chat, data)
                            await client.call("chat.seen", deliveries=[data["delivery"]])
            except (NoDaemon, ConnectionLost, OSError):
                self.live = 0
                await asyncio.sleep(0.02)

    async def _shown(self, chat: str, data: dict[str, Any]) -> None:
        if data["delivery"] in self._seen:
            return
        self._seen.add(data["delivery"])
        content = await asyncio.to_thread(_read, data["path"]) if data["path"] else None
        self._show(Sent(f"e{data['delivery']}", chat, data["text"], name=data["name"], data=content))

    def chats(self) -> Iterator[str]:
        return iter(())

    def thread(self, chat: str) -> str:
        raise NotImplementedError

    def say(self, text: str, chat: str = "", sender: str = "", **more: Any) -> str:
        id = more.get("id") or uuid.uuid4().hex
        self._last = {"text": text, "platform_id": id, "chat": chat or "main", "as": sender or "owner"}
        self.again()
        return id

    def again(self) -> None:
        assert self.home is not None
        receipt = self.home.say(
            self._last["text"], self._last["chat"], key=self._last["platform_id"], **{"as": self._last["as"]}
        )
        if receipt["told"]:
            self._show(Sent("told", self._last["chat"], receipt["told"]))

    def edit(self, id: str, text: str, chat: str = "", sender: str = "") -> None:
        raise NotImplementedError

    def delete(self, id: str, chat: str = "") -> None:
        raise NotImplementedError

    def press(self, message: Sent, value: str, sender: str = "") -> None:
        raise NotImplementedError

    def drop(self) -> None:
        raise NotImplementedError

    def down(self) -> None:
        for each in self._attached.values() if hasattr(self, "_attached") else ():
            each.cancel()
        super().down()

    def app(self) -> web.Application:
        return web.Application()


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
