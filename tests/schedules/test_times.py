"""When rules are due: the table of the specification, and a year against a plain oracle."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.cli.main import run
from clawd.errors import UsageError
from clawd.schedules.file import ScheduleFile
from clawd.schedules.times import BY_AGENT, MANY, Rule, after, dues, interval, jittered, resolved, rule_of, said

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"

CASES: list[tuple[str, str, str, str, list[str]]] = [
    ("1", BERLIN, "30 2 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
    ("2", BERLIN, "30 2 * * *", "2026-03-28T12:00", ["2026-03-29T01:00"]),
    ("2 fresh", BERLIN, "30 2 * * *", "2026-03-29T03:10", ["2026-03-30T00:30"]),
    ("3", BERLIN, "0 2 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
    ("4", BERLIN, "0 3 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T01:00"]),
    (
        "5",
        BERLIN,
        "*/30 2-3 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T01:00", "2026-03-29T01:30", "2026-03-30T00:00"],
    ),
    ("5 listed", BERLIN, "0,30 2-3 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-29T01:30"]),
    ("5 skipped", BERLIN, "*/30 2 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
    (
        "6",
        BERLIN,
        "30 * * * *",
        "2026-03-29T00:00",
        ["2026-03-28T23:30", "2026-03-29T00:30", "2026-03-29T01:30", "2026-03-29T02:30"],
    ),
    (
        "7",
        BERLIN,
        "30 2 * * *",
        "2026-10-23T12:00",
        ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"],
    ),
    (
        "8",
        BERLIN,
        "30 * * * *",
        "2026-10-25T02:00+02:00",
        ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"],
    ),
    ("9", BERLIN, "0 3 * * *", "2026-10-24T12:00", ["2026-10-25T02:00", "2026-10-26T02:00"]),
    (
        "10",
        BERLIN,
        "0 9 * * *",
        "2026-10-24T00:00",
        ["2026-10-24T07:00", "2026-10-25T08:00", "2026-10-26T08:00"],
    ),
    ("11", NEW_YORK, "30 2 * * *", "2026-03-07T12:00", ["2026-03-08T07:00", "2026-03-09T06:30"]),
    ("12", NEW_YORK, "30 1 * * *", "2026-10-31T12:00", ["2026-11-01T05:30", "2026-11-02T06:30"]),
    (
        "13",
        NEW_YORK,
        "0 * * * *",
        "2026-10-31T23:59:59",
        ["2026-11-01T04:00", "2026-11-01T05:00", "2026-11-01T06:00", "2026-11-01T07:00"],
    ),
    ("14", BERLIN, "0 9 29 2 *", "2026-01-01", ["2028-02-29T08:00", "2032-02-29T08:00"]),
    ("15", BERLIN, "0 9 L * *", "2028-01-31T10:00", ["2028-02-29T08:00", "2028-03-31T07:00", "2028-04-30T07:00"]),
    (
        "16",
        BERLIN,
        "0 9 31 * *",
        "2026-01-01",
        ["2026-01-31T08:00", "2026-03-31T07:00", "2026-05-31T07:00", "2026-07-31T07:00"],
    ),
    (
        "17",
        BERLIN,
        "0 9 * * 1-5",
        "2026-11-27T12:00",
        ["2026-11-30T08:00", "2026-12-01T08:00", "2026-12-02T08:00"],
    ),
    ("18 0", BERLIN, "0 9 * * 0", "2026-11-27T12:00", ["2026-11-29T08:00", "2026-12-06T08:00"]),
    ("18 7", BERLIN, "0 9 * * 7", "2026-11-27T12:00", ["2026-11-29T08:00", "2026-12-06T08:00"]),
    ("18 sun", BERLIN, "0 9 * * Sun", "2026-11-27T12:00", ["2026-11-29T08:00", "2026-12-06T08:00"]),
    ("19", BERLIN, "0 9 * * mon#1", "2026-11-27T12:00", ["2026-12-07T08:00", "2027-01-04T08:00"]),
    (
        "21",
        BERLIN,
        "0 9 1 * mon",
        "2026-11-27T12:00",
        ["2026-11-30T08:00", "2026-12-01T08:00", "2026-12-07T08:00"],
    ),
    ("24", BERLIN, "every 20s", "2026-11-27T12:00:07", ["2026-11-27T11:00:27", "2026-11-27T11:00:47"]),
    ("alias", BERLIN, "@weekly", "2026-11-27T12:00", ["2026-11-28T23:00", "2026-12-05T23:00"]),
    ("once", BERLIN, "at 2026-03-29T02:30", "2026-03-01", ["2026-03-29T01:00"]),
]
BAD = [
    ("0 9 * * fri-mon", ("day-of-week", "fri,sat,sun,mon")),  # 20
    ("0 9 * * 5-1", ("day-of-week", "fri,sat,sun,mon")),
    ("0 22-2 * * *", ("hour", "22-23,0-2")),
    ("0 22-2/2 * * *", ("hour", "22,0,2")),
    ("0 9 * nov-feb *", ("month", "nov,dec,jan,feb")),
    ("0 9 30 2 *", ("day-of-month",)),  # 22
    ("0 9 */31 2 mon#5", ("day-of-month",)),
    ("60 * * * *", ("minute",)),  # 23
    ("*/0 * * * *", ("minute",)),
    ("0 */0 * * *", ("hour",)),
    ("*/90 * * * *", ("minute", "90m")),
    ("0 9 * * mon#6", ("day-of-week",)),
    ("0 9 * *", ("five fields", "day-of-month", "4")),
    ("0 0 9 * * *", ("five fields", "6")),
    ("", ("five fields", "none")),
    ("@reboot", ("@hourly",)),
    ("0 9 * * " + "9" * 9999, ("500",)),
]


def made(rule: str, zone: str = BERLIN) -> Rule:
    for kind in ("every", "at"):
        if rule.startswith(f"{kind} "):
            return rule_of(ScheduleFile.model_validate({kind: rule.removeprefix(f"{kind} "), "prompt": "x"}), zone)
    return rule_of(ScheduleFile(cron=rule, prompt="x"), zone)


def instant(text: str, zone: str = "UTC") -> datetime:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)


@pytest.mark.parametrize(("zone", "rule", "start", "expected"), [it[1:] for it in CASES], ids=[it[0] for it in CASES])
def test_the_table_of_cases(zone: str, rule: str, start: str, expected: list[str]) -> None:
    since = moment = instant(start, zone)
    found = []
    for _ in expected:
        due = after(made(rule, zone), moment, since=since)
        assert due is not None and due > moment
        found.append(due)
        moment = due
    assert found == [instant(each) for each in expected]
    assert dues(made(rule, zone), since, moment, since=since) == (found, 0)


@pytest.mark.parametrize(("line", "names"), BAD, ids=[line[:16] for line, _ in BAD])
def test_what_is_wrong_is_refused_with_its_field(line: str, names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refused:
        made(line)
    assert all(name in refused.value.message for name in ("cron", *names))


def test_schedule_next_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(rule: str, zone: str, start: str, n: int) -> tuple[int, dict[str, object]]:
        argv = ["--home", str(tmp_path / "none"), "schedule", "next", rule, "--tz", zone, "--after", start]
        code = run([*argv, "-n", str(n), "--json"])
        return code, json.loads(capsys.readouterr().out)

    for name, zone, rule, start, expected in CASES:
        code, answer = asked(rule, zone, start, len(expected))
        times = answer["times"]
        assert code == 0 and answer["error"] is None and isinstance(times, list), name
        assert [instant(each) for each in times] == [instant(each) for each in expected], name
        for each in times:
            local = datetime.fromisoformat(each)
            assert local.utcoffset() == local.astimezone(ZoneInfo(zone)).utcoffset(), name
    for line, names in BAD:
        code, answer = asked(line, BERLIN, "2026-11-27T12:00", 1)
        assert code == 1 and answer["times"] == [] and isinstance(answer["error"], str)
        assert all(name in answer["error"] for name in names) or len(line) > 500 or not line
    code, answer = asked("0 9 * * *", "Mars/Olympus", "2026-11-27T12:00", 1)  # 31
    assert code == 1 and "Mars/Olympus" in str(answer["error"])
    code, answer = asked("at 2026-11-01T09:00", BERLIN, "2026-11-27T12:00", 1)
    assert code == 1 and "past" in str(answer["error"])
    code, answer = asked("0 9 * * *", BERLIN, "never", 1)
    assert code == 1 and "never" in str(answer["error"])


def test_intervals() -> None:
    """24: the shortest is 10 s by hand and 15 min for an agent."""
    with pytest.raises(UsageError, match=r"every: every 9s .*10s"):
        made("every 9s")
    for fine in ("every 15m", "*/15 * * * *", "59 23 * * mon", "at 2026-11-27T12:00"):
        rule_of(file := ScheduleFile.model_validate(_fields(fine)), BERLIN, shortest=BY_AGENT)
        assert file
    for often in ("every 899s", "*/14 * * * *", "0,50 * * * *", "0,59 0,23 * * *", "* 9 * * *"):
        with pytest.raises(UsageError, match="15m"):
            rule_of(ScheduleFile.model_validate(_fields(often)), BERLIN, shortest=BY_AGENT)
    assert interval(made("0 9,17 * * *")) == 8 * 3600


def _fields(rule: str) -> dict[str, str]:
    kind, _, rest = rule.partition(" ")
    return {"prompt": "x"} | ({kind: rest} if kind in ("every", "at") else {"cron": rule})


def test_jitter_is_never_early_and_the_same_again() -> None:
    """25."""
    due = instant("2026-11-27T09:00")
    drawn = [jittered(f"main/{n}", due, 600) for n in range(1000)]
    assert all(due <= each <= due + timedelta(seconds=600) for each in drawn)
    assert len(set(drawn)) > 900 and max(drawn) - min(drawn) > timedelta(seconds=500)
    assert jittered("main/7", due, 600) == drawn[7] and jittered("main/7", due, 0) == due


def test_every_counts_from_when_it_was_taken_up() -> None:
    rule, since = made("every 24h"), instant("2026-03-28T08:00")
    assert after(rule, since, since=since) == instant("2026-03-29T08:00")  # elapsed: an hour later on the wall
    assert after(rule, since - timedelta(days=9), since=since) == instant("2026-03-29T08:00")  # a clock set back
    assert after(rule, instant("2026-03-29T08:00"), since=since) == instant("2026-03-30T08:00")


def test_nothing_is_due_after_its_end() -> None:
    file = ScheduleFile(cron="0 9 * * *", until="2026-11-28T09:00", prompt="x")
    rule, start = rule_of(file, BERLIN), instant("2026-11-27T12:00")
    assert dues(rule, start, start + timedelta(days=9), since=start) == ([instant("2026-11-28T08:00")], 0)
    assert after(rule, instant("2026-11-28T08:00"), since=start) is None
    assert after(made("0 9 * * *"), instant("9999-12-31T12:00"), since=start) is None
    for field in ("at", "until"):
        with pytest.raises(UsageError, match=field):
            rule_of(ScheduleFile.model_construct(**{field: "soon", "cron": "0 9 * * *"}), BERLIN)


@pytest.mark.parametrize("line", ["* * * * *", "* * * 1-6 *", "every 10s", "*/7 1-3 * * *"])
def test_what_was_missed_for_years_is_bounded(line: str) -> None:
    rule, end = made(line), instant("2026-11-30T00:00:30")
    newest, earlier = dues(rule, end - timedelta(days=3650), end, since=end - timedelta(days=4000))
    assert len(newest) == 10 and earlier == MANY
    assert newest == dues(rule, newest[0] - timedelta(hours=1), end, since=end - timedelta(days=4000))[0]
    assert after(rule, newest[-1], since=end - timedelta(days=4000)) > end
    assert dues(rule, newest[2], end, since=end - timedelta(days=4000), newest=3) == (newest[-3:], 4)


def test_clocks_that_skip_a_day_or_half_an_hour() -> None:
    assert resolved(datetime(2011, 12, 30, 9), "Pacific/Apia") == instant("2011-12-30T10:00")
    assert resolved(datetime(2026, 10, 4, 2, 15), LORD_HOWE) == instant("2026-10-03T15:30")
    assert resolved(datetime(2026, 4, 5, 1, 45), LORD_HOWE) == instant("2026-04-04T14:45")


# -- a year, minute by minute --

Days = Callable[[date], bool]
EVERY: Days = lambda _: True  # noqa: E731
HOURS = frozenset(range(24))
YEAR: list[tuple[str, frozenset[int], frozenset[int], Days]] = [
    ("*/20 * * * *", frozenset([0, 20, 40]), HOURS, EVERY),
    ("30 * * * *", frozenset([30]), HOURS, EVERY),
    ("15 2 * * *", frozenset([15]), frozenset([2]), EVERY),
    ("45 1 * * *", frozenset([45]), frozenset([1]), EVERY),
    ("*/20 1-3 * * *", frozenset([0, 20, 40]), frozenset([1, 2, 3]), EVERY),
    ("0,30 1-3 * * *", frozenset([0, 30]), frozenset([1, 2, 3]), EVERY),
    ("0 */2 * * *", frozenset([0]), frozenset(range(0, 24, 2)), EVERY),
    ("0 9 * * mon-fri", frozenset([0]), frozenset([9]), lambda day: day.isoweekday() < 6),
    ("10 2 1,15 * sun", frozenset([10]), frozenset([2]), lambda day: day.day in (1, 15) or day.isoweekday() == 7),
    ("0 3 L * *", frozenset([0]), frozenset([3]), lambda day: (day + timedelta(days=1)).day == 1),
    ("30 1 * * sun#1", frozenset([30]), frozenset([1]), lambda day: day.isoweekday() == 7 and day.day < 8),
]


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE])
def test_a_year_of_mixed_schedules(zone: str) -> None:
    """Each minute of the year is looked at by itself: what clocks show then, have shown before, and have skipped."""
    place, minute = ZoneInfo(zone), timedelta(minutes=1)
    start = instant("2026-01-01")
    shown: list[tuple[datetime, int, date, bool]] = []  # instant, minute of the day, day, whether that was shown before
    changes: dict[datetime, list[datetime]] = {}  # instant of a change, what clocks skip there
    highest = last = (start - minute).astimezone(place).replace(tzinfo=None)
    moment = start
    while moment.year == start.year:
        wall = moment.astimezone(place).replace(tzinfo=None)
        shown.append((moment, wall.hour * 60 + wall.minute, wall.date(), wall <= highest))
        if wall - last != minute:
            changes[moment] = [last + k * minute for k in range(1, (wall - last) // minute)]
        highest, last, moment = max(highest, wall), wall, moment + minute
    assert len(changes) == 2

    for line, minutes, hours, days in YEAR:
        twice = line.startswith("*") or line.split()[1].startswith("*")
        times = {60 * hour + each for hour in hours for each in minutes}
        named = {day for n in range(-1, 367) if days(day := start.date() + timedelta(days=n))}
        expected = [it for it, at, day, again in shown if at in times and day in named and (twice or not again)]
        skipped = {
            moment
            for moment, walls in changes.items()
            if len(hours) < 24 and any(each.hour * 60 + each.minute in times and each.date() in named for each in walls)
        }
        expected = sorted({*expected, *skipped})
        rule = made(line, zone)
        found, earlier = dues(rule, start - minute, shown[-1][0], since=start, newest=365 * 1440)
        assert earlier == 0 and found == expected, line
        # A daemon that starts at any moment near a change, and knows nothing of before, goes on rightly.
        for change in changes:
            for n in range(-100, 100):
                moment = change + n * minute + timedelta(seconds=n % 2)
                assert after(rule, moment, since=start) == expected[bisect_right(expected, moment)], line


@given(st.text(alphabet=st.sampled_from("0123456789*/-,#L@ monfrisutW"), max_size=60) | st.text())
def test_a_line_is_a_rule_or_is_refused(text: str) -> None:
    try:
        rule = made(f" {text}")
    except UsageError:
        return
    assert made(said(rule)) == rule
    start = instant("2026-11-27T12:00")
    assert after(rule, start, since=start) is not None
