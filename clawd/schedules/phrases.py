"""The grammar of times in plain words: what stands at one place of a text.

Times of day, spans and recurrences are read here; a calendar date with a month's name is left to dateparser (see
`vocabulary`). What has two readings is refused with both.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from clawd.errors import UsageError
from clawd.schedules.times import instant, resolved, span
from clawd.schedules.vocabulary import (
    AMOUNT,
    AND,
    CLOCK,
    DATES,
    EVERY,
    FULL,
    LIST,
    LISTED,
    MONTHLY,
    NTH,
    ORDINALS,
    PART,
    PLAIN,
    SHORT,
    UNITS,
    WEEKDAYS,
    WORDS,
    calendar_day,
    compiled,
    part_of,
    unit_of,
    weekday,
)


@dataclass(frozen=True, slots=True)
class Phrase:
    """What was read: a day (`day`, or the day fields of a cron line) and times of it; a span from now; a span between
    runs."""

    day: date | None = None
    days: str | None = None
    clocks: tuple[time, ...] = ()
    part: str | None = None
    moment: datetime | None = None
    whole: bool = False
    """`moment` is so many whole days from now: another time of that day may be named."""
    every: float | None = None
    again: int | None = None
    """The day is meant so many days later where its time is past."""
    bare: bool = False
    """Too little to be sure of without a time of day beside it."""

    @property
    def dated(self) -> bool:
        return (self.day, self.days, self.moment, self.every) != (None, None, None, None)

    @property
    def timed(self) -> bool:
        return bool(self.clocks or self.part or self.every or (self.moment and not self.whole))


def phrase_at(text: str, place: int, zone: str, now: datetime) -> tuple[Phrase, int] | None:
    """What stands at `place` and where it ends, None when it is no time. Raises UsageError for what has two readings
    or cannot be kept."""
    reader = _Reader(text, place, zone, now)
    try:
        found = reader.phrase()
    except OverflowError:
        raise UsageError("that is too far away") from None
    return None if found is None else (found, reader.place)


class _Reader:
    """Goes through a text: each method reads one thing at `place` and stops behind it, or gives None and stays."""

    def __init__(self, text: str, place: int, zone: str, now: datetime) -> None:
        self.text, self.place, self._zone, self._now = text.translate(PLAIN), place, zone, now
        self._wall = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        self._today = self._wall.date()

    def take(self, pattern: str) -> re.Match[str] | None:
        match = compiled(pattern).match(self.text, self.place)
        if match is not None:
            self.place = match.end()
        return match

    def phrase(self) -> Phrase | None:
        found = self._exact() or Phrase()
        while True:
            start = self.place
            self.take(r"\s*,?\s*")
            more = None if found.clocks or (found.moment and not found.whole) else self._clocks()
            more = more or (None if found.dated else self._every_day() or self._every() or self._span() or self._day())
            more = more or (None if found.part else self._part(found.dated))
            if more is None:
                self.place = start
                break
            if (found.clocks or found.part) and more.timed and more.dated and not more.part:
                raise UsageError("a span counts from now: it has no time of day")
            said = {field.name: getattr(more, field.name) for field in fields(more) if getattr(more, field.name)}
            found = replace(found, **said)
            if found.every is not None:
                self._nothing_more(found.every)
                break
        return None if found == Phrase() or (found.bare and not (found.clocks or found.part)) else found

    def _nothing_more(self, every: float) -> None:
        start = self.place
        self.take(r"\s*,?\s*")
        if self._clocks() or self._every_day() or self._day() or self._part(False):
            raise UsageError(f"every {span(every)} counts from when it is made: it has no days and no time of day")
        self.place = start

    # -- times of day --

    def _clocks(self) -> Phrase | None:
        clocks = [] if (first := self._clock()) is None else [first]
        while clocks:
            start = self.place
            if not self.take(AND) or (more := self._clock(listed=True)) is None:
                self.place = start
                break
            clocks.append(more)
        return Phrase(clocks=tuple(sorted(set(clocks)))) if clocks else None

    def _clock(self, *, listed: bool = False) -> time | None:
        match = CLOCK.match(self.text, self.place)
        if match is None:
            return None
        if match["noon"] or match["midnight"]:
            self.place = match.end()
            return time(12 if match["noon"] else 0)
        named = match["at"] or match["mark"] or (match["sep"] == ":" and match["hour"].isdigit())
        if not named and not (listed and not match["sep"] and LISTED.match(self.text, match.end())):
            return None
        word, minute, half = match["hour"].lower(), int(match["minute"] or 0), (match["half"] or "").lower()
        hour = WORDS[word] if word in WORDS else int(word)
        if hour > 23 or minute > 59 or (half and not 1 <= hour <= 12):
            raise UsageError(f'"{match[0].strip()}" is no time of day')
        self.place = match.end()
        return time(hour % 12 + 12 * (half == "p") if half else hour, minute)

    def _part(self, dated: bool) -> Phrase | None:
        match = self.take(f"(?:in the|at|am|in der) {PART}") or (self.take(PART) if dated else None)
        return Phrase(part=part_of(match["part"])) if match else None

    # -- spans --

    def _exact(self) -> Phrase | None:
        match = self.take(
            r"(?:(?:at|on|am) )?(?P<iso>[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T| )[0-9]{2}:[0-9]{2}(?::[0-9]{2})?"
            r"(?:Z|[+-][0-9]{2}:[0-9]{2})?)"
        )
        return Phrase(moment=instant(match["iso"].upper(), self._zone)) if match else None

    def _amounts(self) -> list[tuple[float, int]]:
        """So many of each unit, the unit in seconds; negative ones are months."""
        found: list[tuple[float, int]] = []
        while True:
            start = self.place
            if found and not (self.take(AND) or self.take(r"\s+")):
                break
            match = self.take(AMOUNT)
            if match is None:
                self.place = start
                break
            count = WORDS[match["word"].lower()] if match["word"] else float(match["count"].replace(",", "."))
            found.append((count, unit_of(match["unit"])))
        return found

    def _span(self) -> Phrase | None:
        start = self.place
        if self.take("in (?:half an|a half|einer halben) (?:hour|stunde)"):
            amounts = [(0.5, 3600)]
        else:
            led = self.take("in ")
            amounts = self._amounts()
            if amounts and led and amounts[-1][1] == 3600 and self.take(" and a half"):
                amounts.append((0.5, 3600))
            if not amounts or not (led or self.take(" from now")):
                self.place = start
                return None
        return self._from_now(amounts)

    def _from_now(self, amounts: list[tuple[float, int]]) -> Phrase:
        """Whole days, weeks and months are told by the calendar, all else is elapsed time."""
        wall, elapsed = self._wall, 0.0
        for count, unit in amounts:
            if unit < 0:
                if count % 1:
                    raise UsageError("half a month is no sure span; say it in days")
                year, month = divmod(wall.year * 12 + wall.month - 1 - int(count) * unit, 12)
                if year > 9000:
                    raise OverflowError
                day = min(wall.day, calendar.monthrange(year, month + 1)[1])
                wall = wall.replace(year=year, month=month + 1, day=day)
            elif unit >= 86400 and count % 1 == 0:
                wall += timedelta(seconds=count * unit)
            else:
                elapsed += count * unit
        if wall == self._wall and not elapsed:
            raise UsageError("that is now, not later")
        moment = self._now if wall == self._wall else resolved(wall, self._zone)
        return Phrase(moment=moment + timedelta(seconds=elapsed), whole=not elapsed)

    def _every(self) -> Phrase | None:
        start = self.place
        half = f"{EVERY} (?:half an|half|halbe) (?:hour|stunde)"
        for words, seconds in (("hourly|stündlich", 3600.0), ("weekly|wöchentlich", 604800.0), (half, 1800.0)):
            if self.take(words):
                return Phrase(every=seconds)
        other = self.take(f"{EVERY} other ")
        if not other and not self.take(f"{EVERY} "):
            return None
        if other and self.take(f"{FULL}|{SHORT}"):
            raise UsageError("every other week is no rule of a calendar; write every 2 weeks, on the day itself")
        amounts = [] if other else self._amounts()
        if not amounts and (match := self.take(f"(?P<unit>{'|'.join(UNITS.values())})")):
            amounts = [(2 if other else 1, unit_of(match["unit"]))]
        if not amounts:
            self.place = start
            return None
        if any(unit < 0 for _, unit in amounts):
            raise UsageError("a month has no sure length; write every month on the 1st, or every year on 24 December")
        if not (between := sum(count * unit for count, unit in amounts)):
            raise UsageError("no time lies between these")
        return Phrase(every=between)

    # -- days --

    def _every_day(self) -> Phrase | None:
        """Days that come again and again."""
        if self.take(f"{EVERY} (?:weekday|workday|working day)|(?:on )?weekdays"):
            return Phrase(days="* * mon-fri")
        if self.take(f"{EVERY} weekend|(?:on |at )?weekends"):
            return Phrase(days="* * sat,sun")
        if self.take(f"{EVERY} (?:single )?(?:day|tag)|daily|täglich"):
            return Phrase(days="* * *")
        if match := self.take(f"{EVERY} {PART}"):
            return Phrase(days="* * *", part=part_of(match["part"]))
        return self._nth() or self._of_month() or self._of_year() or self._weekdays()

    def _nth(self) -> Phrase | None:
        match = self.take(
            rf"(?:on )?(?:the )?(?P<every>{EVERY} )?{NTH} (?:{FULL}|{SHORT})"
            r"(?: (?P<of>(?:of|in) (?:the|each|every) month))?"
        )
        if match is None:
            return None
        name = WEEKDAYS[weekday(match)]
        nth, of = match["nth"].lower(), (match["of"] or "").lower()
        number = (
            0 if nth == "last" else next(n for n, word in enumerate(ORDINALS, 1) if nth in (word, f"{n}{nth[-2:]}"))
        )
        if match["every"] and number > 1 and not of:
            raise UsageError(f"{match[0].strip()} may be one of each month, or one of so many; say: … of the month")
        if not match["every"] and not of.endswith(("each month", "every month")):
            raise UsageError(f"{match[0].strip()} may be once or every month; say: every {nth} {name} of the month")
        return Phrase(days=f"* * {name}#{number}" if number else f"* * {(WEEKDAYS.index(name) + 1) % 7}L")

    def _of_month(self) -> Phrase | None:
        if self.take(
            rf"{MONTHLY} on the last day(?: of the month)?|(?:on )?(?:the )?last day of (?:each|every) month"
            r"|every last day of the month"
        ):
            return Phrase(days="L * *")
        match = self.take(
            rf"{MONTHLY} on (?:the )?(?P<list>{LIST})|(?:on )?(?:the )?(?P<those>{LIST}) of (?:each|every) month"
            rf"|every (?P<these>{LIST}) of the month"
        )
        if match is None:
            return None
        numbers = sorted({int(n) for n in re.findall("[0-9]+", match["list"] or match["those"] or match["these"])})
        if not 1 <= numbers[0] <= numbers[-1] <= 31:
            raise UsageError(f"{match[0].strip()}: a month has the days 1 to 31")
        return Phrase(days=f"{','.join(map(str, numbers))} * *")

    def _of_year(self) -> Phrase | None:
        start = self.place
        if self.take("(?:every year|each year|yearly|annually)(?: on)? ") or self.take(f"{EVERY} "):
            self.take("the ")
            day = self._dotted() or self._named()
            if day is not None and day.day is not None:
                if re.search("[0-9]{4}", self.text[start : self.place]):
                    raise UsageError("what is every year has no year of its own")
                return Phrase(days=f"{day.day.day} {day.day.month} *")
        self.place = start
        return None

    def _weekdays(self) -> Phrase | None:
        start = self.place
        every = self.take(f"(?:{EVERY}|(?:every week|weekly) on|wöchentlich am) ") is not None
        if not every:
            self.take("on ")
        names = rf"(?:{EVERY} |on )?(?:{FULL}|{SHORT})(?P<more>s)?"
        found: set[int] = set()
        while True:
            before = self.place
            if found and not self.take(AND):
                break
            match = self.take(names)
            if match is None or not (every or match["more"]):
                self.place = before
                break
            found.add(weekday(match))
        if not found:
            self.place = start
            return None
        days = ",".join(WEEKDAYS[each] for each in sorted(found))
        return Phrase(days=f"* * {'mon-fri' if found == {0, 1, 2, 3, 4} else days}")

    def _day(self) -> Phrase | None:
        """One day of the calendar."""
        if self.take("(?:the )?day after tomorrow|übermorgen"):
            return self._in_days(2)
        if self.take("tomorrow|morgen"):
            return self._in_days(1)
        if self.take("tonight"):
            return replace(self._in_days(0), part="night")
        if match := self.take(f"this {PART}"):
            return replace(self._in_days(0), part=part_of(match["part"]))
        if self.take("today|heute"):
            return replace(self._in_days(0), bare=True)
        start = self.place
        leads = "on|am|this|next|coming|nächste[nr]?|kommende[nr]?"
        if match := self.take(f"(?:(?P<lead>{leads}) )?(?:{FULL}|{SHORT})(?P<week> next week)?"):
            if match["day"] or match["lead"]:
                return self._next_weekday(weekday(match), (match["lead"] or "").lower(), bool(match["week"]))
            self.place = start
        if match := self.take("on the (?P<n>[0-9]{1,2})(?:st|nd|rd|th)(?! of)"):
            return self._next_of_month(int(match["n"]))
        if match := self.take(r"(?:(?:on|am) )?(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<n>[0-9]{2})"):
            return self._date(match[0], int(match["n"]), int(match["month"]), match["year"])
        led = self.take("(?:on|am|den) ") is not None
        self.take("the ")
        found = self._dotted() or self._slashed(led) or self._named()
        if found is None:
            self.place = start
        return found

    def _in_days(self, ahead: int) -> Phrase:
        return Phrase(day=self._today + timedelta(days=ahead))

    def _next_weekday(self, day: int, lead: str, next_week: bool) -> Phrase:
        ahead = (day - self._today.weekday()) % 7
        if next_week:
            return self._in_days(7 - self._today.weekday() + day)
        if lead.startswith(("next", "nächste")):
            return self._in_days(ahead or 7)
        return replace(self._in_days(ahead), again=None if ahead else 7)

    def _next_of_month(self, number: int) -> Phrase:
        ahead = next((n for n in range(70) if (self._today + timedelta(days=n)).day == number), None)
        if ahead is None:
            raise UsageError(f"no month has a day {number}")
        return self._in_days(ahead)

    def _dotted(self) -> Phrase | None:
        match = self.take(r"(?P<n>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>[0-9]{4})?")
        return self._date(match[0], int(match["n"]), int(match["month"]), match["year"]) if match else None

    def _slashed(self, led: bool) -> Phrase | None:
        match = self.take(r"(?P<one>[0-9]{1,2})/(?P<other>[0-9]{1,2})(?:/(?P<year>[0-9]{4}))?")
        if match is None:
            return None
        one, other = int(match["one"]), int(match["other"])
        if 0 < one <= 12 and 0 < other <= 12 and one != other:
            readings = f"{one} {calendar.month_name[other]} or {other} {calendar.month_name[one]}"
            raise UsageError(f"{match[0]} may be {readings}: write one of these")
        found = self._date(match[0], max(one, other), min(one, other), match["year"])
        return replace(found, bare=not (led or match["year"]))

    def _date(self, said: str, n: int, month: int, year: str | None) -> Phrase:
        """The next of its name, where it has no year."""
        for each in [int(year)] if year else range(self._today.year, self._today.year + 9):
            try:
                day = date(each, month, n)
            except ValueError:
                continue
            if year or day >= self._today:
                return Phrase(day=day)
        raise UsageError(f"{said.strip()} is no date")

    def _named(self) -> Phrase | None:
        for form in DATES:
            start = self.place
            if match := self.take(form):
                if day := calendar_day(int(match["n"]), match["month"].lower(), match["year"] or "", self._today):
                    return Phrase(day=day)
                self.place = start
        return None
