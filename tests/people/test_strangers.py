"""A stranger is told once a day, and nothing grows with how many there are."""

from datetime import UTC, datetime

from clawd.clock import TurnedClock
from clawd.people.strangers import DAY_S, Daily


def test_each_is_told_once_a_day_and_the_table_has_a_bound() -> None:
    clock = TurnedClock(datetime(2026, 12, 1, tzinfo=UTC))
    daily = Daily(clock, most=100)
    assert daily.first("telegram:9") and not daily.first("telegram:9") and daily.first("telegram:10")
    clock.advance(DAY_S - 1)
    assert not daily.first("telegram:9")
    clock.advance(1)
    assert daily.first("telegram:9")
    for number in range(1000):
        daily.first(f"discord:{number}")
    assert len(daily._when) == 100 and not daily.first("discord:999")
