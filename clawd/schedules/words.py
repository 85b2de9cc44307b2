"""Plain words as a schedule: "remind me in 10 minutes to stretch", "every weekday at 9". What is not surely
understood is refused with ways to write it, never guessed; what was understood is said in words, to be repeated back.

A time stands at the beginning of a text or at its end. dateparser may be imported here: call it in a thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from clawd.config.values import check_zone
from clawd.errors import UsageError
from clawd.schedules.file import ScheduleFile
from clawd.schedules.phrases import Phrase, phrase_at
from clawd.schedules.spoken import spoken
from clawd.schedules.times import after, iso, resolved, rule_of, span

LONGEST = 500
"""Characters of a text that is read."""

WAYS = 'write it like "in 10 minutes", "tomorrow at 9:00" or "every weekday at 17:30"'

_PARTS = {"morning": time(9), "afternoon": time(15), "evening": time(19), "night": time(21)}
_HOURS = {"morning": range(1, 12), "afternoon": range(12, 19), "evening": range(17, 24), "night": range(18, 24)}
_UNSAID = time(9)  # of a day that is named without a time
_INTRO = re.compile(
    r"(?:(?:please|hey|bitte|(?:can|could|would|will) you)[\s,]+)*"
    r"(?:remind\s+(?:me|us)|erinnere?\s+(?:mich|uns)(?:\s+bitte)?(?:\s+daran)?)\b[\s,:]*",
    re.IGNORECASE,
)
_LEAD = re.compile(r"\s*(?:[:,;–—-]\s*)?(?:(?:to|that|about|of|dass|daran)\b[\s,:]*)?", re.IGNORECASE)
# Words behind a time that would change it, had they been understood.
_GOES_ON = re.compile(
    r"\s*(?:,\s*)?(?:[0-9(]|(?:[–-]|to\b)\s*[0-9]|(?:and|or|und|oder|until|till|except|but|unless|starting|from|between|through"
    r"|before|after|next|at|on|um|am|bis|außer|ab|von|past)\b|&)",
    re.IGNORECASE,
)
_GOES_ON_OFTEN = re.compile(r"\s*(?:for|in|of|für|im|within|during)\b", re.IGNORECASE)
_OFTEN = re.compile(
    r"\b(?:(?:a|per|am|pro)\s+(?:hour|day|week|month|year|tag|woche|monat|jahr)|every\s+(?:few|other|so))\b",
    re.IGNORECASE,
)
# Words before a time that make it part of what is to be done.
_LEADS_TO = re.compile(
    r"(?:^|\s)(?:until|till|before|after|by|from|since|for|about|than|between|to|the|of|on|in|at|every|and|or|not|is|are"
    r"|was|starts?|begins?|ends?|opens?|closes?|good|guten?|bis|vor|nach|von|für|den|um|am|seit|einen?|a|past)[\s,]*$",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?<!\S)\S")
_ENDS = re.compile(r"[\s.!?]*$")
_LINE = re.compile(r"\s*(?:[0-9][0-9,/-]*\s+){2}\S+\s+\S+\s+\S+$")


@dataclass(frozen=True, slots=True)
class Understood:
    """`fields` are a schedule file's: one of cron, every and at. `rest` is what else was said; `said` is the time
    in words."""

    fields: dict[str, Any]
    rest: str
    said: str


def understood(text: str, zone: str, now: datetime) -> Understood:
    """The time that stands at the beginning or at the end of `text`, and the rest of it. Raises UsageError."""
    text = _bounded(text, zone)
    body = text[intro.end() :] if (intro := _INTRO.match(text)) else text
    phrase, rest = _found(body, zone, now)
    if phrase.days is None and phrase.every is None and _OFTEN.search(rest):
        raise UsageError(f"how often is not surely understood; {WAYS}")
    rest = _LEAD.sub("", rest, count=1).strip()
    if again := _INTRO.match(rest):
        rest = _LEAD.sub("", rest[again.end() :], count=1).strip()
    return _kept(phrase, rest, zone, now)


def expression(text: str, zone: str, now: datetime) -> Understood:
    """The whole text is a time: a cron line, "every 20m", "at 2026-12-01T09:00", or plain words. Raises UsageError."""
    text = _bounded(text, zone).removesuffix(f"({zone})").rstrip()
    if not text or "*" in text or text.startswith(("@", "cron ")) or _LINE.match(text):
        return _sure({"cron": " ".join(text.removeprefix("cron ").split())}, "", zone, now)
    found = phrase_at(text, 0, zone, now)
    if found is None or not _ENDS.match(text, found[1]):
        raise UsageError(f"this is no time that is surely understood; {WAYS}, or a cron line like 0 9 * * mon-fri")
    return _kept(found[0], "", zone, now)


def _bounded(text: str, zone: str) -> str:
    try:
        check_zone(zone)
    except ValueError as error:
        raise UsageError(f"tz: {error}") from None
    if len(text) > LONGEST:
        raise UsageError(f"a time is looked for in at most {LONGEST} characters; these are {len(text)}")
    return text.strip()


# -- where it stands --


def _found(text: str, zone: str, now: datetime) -> tuple[Phrase, str]:
    reasons: list[UsageError] = []

    def at(place: int) -> tuple[Phrase, int] | None:
        try:
            return phrase_at(text, place, zone, now)
        except UsageError as error:
            reasons.append(error)
            return None

    def last(start: int) -> tuple[Phrase, int] | None:
        """What stands at the end of the text, and where it begins."""
        for word in _WORD.finditer(text, start):
            if (found := at(word.start())) and _ENDS.match(text, found[1]):
                return found[0], word.start()
        return None

    first = at(0)
    if first is not None:
        phrase, end = first
        if _ENDS.match(text, end):
            return phrase, ""
        often = phrase.days is not None or phrase.every is not None
        if _GOES_ON.match(text, end) or (often and _GOES_ON_OFTEN.match(text, end)):
            raise UsageError(f"what follows the time is not surely understood; {WAYS}")
        other = None if phrase.dated and phrase.timed else last(end)
        if other and other[0].clocks and not other[0].dated and phrase.dated and not _LEADS_TO.search(text[: other[1]]):
            return replace(phrase, clocks=other[0].clocks, part=other[0].part), text[end : other[1]]
        follows = _LEAD.match(text, end)
        if (follows and at(follows.end())) or (other and other[0].dated and not phrase.dated):
            raise UsageError(f"there are two times in this; {WAYS}")
        return phrase, text[end:]

    found = last(0)
    if found is None or _LEADS_TO.search(text[: found[1]]):
        raise (reasons or [UsageError(f"there is no time in this that is surely understood; {WAYS}")])[0]
    phrase, start = found
    reasons.clear()
    for word in _WORD.finditer(text, 0, start):
        other = at(word.start())
        if reasons or (other and (other[0].dated or not phrase.timed)):
            raise (reasons or [UsageError(f"there are two times in this; {WAYS}")])[0]
    return phrase, text[:start].rstrip(" ,;:–—-")


# -- what it means --


def _kept(phrase: Phrase, rest: str, zone: str, now: datetime) -> Understood:
    try:
        fields = _fields(phrase, zone, now)
    except OverflowError:
        raise UsageError("that is too far away") from None
    return _sure(fields, rest, zone, now)


def _fields(phrase: Phrase, zone: str, now: datetime) -> dict[str, str]:
    if phrase.every is not None:
        return {"every": span(phrase.every)}
    if phrase.moment is not None and not phrase.clocks and not phrase.part:
        return {"at": iso(phrase.moment.replace(microsecond=0), zone)}
    times = sorted({_placed(clock, phrase.part) for clock in phrase.clocks} or {_PARTS.get(phrase.part or "", _UNSAID)})
    if phrase.days is None:
        if len(times) > 1:
            raise UsageError(f"this would be twice; make one for each time, or {WAYS}")
        return {"at": iso(_moment(phrase, times[0], zone, now), zone)}
    if len({each.minute for each in times}) > 1:
        raise UsageError("these times differ in their minutes; make a schedule for each")
    hours = ",".join(str(each.hour) for each in times)
    return {"cron": f"{times[0].minute} {hours} {phrase.days}"}


def _placed(clock: time, part: str | None) -> time:
    """Eight in the evening is 20:00."""
    if part is None:
        return clock
    hour = clock.hour + 12 if part != "morning" and 0 < clock.hour < 12 else clock.hour
    if hour not in _HOURS[part]:
        raise UsageError(f"{clock:%H:%M} is no sure time of a {part}; write the hour as 0 to 23")
    return clock.replace(hour=hour)


def _moment(phrase: Phrase, clock: time, zone: str, now: datetime) -> datetime:
    place = ZoneInfo(zone)
    day = phrase.day or (phrase.moment or now).astimezone(place).date()
    named = phrase.day is not None or phrase.moment is not None
    if named and clock == time(0):
        raise UsageError(f"midnight may be the beginning or the end of that day; write {day} 0:01 or {day} 23:59")
    moment = resolved(datetime.combine(day, clock), zone)
    if moment <= now and (phrase.again or not named):
        moment = resolved(datetime.combine(day + timedelta(days=phrase.again or 1), clock), zone)
    return moment


def _sure(fields: dict[str, str], rest: str, zone: str, now: datetime) -> Understood:
    """What a schedule's file would make of it. Raises UsageError when that is nothing, or is past."""
    try:
        file = ScheduleFile.model_validate({**fields, "prompt": "x"})
    except ValidationError:
        raise UsageError(f"that is no span of time that a schedule can have; {WAYS}") from None
    rule = rule_of(file, zone)
    said = spoken(rule)
    if after(rule, now, since=now) is None:
        raise UsageError(f"{said}: that is {'past' if rule.at else 'never due'}")
    return Understood(fields, rest, said)
