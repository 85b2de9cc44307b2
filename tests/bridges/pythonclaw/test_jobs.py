"""Cron jobs of PythonClaw as schedules, and schedules as its jobs: due at the same times, or left with why."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger
from hypothesis import given
from hypothesis import strategies as st

from clawd.bridges.pythonclaw import jobs
from clawd.bridges.pythonclaw.jobs import Job
from clawd.errors import UsageError
from clawd.schedules import times
from clawd.schedules.file import ScheduleFile, parse_schedule
from tests.sessions.strategies import steady

UTC = ZoneInfo("UTC")
START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def its_times(cron: str, most: int = 12) -> list[datetime]:
    """When PythonClaw 0.7.2 would run a line: APScheduler, its numbers of weekdays made names first."""
    minute, hour, day, month, weekday = cron.split()
    named = ",".join(
        "/".join(["-".join(NAMES[int(word) % 7] if word.isdigit() else word for word in base.split("-")), *step])
        for base, *step in (part.split("/") for part in weekday.split(","))
    )
    trigger = CronTrigger(minute=minute, hour=hour, day=day, month=month, day_of_week=named, timezone=UTC)
    found, now = list[datetime](), START
    while len(found) < most and (due := trigger.get_next_fire_time(None, now)) is not None:
        found.append(due)
        now = due + timedelta(seconds=1)
    return found


def our_times(cron: str, most: int = 12) -> list[datetime]:
    rule = times.rule_of(parse_schedule(f'cron = "{cron}"\nprompt = "x"\n', "x"), "UTC")
    return list(islice(times.upcoming(rule, START - timedelta(seconds=1), since=START), most))


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 9 * * *", "0 9 * * *"),
        ("0 9 * * 1-5", "0 9 * * mon,tue,wed,thu,fri"),
        ("0 9 * * 0", "0 9 * * sun"),
        ("0 9 * * 7", "0 9 * * sun"),
        ("0 9 * * */2", "0 9 * * mon,wed,fri,sun"),
        ("0 9 * * mon-fri", "0 9 * * mon,tue,wed,thu,fri"),
        ("0 9 * * MON,Wed", "0 9 * * mon,wed"),
        ("*/15 8-18 * * *", "*/15 8-18 * * *"),
        ("0 0 last * *", "0 0 L * *"),
        ("0 0 */2 * 1", "0 0 */2 * mon"),
        ("0 0 1 jan-mar *", "0 0 1 jan-mar *"),
        ("0 9 * * 1-5/2", "0 9 * * mon,tue,wed,thu,fri"),
        ("0 0 1 jan-mar/2 *", "0 0 1 jan-mar *"),
        ("5,35 0 * * *", "5,35 0 * * *"),
    ],
)
def test_a_line_is_due_when_it_was(cron: str, expected: str) -> None:
    line, _ = jobs.translated(cron)
    assert line == expected
    assert our_times(line) == its_times(cron.lower())


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("0 9 * *", "five"),
        ("@daily", "five"),
        ("0 9 1 * 1", "both match"),
        ("0 9 * * foo", "foo"),
        ("0 9 * * 1-", "cannot be read"),
        ("0 9 * * 8", "8"),
    ],
)
def test_a_line_that_cannot_be_said_says_why(cron: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        jobs.translated(cron)


def test_a_range_that_it_refuses_is_read_as_it_was_meant() -> None:
    line, said = jobs.translated("0 9 * * sat-mon")
    assert line == "0 9 * * mon,sat,sun" and "refuses" in said[0]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "no cron line"),
        ({"cron": "0 9 * * *"}, "no prompt"),
        ({"cron": ["0 9 * * *"], "prompt": "x"}, "no cron line"),
        ({"cron": "0 99 * * *", "prompt": "x"}, "cannot be used"),
        ({"cron": "* * * * *", "prompt": "x \ud800"}, "cannot be used"),
    ],
)
def test_a_job_that_is_none_says_why(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        jobs.schedule(Job("jobs.yaml: x", fields), "UTC")


@pytest.mark.parametrize(
    ("id", "taken", "expected"),
    [
        ("daily", (), "daily"),
        ("daily", ("daily",), "daily-2"),
        ("my job!", (), "my-job"),
        ("日", (), "look-at-it"),
        (7, (), "7"),
        ("../x", (), "x"),
        (["x"], (), "look-at-it"),
    ],
)
def test_ids_are_such_as_a_file_may_have(id: Any, taken: tuple[str, ...], expected: str) -> None:
    made = jobs.schedule(Job("x", {"id": id, "cron": "0 9 * * *", "prompt": "look at it"}), "UTC", taken)
    assert made.id == expected


@pytest.mark.parametrize("data", [b"jobs: 7", b"[", b"jobs: [", b"\xff\xfe", b"- a", b"jobs: !!python/object:os.x {}"])
def test_what_is_no_list_of_jobs_is_said(data: bytes) -> None:
    with pytest.raises(UsageError):
        jobs.of_yaml(data, "jobs.yaml")


@pytest.mark.parametrize("data", [b"", b"jobs:", b"jobs: []", b"{}", b"# nothing"])
def test_no_jobs_are_no_mistake(data: bytes) -> None:
    assert jobs.of_yaml(data, "jobs.yaml") == []


def test_aliases_of_aliases_are_not_spelled_out() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghij", "bcdefghijk", strict=True)
    )
    text = f"{bomb}jobs:\n  - {{id: *k, cron: '0 9 * * *', prompt: look, deliver_to: *k, chat_id: *k}}\n"
    [job] = jobs.of_yaml(text.encode(), "jobs.yaml")
    assert len(" ".join(jobs.schedule(job, "UTC").changed)) < 1000


@steady
@given(st.binary(max_size=200))
def test_whatever_the_bytes_it_is_jobs_or_a_sentence(data: bytes) -> None:
    for parse in (jobs.of_yaml, jobs.of_json):
        try:
            found = parse(data, "x")
        except UsageError:
            continue
        for job in found:
            try:
                jobs.schedule(job, "UTC")
            except UsageError:
                continue


# ── ours ──


def file(text: str) -> ScheduleFile:
    return parse_schedule(text, "x")


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 9 * * mon-fri", "0 9 * * mon,tue,wed,thu,fri"),
        ("0 9 * * 0", "0 9 * * sun"),
        ("0 9 * * */2", "0 9 * * tue,thu,sat,sun"),
        ("@daily", "0 0 * * *"),
        ("0 0 L * *", "0 0 last * *"),
        ("*/15 * * * *", "*/15 * * * *"),
        ("0 */24 * * *", "0 0 * * *"),
        ("10-20/15 5 * * *", "10 5 * * *"),
        ("0 0 1 JAN,JUL *", "0 0 1 1,7 *"),
        ("0 0 5/10 * *", "0 0 5,15,25 * *"),
    ],
)
def test_a_line_of_ours_is_due_there_when_it_is_here(cron: str, expected: str) -> None:
    assert jobs.its_line(cron) == expected
    assert its_times(expected) == our_times(cron)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('every = "20m"', "no spans"),
        ('at = "2026-12-01T09:00"', "due once"),
        ('cron = "0 9 * * *"\ntz = "Asia/Tokyo"', "Asia/Tokyo"),
        ('cron = "0 9 * * *"\nuntil = "2027-01-01T00:00"', "no end"),
        ('cron = "0 9 * * *"\ncheck = "true"', "command first"),
        ('cron = "0 9 1 * mon"', "both must"),
        ('cron = "0 9 * * mon#1"', "weekdays"),
        ('cron = "0 9 LW * *"', "weekdays"),
    ],
)
def test_what_its_cron_cannot_say_is_left_with_why(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        jobs.job("a", file(f'{text}\nprompt = "x"\n'), "UTC", "UTC")


def test_a_schedule_is_a_job_and_what_is_lost_is_said() -> None:
    given = file('cron = "0 9 * * *"\nskill = "tides"\nenabled = false\ndeliver_to = "telegram:7"\nbudget = 1\n')
    said, lost = jobs.job("a", given, "UTC", "UTC")
    assert said == {"id": "a", "cron": "0 9 * * *", "prompt": "Use the skill tides.", "enabled": False}
    assert len(lost) == 3


def test_both_files_are_read_as_they_were_written() -> None:
    made = [
        {"id": "a", "cron": "0 9 * * *", "prompt": 'say: "é 🌊"\n---\n# x\x85', "enabled": True},
        {"id": "b", "cron": "0 9 * * *", "prompt": "x", "enabled": False},
    ]
    assert [each.fields for each in jobs.of_yaml(jobs.yaml_bytes(made), "x")] == made
    assert [each.fields["prompt"] for each in jobs.of_json(jobs.json_bytes(made), "x")] == [made[0]["prompt"], "x"]
    assert jobs.of_yaml(jobs.yaml_bytes([]), "x") == []
