"""When a rule is due. Pure: instants in UTC from a rule and an instant.

A cron line names local times, and what becomes of them where the clocks change is ours: a time that the clocks skip is
due when the skipping ends, unless the line names every hour; a time that they show twice is due the first time, but
both times where the line says `*` for minutes or hours. Two local times that are one instant are one due. cronsim gives
the local times; it is never told a zone, for it misses times where clocks change by less than an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from clawd.config.values import check_zone
from clawd.errors import UsageError
from clawd.schedules.file import ScheduleFile, seconds_of

BY_HAND, BY_AGENT = 10.0, 900.0
"""Seconds: the shortest interval of a schedule that a person writes, and of one that an agent proposes."""

MANY = 1000
"""Dues are counted up to here."""

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NAMES: tuple[tuple[str, ...], ...] = (
    (),
    (),
    (),
    ("", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
)
_MOST = 500  # characters of a cron line


@dataclass(frozen=True, slots=True)
class Rule:
    """One of `cron` (five fields or `@daily`), `every` (seconds) and `at` (an instant). `zone` is that of a cron line;
    nothing is due after `until`."""

    zone: str
    cron: str | None = None
    every: float | None = None
    at: datetime | None = None
    until: datetime | None = None


def rule_of(file: ScheduleFile, zone: str, *, shortest: float = BY_HAND) -> Rule:
    """The rule of a file; `zone` is the group's, for a file that names none. Raises UsageError with the field's name
    when it can never be due, or is due more often than every `shortest` seconds."""
    zone = file.tz or zone
    try:
        check_zone(zone)
    except ValueError as error:
        raise UsageError(f"tz: {error}") from None
    until = None if file.until is None else instant(file.until, zone, "until")
    if file.at is not None:
        rule = Rule(zone, at=instant(file.at, zone, "at"), until=until)
    elif file.every is not None:
        rule = Rule(zone, every=round(seconds_of(file.every), 3), until=until)
    else:
        rule = Rule(zone, cron=_checked(file.cron or ""), until=until)
    if interval(rule) < shortest:
        what = "every" if rule.every is not None else "cron"
        raise UsageError(f"{what}: {said(rule)} is too often: the shortest interval here is {span(shortest)}")
    return rule


def instant(text: str, zone: str, field: str = "at") -> datetime:
    """The instant, in UTC, of a date and time that are `zone`'s unless they say otherwise. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text)
        return resolved(moment, zone) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{field}: {text!r} is no date and time; write it like 2026-12-01T09:00") from None


def resolved(wall: datetime, zone: str) -> datetime:
    """The instant, in UTC, at which clocks in `zone` first show `wall`, or where they skip it, skip it."""
    place, wall = ZoneInfo(zone), wall.replace(fold=0)
    moment = wall.replace(tzinfo=place).astimezone(UTC)
    if moment.astimezone(place).replace(tzinfo=None) == wall:
        return moment
    # Skipped: the change lies between the two readings of this time.
    before = wall.replace(tzinfo=place, fold=1).astimezone(UTC)
    offset, low, high = before.astimezone(place).utcoffset(), 0, int((moment - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if (before + timedelta(seconds=middle)).astimezone(place).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return before + timedelta(seconds=high)


def after(rule: Rule, moment: datetime, *, since: datetime) -> datetime | None:
    """The first due instant later than `moment`, in UTC; None when there is none. `every` counts from `since`."""
    return next(upcoming(rule, moment, since=since), None)


def dues(
    rule: Rule, after: datetime, until: datetime, *, since: datetime, newest: int = 10
) -> tuple[list[datetime], int]:
    """The newest due instants later than `after` and not later than `until`, in order, and how many there were before
    those; MANY means so many or more. The work is bounded, however long that was."""

    def within(start: datetime, most: int) -> list[datetime]:
        return list(takewhile(lambda due: due <= until, islice(upcoming(rule, start, since=since), most)))

    found = within(after, MANY + newest)
    earlier = max(0, len(found) - newest)
    if earlier < MANY:
        return found[earlier:], earlier
    start, end = after, until  # the newest are those after `start`, and more than those after `end`
    while end - start > timedelta(seconds=1):
        middle = start + (end - start) / 2
        if len(within(middle, newest)) < newest:
            end = middle
        else:
            start = middle
    return within(start, MANY + newest)[-newest:], MANY


def jittered(key: str, due: datetime, seconds: float) -> datetime:
    """When it is run: up to so many seconds after it is due, the same for the same key and due."""
    chance = int.from_bytes(sha256(f"{key}@{due.astimezone(UTC).isoformat()}".encode()).digest()[:8]) / 2**64
    return due + timedelta(seconds=seconds * chance)


def said(rule: Rule) -> str:
    """The rule in a line that is read as the same rule: "0 9 * * mon-fri", "every 20m", "at 2026-12-01T09:00+01:00"."""
    if rule.cron is not None:
        return rule.cron
    if rule.every is not None:
        return f"every {span(rule.every)}"
    assert rule.at is not None
    return f"at {iso(rule.at, rule.zone)}"


def iso(moment: datetime, zone: str) -> str:
    """RFC 3339 in the zone, without seconds where there are none."""
    local = moment.astimezone(ZoneInfo(zone))
    return local.isoformat(timespec="auto" if local.second or local.microsecond else "minutes")


def span(seconds: float) -> str:
    """How a file says so many seconds: "20s", "15m", "36h", "2d", "1.5m"."""
    for places in (0, 3):
        for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1), ("w", 604800)):
            count = round(seconds / size, places)
            if 1 <= count < 1e6 and abs(count * size - seconds) < 1e-6:
                return f"{count:.3f}".rstrip("0").rstrip(".") + unit
    return f"{seconds:.3f}s"


