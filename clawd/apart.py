"""Looks at what may hang (a file on a share that is away, a file system whose program hangs) beside all else: nobody
waits for it long, each thing keeps no more than one thread, and none of them keeps the process from its end."""

from __future__ import annotations

import asyncio
import time
from _thread import start_new_thread  # `Thread.start` waits for the new one, and would make the event loop wait
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Any, TypeVar, cast

SECONDS = 5.0
ANSWER_SECONDS = 10.0  # a disk may have to start turning

T = TypeVar("T")


class Apart:
    """To be called by one event loop, or asked by threads."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, tuple[Future[Any], float]] = {}

    async def __call__(self, thing: Hashable, look: Callable[[], T]) -> T:
        """What `look` gives, which is called in a thread, once the look at this thing that is under way is over. Raises
        what it raises, and TimeoutError."""
        async with asyncio.timeout(SECONDS):
            while (earlier := self._under_way.get(thing)) is not None:
                await asyncio.wait((asyncio.wrap_future(earlier[0]),))
            looking, _ = self._begin(thing, look)
            return cast(T, await asyncio.shield(asyncio.wrap_future(looking)))

    def answers(self, thing: Hashable, look: Callable[[], object]) -> bool:
        """Whether `look` comes to an end in time, whatever it gives or raises. What hangs is waited for once; it is
        well again when the look at it is over."""
        looking, until = self._under_way.get(thing) or self._begin(thing, look)
        return bool(wait((looking,), max(0.0, until - time.monotonic())).done)

    def _begin(self, thing: Hashable, look: Callable[[], Any]) -> tuple[Future[Any], float]:
        looking: Future[Any] = Future()
        looking.set_running_or_notify_cancel()  # who leaves cannot end it
        self._under_way[thing] = begun = looking, time.monotonic() + ANSWER_SECONDS
        try:
            start_new_thread(self._look, (thing, look, looking))
        except RuntimeError:  # no more threads
            self._under_way.pop(thing, None)
            raise
        return begun

    def _look(self, thing: Hashable, look: Callable[[], Any], looking: Future[Any]) -> None:
        try:
            result = look()
        except BaseException as error:
            self._under_way.pop(thing, None)
            looking.set_exception(error)
        else:
            self._under_way.pop(thing, None)
            looking.set_result(result)
