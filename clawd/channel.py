"""The adapter protocol: what a channel tells us, what we ask of it, and its platform's limits as data.

An adapter knows this module and `clawd.model` only. It registers by the entry point `clawd.channels`; everything that
can be shared (splitting, order, retries, dedupe, rights) is done by the rooms above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from clawd.model import Incoming, Outgoing, Receipt


class NotSent(Exception):
    """The platform surely did not store the message (refused connection, 429). Send it again after `retry_after` s."""

    def __init__(self, why: str, retry_after: float = 1.0) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class Unsure(Exception):
    """The message may or may not have been stored: the answer was lost."""


class SendRefused(Exception):
    """The platform will never take this message (chat gone, bot removed)."""


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """`text` is the longest message in UTF-16 code units. `tells`: whether `find` can say if a send arrived.
    `reactions`: whether an emoji can be put on a message."""

    text: int = 4096
    tells: bool = False
    reactions: bool = False


class Inbox(Protocol):
    """What an adapter hands messages to. When `receive` returns, the message is durable: acknowledge it then."""

    async def receive(self, incoming: Incoming) -> Receipt: ...


class Adapter(Protocol):
    """A channel. `run` connects and takes in until it is cancelled; its supervisor restarts it with a back-off."""

    name: str
    limits: ChannelLimits

    async def run(self, inbox: Inbox) -> None: ...

    async def send(self, message: Outgoing) -> str:
        """Send and give the platform's id. Raises NotSent, Unsure or SendRefused. A `reaction` puts its text, an emoji,
        on the message `target`; it is tried once, whatever comes of it."""
        ...

    async def find(self, message: Outgoing) -> str | None:
        """The platform's id of an earlier attempt, or None when it surely did not arrive. Only where `limits.tells`."""
        ...


class AdapterFactory(Protocol):
    """What the entry point names: called with the channel's own table of `config.toml`."""

    def __call__(self, settings: dict[str, Any]) -> Adapter: ...