def interval(rule: Rule) -> float:
    """Seconds between two dues where they are closest; infinite for one that is due once."""
    if rule.every is not None:
        return rule.every
    if rule.cron is None:
        return float("inf")
    at = line(rule.cron)
    minutes = sorted(60 * hour + minute for hour in at.hours for minute in at.minutes)
    return 60.0 * min(b - a for a, b in zip(minutes, [*minutes[1:], minutes[0] + 1440], strict=True))


def upcoming(rule: Rule, moment: datetime, *, since: datetime) -> Iterator[datetime]:
    """All due instants later than `moment`, in order; most rules have no last one."""
    try:
        for due in _endless(rule, moment.astimezone(UTC), since.astimezone(UTC)):
            if rule.until is not None and due > rule.until:
                return
            yield due
    except OverflowError:  # the year 9999
        return


def _endless(rule: Rule, moment: datetime, since: datetime) -> Iterator[datetime]:
    if rule.at is not None:
        if rule.at > moment:
            yield rule.at
    elif rule.every is not None:
        step = timedelta(seconds=rule.every)
        due = since + step * max(1, (moment - since) // step + 1)
        while True:
            yield due
            due += step
    elif rule.cron is not None:
        yield from _of_line(rule.cron, rule.zone, moment)


def _of_line(cron: str, zone: str, moment: datetime) -> Iterator[datetime]:
    walls, place = line(cron), ZoneInfo(zone)
    again = _twice(cron)
    local = moment.astimezone(place)
    offset, later = local.utcoffset(), local.replace(fold=1).utcoffset()
    assert offset is not None and later is not None
    # Before the clocks are set back, what they will show again has been shown already: look from there.
    walls.dt = (local + (later - offset if again else timedelta(0))).replace(tzinfo=None, microsecond=0)
    pending: list[datetime] = []
    last = moment
    for wall in walls:
        here, there = wall.replace(tzinfo=place), wall.replace(tzinfo=place, fold=1)
        due = here.astimezone(UTC)
        if here.utcoffset() != there.utcoffset():
            second = there.astimezone(UTC)
            if second > due and again:
                pending.append(second)
            elif second < due and len(walls.hours) == 24:
                continue  # skipped, and the hours on both sides have theirs
            elif second < due:
                due = resolved(wall, zone)
        while pending and pending[0] <= due:
            if pending[0] > last:
                last = pending[0]
                yield last
            del pending[0]
        if due > last:
            last = due
            yield last


def _twice(cron: str) -> bool:
    """Whether it is due both times where clocks show a time twice."""
    minute, hour, *_ = fields_of(cron)
    return minute.startswith("*") or hour.startswith("*")


def fields_of(cron: str) -> list[str]:
    """The five fields of a line that was found good."""
    return _ALIASES.get(cron, cron).split()


def line(cron: str) -> CronSim:
    """A line that was found good; it goes on from wherever its `dt` is set."""
    return copy(_parsed(cron))


@lru_cache(maxsize=1024)
def _parsed(cron: str) -> CronSim:
    return CronSim(" ".join(fields_of(cron)), datetime(2000, 1, 1))


def _checked(text: str) -> str:
    """The line, its spaces made one. Raises UsageError."""
    if len(text) > _MOST:
        raise UsageError(f"cron: a line has at most {_MOST} characters")
    cron = " ".join(text.split())
    if cron.startswith("@"):
        if cron.lower() not in _ALIASES:
            raise UsageError(f"cron: there is no {cron!r}; there are {', '.join(_ALIASES)}")
        return cron.lower()
    fields = cron.split()
    if len(fields) != 5:
        raise UsageError(f"cron: a line has five fields, {' '.join(_FIELDS)}; this one has {len(fields) or 'none'}")
    for place, field in enumerate(fields):
        _check(place, field)
    try:
        next(line(cron))
    except (CronSimError, StopIteration):
        raise UsageError(f"cron: day-of-month: {cron!r} names a day that never comes") from None
    return cron


def _check(place: int, field: str) -> None:
    name, (low, high) = _FIELDS[place], _RANGES[place]
    for term in field.split(","):
        body, _, step = term.partition("/")
        first, _, last = body.partition("-")
        start, end = _value(place, first), _value(place, last)
        if start is not None and end is not None and start > end:
            listed = _listed(place, start, end, step)
            raise UsageError(f"cron: {name}: {term!r} goes backwards; write {listed}")
        if re.fullmatch("[0-9]+", step) and int(step) > high - low + 1:
            raise UsageError(f'cron: {name}: {term!r} is longer than all there is; for a span write every = "90m"')
    try:
        CronSim(" ".join(field if each == place else "*" for each in range(5)), datetime(2000, 1, 1))
    except CronSimError:
        names = f" or {_NAMES[place][low]} to {_NAMES[place][-1]}" if _NAMES[place] else ""
        raise UsageError(f"cron: {name}: {field!r} cannot be read; it goes from {low} to {high}{names}") from None


def _value(place: int, word: str) -> int | None:
    word = word.lower()
    if word and word in _NAMES[place]:
        return _NAMES[place].index(word)
    return int(word) if re.fullmatch("[0-9]{1,2}", word) else None


def _listed(place: int, start: int, end: int, step: str) -> str:
    """What a range that goes backwards means: "fri,sat,sun,mon", "22-23,0-2"."""
    low, high = _RANGES[place]
    if not _NAMES[place] and not step:
        return f"{start}-{high},{low}-{end}"
    values = [*range(min(start, high + 1), high + 1), *range(low, end + 1)][:: int(step or 1) or 1]
    return ",".join(_NAMES[place][value] if _NAMES[place] else str(value) for value in values)
