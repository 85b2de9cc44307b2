"""What the daemon costs with nothing to do: memory (PSS) and CPU over 30 s, before and after its first turn, and with
1,000 schedules that are not due."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.daemon import Talker, daemon, home
from benchmarks.figures import Figure, figure
from clawd.config.home import Home
from clawd.control.client import ControlClient

SECONDS = 30.0


def pss(pid: int) -> float:
    """Proportional set size in MB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def cpu(pid: int) -> float:
    """Nanoseconds that a process has run, threads that ended included (its clock: clock_getcpuclockid)."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def idle() -> Iterator[Figure]:
    with home(["main"]) as made, daemon(made) as process:
        time.sleep(15)  # what is done once after the start
        yield figure("idle PSS, terminal only, no sandbox yet", [pss(process.pid)], "MB", goal=55)
        yield figure("idle CPU over 30 s, no sandbox yet", [_share(process.pid)], "%", goal=0.05)
        asyncio.run(_turn(made))
        time.sleep(2)
        yield figure("idle PSS after a turn, one warm sandbox", [pss(process.pid)], "MB")
        yield figure("idle CPU over 30 s, one warm sandbox", [_share(process.pid)], "%", goal=0.05)
    with home(["main"]) as made:
        folder = made.group("main").schedules
        folder.mkdir()
        for n in range(1000):
            (folder / f"s{n}.toml").write_text('schema = 1\ncron = "0 9 29 2 *"\nprompt = "x"\n')
        with daemon(made) as process:
            time.sleep(15)  # they are read, once
            yield figure("idle PSS, 1,000 schedules", [pss(process.pid)], "MB", goal=55)
            yield figure("idle CPU over 60 s, 1,000 schedules", [_share(process.pid, 60)], "%", goal=0.05)


def _share(pid: int, seconds: float = SECONDS) -> float:
    before, began = cpu(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu(pid) - before) / 1e9 / (time.monotonic() - began) * 100


async def _turn(made: Home) -> None:
    async with ControlClient(made.state) as client:
        await (await Talker.open(client, "main")).say()
