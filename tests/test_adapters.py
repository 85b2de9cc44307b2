"""Channels that are opened anew: each is open once, and of one that was closed nothing more is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from clawd import adapters
from clawd.adapters import Adapters
from clawd.channel import Adapter, Inbox
from clawd.clock import TurnedClock
from clawd.config import channels
from clawd.config.schema import Channels
from clawd.tasks import Tasks

pytestmark = pytest.mark.anyio


class Slow(Adapter):
    """One whose platform takes its time to let go of it."""

    name = "telegram"
    open = 0

    async def run(self, inbox: Inbox) -> None:
        Slow.open += 1
        try:
            inbox.trouble("no route")
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.02)
            Slow.open -= 1


class Quiet:
    def __init__(self, adapter: Adapter, part: Any) -> None:
        self.heard, self.trouble = part.heard, part.failed


async def test_however_often_its_config_changes_a_channel_is_open_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "adapter", lambda tables, name: Slow())
    monkeypatch.setattr(adapters, "OUTAGE_S", 0.1)
    told: list[str] = []
    tables = Channels.model_validate({"telegram": {"enabled": True, "token": "${env:TOKEN}"}})
    async with anyio.create_task_group() as tasks:
        clock = TurnedClock(datetime(2026, 12, 1, tzinfo=UTC))
        known = Adapters(lambda: tables, clock, Tasks(tasks), lambda text, but: told.append(text), lambda name: None)
        del known["terminal"], known.parts["terminal"]
        known.open(Quiet, {})  # type: ignore[arg-type]
        with anyio.fail_after(10):
            while not Slow.open:
                await anyio.sleep(0.005)
            broken = known.parts["telegram"]
            for _ in range(3):
                known.renew(["channels.telegram.token: a → b"])
            while known.parts.get("telegram") in (None, broken) or known._reopening.locked() or Slow.open != 1:
                await anyio.sleep(0.005)
            monkeypatch.setattr(adapters, "OUTAGE_S", 600.0)
            known.parts["telegram"].heard()
            await anyio.sleep(0.15)
        assert (Slow.open, broken.said, told) == (1, False, [])
        tables = Channels()
        known.renew(["channels.telegram.enabled: True → False"])
        with anyio.fail_after(10):
            while Slow.open or known:
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
