"""The daemon with one more channel, `mute`: a platform that stores what it is sent and cannot tell whether it did.

What arrives from it is read from `mute.in` (one JSON line a message, told again at every start, as platforms do with
what was not acknowledged); what it stores goes to `mute.out`. `mute.rules` says what the next repeats meet: `refuse`
(surely not stored), `hang` (stored, and the answer never comes).
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from clawd import daemon
from clawd.channel import ChannelLimits, Inbox, NotSent
from clawd.cli.main import run
from clawd.model import Incoming, Outgoing
from clawd.supervise import Part
from tests.system.watched import watch


class Mute:
    name = "mute"
    limits = ChannelLimits(text=4000, tells=False)

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def run(self, inbox: Inbox) -> None:
        for line in (self._directory / "mute.in").read_text().splitlines():
            message = json.loads(line)
            await inbox.receive(
                Incoming("mute", "7", message["id"], "mute:7", (message["text"],), datetime.now(UTC), direct=True)
            )
        await anyio.sleep_forever()

    async def send(self, message: Outgoing) -> str:
        rules = self._directory / "mute.rules"
        rule = rules.read_text() if message.repeat and rules.exists() else ""
        if rule == "refuse":
            raise NotSent("the platform is busy", retry_after=600)
        with (self._directory / "mute.out").open("a") as stored:
            stored.write(json.dumps({"text": message.text, "repeat": message.repeat}) + "\n")
        if rule == "hang":
            await anyio.sleep_forever()
        return message.nonce

    async def find(self, message: Outgoing) -> str | None:
        raise AssertionError("it cannot tell")


class Daemon(daemon.Daemon):
    def build(self, *arguments: Any) -> None:
        super().build(*arguments)
        self.channels["mute"] = Mute(self.home.root)
        self.channels.parts["mute"] = Part("mute", self.clock, back=lambda: self.outbox.back("mute"))


if __name__ == "__main__":
    watch()
    daemon.Daemon = Daemon  # type: ignore[misc]
    sys.exit(run(sys.argv[1:]))
