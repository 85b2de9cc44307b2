"""How often people speak."""

from __future__ import annotations

from collections import deque

from clawd.clock import Clock

RATE_MESSAGES, RATE_WINDOW_S = 20, 60.0


class Rates:
    """How often each sender spoke lately: a sliding window, bounded by forgetting whoever is quiet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[str, deque[float]] = {}
        self._slowed: dict[str, float] = {}  # who was told to wait, and until when that is so

    def wait(self, sender: str) -> float:
        """Seconds until the sender may speak again: 0 now, and then it counts."""
        now = self._clock.monotonic()
        for quiet in [each for each, times in self._times.items() if now - times[-1] > RATE_WINDOW_S]:
            del self._times[quiet]
        times = self._times.setdefault(sender, deque())
        while times and now - times[0] >= RATE_WINDOW_S:
            times.popleft()
        if len(times) < RATE_MESSAGES:
            times.append(now)
            return 0.0
        return RATE_WINDOW_S - (now - times[0])

    def is_told(self, sender: str, wait: float) -> bool:
        """Whether a sender who must wait was told so before, and has waited since; from now on that is so."""
        now = self._clock.monotonic()
        self._slowed = {each: until for each, until in self._slowed.items() if until >= now}
        known = sender in self._slowed
        self._slowed[sender] = now + wait
        return known
