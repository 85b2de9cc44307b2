"""Clocks, and what a time looks like."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from clawd.clock import LONGEST_S, SystemClock, TurnedClock, backoff, moment_of, rfc3339

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


@pytest.mark.parametrize("text", ["noon", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00+23:59", ""])
def test_a_time_that_not_every_zone_can_show_is_none(text: str) -> None:
    assert moment_of(text) is None


def test_a_time_of_others_is_read() -> None:
    assert moment_of("2026-03-07T13:00:00.123456+01:00") == NOON


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (6, 32), (7, LONGEST_S), (10_000, LONGEST_S)])
def test_the_pause_doubles_up_to_a_minute_and_is_spread(failures: int, seconds: float) -> None:
    assert (backoff(failures, 0.0), backoff(failures, 1.0)) == (0.75 * seconds, 1.25 * seconds)
