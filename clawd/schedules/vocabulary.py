"""The words of times that `phrases` reads, in English and the simple ones in German."""

from __future__ import annotations

import calendar
import re
from datetime import date, datetime, time
from functools import lru_cache

from clawd.errors import UsageError

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ORDINALS = ("first", "second", "third", "fourth", "fifth")

_GERMAN_DAYS = ("montag", "dienstag", "mittwoch", "donnerstag", "freitag", "samstag", "sonntag")
_PARTS = {
    "morning": ("morning", "früh", "morgens?", "vormittags?"),
    "afternoon": ("afternoon", "nachmittags?"),
    "evening": ("evening", "abends?"),
    "night": ("night", "nachts?"),
}
_COUNTS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WORDS = {word: n for n, word in enumerate(_COUNTS, 1)} | {"a": 1, "an": 1, "fifteen": 15, "twenty": 20, "thirty": 30}
WORDS |= {"ein": 1, "eine": 1, "einem": 1, "einer": 1, "zwei": 2, "drei": 3}
UNITS = {
    1: "s|secs?|seconds?|sekunden?",
    60: "m|mins?|minutes?|minuten?",
    3600: "h|hrs?|hours?|stunden?",
    86400: "d|days?|tage?n?",
    604800: "w|weeks?|wochen?",
    -1: "months?|monate?n?",
    -12: "years?|jahre?n?",
}

PLAIN = str.maketrans("\u0131\u0130\u017f\u212a", "iIsK")  # letters that are equal to others where case is ignored

# Patterns for `compiled`.
EVERY = "(?:every|each|jede[nrs]?|alle)"
AMOUNT = (
    rf"(?:(?P<count>[0-9]{{1,6}}(?:\.[0-9]{{1,3}}|,[0-9]{{1,2}})?)\s*|(?P<word>{'|'.join(WORDS)}) )"
    rf"(?P<unit>{'|'.join(UNITS.values())})"
)
PART = rf"(?P<part>{'|'.join(word for words in _PARTS.values() for word in words)})"
FULL = rf"(?P<day>monday|tuesday|wednesday|thursday|friday|saturday|sunday|{'|'.join(_GERMAN_DAYS)})"
SHORT = "(?P<short>mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)"
AND = r"\s*(?:,? (?:and|und) |, ?|& ?)\s*"
NTH = rf"(?P<nth>{'|'.join(ORDINALS)}|1st|2nd|3rd|4th|5th|last)"
LIST = rf"[0-9]{{1,2}}(?:st|nd|rd|th)?(?:{AND}(?:the )?[0-9]{{1,2}}(?:st|nd|rd|th)?)*"
MONTHLY = "(?:every month|each month|monthly)"
# How months begin in the languages of `_OTHERS`.
_MONTH = (
    "(?P<month>(?:jan|ene|gen|f[eé][bv]|m[aä]r|maa|mrt|a[pv]r|abr|ma[yigj]|mei|ju[nli]|giu|lug|aug|ao[uû]|ago|sep|set"
    r"|o[ckt]t|out|nov|d[eéi][cz])[^\W\d_]{0,9})"
)
_NO_MONTHS = ("ago", "out", "set")  # they are, but not in an English sentence
_OTHERS = ("de", "fr", "es", "it", "nl", "pt")
DATES = (
    r"(?P<n>[0-9]{1,2})(?:st|nd|rd|th|\.)?\s*(?:(?:of|de) )?" + _MONTH + r"\.?(?:,? (?P<year>[0-9]{4}))?",
    _MONTH + r"\.? (?:the )?(?P<n>[0-9]{1,2})(?:st|nd|rd|th)?(?:,? (?P<year>[0-9]{4}))?(?![:.])",
)
CLOCK = re.compile(
    rf"(?P<at>(?:at|um)\s+|@\s*)?(?:(?P<noon>noon|midday|mittags?)|(?P<midnight>midnight|mitternacht)"
    rf"|(?P<hour>[0-9]{{1,2}}|{'|'.join(_COUNTS)})(?:(?P<sep>[:.])(?P<minute>[0-9]{{2}}))?"
    r"(?P<mark>\s*(?:(?P<half>[ap])\.?m\b\.?|uhr\b|o['’]?clock\b))?)(?![\w'’%])(?![:/.,-][0-9])"
    r"(?!\s+(?:of\s+)?(?:jan|feb|m[aä]r|apr|ma[iy]|ju[nl]|aug|sep|o[ck]t|nov|de[cz]))",
    re.IGNORECASE,
)
# What may stand behind a bare number at the end of a list of times: "at 9 and 17".
LISTED = re.compile(r"\s*(?:$|[.,;:!?]|(?:and|und|to|that|dass|every|each|on|in\s+the|remind)\b)", re.IGNORECASE)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of these words: a space in it is any white space, and it ends where a word does, or with a space."""
    end = "" if pattern.endswith((" ", "*", "+")) else r"(?![\w'’])"
    return re.compile(f"(?:{pattern})".replace(" ", r"\s+") + end, re.IGNORECASE)


def unit_of(word: str) -> int:
    return next(size for size, words in UNITS.items() if re.fullmatch(words, word, re.IGNORECASE))


def part_of(word: str) -> str:
    return next(part for part, words in _PARTS.items() if re.fullmatch("|".join(words), word, re.IGNORECASE))


def weekday(match: re.Match[str]) -> int:
    word = (match["day"] or match["short"]).lower()
    return _GERMAN_DAYS.index(word) if word in _GERMAN_DAYS else WEEKDAYS.index(word[:3])


@lru_cache(maxsize=1024)
def calendar_day(n: int, month: str, year: str, today: date) -> date | None:
    """The next day of that name; None when that is no month's name. Raises UsageError when it has no such day."""
    import dateparser

    rules = {
        "RELATIVE_BASE": datetime.combine(today, time()),
        "PREFER_DATES_FROM": "future",
        "REQUIRE_PARTS": ["day", "month"],
        "PARSERS": ["absolute-time"],
    }
    languages = ["en"] if month in _NO_MONTHS else ["en", *_OTHERS]
    found: datetime | None
    try:
        found = dateparser.parse(f"{n} {month} {year}".strip(), languages=languages, settings=rules)
    except Exception:  # it raises anything for what it cannot read, which is no date for its caller
        return None
    if found is not None and found.day == n:
        return found.date()
    if month.title() in (*calendar.month_name, *calendar.month_abbr):
        raise UsageError(f"there is no {n} {month.title()}")
    return None
