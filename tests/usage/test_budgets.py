"""Days and months as a calendar on the wall has them, and what a limit lets through."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.usage.budgets import BudgetSpent, Call, Limit, PriceUnknown, decide, period
from clawd.usage.prices import NANO

ZONES = sorted(available_timezones())
OPENS = datetime(2026, 12, 1, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("now", "zone", "day", "next_day", "next_month"),
    [
        ("2026-11-30T22:59Z", "Europe/Berlin", "2026-11-30", "2026-12-01T00:00+01:00", "2026-12-01T00:00+01:00"),
        ("2026-11-30T23:00Z", "Europe/Berlin", "2026-12-01", "2026-12-02T00:00+01:00", "2027-01-01T00:00+01:00"),
        ("2026-12-31T12:00Z", "UTC", "2026-12-31", "2027-01-01T00:00+00:00", "2027-01-01T00:00+00:00"),
        # The days on which the clocks change have 23 and 25 hours.
        ("2026-03-28T23:30Z", "Europe/Berlin", "2026-03-29", "2026-03-30T00:00+02:00", "2026-04-01T00:00+02:00"),
        ("2026-10-24T23:30Z", "Europe/Berlin", "2026-10-25", "2026-10-26T00:00+01:00", "2026-11-01T00:00+01:00"),
        # There was no midnight: the day began at one.
        ("2018-11-03T12:00Z", "America/Sao_Paulo", "2018-11-03", "2018-11-04T01:00-02:00", "2018-12-01T00:00-02:00"),
        ("2026-09-05T12:00Z", "America/Santiago", "2026-09-05", "2026-09-06T01:00-03:00", "2026-10-01T00:00-03:00"),
        # A whole day was left out.
        ("2011-12-30T09:00Z", "Pacific/Apia", "2011-12-29", "2011-12-31T00:00+14:00", "2012-01-01T00:00+14:00"),
        # The clock is set back over midnight: the last minutes of a day come twice.
        ("2010-11-07T02:45Z", "America/St_Johns", "2010-11-06", "2010-11-07T00:00-03:30", "2010-12-01T00:00-03:30"),
        ("2026-10-31T12:00Z", "America/Havana", "2026-10-31", "2026-11-01T00:00-04:00", "2026-11-01T00:00-04:00"),
    ],
)  # fmt: skip
def test_a_period(now: str, zone: str, day: str, next_day: str, next_month: str) -> None:
    found = period(datetime.fromisoformat(now), zone)
    assert (found.day, found.month) == (day, day[:7])
    opens = [each.isoformat(timespec="minutes") for each in (found.next_day, found.next_month)]
    assert opens == [next_day, next_month]


@given(st.sampled_from(ZONES), st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1)))
def test_what_opens_is_ahead_and_is_another_day(zone: str, moment: datetime) -> None:
    now = moment.replace(tzinfo=UTC)
    found = period(now, zone)
    assert now < found.next_day <= now + timedelta(hours=50) and now < found.next_month <= now + timedelta(days=33)
    assert period(found.next_day, zone).day > found.day and period(found.next_month, zone).month > found.month


def limit(unit: str = "usd", most: int = 5 * NANO, spent: int = 0, reserved: int = 0, *, span: str = "day",
          opens: datetime = OPENS, group: str | None = "g", service: str | None = None) -> Limit:  # fmt: skip
    return Limit(group, service, unit, span, most, spent, reserved, opens)  # type: ignore[arg-type]


CALL = Call("g", "anthropic", "claude-x", 900, 100)


@pytest.mark.parametrize(
    ("limits", "nanos", "allowed"),
    [
        ([], None, True),
        ([], NANO, True),
        ([limit()], 5 * NANO, True),
        ([limit()], 5 * NANO + 1, False),
        ([limit(spent=4 * NANO)], NANO, True),
        ([limit(spent=4 * NANO, reserved=1)], NANO, False),
        ([limit(spent=9 * NANO)], 0, True),  # a free model goes on
        ([limit(spent=9 * NANO)], 1, False),
        ([limit(most=0)], 0, True),
        ([limit("tokens", 1000)], None, True),
        ([limit("tokens", 999)], None, False),
        ([limit("tokens", 5000, 3000, 1001)], NANO, False),
        ([limit(), limit("tokens", 999)], 1, False),
        ([limit(), limit(span="month", most=NANO)], 2 * NANO, False),
        ([limit(group=None, service="anthropic", spent=5 * NANO)], 1, False),
    ],
)
def test_a_decision(limits: list[Limit], nanos: int | None, allowed: bool) -> None:
    refused = decide(limits, CALL, nanos)
    assert (refused is None) is allowed
    assert refused is None or (isinstance(refused, BudgetSpent) and refused.call is CALL)


def test_an_unknown_price_is_refused_where_dollars_are_limited_with_the_lines_to_write() -> None:
    refused = decide([limit("tokens", 10**6), limit()], CALL, None)
    assert isinstance(refused, PriceUnknown) and '[prices."claude-x"]' in str(refused) and "group g" in str(refused)


def test_what_is_said_of_a_spent_budget() -> None:
    month = limit(span="month", spent=5 * NANO, opens=OPENS + timedelta(days=31))
    refused = decide([limit(spent=5 * NANO), month], CALL, 1)
    assert isinstance(refused, BudgetSpent) and refused.opens == month.opens  # both must open
    assert str(refused) == (
        "the budget of group g is spent: $5.00 of $5.00 this month; it opens again at 2027-01-01T00:00:00+01:00"
        " (clawd budget raise g --usd N --for month)"
    )
    under_way = decide([limit("tokens", 5000, 4000, 500)], CALL, None)
    assert under_way is not None and under_way.message.startswith(
        "the budget of group g is spent: 4,000 tokens of 5,000 tokens today, and calls under way may take 500 tokens,"
        " where the next call may take up to 1,000 tokens; it opens again at"
    )
    service = decide([limit(group=None, service="openai", spent=5 * NANO)], CALL, 1)
    assert service is not None and service.hint == "raise [services.openai.limits] usd_per_day in config.toml"
