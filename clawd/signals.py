"""News: lossy, in-process, one way. A signal says "this changed"; whoever hears it reads the ledger.

Streaming text, typing and status live here alone, so nothing may depend on a signal having been heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import anyio

MOST_TEXT = 1 << 20  # characters of streamed text that wait for one subscriber


@dataclass(frozen=True, slots=True)
class News:
    """`kind` is a noun of the ledger or a stream word (`delta`, `tool`); `group` and `session` say whose."""

    kind: str
    group: str = ""
    session: str = ""
    data: dict[str, Any] = field(default_factory=dict)


def _length(news: News) -> int:
    return len(news.data.get("text", ""))


class Subscription:
    """A bounded inbox: when it is full the oldest news goes, because news may be lost."""

    def __init__(self, limit: int) -> None:
        self._items: deque[News] = deque()
        self._limit, self._text = limit, 0
        self._event = anyio.Event()
        self._missed = False

    def put(self, news: News) -> None:
        self._items.append(news)
        self._text += _length(news)
        while len(self._items) > self._limit or self._text > MOST_TEXT:
            self._take()
            self._missed = True
        self._event.set()

    def arrived(self) -> list[News]:
        """Take what is there already, without waiting."""
        return [self._take() for _ in range(len(self._items))]

    def _take(self) -> News:
        news = self._items.popleft()
        self._text -= _length(news)
        return news

    def missed(self) -> bool:
        """Whether news was lost since this was last asked."""
        missed, self._missed = self._missed, False
        return missed

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> News:
        while not self._items:
            self._event = anyio.Event()
            await self._event.wait()
        return self._take()


class Signals:
    """The bus. `emit` never blocks and never raises."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def emit(self, news: News) -> None:
        for subscription in self._subscriptions:
            subscription.put(news)

    @contextmanager
    def subscribe(self, limit: int = 1000) -> Iterator[Subscription]:
        """Hear everything from now on, until the block ends."""
        subscription = Subscription(limit)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)


class Watches(Protocol):
    """A watcher of files: it tells `hit` paths beneath a root that may have changed, "" for all of it, and that once it
    has begun to."""

    def watch(
        self,
        name: str,
        root: Path,
        hit: Callable[[frozenset[str]], None],
        *,
        deep: bool,
        skip: Callable[[str], bool] = ...,
    ) -> None: ...

    def unwatch(self, name: str) -> None: ...
