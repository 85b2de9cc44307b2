"""Supervision of a channel: what fails is started again with a back-off, and the others do not notice.

A channel is `live` once its platform was heard, by data, not because it says so. An outage is told when it lasts, once,
and so is its end; one that comes again and again is told, too.
"""

from __future__ import annotations

import logging
import os
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

import anyio

from clawd.channel import Fatal
from clawd.clock import LONGEST_S, Clock, backoff
from clawd.log import redactor

log = logging.getLogger(__name__)

OUTAGE_S = 60.0  # one that ends sooner is told nobody but the log
AGAIN, AGAIN_S = 10, 600.0  # so many outages in such a time are told, however short

State = Literal["starting", "live", "degraded", "dead"]


@dataclass(slots=True)
class Part:
    """A channel as `status` shows it. `inbound`, `outbound`: RFC 3339, of the last message in and out."""

    name: str
    clock: Clock
    told: Callable[[str], None] = lambda sentence: None
    """Tells the owner, elsewhere than on this channel."""
    back: Callable[[], None] = lambda: None
    """Called when it is live after it was not."""
    broke: Callable[[], None] = lambda: None
    """Called when an outage begins; `look` is to be called when it may have lasted."""
    state: State = "starting"
    error: str | None = None
    inbound: str | None = None
    outbound: str | None = None
    since: float | None = None
    """When the outage began that lasts now, monotonic."""
    outages: deque[float] = field(default_factory=lambda: deque(maxlen=AGAIN))
    said: bool = False

    def heard(self) -> None:
        """The platform said something."""
        if self.state == "live":
            return
        if self.said:
            self.told(f"{self.name} works again.")
        if self.since is not None:
            log.info("%s is live again", self.name)
        self.state, self.error, self.since, self.said = "live", None, None, False
        self.back()

    def failed(self, why: str) -> None:
        """It does not work now, and is tried again. One line of the log an outage."""
        now, why = self.clock.monotonic(), redactor.clean(why)
        if self.since is None:
            self.since = now
            self.outages.append(now)
            log.warning("%s does not work now: %s", self.name, why)
            self.broke()
        self.state, self.error = "degraded", why
        if is_flapping(self.outages, now):
            self.outages.clear()
            self.told(f"{self.name} breaks off again and again: {why}")

    def look(self, since: float | None) -> None:
        """The outage that began at `since` is told if it lasts still."""
        if since is not None and self.since == since and not self.said:
            self.said = True
            self.told(f"{self.name} does not work: {self.error}. It is tried again and again.")

    def died(self, why: str) -> None:
        """It will not work as it is configured."""
        why = redactor.clean(why).rstrip(".")
        self.state, self.error, self.since, self.said = "dead", why, None, True
        log.error("%s is dead: %s", self.name, why)
        again = f"Mend that, then: kill -HUP {os.getpid()} (or start clawd anew)."
        self.told(f"{self.name} does not work, and is not tried again before the config is read anew: {why}. {again}")


def is_flapping(outages: deque[float], now: float) -> bool:
    return len(outages) == AGAIN and now - outages[0] <= AGAIN_S


async def supervise(part: Part, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` until it is Fatal. Cancellation passes through; any other end is a failure, and it is begun anew."""
    in_a_row = 0
    while True:
        began = part.clock.monotonic()
        try:
            await work()
            why = "it ended by itself"
        except Fatal as error:
            part.died(str(error))
            return
        except Exception as error:
            why = str(error) or type(error).__name__
            log.info("%s: %s", part.name, type(error).__name__, exc_info=part.since is None)
        in_a_row = 1 if part.clock.monotonic() - began > LONGEST_S else in_a_row + 1
        part.failed(why)
        await anyio.sleep(backoff(in_a_row, random.random()))
