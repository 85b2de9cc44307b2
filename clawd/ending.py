"""When the daemon ends, and that it does: at a signal, the end of its pipe or the loss of its ledger; then in bounded
time, and at once when it is asked again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable

import anyio

from clawd.ledger.db import Ledger

log = logging.getLogger(__name__)

END_S = 19.0  # all of the end together, and no longer
ROOT_CHECK_S = 30.0  # how often it is looked whether `state/` is the one that was opened, and has its ballast


async def until_ended(
    ledger: Ledger, until_closed: int | None, endings: AsyncIterator[signal.Signals], look: Callable[[], None]
) -> None:
    """Until SIGTERM, SIGINT, the end of the pipe `until_closed`, or the loss of the ledger. `look` is called at each
    look at that."""
    async with anyio.create_task_group() as waiting:

        async def pipe() -> None:
            if until_closed is not None:
                await anyio.wait_readable(until_closed)
                waiting.cancel_scope.cancel()

        async def signals() -> None:
            async for _ in endings:
                waiting.cancel_scope.cancel()
                return

        async def state() -> None:
            while True:
                alarm = anyio.Event()  # a new one each time, before the look: it may be back where it was
                ledger.alarm = alarm.set
                if not ledger.is_there() or ledger.damage is not None:
                    break
                ledger.lay_ballast()
                look()
                with anyio.move_on_after(ROOT_CHECK_S):
                    await alarm.wait()
            waiting.cancel_scope.cancel()

        waiting.start_soon(pipe)
        waiting.start_soon(signals)
        waiting.start_soon(state)


def bound() -> None:
    """From now on the process ends after END_S, and at once with the next signal."""
    last = threading.Timer(END_S, _give_up)
    last.daemon = True
    last.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, os._exit, 1)


def _give_up() -> None:
    log.error("the end took too long and is cut off; what is left is found at the next start")
    os._exit(1)
