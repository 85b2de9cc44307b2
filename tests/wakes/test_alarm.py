"""The alarm with the real scheduler: it rings at an instant of our clock, once, and when that clock was set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from clawd.clock import TurnedClock
from clawd.wakes.alarm import Alarm

pytestmark = pytest.mark.anyio

NOW = datetime(2020, 1, 1, tzinfo=UTC)  # the machine's own clock is another


async def test_it_rings_then_and_not_as_it_was_set_before() -> None:
    clock, rung = TurnedClock(NOW), anyio.Event()
    count = 0

    def ring() -> None:
        nonlocal count
        count += 1
        rung.set()

    alarm = Alarm(clock, ring)
    await alarm.set(None)
    await alarm.set(NOW + timedelta(seconds=0.05))
    with anyio.fail_after(5):
        await rung.wait()
    assert count == 1
    rung = anyio.Event()
    far = NOW + timedelta(days=400)
    await alarm.set(far)
    await alarm.set(far)
    clock._now = far  # set, not passed
    await alarm.set(far)
    with anyio.fail_after(5):
        await rung.wait()
    await alarm.set(far + timedelta(seconds=0.05))
    await alarm.set(None)
    await anyio.sleep(0.15)
    assert count == 2
    await alarm.set(far)  # what is past rings at once
    await anyio.sleep(0.15)
    assert count == 3
    alarm.off()
