"""Clocks, and what a time looks like."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from clawd.clock import SystemClock, TurnedClock, rfc3339

NOON = datetime(2026, 3, 7, 12, 0, 0, 123456, tzinfo=UTC)


def test_the_systems_clock_has_a_zone_and_goes_on() -> None:
    clock = SystemClock()
    first = clock.monotonic()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now().timestamp() - time.time()) < 60
    assert clock.monotonic() >= first


def test_a_turned_clock_stands_still_until_it_is_turned() -> None:
    clock = TurnedClock(NOON)
    assert (clock.now(), clock.monotonic()) == (NOON, 0.0)
    clock.advance(90.5)
    assert (clock.now(), clock.monotonic()) == (NOON + timedelta(seconds=90.5), 90.5)


def test_times_are_local_with_offset_to_the_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert rfc3339(NOON) == "2026-03-07T17:30:00.123+05:30"
        assert rfc3339(NOON.astimezone(timezone(timedelta(hours=-9)))) == "2026-03-07T17:30:00.123+05:30"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert datetime.fromisoformat(rfc3339(NOON)) == NOON.replace(microsecond=123000)
