"""Which adapter a channel's table of `config.toml` makes."""

from __future__ import annotations

import pkgutil
from importlib import metadata

from clawd.channel import NOTICE, Adapter, AdapterFactory, Fatal, Inbox, NotSent
from clawd.config.schema import Channels
from clawd.errors import ConfigError
from clawd.model import Outgoing

_WAIT_S = 60.0


def adapter(tables: Channels, name: str) -> Adapter:
    """The adapter that is registered under `name` by the entry point `clawd.channels`, with its table. Raises
    ConfigError when there is none, or when its secrets are not there."""
    made = _factory(name)({} if name == "terminal" else tables.settings(name))
    made.name = name
    return made


def _factory(name: str) -> AdapterFactory:
    for entry in metadata.entry_points(group="clawd.channels"):
        if entry.name == name:
            found: AdapterFactory = entry.load()
            return found
    try:  # run from a tree that was never installed
        shipped: AdapterFactory = pkgutil.resolve_name(f"channels.{name}:{name.title()}")
    except (ImportError, AttributeError, ValueError):
        raise ConfigError(
            f"there is no channel {name!r}: no package that is installed here brings one of this name"
        ) from None
    return shipped


class Closed(Adapter):
    """A channel that the config asks for and that cannot be made: what is to be sent by it waits."""

    limits = NOTICE

    def __init__(self, name: str, why: str) -> None:
        self.name, self._why = name, why

    async def run(self, inbox: Inbox) -> None:
        raise Fatal(self._why)

    async def send(self, message: Outgoing) -> str:
        raise NotSent(self._why, retry_after=_WAIT_S)
