"""Plain words as a schedule: what is understood, what is refused, and that nothing else happens."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.errors import UsageError
from clawd.schedules.file import ScheduleFile
from clawd.schedules.times import Rule, fields_of, line, rule_of, said
from clawd.schedules.words import LONGEST, expression, understood

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 30, 8, 15, 30, tzinfo=UTC)  # a Monday, 09:15:30 in Berlin

ONCE = [
    ("in 10 minutes", "2026-11-30T09:25:30"),
    ("in half an hour", "2026-11-30T09:45:30"),
    ("in an hour and a half", "2026-11-30T10:45:30"),
    ("in 2 hours and 15 minutes", "2026-11-30T11:30:30"),
    ("in 2h 15m", "2026-11-30T11:30:30"),
    ("ten minutes from now", "2026-11-30T09:25:30"),
    ("in a week", "2026-12-07T09:15:30"),
    ("in a month", "2026-12-30T09:15:30"),
    ("in 3 days at 9", "2026-12-03T09:00"),
    ("tomorrow at 9", "2026-12-01T09:00"),
    ("tomorrow at 9 in the evening", "2026-12-01T21:00"),
    ("tomorrow morning", "2026-12-01T09:00"),
    ("tomorrow", "2026-12-01T09:00"),
    ("9am tomorrow", "2026-12-01T09:00"),
    ("the day after tomorrow at 9", "2026-12-02T09:00"),
    ("at 17:30", "2026-11-30T17:30"),
    ("at 9", "2026-12-01T09:00"),  # it is past
    ("at 10", "2026-11-30T10:00"),
    ("tonight at 8", "2026-11-30T20:00"),
    ("9pm", "2026-11-30T21:00"),
    ("12 a.m.", "2026-12-01T00:00"),
    ("noon", "2026-11-30T12:00"),
    ("midnight", "2026-12-01T00:00"),
    ("today at 18:00", "2026-11-30T18:00"),
    ("on friday at 15:00", "2026-12-04T15:00"),
    ("on monday at 10", "2026-11-30T10:00"),
    ("on monday at 8", "2026-12-07T08:00"),
    ("next monday 9:00", "2026-12-07T09:00"),
    ("tuesday next week at 9:00", "2026-12-08T09:00"),
    ("on the 15th at 9", "2026-12-15T09:00"),
    ("on 3 December at noon", "2026-12-03T12:00"),
    ("December 3rd, 2027 at 9:30", "2027-12-03T09:30"),
    ("29 February", "2028-02-29T09:00"),
    ("24.12. 18:00", "2026-12-24T18:00"),
    ("12/24 at 18", "2026-12-24T18:00"),
    ("2026-12-24 at 18", "2026-12-24T18:00"),
    ("at 2026-12-01T09:00", "2026-12-01T09:00"),
    ("2026-12-01T09:00Z", "2026-12-01T10:00"),
    ("morgen um 9", "2026-12-01T09:00"),
    ("in 10 Minuten", "2026-11-30T09:25:30"),
    ("in einer halben Stunde", "2026-11-30T09:45:30"),
    ("heute Abend um 8", "2026-11-30T20:00"),
    ("am Freitag um 15 Uhr", "2026-12-04T15:00"),
    ("am 3. Mai um 12 Uhr", "2027-05-03T12:00"),
    ("24 décembre 9:00", "2026-12-24T09:00"),
]
OFTEN = [
    ("every weekday at 9", "cron 0 9 * * mon-fri", "every weekday at 09:00"),
    ("at 9 every weekday", "cron 0 9 * * mon-fri", "every weekday at 09:00"),
    ("weekdays at 9 and 17", "cron 0 9,17 * * mon-fri", "every weekday at 09:00 and 17:00"),
    (
        "every monday and thursday at 18:30",
        "cron 30 18 * * mon,thu",
        "every Monday and Thursday at 18:30",
    ),
    (
        "on mondays, wednesdays and fridays at 6",
        "cron 0 6 * * mon,wed,fri",
        "every Monday, Wednesday and Friday at 06:00",
    ),
    ("every sat and sun at 10", "cron 0 10 * * sat,sun", "every weekend at 10:00"),
    ("daily at 7:15", "cron 15 7 * * *", "every day at 07:15"),
    ("every morning", "cron 0 9 * * *", "every day at 09:00"),
    ("every evening at 8", "cron 0 20 * * *", "every day at 20:00"),
    ("every first Monday", "cron 0 9 * * mon#1", "every first Monday of the month at 09:00"),
    ("every first Monday at 10", "cron 0 10 * * mon#1", "every first Monday of the month at 10:00"),
    (
        "every last friday of the month at 17:00",
        "cron 0 17 * * 5L",
        "every last Friday of the month at 17:00",
    ),
    ("on the 2nd tuesday of every month at 9", "cron 0 9 * * tue#2", "every second Tuesday of the month at 09:00"),
    ("every month on the 15th", "cron 0 9 15 * *", "every month on the 15th at 09:00"),
    ("on the 1st and 22nd of every month at 8", "cron 0 8 1,22 * *", "every month on the 1st and 22nd at 08:00"),
    ("on the last day of every month at 17:00", "cron 0 17 L * *", "every month on the last day at 17:00"),
    ("every year on 24 December", "cron 0 9 24 12 *", "every year on 24 December at 09:00"),
    ("0 9 * * 1-5", "cron 0 9 * * 1-5", "every weekday at 09:00"),
    ("0 9 1 * mon", "cron 0 9 1 * mon", "cron 0 9 1 * mon"),
    ("@daily", "cron @daily", "@daily"),
    ("jeden Montag um 8 Uhr", "cron 0 8 * * mon", "every Monday at 08:00"),
    ("every hour", "every 1h", "every hour"),
    ("hourly", "every 1h", "every hour"),
    ("every 20 minutes", "every 20m", "every 20 minutes"),
    ("every 20m", "every 20m", "every 20 minutes"),
    ("every half hour", "every 30m", "every 30 minutes"),
    ("alle 20 Minuten", "every 20m", "every 20 minutes"),
    ("every other day", "every 2d", "every 2 days"),
    ("every 2 days", "every 2d", "every 2 days"),
]
WITHIN = [
    ("remind me in 10 minutes to stretch", "2026-11-30T09:25:30", "stretch"),
    ("Remind me to call Ada tomorrow at 9.", "2026-12-01T09:00", "call Ada"),
    ("tomorrow at 9: water the plants", "2026-12-01T09:00", "water the plants"),
    ("please remind me on friday to book it at 15:00", "2026-12-04T15:00", "book it"),
    ("remind me tomorrow at 9 that the meeting is at 10", "2026-12-01T09:00", "the meeting is at 10"),
    ("remind me in 5 minutes:\n- tea\n- keys", "2026-11-30T09:20:30", "- tea\n- keys"),
    ("buy 3 eggs tomorrow at 9", "2026-12-01T09:00", "buy 3 eggs"),
    ("remind me to check the 9:00 train tomorrow at 8", "2026-12-01T08:00", "check the 9:00 train"),
    ("every weekday at 9, remind me to stand up", "0 9 * * mon-fri", "stand up"),
    ("put out the bins every thursday evening", "0 19 * * thu", "put out the bins"),
    ("erinnere mich morgen um 9 daran, anzurufen", "2026-12-01T09:00", "anzurufen"),
]
REFUSED = [
    ("", "no time"),
    ("remind me to stretch", "no time"),
    ("10/11", "10 November or 11 October"),
    ("remind me on 10/11 at 9 to pay", "10 November or 11 October"),
    ("at 2020-01-01T09:00", "past"),
    ("3 December 2025", "past"),
    ("today at 8", "past"),
    ("30 February at 9", "no 30 February"),
    ("at 25:00", "25:00"),
    ("13pm", "13pm"),
    ("tomorrow at midnight", "beginning or the end"),
    ("tomorrow at 9 and 17", "twice"),
    ("tonight at 3", "no sure time of a night"),
    ("every second monday", "each month"),
    ("the first monday of the month at 9", "once or every month"),
    ("every other monday at 9", "every 2 weeks"),
    ("every month", "every month on the 1st"),
    ("every 2 days at 9", "no time of day"),
    ("every day at 7:15 and 9:30", "for each"),
    ("every 5 seconds", "10s"),
    ("in 0 minutes", "not later"),
    ("in 999999 years", "too far"),
    ("9999-12-31 at 23:59", "too far"),
    ("stretch every 20 minutes until 5pm", "no time"),
    ("every weekday from 9 to 17 stretch", "not surely"),
    ("every friday in december stretch", "not surely"),
    ("every day at 9 and 10 pushups", "not surely"),
    ("take pills twice a day at 9", "not surely"),
    ("remind me at 5 to 9 to leave", "not surely"),
    ("call Ada before friday", "no time"),
    ("call Ada tomorrow about it", "no time"),
    ("remind me at 9 to call Ada on friday", "two times"),
    ("book friday dinner tomorrow at 9", "two times"),
    ("be nice 24/7", "no time"),
    ("half past 9", "no time"),
    ("x" * (LONGEST + 1), "500"),
]


@pytest.mark.parametrize(("text", "local"), ONCE)
def test_once(text: str, local: str) -> None:
    moment = datetime.fromisoformat(local)
    expected = {"at": f"{local}{'+02:00' if moment.month == 5 else '+01:00'}"}
    shown = moment.strftime("%a %Y-%m-%d %H:%M" + (":%S" if moment.second else ""))
    for found in (expression(text, BERLIN, NOW), understood(text, BERLIN, NOW)):
        assert (found.fields, found.rest, found.said) == (expected, "", f"once, {shown} ({BERLIN})")


@pytest.mark.parametrize(("text", "rule", "words"), OFTEN)
def test_again_and_again(text: str, rule: str, words: str) -> None:
    kind, _, value = rule.partition(" ")
    found = expression(text, BERLIN, NOW)
    assert found.fields == {kind: value}
    assert found.said == (words if kind == "every" else f"{words} ({BERLIN})")
    if text[0].isalpha():
        assert understood(text, BERLIN, NOW) == found


@pytest.mark.parametrize(("text", "when", "rest"), WITHIN)
def test_a_time_before_or_after_what_is_to_be_done(text: str, when: str, rest: str) -> None:
    found = understood(text, BERLIN, NOW)
    assert (next(iter(found.fields.values())).removesuffix("+01:00"), found.rest) == (when, rest)
    with pytest.raises(UsageError):
        expression(text, BERLIN, NOW)


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text[:30] for text, _ in REFUSED])
def test_what_is_not_sure_is_refused(text: str, why: str) -> None:
    zone = "America/New_York" if "9999-" in text else BERLIN
    with pytest.raises(UsageError, match=why) as refused:
        understood(text, zone, NOW)
    if why in ("no time", "not surely", "two times"):
        assert all(
            way in refused.value.message for way in ("in 10 minutes", "tomorrow at 9:00", "every weekday at 17:30")
        )
    with pytest.raises(UsageError):
        expression(text, zone, NOW)


def test_times_that_clocks_skip_or_show_twice() -> None:
    skipped = expression("tomorrow at 2:30", BERLIN, datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert skipped.fields == {"at": "2026-03-29T03:00+02:00"} and "2026-03-29 03:00" in skipped.said
    again = expression("in 10 minutes", BERLIN, datetime(2026, 10, 25, 1, 15, tzinfo=UTC))  # the second 02:15
    assert again.fields == {"at": "2026-10-25T02:25+01:00"}
    assert expression("at 2:30", BERLIN, datetime(2026, 10, 25, 0, 45, tzinfo=UTC)).fields == {
        "at": "2026-10-26T02:30+01:00"
    }
    with pytest.raises(UsageError, match="tz"):
        understood("tomorrow at 9", "Mars/Olympus", NOW)


def test_dateparser_is_for_names_of_months_alone() -> None:
    texts = ["every weekday at 9", "24.12. 18:00", "remind me to buy 3 eggs at 9 tomorrow", "in 2 days", "*/5 * * * *"]
    program = (
        "import sys; from datetime import *; from clawd.errors import UsageError; from clawd.schedules.words import *\n"
        f"for text in {texts}:\n"
        " for read in (understood, expression):\n"
        "  try: read(text, 'UTC', datetime.now(UTC))\n"
        "  except UsageError: pass\n"
        "assert 'dateparser' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def _times(low: int, high: int) -> st.SearchStrategy[str]:
    return st.lists(st.integers(low, high), min_size=1, max_size=4).map(lambda it: ",".join(map(str, it)))


CRON = st.tuples(
    _times(0, 59) | st.just("*/5"),
    _times(0, 23) | st.just("*"),
    st.just("*") | _times(1, 28) | st.sampled_from(["L", "31", "1-31", "*/2"]),
    st.just("*") | _times(1, 12) | st.just("dec"),
    st.just("*") | _times(0, 7) | st.sampled_from(["mon-fri", "sat,sun", "mon#1", "5L", "sun#5", "*/7", "0-7"]),
).map(" ".join)


def _means(rule: Rule) -> object:
    if rule.cron is None:
        return rule
    at, (minute, hour, *_) = line(rule.cron), fields_of(rule.cron)
    weekdays = {each % 7 if isinstance(each, int) else each for each in at.weekdays}
    stars = minute.startswith("*"), hour.startswith("*"), at.day_and
    return at.minutes, at.hours, at.days, at.months, weekdays, stars


@settings(max_examples=150, deadline=None)
@given(
    CRON.map(lambda cron: {"cron": cron})
    | st.integers(10, 10**7).map(lambda n: {"every": f"{n / 10:.1f}m" if n < 10**6 else f"{n - 10**6}s"})
)
def test_what_is_said_is_understood_as_the_same(fields: dict[str, str]) -> None:
    try:
        rule = rule_of(ScheduleFile.model_validate({**fields, "prompt": "x"}), BERLIN)
    except (UsageError, ValueError):
        return
    for words in (said(rule), expression(said(rule), BERLIN, NOW).said):
        again = expression(words, BERLIN, NOW).fields
        assert _means(rule_of(ScheduleFile.model_validate({**again, "prompt": "x"}), BERLIN)) == _means(rule), words


WORDS = """remind me to at on in every next the of and , : . 9 17 9:30 17.30 24.12. 10/11 0/0 3 31st first last other
half hour minutes days weeks months monday fridays mon march December 2027 2026-13-40 2026-12-01T25:00 99999 1.5 noon
midnight pm morning tonight tomorrow today until from now a an um uhr morgen jeden montag alle 00:00:00 0 0 9 * * # L
@daily cron ( ) - – ١٢ ſun \x00 \u202e"""


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS.split(), "\n"]), max_size=14).map(" ".join)
    | st.text(max_size=60)
    | st.text(alphabet="0123456789:./-, ", max_size=40).map(lambda it: f"on {it} at {it}")
)
def test_any_text_is_understood_or_refused(text: str) -> None:
    for read in (understood, expression):
        try:
            found = read(text, BERLIN, NOW)
        except UsageError:
            continue
        assert rule_of(ScheduleFile.model_validate({**found.fields, "prompt": "x"}), BERLIN)
        assert found.rest in " ".join(text.split(" ")) and found.said
