"""How a program beside the daemon changes anything: through the running daemon, else itself under the home's lock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

from clawd.config.home import Home
from clawd.control.client import ControlClient, NoDaemon
from clawd.errors import HomeBusy

_PATIENCE = 15.0  # seconds for a daemon that is starting or ending to make up its mind


def ask(home: Home, op: str, **params: Any) -> Any:
    """The running daemon's answer. Raises NoDaemon when none runs."""

    async def exchange() -> Any:
        async with ControlClient(home.state) as client:
            return await client.call(op, **params)

    return asyncio.run(exchange())


def call(home: Home, op: str, **params: Any) -> Any:
    """The result of an operation, whoever did it. Raises HomeBusy when a daemon holds the home and does not
    answer."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return ask(home, op, **params)
        except NoDaemon:
            pass
        try:
            return _alone(home, op, params)
        except HomeBusy:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _alone(home: Home, op: str, params: dict[str, Any]) -> Any:
    from clawd.commands import operations
    from clawd.locks import HomeLock

    home.create()
    lock = HomeLock(home.lock_file)
    lock.acquire()
    try:
        if (home.state / "restoring.json").exists():  # a restore was cut off, and a program writes that is no command
            from clawd.backups import restoring

            restoring.finish(home)
        return asyncio.run(_awaited(operations.offline(home)[op](params)))
    finally:
        lock.release()


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
