"""What each stranger was told lately: a table in memory with a bound. Nothing else is kept of them."""

from __future__ import annotations

from collections import OrderedDict

from clawd.clock import Clock

DAY_S = 86_400.0
MOST = 1000  # strangers; of more the one that was told the longest ago is forgotten


class Daily:
    """Things that happen at most once a day for each sender."""

    def __init__(self, clock: Clock, most: int = MOST) -> None:
        self._clock, self._most = clock, most
        self._when: OrderedDict[str, float] = OrderedDict()

    def first(self, sender: str) -> bool:
        """Whether it has not happened today; from now on it has."""
        now = self._clock.monotonic()
        while self._when and next(iter(self._when.values())) + DAY_S <= now:
            self._when.popitem(last=False)
        if sender in self._when:
            return False
        self._when[sender] = now
        if len(self._when) > self._most:
            self._when.popitem(last=False)
        return True

    def forget(self, sender: str) -> None:
        """They are no stranger: if they come to be one again, that is news to them."""
        self._when.pop(sender, None)
