"""Time. Wall-clock time for what people see, monotonic time for every wait; a test hands in a clock that it
turns."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time in UTC with zone, and a monotonic reading in seconds."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class TurnedClock:
    """A clock for tests: it stands still until `advance` turns it."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both readings on by `seconds`."""
        self._now = datetime.fromtimestamp(self._now.timestamp() + seconds, UTC)
        self._monotonic += seconds


FIRST_S, LONGEST_S = 1.0, 60.0


def backoff(failures: int, chance: float) -> float:
    """Seconds before the next try after so many failures in a row; `chance` in 0…1 spreads them by half."""
    return float(min(LONGEST_S, FIRST_S * 2 ** min(failures - 1, 10))) * (0.75 + 0.5 * chance)


def rfc3339(moment: datetime) -> str:
    """RFC 3339 with offset, to the millisecond: what every stored or printed time looks like."""
    return moment.astimezone().isoformat(timespec="milliseconds")


def moment_of(text: str) -> datetime | None:
    """The moment that somebody else's text names; None when it names none that every zone can show."""
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment.astimezone() if 1 < moment.year < 9999 else None
