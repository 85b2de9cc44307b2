"""The channels that this daemon speaks through: found by their entry points, with what each is able to do."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import metadata
from typing import Any

from clawd.channel import NOTICE, Adapter, AdapterFactory, ChannelLimits, Fatal, Inbox, NotSent
from clawd.clock import Clock, rfc3339
from clawd.errors import ConfigError
from clawd.intake import Intake
from clawd.ledger import chats
from clawd.ledger.db import Ledger
from clawd.model import Incoming, Outgoing, Receipt
from clawd.supervise import Part


class Adapters(dict[str, Adapter]):
    """By name."""

    def load(self, name: str, settings: Callable[[], dict[str, Any]]) -> Adapter:
        """The adapter that is registered under `name` by the entry point `clawd.channels`. One that cannot be made is
        there all the same, and says why: what is to be sent by it waits."""
        try:
            adapter = factory(name)(settings())
        except ConfigError as error:
            adapter = Closed(name, str(error))
        self[name] = adapter
        return adapter

    def limits(self, channel: str) -> ChannelLimits | None:
        adapter = self.get(channel)
        return adapter.limits if adapter else None

    def limits_of(self, channel: str) -> ChannelLimits:
        """Those of a channel that is not there now are what every platform takes."""
        return self.limits(channel) or NOTICE


class Closed(Adapter):
    """A channel that the config asks for and that cannot be opened."""

    limits = NOTICE

    def __init__(self, name: str, why: str) -> None:
        self.name, self._why = name, why

    async def run(self, inbox: Inbox) -> None:
        raise Fatal(self._why)

    async def send(self, message: Outgoing) -> str:
        raise NotSent(self._why, retry_after=60.0)


class ChannelInbox:
    """Implements `channel.Inbox` for one channel."""

    def __init__(self, name: str, intake: Intake, ledger: Ledger, clock: Clock, part: Part) -> None:
        self._name, self._intake, self._ledger, self._clock, self._part = name, intake, ledger, clock, part

    async def receive(self, incoming: Incoming, cursor: str | None = None) -> Receipt:
        self.heard()
        receipt = await self._intake.receive(incoming)
        if cursor is not None:
            await self.keep(cursor)
        return receipt

    async def keep(self, cursor: str) -> None:
        now = rfc3339(self._clock.now())
        await self._ledger.do(lambda tx: chats.keep(tx, self._name, cursor, now))

    async def cursor(self) -> str | None:
        return await self._ledger.do(lambda tx: chats.cursor(tx, self._name))

    def heard(self) -> None:
        self._part.state = "live"

    def trouble(self, why: str) -> None:
        self._part.state, self._part.error = "degraded", why


def factory(name: str) -> AdapterFactory:
    """What makes the adapters of a channel. Raises ConfigError."""
    for entry in metadata.entry_points(group="clawd.channels"):
        if entry.name == name:
            found: AdapterFactory = entry.load()
            return found
    try:  # run from a tree that was never installed
        shipped: AdapterFactory = pkgutil.resolve_name(f"channels.{name}:{name.title()}")
    except (ImportError, AttributeError, ValueError):
        raise ConfigError(f"there is no channel {name!r}: no installed package has one of this name") from None
    return shipped
