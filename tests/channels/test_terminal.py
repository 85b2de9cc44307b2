from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest

from channels.terminal import Terminal
from clawd.model import Incoming, Outgoing, Receipt

pytestmark = pytest.mark.anyio


def outgoing(delivery: int, chat: str = "main", thread: str = "") -> Outgoing:
    return Outgoing(delivery, "terminal", chat, thread, "text", f"text {delivery}", f"n{delivery}")


class Inbox:
    def __init__(self) -> None:
        self.received: list[Incoming] = []

    def heard(self) -> None:
        self.live = True

    async def receive(self, incoming: Incoming) -> Receipt:
        self.received.append(incoming)
        return Receipt(len(self.received), "received", "s", None)


async def test_a_delivery_reaches_every_terminal_of_its_conversation_and_no_other() -> None:
    terminal = Terminal({})
    assert await terminal.send(outgoing(1)) == "e1"
    with (
        terminal.attach("main", "") as first,
        terminal.attach("main", "") as second,
        terminal.attach("main", "x") as third,
    ):
        for delivery in (2, 3):
            assert await terminal.send(outgoing(delivery)) == f"e{delivery}"
        assert (await anext(first)).delivery == 2
        assert [message.delivery for message in first.arrived()] == [3]
        assert [message.delivery for message in second.arrived()] == [2, 3]
        assert third.arrived() == []
    assert await terminal.send(outgoing(4)) == "e4"
    assert first.arrived() == []
    assert await terminal.find(outgoing(4)) is None


async def test_a_waiting_terminal_is_woken() -> None:
    terminal = Terminal({})
    with terminal.attach("main", "") as attached, anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(terminal.send, outgoing(1))
            assert (await anext(attached)).delivery == 1


async def test_a_terminal_that_fell_behind_is_detached_without_a_gap_before() -> None:
    terminal = Terminal({})
    with terminal.attach("main", "") as attached:
        for delivery in range(2000):
            await terminal.send(outgoing(delivery))
        with anyio.fail_after(5):
            read = [message.delivery async for message in attached]
    assert read == list(range(len(read))) and len(read) < 2000


async def test_a_terminal_that_reads_nothing_of_long_deliveries_is_detached() -> None:
    terminal = Terminal({})
    with terminal.attach("main", "") as attached:
        for delivery in range(100):
            await terminal.send(replace(outgoing(delivery), text="x" * 250_000))
        with anyio.fail_after(5):
            read = [message.delivery async for message in attached]
    assert read == list(range(len(read))) and 0 < len(read) < 30


async def test_what_is_typed_goes_to_the_inbox_once_the_channel_runs() -> None:
    terminal, inbox = Terminal({}), Inbox()
    typed = Incoming("terminal", "main", "p1", "owner", ("hi",), datetime.now(UTC))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(terminal.run, inbox)
            assert (await terminal.receive(typed)).message == 1
            tasks.cancel_scope.cancel()
    assert inbox.received == [typed]
