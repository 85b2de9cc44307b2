"""When the config is read again: at SIGHUP, and where an edit must hold at once. A bad edit keeps the old one, and the
owner is told."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence

from clawd import watchdog
from clawd.config.live import LiveConfig
from clawd.errors import ClawdError

log = logging.getLogger(__name__)

AT_START = ("sandbox.backend:", "sandbox.docker_host:", "logging.", "retention.log_days:")  # keys that are read once


class Reloads:
    def __init__(
        self, config: LiveConfig, told: Callable[[str], None], changed: Callable[[Sequence[str]], None]
    ) -> None:
        self._config, self._told, self._changed = config, told, changed

    async def at(self, hangups: AsyncIterator[signal.Signals]) -> None:
        async for _ in hangups:
            await watchdog.tell(*watchdog.reloading())
            self._reload()
            await watchdog.tell("READY=1")

    def renew(self) -> None:
        """An edit that nobody told us of, where one must hold at once: what is granted may have been taken away."""
        if self._config.changed():
            self._reload()

    def _reload(self) -> None:
        broken = "config.toml" in self._config.problems
        try:
            changes = self._config.reload()
            log.info("config reloaded: %s", changes)
            self._changed(changes)
            if broken:
                self._told("config.toml is understood again, and used.")
            if late := [each for each in changes if each.startswith(AT_START)]:
                self._told(f"The edited config is used; from the next start on: {', '.join(late)}")
        except (ClawdError, OSError) as error:
            self._told(f"The edited config was refused, the old one stays in force: {error}")
