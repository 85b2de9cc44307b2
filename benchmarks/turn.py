"""Turns with the scripted engine, over the real control socket: warm, twenty at once over four groups, cold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

from benchmarks.daemon import Talker, daemon, home
from benchmarks.figures import Figure, figure
from clawd.config.home import Home
from clawd.control.client import ControlClient

GROUPS = ["g1", "g2", "g3", "g4"]
SESSIONS = 20
PAUSE_S = 0.02  # before the next message of one conversation: its last turn is recorded meanwhile, as with any person


def warm() -> Iterator[Figure]:
    with home(["main"]) as made, daemon(made):
        yield figure("warm turn, said to delivered, model at once", asyncio.run(_series(made, 200)), "ms", goal=5)


def crowd() -> Iterator[Figure]:
    """One session alone, then twenty at once, with a model that answers at once and with one that takes 0.5 s."""
    for delay, name in ((0.0, "model at once"), (0.5, "model takes 500 ms")):
        with home(GROUPS, delay) as made, daemon(made):
            rounds = 5 if delay else 15
            alone, together = asyncio.run(_crowd(made, rounds))
            one = figure(f"one session of a warm group, {name}", alone, "ms")
            many = figure(f"{SESSIONS} sessions over {len(GROUPS)} warm groups at once, {name}", together, "ms")
            yield one
            yield many
            yield figure(f"ratio of the p50s, {name}", [many.p50 / one.p50], "x", goal=2)


def cold() -> Iterator[Figure]:
    with home(["main"]) as made, daemon(made):
        yield figure("cold turn, bubblewrap", asyncio.run(_cold(made, 12)), "ms", goal=300)


async def _series(made: Home, times: int) -> list[float]:
    async with ControlClient(made.state) as client:
        talker = await Talker.open(client, "main")
        for _ in range(10):
            await talker.say()
        taken = []
        for _ in range(times):
            taken.append(await talker.say())
            await asyncio.sleep(PAUSE_S)
        return taken


async def _crowd(made: Home, rounds: int) -> tuple[list[float], list[float]]:
    async with AsyncExitStack() as stack:
        talkers = []
        for number in range(SESSIONS):
            client = await stack.enter_async_context(ControlClient(made.state))
            group = GROUPS[number % len(GROUPS)]
            talkers.append(await Talker.open(client, group, f"bench:{number}"))
        await asyncio.gather(*(talker.say() for talker in talkers))
        alone = [await talkers[0].say() for _ in range(rounds)]
        together = []
        for _ in range(rounds):
            together += await asyncio.gather(*(talker.say() for talker in talkers))
        return alone, together


async def _cold(made: Home, times: int) -> list[float]:
    async with ControlClient(made.state) as client:
        talker = await Talker.open(client, "main")
        await talker.say()
        taken = []
        for _ in range(times):
            await client.call("sandbox.stop", group="main")
            taken.append(await talker.say())
        return taken
