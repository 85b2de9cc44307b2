"""A webhook of a group, and what becomes of requests to it that are refused: a status for the sender, without a hint of
what a secret is like; a sentence for the owner, once a day a hook and kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from clawd.clock import Clock
from clawd.wakes.signatures import Scheme

Key = tuple[str, str]
"""A group and the name of its hook."""

AGAIN_S = 86400.0

# By kind, what the owner reads. What is not here is in the log alone.
_WHY = {
    "signature": "wrong signature. If its sender is yours, the secret is not the same on both sides, or the scheme is"
    " another",
    "timestamp": "it was signed more than 5 minutes ago or ahead: sent once more by somebody, or a clock is wrong",
    "id": "what should name it is no id",
    "too_large": "its body has more than 1 MB",
    "too_slow": "its body came too slowly",
    "encoded": "its body is compressed: have it sent as it is",
    "method": "it is no POST",
    "malformed": "it is malformed",
    "often": "more than 60 in a minute",
    "crowded": "too many at one time",
}
_STRANGERS = {
    "unknown": "Requests come for webhooks that do not exist",
    "strangers": "An address has sent more than 60 requests in a minute to webhooks without knowing their secrets; more"
    " of them are not read",
    "crowded": "There are more connections for webhooks than can be held at one time; the oldest that have not sent a"
    " whole request are ended",
}


@dataclass(frozen=True, slots=True)
class Hook:
    """A `[[webhook]]` as it is in force, with its secret."""

    group: str
    name: str
    scheme: Scheme
    prompt: str
    secret: bytes = field(repr=False)

    @property
    def key(self) -> Key:
        return self.group, self.name


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds for a request's head, for its whole body, for its body's first bytes, and for what still comes after it
    was refused; and the bytes a second that must come after the first ones."""

    head: float = 10.0
    body: float = 30.0
    grace: float = 5.0
    pace: int = 2048
    drain: float = 2.0


class Refusal(Exception):
    """A request that is not taken. `message` is for its sender, `why` for the owner where the kind does not say it;
    `about` is the hook where only this knows it; `after` so many seconds it may come again."""

    def __init__(
        self, status: int, kind: str, message: str, *, why: str | None = None, about: Key | None = None, after: int = 0
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message
        self.why, self.about, self.after = why, about, after


class Refusals:
    """What was refused, by hook and kind: of each the owner is told once a day, with how many there were since."""

    def __init__(self, clock: Clock, told: Callable[[str], None]) -> None:
        self._clock, self._told = clock, told
        self._last: dict[tuple[Key, str], float] = {}
        self._untold: dict[tuple[Key, str], int] = {}

    def note(self, hook: Key | None, kind: str, why: str | None = None) -> None:
        """`hook` is one that exists: what others name is not kept."""
        why = why or (_WHY if hook else _STRANGERS).get(kind)
        if why is None:
            return
        key, now = (hook or ("", ""), kind), self._clock.monotonic()
        count = self._untold.pop(key, 0) + 1
        if key in self._last and now - self._last[key] < AGAIN_S:
            self._untold[key] = count
            return
        self._last[key] = now
        times = f" ({count} times)" if count > 1 else ""
        if hook is None:
            self._told(f"{why}{times}.")
        else:
            self._told(f"A request to the webhook {hook[1]} of group {hook[0]} was refused: {why}{times}.")
