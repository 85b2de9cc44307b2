"""Turns with the scripted engine, over the real control socket, under each backend that is here: warm, unpaused, cold,
twenty at once over four groups, and over twenty."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.daemon import Talker, daemon, home
from benchmarks.figures import Figure, figure
from clawd.config.home import Home
from clawd.control.client import ControlClient
from clawd.errors import SandboxUnavailable
from clawd.sandbox.choose import choose_backend

FOUR = ["g1", "g2", "g3", "g4"]
TWENTY = [f"g{number}" for number in range(20)]
SESSIONS = 20
PAUSE_S = 0.02  # before the next message of one conversation: its last turn is recorded meanwhile, as with any person
COLD_GOALS = {"bubblewrap": 300.0, "docker": 600.0}


def backends() -> list[str]:
    """Those that can make a sandbox here: docker needs an Engine that has the image."""
    found = []
    for backend in COLD_GOALS:
        with home([], backend=backend) as made:
            try:
                asyncio.run(choose_backend(backend, made.root).check("clawd-agent"))
                found.append(backend)
            except SandboxUnavailable as error:
                print(f"{backend} is not measured: {error}", file=sys.stderr)
    return found


def warm() -> Iterator[Figure]:
    for backend in backends():
        with home(["main"], backend=backend) as made, daemon(made):
            taken = asyncio.run(series_of(made, 200))
        yield figure(f"warm turn, said to delivered, model at once, {backend}", taken, "ms", goal=5)


def crowd() -> Iterator[Figure]:
    """One session alone, then twenty at once, with a model that answers at once and with one that takes 0.5 s."""
    for backend in backends():
        for delay, name in ((0.0, "model at once"), (0.5, "model takes 500 ms")):
            yield from _compared(FOUR, delay, f"{name}, {backend}", goal=2)


def groups() -> Iterator[Figure]:
    """Twenty groups at once, each in a sandbox of its own."""
    for backend in backends():
        yield from _compared(TWENTY, 0.5, f"model takes 500 ms, {backend}", goal=None)


def cold() -> Iterator[Figure]:
    for backend in backends():
        with home(["main"], backend=backend) as made, daemon(made):
            yield figure(f"cold turn, {backend}", asyncio.run(_cold(made, 12)), "ms", goal=COLD_GOALS[backend])


def unpause() -> Iterator[Figure]:
    """A turn of a sandbox that was paused when its message came."""
    if "docker" in backends():
        with home(["main"], backend="docker") as made, daemon(made):
            yield figure("turn of a paused sandbox, docker", asyncio.run(_unpaused(made, 12)), "ms")


def _compared(names: list[str], delay: float, what: str, goal: float | None) -> Iterator[Figure]:
    with home(names, delay, backend=what.rpartition(" ")[2], max_live=len(names)) as made, daemon(made):
        alone, together = asyncio.run(crowd_of(made, names, 5 if delay else 15))
    one = figure(f"one session of a warm group, {what}", alone, "ms")
    many = figure(f"{SESSIONS} sessions over {len(names)} warm groups at once, {what}", together, "ms")
    yield one
    yield many
    yield figure(f"ratio of the p50s over {len(names)} groups, {what}", [many.p50 / one.p50], "x", goal=goal)


@asynccontextmanager
async def _talking(made: Home) -> AsyncIterator[tuple[ControlClient, Talker]]:
    """A conversation with the group `main`, in a sandbox that is warm."""
    async with ControlClient(made.state) as client:
        talker = await Talker.open(client, "main")
        await talker.say()
        yield client, talker


async def series_of(made: Home, times: int) -> list[float]:
    async with _talking(made) as (_, talker):
        for _ in range(10):
            await talker.say()
        taken = []
        for _ in range(times):
            taken.append(await talker.say())
            await asyncio.sleep(PAUSE_S)
        return taken


async def crowd_of(made: Home, names: list[str], rounds: int) -> tuple[list[float], list[float]]:
    async with AsyncExitStack() as stack:
        talkers = []
        for number in range(SESSIONS):
            client = await stack.enter_async_context(ControlClient(made.state))
            talkers.append(await Talker.open(client, names[number % len(names)], f"bench:{number}"))
        await asyncio.gather(*(talker.say() for talker in talkers))
        alone = [await talkers[0].say() for _ in range(rounds)]
        together = []
        for _ in range(rounds):
            together += await asyncio.gather(*(talker.say() for talker in talkers))
        return alone, together


async def _cold(made: Home, times: int) -> list[float]:
    async with _talking(made) as (client, talker):
        taken = []
        for _ in range(times):
            await client.call("sandbox.stop", group="main")
            taken.append(await talker.say())
        return taken


async def _unpaused(made: Home, times: int) -> list[float]:
    async with _talking(made) as (client, talker):
        taken = []
        for _ in range(times):
            async with asyncio.timeout(30):
                while (await client.call("sandbox.list"))[0]["state"] != "paused":
                    await asyncio.sleep(0.1)
            taken.append(await talker.say())
        return taken
