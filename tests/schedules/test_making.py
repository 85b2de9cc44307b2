"""What somebody says becomes a file that says the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import UsageError
from clawd.schedules.file import parse_schedule
from clawd.schedules.making import body, drafted, name_of, written

NOW = datetime(2026, 11, 27, 11, tzinfo=UTC)  # a Friday
ZONE = "Europe/Berlin"


@pytest.mark.parametrize(
    ("when", "more", "keys", "id", "first"),
    [
        ("every weekday at 9", {"prompt": "Say good morning!"}, {"prompt": "Say good morning!"}, "say-good-morning",
         "2026-11-30T08:00"),
        ("every weekday at 9: water the plants", {}, {"prompt": "water the plants"}, "water-the-plants",
         "2026-11-30T08:00"),
        ("remind me in 10 minutes to stretch", {}, {"prompt": "Remind me: stretch"}, "stretch", "2026-11-27T11:10"),
        ("Remind me every weekday at 9 to call Zoë", {}, {"prompt": "Remind me: call Zoë"}, "call-zoe",
         "2026-11-30T08:00"),
        ("0 9 * * 1-5", {"skill": "digest", "session": "own"}, {"skill": "digest", "session": "own"}, "digest",
         "2026-11-30T08:00"),
        ("every 20m", {"prompt": "look", "jitter": "5m", "tz": "UTC", "deliver_to": None, "check": ""},
         {"jitter": "5m", "tz": "UTC", "deliver_to": None, "check": None}, "look", "2026-11-27T11:20"),
        ("at 2026-12-01T09:00", {"prompt": "go", "budget": 0.5}, {"until": None}, "go", "2026-12-01T08:00"),
    ],
)  # fmt: skip
def test_what_is_said_is_understood(when: str, more: Any, keys: Any, id: str, first: str) -> None:
    draft = drafted(when, more, ZONE, NOW)
    file = parse_schedule(written(draft.fields), "x")
    assert file == draft.file and {key: getattr(file, key) for key in keys} == keys and draft.id == id
    assert draft.next[0].astimezone(UTC).isoformat()[:16] == first and len(draft.next) == (1 if file.at else 3)


@pytest.mark.parametrize(
    ("when", "more", "why"),
    [
        ("every weekday at 9", {}, "say what is to be done"),
        ("purple", {"prompt": "x"}, "no time that is surely understood"),
        ("at 2026-11-01T09:00", {"prompt": "x"}, "past"),
        ("every 20m", {"prompt": "x", "until": "2026-11-27T12:01"}, "past"),
        ("every 20m", {"prompt": "x", "skill": "y"}, "a prompt or a skill"),
        ("every 20m", {"prompt": "x", "tz": "Mars/Base"}, "tz: "),
        ("every 20m", {"prompt": "x", "jitter": "long"}, "no span"),
        ("every 20m", {"prompt": "x", "deliver_to": "nowhere"}, "a binding is"),
        ("every 20m", {"prompt": "x", "until": "soon"}, "isoformat"),
        ("every 20m", {"prompt": "half \ud800"}, "half a character"),
        ("every 5s", {"prompt": "x"}, "too often"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(when: str, more: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        drafted(when, more, ZONE, NOW)


@pytest.mark.parametrize("when", ["every 14m", "*/10 9 * * *", "0,14 9 * * *"])
def test_an_agents_runs_are_a_quarter_of_an_hour_apart(when: str) -> None:
    drafted(when, {"prompt": "x"}, ZONE, NOW)
    with pytest.raises(UsageError, match="too often"):
        drafted(when, {"prompt": "x"}, ZONE, NOW, by_agent=True)


@pytest.mark.parametrize(
    ("when", "more", "end"),
    [
        ("every weekday at 9", {}, NOW + timedelta(days=180)),
        ("every weekday at 9", {"until": "2027-01-01T00:00+00:00"}, None),
        ("at 2026-12-01T09:00", {}, None),
    ],
)
def test_an_agents_schedule_has_an_end(when: str, more: Any, end: datetime | None) -> None:
    draft = drafted(when, {"prompt": "x", **more}, ZONE, NOW, by_agent=True)
    assert draft.until == end and (draft.file.until is not None) is ("cron" in draft.fields)
    assert end is None or datetime.fromisoformat(draft.file.until or "") == end


@given(st.text().filter(str.strip), st.text(max_size=20))
def test_any_text_comes_back_from_the_file(prompt: str, check: str) -> None:
    fields = {"every": "20m", "prompt": prompt, "check": check}
    text = written(fields, "Made by somebody.")
    file = parse_schedule(text, "x")
    assert (file.prompt, file.check) == (prompt, check) and body(text) == written(fields)


@given(st.text())
def test_a_name_can_be_a_file(text: str) -> None:
    from clawd.schedules.edits import check_id

    assert len(check_id(name_of(text))) <= 40


def test_a_name_is_of_the_words_that_fit() -> None:
    assert name_of("Wie geht's? " + "very " * 20) == "wie-geht-s-very-very-very-very-very-very"
    assert name_of("日本語") == "schedule"
