"""When the next request to a chat may go, by its platform's rates and by what the platform said. Pure, but for the
clock that it is given.

A message waits for the one before it, for the shared chat's minute, and for the channel. A courtesy (an edit of a
message that grows, a typing notice) waits for nothing: it goes where nothing has to wait, or never. No message waits
for one, and half of a shared chat's minute is kept for messages.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from clawd.channel import Rates

Key = tuple[str, str, str]
"""Channel, account, chat."""

_MINUTE = 60.0
_LONGEST_HOLD = 86_400.0  # whatever a platform asks for, it is asked again after a day
_MOST = 1000  # chats that are remembered before those are forgotten that are free


@dataclass(slots=True)
class _Chat:
    """Times are monotonic: when the next message may go, when the next courtesy, and until when the platform wants
    nothing at all; what went in the last minute."""

    message: float = -math.inf
    courtesy: float = -math.inf
    held: float = -math.inf
    minute: deque[float] = field(default_factory=deque)


class Pace:
    """`rates` gives a channel's; `now` reads the clock, in seconds."""

    def __init__(self, rates: Callable[[str], Rates], now: Callable[[], float]) -> None:
        self._rates, self._now = rates, now
        self._chats: dict[Key, _Chat] = {}
        self._channels: dict[str, float] = {}

    def wait(self, key: Key, shared: bool) -> float:
        """Seconds for which this chat's next message has to wait."""
        chat, now = self._chats.get(key), self._now()
        if chat is None:
            return 0.0
        most = self._rates(key[0]).shared_per_minute if shared else 0
        full = chat.minute[-most] + _MINUTE if most and len(chat.minute) >= most else now
        return max(0.0, max(chat.message, chat.held, full) - now)

    def pay(self, key: Key, shared: bool) -> float:
        """A message goes to this chat, which need not wait for it. Gives seconds until the channel's turn comes."""
        rates, now = self._rates(key[0]), self._now()
        at = max(now, self._channels.get(key[0], now))
        self._channels[key[0]] = at + rates.all_s
        chat = self._book(key, shared, at)
        chat.message = at + rates.chat_s
        return at - now

    def hold(self, key: Key, seconds: float) -> bool:
        """The platform wants nothing more for this chat, for so long. Gives whether that is a time."""
        if not 0 < seconds < math.inf:
            return False
        self._chat(key).held = self._now() + min(seconds, _LONGEST_HOLD)
        return True

    def spare(self, key: Key, shared: bool) -> bool:
        """Whether a courtesy may go now; then it is paid for."""
        rates, now = self._rates(key[0]), self._now()
        chat = self._chat(key)
        most = rates.shared_per_minute if shared else 0
        full = most and sum(at > now - _MINUTE for at in chat.minute) >= most // 2
        if full or max(chat.message, chat.courtesy, chat.held, self._channels.get(key[0], now)) > now:
            return False
        self._channels[key[0]] = now + rates.all_s
        self._book(key, shared, now)
        return True

    def _book(self, key: Key, shared: bool, at: float) -> _Chat:
        chat, rates = self._chat(key), self._rates(key[0])
        chat.courtesy = at + rates.chat_s
        while chat.minute and chat.minute[0] <= at - _MINUTE:
            chat.minute.popleft()
        if rates.shared_per_minute and shared:
            chat.minute.append(at)
        return chat

    def _chat(self, key: Key) -> _Chat:
        if key not in self._chats and len(self._chats) >= _MOST:
            now = self._now()
            self._chats = {key: chat for key, chat in self._chats.items() if not _free(chat, now)}
        return self._chats.setdefault(key, _Chat())


def _free(chat: _Chat, now: float) -> bool:
    last = chat.minute[-1] + _MINUTE if chat.minute else now
    return max(chat.message, chat.courtesy, chat.held, last) <= now
