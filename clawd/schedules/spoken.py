"""A rule in words, as it is repeated back: "every weekday at 09:00 (Europe/Berlin)". What comes again and again is said
in words that are understood as the same rule."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from cronsim import CronSim

from clawd.schedules.times import Rule, fields_of, line, span
from clawd.schedules.vocabulary import ORDINALS

_MOST = 6  # times or days that are said one by one
_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}


def spoken(rule: Rule) -> str:
    """In words, with its zone where it has one."""
    if rule.every is not None:
        return _span(rule.every)
    if rule.at is not None:
        local = rule.at.astimezone(ZoneInfo(rule.zone))
        seconds = ":%S" if local.second else ""
        return f"once, {local.strftime(f'%a %Y-%m-%d %H:%M{seconds}')} ({rule.zone})"
    assert rule.cron is not None
    return f"{_line(rule.cron)} ({rule.zone})"


def _span(seconds: float) -> str:
    text = span(seconds)
    if text == "1d":  # "every day" has a time of day
        return "every 24 hours"
    count, unit = text[:-1], _UNITS[text[-1]]
    return f"every {unit}" if count == "1" else f"every {count} {unit}s"


def _line(cron: str) -> str:
    minute, hour, day, _, weekday = fields_of(cron)
    at = line(cron)
    days = _days(at, day == "*", weekday == "*")
    if cron.startswith("@") or minute.startswith("*") or hour.startswith("*") or len(at.minutes) > 1 or days is None:
        return cron if cron.startswith("@") else f"cron {cron}"
    clocks = [f"{hour:02}:{next(iter(at.minutes)):02}" for hour in sorted(at.hours)]
    return f"every {days} at {_listed(clocks)}" if len(clocks) <= _MOST else f"cron {cron}"


def _days(at: CronSim, any_day: bool, any_weekday: bool) -> str | None:
    """The days of a line, where a few words say them."""
    all_months = len(at.months) == 12
    if any_day and all_months:
        return _weekdays(at.weekdays)
    if not any_weekday:
        return None
    days = sorted(at.days)
    if all_months and days == [CronSim.LAST]:
        return "month on the last day"
    if days[0] < 0 or len(days) > _MOST:
        return None
    if all_months:
        return f"month on the {_listed([_nth(day) for day in days])}"
    if len(days) == len(at.months) == 1:
        return f"year on {days[0]} {calendar.month_name[next(iter(at.months))]}"
    return None


def _weekdays(weekdays: set[int | tuple[int, int]]) -> str | None:
    nth = [each for each in weekdays if isinstance(each, tuple)]
    if nth:
        (day, n), rest = nth[0], len(weekdays) - 1
        which = "last" if n == CronSim.LAST else ORDINALS[n - 1]
        return None if rest else f"{which} {calendar.day_name[(day - 1) % 7]} of the month"
    found = sorted({(day - 1) % 7 for day in weekdays if isinstance(day, int)})
    if len(found) == 7:
        return "day"
    if found in ([0, 1, 2, 3, 4], [5, 6]):
        return "weekday" if 0 in found else "weekend"
    return _listed([calendar.day_name[each] for each in found])


def _nth(n: int) -> str:
    return f"{n}{'th' if 10 < n < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
