"""The stand-in daemon as a program: `run --home H [--until-closed FD] [--json]`, or any other command line,
which goes to the real command line with this program as its daemon."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from clawd import faults
from clawd.cli import companion
from clawd.cli.main import run as command
from clawd.config.home import Home
from clawd.control.server import ControlServer
from clawd.errors import HomeBusy
from clawd.locks import HomeLock
from tests.control.conversations import StandIn


async def shell(params: dict[str, Any], passed: Sequence[int]) -> int:
    process = await asyncio.create_subprocess_exec(
        *params["argv"], stdin=passed[0], stdout=passed[1], stderr=passed[2], env=params["environment"]
    )
    return await process.wait()


async def serve(home: Home, until_closed: int | None) -> None:
    async def ended() -> None:
        if until_closed is not None:
            await anyio.wait_readable(until_closed)
            tasks.cancel_scope.cancel()

    async def retry(params: dict[str, Any]) -> Any:
        return {"id": params["id"], "state": "received"}

    async def empty(params: dict[str, Any]) -> Any:
        return []

    async def passing(params: dict[str, Any]) -> Any:
        return "CLAWD_PASSING" in os.environ

    async with anyio.create_task_group() as tasks:
        host = StandIn(home.state / "standin.json")
        operations = {"passing": passing, "messages.retry": retry, "sandbox.list": empty, "groups.add": empty}
        tasks.start_soon(host.run)
        tasks.start_soon(ended)
        await tasks.start(ControlServer(home.state, operations, host, shell).serve)
        await anyio.sleep_forever()


def main() -> int:
    if sys.argv[1:2] != ["run"]:
        companion.PROGRAM = (sys.executable, __file__)
        return command(sys.argv[1:])
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--home", required=True)
    parser.add_argument("--until-closed", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    home = Home(Path(options.home))
    if (home.root / "refuse").exists():
        sys.stdout.write('{"error": "config.toml is wrong", "hint": "mend it"}\n')
        return 4
    lock = HomeLock(home.lock_file)
    try:
        lock.acquire()
    except HomeBusy:
        return 3
    faults.load(os.environ.get("CLAWD_FAULT"))
    with (home.state / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    anyio.run(serve, home, options.until_closed)
    (home.state / "ended").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
