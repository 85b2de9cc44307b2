"""People who talk to a home while it is killed: each shows what reached it, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from clawd.control.client import ConnectionLost, ControlClient, NoDaemon
from tests.system.conftest import Home


class Talker:
    """What `clawd chat` does for its person: sends in order, again under the same id after a lost connection, and
    shows each delivery once."""

    def __init__(self, home: Home, group: str, portal: BlockingPortal) -> None:
        self.home, self.group, self._portal = home, group, portal
        self.unsent: asyncio.Queue[str] = asyncio.Queue()
        self.saying: str | None = None
        self.receipts: dict[str, int] = {}
        self.shown: dict[int, str] = {}

    def say(self, text: str) -> None:
        self._portal.call(self.unsent.put_nowait, text)

    async def run(self) -> None:
        while True:
            try:
                async with ControlClient(self.home.layout.state) as client:
                    await client.call("chat.open", group=self.group, replay=True)
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._hear(client))
                        tasks.create_task(self._send(client))
            except* (NoDaemon, ConnectionLost):
                await asyncio.sleep(0.02)

    async def _send(self, client: ControlClient) -> None:
        while True:
            self.saying = text = self.saying or await self.unsent.get()
            receipt = await client.call("chat.send", text=text, platform_id=f"{self.group}-{text}")
            self.receipts[text] = receipt["message"]
            self.saying = None

    async def _hear(self, client: ControlClient) -> None:
        async for kind, data in client.events():
            if kind == "message":
                self.shown[data["delivery"]] = data["text"]
                await client.call("chat.seen", deliveries=[data["delivery"]])


@contextmanager
def talkers(home: Home, groups: list[str]) -> Iterator[dict[str, Talker]]:
    """One for each group, in a thread of their own."""
    with start_blocking_portal() as portal:
        made = {group: Talker(home, group, portal) for group in groups}
        running = [portal.start_task_soon(talker.run) for talker in made.values()]
        try:
            yield made
            assert not any(each.done() for each in running)
        finally:
            for each in running:
                each.cancel()


def unfinished(home: Home, **where: str) -> list[dict[str, Any]]:
    return [row for row in home.messages(**where) if row["state"] != "recorded"]
