"""Looks at what may hang (a file on a share that is away) beside all else: nobody waits for it long, and it keeps no
more than one thread, however often it is asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

SECONDS = 5.0
_MOST = 256  # things that hang at one time; an idle thread is used again

T = TypeVar("T")


class Apart:
    """One for an event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_MOST, "apart")
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}

    async def __call__(self, thing: Hashable, look: Callable[[], T]) -> T:
        """What `look` gives, which is called in a thread, once the look at this thing that is under way is over. Raises
        what it raises, and TimeoutError."""
        async with asyncio.timeout(SECONDS):
            while (earlier := self._under_way.get(thing)) is not None:
                await asyncio.wait((earlier,))
            begun = threading.Event()  # else a new thread may keep the interpreter from the loop that starts it
            looking = asyncio.get_running_loop().run_in_executor(self._threads, lambda: begun.wait() and look())
            begun.set()
            self._under_way[thing] = looking
            looking.add_done_callback(lambda _: self._under_way.pop(thing))
            return cast(T, await asyncio.shield(looking))
