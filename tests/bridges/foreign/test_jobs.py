from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.arrivals.items import Item
from clawd.bridges.foreign.jobs import Job, Jobs, delivered
from clawd.bridges.foreign.place import Place
from clawd.schedules.file import parse_schedule
from tests.bridges.homes import NOW


def made(*jobs: Job) -> tuple[list[Item], list[str]]:
    place = Place(Path("/"), "openclaw")
    found = Jobs(place, NOW)
    for job in jobs:
        found.add(job)
    return found.items(), [left.why for left in place.brought.left]


@pytest.mark.parametrize(
    ("kind", "value", "zone", "fields"),
    [
        ("cron", "0 9 * * 1-5", "Europe/Berlin", {"cron": "0 9 * * 1-5", "tz": "Europe/Berlin"}),
        ("cron", " 0  9 * * MON ", "UTC", {"cron": "0 9 * * MON", "tz": "UTC"}),
        ("cron", "00 0 9 * * *", "UTC", {"cron": "0 9 * * *", "tz": "UTC"}),
        ("cron", "@daily", "UTC", {"cron": "@daily", "tz": "UTC"}),
        ("every", 90_000, "", {"every": "90s"}),
        ("every", "86400000", "", {"every": "1d"}),
        ("every", 1, "", {"every": "1m"}),
        ("at", 1_790_000_000_000, "", {"at": "2026-09-21T14:13:20+00:00"}),
        ("at", "2026-08-01T09:00:00Z", "", {"at": "2026-08-01T09:00:00+00:00"}),
        ("at", "2026-08-01 09:00", "Europe/Berlin", {"at": "2026-08-01T09:00:00", "tz": "Europe/Berlin"}),
    ],
)
def test_a_job_is_due_as_it_was(kind: Any, value: Any, zone: str, fields: dict[str, str]) -> None:
    (item,), left = made(Job("1", "s", "main", kind, value, "Do it", zone=zone))

    file = parse_schedule(item.files[""].decode(), "it")
    assert left == []
    assert {key: each for key, each in file.model_dump(exclude_defaults=True).items() if key != "prompt"} == fields


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("cron", "", "cron: a line has five fields"),
        ("cron", "61 * * * *", "cron: minute"),
        ("cron", "0 0 30 2 *", "cron: day-of-month"),
        ("cron", "30 0 9 * * *", "its cron line counts seconds"),
        ("every", 0, "it does not say how often it runs"),
        ("every", "nan", "it does not say how often it runs"),
        ("every", -5, "it does not say how often it runs"),
        ("every", None, "it does not say how often it runs"),
        ("at", "tomorrow", "it does not say when it is due"),
        ("at", "2026-13-01T09:00", "it does not say when it is due"),
        ("at", "inf", "it does not say when it is due"),
        ("at", "2026-06-30T09:00:00Z", "it was due once, and that is past"),
    ],
)
def test_a_job_that_cannot_be_one_of_ours_is_left(kind: Any, value: Any, why: str) -> None:
    items, left = made(Job("1", "s", "main", kind, value, "Do it"))
    assert items == []
    assert left[0].startswith(why)


def test_ids_are_apart_and_a_job_comes_once() -> None:
    items, _ = made(
        Job("1", "s#1", "main", "every", 3_600_000, "Do it"),
        Job("2", "s#2", "main", "every", 3_600_000, "Do it"),
        Job("1", "again", "main", "every", 60_000, "Do it"),
        Job("1", "s#1", "other", "every", 3_600_000, "Do it", name="../../Über\nx"),
    )
    assert [(item.group, item.to, item.source) for item in items] == [
        ("main", "schedules/do-it-2.toml", "s#2"),
        ("main", "schedules/do-it.toml", "s#1"),
        ("other", "schedules/uber-x.toml", "s#1"),
    ]
    assert items[2].files[""].decode().startswith("# openclaw: ../../Über\\nx\nschema = 1\n")


@given(
    st.sampled_from(["cron", "every", "at"]),
    st.text(max_size=20) | st.integers() | st.floats() | st.none() | st.lists(st.integers()),
    st.text(max_size=40),
    st.text(max_size=20),
    st.sampled_from(["", "UTC", "Mars", "../x", "\0"]),
)
def test_any_job_is_taken_or_left(kind: Any, value: Any, prompt: str, name: str, zone: str) -> None:
    items, left = made(Job("1", "s", "main", kind, value, prompt, name=name, zone=zone))
    assert len(items) + len(left) == 1
    for item in items:
        parse_schedule(item.files[""].decode(), "it")


@pytest.mark.parametrize(
    ("delivery", "said"),
    [
        (None, []),
        ({"mode": "none", "channel": "slack", "to": "x"}, []),
        ({"mode": "announce", "channel": "last"}, []),
        ({"channel": "telegram", "to": "1"}, ["its answers went to telegram 1: they go to the group's first chat"]),
        (
            {"channel": "x", "to": "https://h/KEY"},
            ["its answers went to an address on the web: they go to the group's first chat"],
        ),
    ],
)
def test_where_answers_went_is_told_but_no_address_on_the_web(delivery: Any, said: list[str]) -> None:
    assert delivered(delivery) == said
