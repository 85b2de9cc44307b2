"""Channels: what each costs in memory, and how fast one answers while another is down and a third is slow.

The platforms are the stand-ins of the tests, in this process; the daemon and the client libraries are the real ones.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.daemon import await_answer, home
from benchmarks.figures import Figure, figure
from benchmarks.idle import SECONDS, cpu, pss
from clawd.config.home import Home
from tests.platforms import Platform
from tests.platforms.discord import Discord
from tests.platforms.slack import Slack
from tests.platforms.telegram import Telegram

PACED: list[Callable[[], Platform]] = [lambda: Telegram(poll_s=25), lambda: Slack(ping_s=5), lambda: Discord(41.25)]
"""At the pace of the platforms themselves; tests have them faster."""
CHATS = 40
SLOW_S = 2.0


@contextmanager
def _daemon(of: Home, *platforms: Platform) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon with these channels, the owner paired on each, and each live."""
    with of.config_file.open("a") as file:
        file.write("\n".join(platform.config for platform in platforms))
    accounts = [platform.account(platform.owner) for platform in platforms]
    of.root.joinpath("people.toml").write_text(
        f'schema = 1\n[[people]]\nname = "anna"\nrole = "owner"\naccounts = {accounts!r}\n'.replace("'", '"')
    )
    of.root.joinpath("people.toml").chmod(0o600)
    environment = dict(os.environ)
    for platform in platforms:
        environment |= platform.env
    process = subprocess.Popen(
        [sys.executable, "-m", "clawd", "run", "--home", str(of.root)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_answer(of, process)
        for platform in platforms:
            platform.wait(lambda platform=platform: platform.live)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def memory() -> Iterator[Figure]:
    """Idle PSS and CPU with Telegram alone, and with all three."""
    for goal, kinds in ((75, PACED[:1]), (100, PACED)):
        with ExitStack() as stack:
            platforms = [stack.enter_context(kind()) for kind in kinds]
            made = stack.enter_context(home(["main"]))
            process = stack.enter_context(_daemon(made, *platforms))
            for platform in platforms:
                platform.say("hello")
                platform.wait(lambda platform=platform: "ok" in platform.texts())
            time.sleep(5)
            names = ", ".join(platform.name for platform in platforms)
            yield figure(f"idle PSS with {names}, after a turn on each", [pss(process.pid)], "MB", goal=goal)
            before, began = cpu(process.pid), time.monotonic()
            time.sleep(SECONDS)
            share = (cpu(process.pid) - before) / 1e9 / (time.monotonic() - began) * 100
            yield figure(f"idle CPU over 30 s with {names}", [share], "%", goal=0.05)


def apart() -> Iterator[Figure]:
    """Telegram's answers alone, and while Slack takes 2 s for every send and Discord is down."""
    alone: list[float] = []
    with Telegram() as telegram, Slack() as slack, Discord() as discord:
        for name, others in (("alone", []), ("beside one dead and one slow", [slack, discord])):
            bindings = [telegram.binding(str(-1000 - number)) for number in range(CHATS)]
            with home(["main"]) as made:
                made.group("main").config_file.write_text(
                    f'schema = 1\nbindings = {bindings!r}\nsessions = "thread"\n'.replace("'", '"')
                )
                with _daemon(made, telegram, *others):
                    if others:
                        discord.down()
                        slack.fail(200, times=CHATS, hang=SLOW_S)
                        for _ in range(CHATS):
                            slack.say("hello")
                    taken = [_round_trip(telegram, str(-1000 - number)) for number in range(CHATS)]
            if others:
                discord.up()
                yield figure("telegram's p95 of that to its p95 alone", [_p95(taken) / _p95(alone)], "x", goal=2)
            alone = taken
            yield figure(f"an answer on telegram, said to shown, {name}", taken, "ms")


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def _round_trip(platform: Platform, chat: str) -> float:
    seen = len(platform.texts(chat))
    began = time.perf_counter()
    platform.say("hello", chat=chat, sender=platform.owner)
    platform.wait(lambda: len(platform.texts(chat)) > seen)
    return (time.perf_counter() - began) * 1000


def channels() -> Iterator[Figure]:
    yield from memory()
    yield from apart()
