"""The channels that this daemon speaks through: found by their entry points, with what each is able to do."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from clawd.channel import Adapter, AdapterFactory, ChannelLimits
from clawd.errors import ConfigError

TEXT_LIMIT = 4000  # characters of a message to a channel that is not there now


class Adapters(dict[str, Adapter]):
    """By name."""

    def load(self, name: str, settings: dict[str, Any]) -> Adapter:
        """The adapter that is registered under `name` by the entry point `clawd.channels`. Raises ConfigError."""
        adapter = self[name] = _factory(name)(settings)
        return adapter

    def limits(self, channel: str) -> ChannelLimits | None:
        adapter = self.get(channel)
        return adapter.limits if adapter else None

    def text_limit(self, channel: str) -> int:
        limits = self.limits(channel)
        return limits.text if limits else TEXT_LIMIT


def _factory(name: str) -> AdapterFactory:
    for entry in metadata.entry_points(group="clawd.channels"):
        if entry.name == name:
            factory: AdapterFactory = entry.load()
            return factory
    if name == "terminal":  # run from a tree that was never installed
        from channels.terminal import Terminal

        return Terminal
    raise ConfigError(f"there is no channel {name!r}")
