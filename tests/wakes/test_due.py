"""Every case of what is to be done with a schedule at an instant."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clawd.schedules.file import ScheduleFile
from clawd.schedules.times import rule_of
from clawd.wakes.due import MOST, Standing, decide, lateness

DAY = timedelta(days=1)


def at(text: str) -> datetime:
    """ "30T09:00" of November, "12-01T09:00" or the whole date, in UTC."""
    head = {8: "2026-11-", 11: "2026-"}.get(len(text.split(".")[0]) - (3 if text.count(":") == 2 else 0), "")
    return datetime.fromisoformat(head + text).replace(tzinfo=UTC)


def standing(since: str = "30T00:00", zone: str = "UTC", until: str | None = None, **more: Any) -> Standing:
    rule = {name: more.pop(name) for name in ("cron", "every", "at") if name in more}
    file = ScheduleFile(**(rule or {"cron": "0 9 * * *"}), prompt="p", until=until)
    given = {name: at(value) if name in ("last_due", "open") else value for name, value in more.items()}
    return Standing("main/a", rule_of(file, zone), at(since), **given)


def told(of: Standing, now: str) -> tuple[list[str], list[str], str | None]:
    """What is fired, what is passed over and how, and when it is next due."""
    step = decide(of, at(now))
    passed = [f"{each.due:%H:%M} {each.event}" for each in step.passed]
    return [f"{due:%H:%M}" for due in step.fire], passed, step.next and f"{step.next:%m-%dT%H:%M}"


TEN = {"cron": "*/10 9-10 * * *"}
MISSED = [f"{hour:02}:{minute:02} miss" for hour in (9, 10) for minute in range(0, 60, 10)]


@pytest.mark.parametrize(
    ("of", "now", "fire", "passed", "next"),
    [
        pytest.param(standing(), "30T08:59", [], [], "11-30T09:00", id="not yet"),
        pytest.param(standing(), "30T09:00", ["09:00"], [], "12-01T09:00", id="on time"),
        pytest.param(standing(last_due="30T09:00"), "30T09:00:30", [], [], "12-01T09:00", id="handled"),
        pytest.param(standing("30T10:00"), "30T10:00", [], [], "12-01T09:00", id="taken up after it was due"),
        pytest.param(standing(catch_up="skip"), "30T09:01", ["09:00"], [], "12-01T09:00", id="a minute is no delay"),
        # 2 and 26 to 28
        pytest.param(
            standing("2026-03-28T12:00", "Europe/Berlin", cron="30 2 * * *", last_due="2026-03-28T01:30"),
            *("2026-03-29T01:10", ["01:00"], [], "03-30T00:30"),
            id="late in the hour that is left out",
        ),
        pytest.param(standing(last_due="30T09:00"), "30T07:00", [], [], "12-01T09:00", id="clock back after it"),
        pytest.param(standing(cron="0 * * * *", last_due="30T09:00"), "30T12:00:20", ["12:00"],
                     ["10:00 miss", "11:00 miss"], "11-30T13:00", id="clock forward by three hours"),
        pytest.param(standing(**TEN), "30T11:42", ["10:50"], MISSED[1:11], "12-01T09:00", id="down: once"),
        pytest.param(standing(**TEN, catch_up="skip"), "30T11:42", [], MISSED[2:], "12-01T09:00", id="down: skip"),
        pytest.param(standing(**TEN, catch_up="all"), "30T11:42",
                     [each[:5] for each in MISSED[2:]], MISSED[:2], "12-01T09:00", id="down: all"),
        pytest.param(standing(within=timedelta(minutes=30)), "30T11:42", [], ["09:00 miss"], "12-01T09:00",
                     id="too long ago"),
        pytest.param(standing(**TEN, catch_up="all", within=timedelta(hours=1)), "30T11:42",
                     ["10:50"], MISSED[1:11], "12-01T09:00", id="of all, what is not too long ago"),
        # 29
        pytest.param(standing("30T12:00", at="2026-11-30T09:00"), "30T12:00", ["09:00"], [], None, id="once, late"),
        pytest.param(standing("30T12:00", at="2026-11-20T09:00"), "30T12:00", [], ["09:00 miss"], None,
                     id="once, too late"),
        pytest.param(standing("30T12:00", at="2026-11-30T09:00", catch_up="skip"), "30T12:00", [], ["09:00 miss"],
                     None, id="once, not made up for"),
        pytest.param(standing("30T12:00", at="2026-11-30T13:00"), "30T12:00", [], [], "11-30T13:00", id="once, later"),
        # 32
        pytest.param(standing(last_due="29T09:00", open="29T09:00"), "30T09:00", [], ["09:00 skip"], "12-01T09:00",
                     id="the run before is not over"),
        pytest.param(standing(**TEN, open="29T10:50", catch_up="all"), "30T09:45",
                     ["09:00", "09:10", "09:20", "09:30", "09:40"], [], "11-30T09:50", id="catching up may overlap"),
        pytest.param(standing(**TEN, open="29T10:50", catch_up="all", last_due="30T09:30"), "30T09:40", [],
                     ["09:40 skip"], "11-30T09:50", id="what is on time may not"),
        pytest.param(standing(active=False), "30T09:00", [], [], None, id="off"),
        pytest.param(standing(until="2026-11-30T08:00"), "30T07:00", [], [], None, id="its end comes first"),
        pytest.param(standing(until="2026-11-30T09:00"), "30T11:00", ["09:00"], [], None, id="due at its end"),
        pytest.param(standing(every="20s", since="30T09:00"), "30T09:00:41", ["09:00"], ["09:00 miss"], "11-30T09:01",
                     id="a look that came late"),
    ],
)  # fmt: skip
def test_what_is_done(of: Standing, now: str, fire: list[str], passed: list[str], next: str | None) -> None:
    assert told(of, now) == (fire, passed, next)
    again = decide(of, at(now))
    settled = replace(of, last_due=again.last_due, since=again.since, open=None)
    assert decide(settled, at(now)).fire == (), "what was handled is handled"
    back = decide(settled, at(now) - timedelta(hours=2))
    assert back.fire == () and not back.wrong


@pytest.mark.parametrize(
    ("of", "now", "over"),
    [
        (standing(at="2026-11-30T09:00"), "30T09:00", True),
        (standing(at="2026-11-30T09:00"), "30T08:00", False),
        (standing(at="2026-11-30T09:00", last_due="30T09:00"), "30T09:10", True),  # its file was not moved yet
        (standing(at="2026-11-30T09:00", active=False), "30T10:00", False),
        (standing(at="2026-11-30T09:00", until="2026-11-30T08:00"), "30T10:00", False),
        (standing(), "30T09:00", False),
    ],
)
def test_what_was_for_once_is_over_when_it_was_due(of: Standing, now: str, over: bool) -> None:
    assert decide(of, at(now)).over is over


def test_what_was_not_run_says_why_and_how_much_more_there_was() -> None:
    step = decide(standing("29T00:00", **TEN), at("30T11:42"))
    assert len(step.passed) == MOST
    first, *_, last = [each.reason for each in step.passed]
    assert first == "nothing could run then; the run of 2026-11-30 10:50 stands for it, and 13 before it"
    assert last == "nothing could run then; the run of 2026-11-30 10:50 stands for it"
    year = decide(standing("2025-11-30T00:00", cron="* * * * *"), at("30T11:42"))
    assert year.fire == (at("30T11:42"),) and year.passed[0].reason.endswith(", and more than 1009 before it")
    busy = decide(standing(last_due="29T09:00", open="29T09:00"), at("30T09:00"))
    assert busy.passed[0].reason == "the run of 2026-11-29 09:00 is not over"


@pytest.mark.parametrize(
    ("now", "jitter", "words"),
    [
        ("30T09:01", 0, None),
        ("30T10:42", 0, "due 10:00, ran 11:42, late"),
        ("12-01T10:42", 0, "due 2026-11-30 10:00, ran 2026-12-01 11:42, late"),
        ("30T09:11", 600, None),
        ("30T09:11:01", 600, "due 10:00, ran 10:11, late"),
    ],
)
def test_a_late_run_says_so(now: str, jitter: float, words: str | None) -> None:
    assert lateness(at("30T09:00"), at(now), jitter, "Europe/Berlin") == words


def test_jitter_waits_and_never_comes_near_the_next() -> None:
    of = standing(jitter=600.0)
    after = {decide(replace(of, since=of.since + n * DAY), at("30T08:00") + n * DAY).look for n in range(50)}
    waits = {(look - look.replace(hour=9, minute=0, second=0, microsecond=0)).total_seconds() for look in after if look}
    assert len(waits) == 50 and min(waits) >= 0 and max(waits) <= 600
    step = decide(of, at("30T08:00"))
    assert step.next == at("30T09:00") and step.look is not None
    before = decide(of, step.look - timedelta(seconds=1))
    assert (before.fire, before.look, before.next) == ((), step.look, step.next)
    assert decide(of, step.look).fire == (at("30T09:00"),)
    often = standing("30T09:00", every="20s", jitter=600.0)
    lasts = [at("30T09:00") + timedelta(seconds=20 * n) for n in range(9)]
    looks = [decide(replace(often, last_due=last), at("30T09:00")).look for last in lasts]
    assert looks == sorted(looks) and len(set(looks)) == 9  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("ahead", "wrong"), [(timedelta(hours=23), False), (timedelta(days=2), True), (timedelta(days=5000), True)]
)
def test_a_last_instant_that_lies_far_ahead_means_that_the_clock_was_wrong(ahead: timedelta, wrong: bool) -> None:
    now = at("30T08:00")
    step = decide(replace(standing(), last_due=now + ahead, since=now + ahead), now)
    assert step.wrong is wrong and step.since == now
    assert step.last_due == (now if wrong else now + ahead)
    assert step.next == (at("30T09:00") if wrong else at("12-01T09:00"))


def test_what_was_taken_up_by_a_clock_that_was_ahead_counts_from_now() -> None:
    now = at("30T08:00")
    step = decide(replace(standing(), since=at("30T12:00")), now)
    assert (step.since, step.next) == (now, at("30T09:00"))
