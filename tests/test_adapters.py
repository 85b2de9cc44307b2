"""What an adapter hands over, and what becomes of one that cannot even be made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from clawd.adapters import MOST_LINES, Adapters, ChannelInbox
from clawd.channel import Adapter
from clawd.clock import SystemClock
from clawd.config import channels
from clawd.config.schema import Channels
from clawd.model import Incoming, Outgoing, Receipt
from clawd.supervise import Part
from clawd.tasks import Tasks

pytestmark = pytest.mark.anyio


class Slow(Adapter):
    """A platform that answers no send before it is `open`."""

    name = "chat"

    def __init__(self) -> None:
        self.open = anyio.Event()
        self.begun: list[Outgoing] = []

    async def send(self, message: Outgoing) -> str:
        self.begun.append(message)
        await self.open.wait()
        return "1"


class Door:
    async def receive(self, incoming: Incoming, cursor: str | None = None) -> Receipt:
        return Receipt(None, "refused", None, None, told="Who are you?")


async def test_ten_thousand_strangers_take_up_no_channel() -> None:
    slow, door, clock = Slow(), Door(), SystemClock()

    def stranger(number: int) -> Incoming:
        return Incoming("chat", str(number), "1", f"chat:{number}", ("hi",), datetime.now(UTC), direct=True)

    async with anyio.create_task_group() as tasks:
        inbox = ChannelInbox(slow, Part("chat", clock), door, None, clock, Tasks(tasks))  # type: ignore[arg-type]
        for number in range(10_000):
            await inbox.receive(stranger(number))
            if number % 100 == 0:
                await anyio.lowlevel.checkpoint()
        assert len(slow.begun) == MOST_LINES
        slow.open.set()
        while len(slow.begun) == MOST_LINES:  # the next one is told again
            await inbox.receive(stranger(1))
            await anyio.sleep(0.02)


async def test_an_adapter_that_cannot_be_made_is_closed_and_the_others_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = channels.adapter

    def adapter(tables: Channels, name: str) -> Adapter:
        if name == "slack":
            raise KeyError("a secret of its table")
        return real(tables, name)

    def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(channels, "adapter", adapter)
    on = {"enabled": True}
    tables = Channels.model_validate({"slack": on, "telegram": on | {"token": "${env:NONE}"}})
    async with anyio.create_task_group() as tasks:
        made = Adapters(lambda: tables, SystemClock(), Tasks(tasks), nothing, nothing)
    assert set(made) == {"terminal", "slack", "telegram"}
    assert isinstance(made["slack"], channels.Closed) and "secret" not in made["slack"]._why
