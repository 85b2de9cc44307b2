"""What the chat commands reach of the daemon that carries them out."""

from __future__ import annotations

import asyncio

from clawd.commands import model
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.turns.dispatch import Dispatcher
from clawd.turns.record import Recorder


class Reach:
    """Implements `intake.CommandContext`."""

    def __init__(self, home: Home, config: LiveConfig, dispatcher: Dispatcher, recorder: Recorder) -> None:
        self._home, self._config, self._dispatcher, self._recorder = home, config, dispatcher, recorder

    def stopped(self, live: list[int], waiting: list[int]) -> None:
        for turn in live:
            self._dispatcher.stop_live(turn)
        for turn in waiting:
            self._recorder.soon(turn)

    def state_of(self, group: str) -> str:
        settings = self._config.for_group(group)
        run = self._dispatcher.active.get(group)
        sandbox = f"{run.backend} sandbox, {len(run.live)} at work" if run else "no sandbox now"
        return f"group {group}: engine {settings.model.engine}, {sandbox}"

    async def model(self, group: str, words: str) -> str:
        settings, config = self._config.for_group(group), self._config.current
        return await asyncio.to_thread(model.say, self._home.group(group).config_file, config, settings, group, words)
