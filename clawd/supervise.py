"""Supervision: a part that fails is started again with a back-off, and the others do not notice."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from clawd.channel import Fatal
from clawd.clock import Clock

log = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 1.0, 60.0
DEGRADED_FAILURES, DEGRADED_WINDOW_S = 10, 600.0


@dataclass(slots=True)
class Part:
    """A supervised part as `status` shows it: `starting`, `live`, `degraded` or `dead`. It is live once it was heard,
    by data, not because it says so. `inbound`, `outbound`: RFC 3339, of the last message in and out."""

    name: str
    state: str = "starting"
    error: str | None = None
    inbound: str | None = None
    outbound: str | None = None
    failures: deque[float] = field(default_factory=lambda: deque(maxlen=DEGRADED_FAILURES))


def backoff(failures: int, chance: float) -> float:
    """Seconds before the next start after so many failures in a row; `chance` in 0…1 spreads them by half."""
    return float(min(LONGEST_S, FIRST_S * 2 ** min(failures - 1, 10))) * (0.75 + 0.5 * chance)


def is_degraded(failures: deque[float], now: float) -> bool:
    return len(failures) == DEGRADED_FAILURES and now - failures[0] <= DEGRADED_WINDOW_S


async def supervise(part: Part, work: Callable[[], Awaitable[None]], clock: Clock, told: Callable[[str], None]) -> None:
    """Run `work` for ever. Cancellation passes through; every other failure is logged and tried again; ten in ten
    minutes mark the part degraded, which `told` says once."""
    in_a_row = 0
    while True:
        began = clock.monotonic()
        part.state = "starting"
        try:
            await work()
            part.state = "dead"
            return
        except Fatal as error:
            part.state, part.error = "dead", str(error)
            log.error("%s is dead: %s", part.name, error)
            told(f"{part.name} is dead: {error}")
            return
        except Exception as error:
            now = clock.monotonic()
            in_a_row = 1 if now - began > LONGEST_S else in_a_row + 1
            part.failures.append(now)
            part.state, part.error = "starting", str(error) or type(error).__name__
            log.exception("%s failed", part.name)
            if is_degraded(part.failures, now):
                part.state = "degraded"
                told(f"{part.name} fails again and again: {part.error}")
                part.failures.clear()
        await anyio.sleep(backoff(in_a_row, random.random()))
