"""The terminal channel: conversations of `clawd chat`, one adapter like every other.

The mailbox is the ledger itself. Sending hands a delivery to whoever is attached and is done; a terminal that
was away is replayed from the ledger. A delivery keeps its event id on every attempt and a terminal shows each
id once, so that a send in doubt is simply sent again: `find` never knows, and no harm.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from clawd.channel import Adapter, ChannelLimits, Inbox
from clawd.model import Incoming, Outgoing, Receipt

# What an attached terminal may leave unread before it is detached: deliveries, and characters of them.
_BEHIND, _BEHIND_TEXT = 1000, 4 << 20


class Attached:
    """The deliveries of one attached terminal, in order. Iteration ends when it fell behind."""

    def __init__(self) -> None:
        self._waiting: deque[Outgoing] = deque()
        self._news = anyio.Event()
        self._behind = False

    def put(self, message: Outgoing) -> None:
        text = sum(len(each.text) for each in self._waiting)
        self._behind = self._behind or len(self._waiting) >= _BEHIND or text > _BEHIND_TEXT
        if not self._behind:
            self._waiting.append(message)
        self._news.set()

    def arrived(self) -> list[Outgoing]:
        """Take what is there already, without waiting."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def __aiter__(self) -> Attached:
        return self

    async def __anext__(self) -> Outgoing:
        while not self._waiting:
            if self._behind:
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        return self._waiting.popleft()


class Terminal(Adapter):
    """The adapter. `chat` is a group's name, `thread` a session that was named, or empty."""

    name = "terminal"
    limits = ChannelLimits(text=1_000_000, tells=True)

    def __init__(self, settings: dict[str, Any]) -> None:
        self._attached: defaultdict[tuple[str, str], set[Attached]] = defaultdict(set)
        self._inbox: Inbox | None = None
        self._running = anyio.Event()

    async def run(self, inbox: Inbox) -> None:
        """Stay until cancelled: terminals come to us, over the control socket."""
        self._inbox = inbox
        self._running.set()
        inbox.heard()
        await anyio.sleep_forever()

    async def receive(self, incoming: Incoming) -> Receipt:
        """Hand over what a terminal sent; waits until the channel runs."""
        await self._running.wait()
        assert self._inbox is not None
        return await self._inbox.receive(incoming)

    @contextmanager
    def attach(self, chat: str, thread: str) -> Iterator[Attached]:
        """What is sent to a conversation from now on, until the block ends."""
        attached = Attached()
        self._attached[chat, thread].add(attached)
        try:
            yield attached
        finally:
            self._attached[chat, thread].discard(attached)
            if not self._attached[chat, thread]:
                del self._attached[chat, thread]

    async def send(self, message: Outgoing) -> str:
        """Hand to every attached terminal. It cannot fail: the ledger keeps what nobody saw."""
        for attached in self._attached.get((message.chat, message.thread), ()):
            attached.put(message)
        return f"e{message.delivery}"
