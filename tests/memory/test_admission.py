"""What becomes of a write, and who may change what, as tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from clawd.errors import UsageError
from clawd.memory.admission import admitted, may_change, shown
from clawd.memory.offer import LARGEST, offered
from clawd.memory.protocol import Voice
from clawd.memory.record import MemoryRecord, Said, Status
from clawd.memory.store import OWNER
from clawd.trust import Origin, Role
from tests.memory.conftest import AGENT, MEMBER, TAINTED

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def record(trust: float, taint: float = 1.0, *, status: Status = "active", origin: Origin = Origin.AGENT,
           quote: str = "") -> MemoryRecord:  # fmt: skip
    return MemoryRecord("ep_0000000001", "episode", "x", NOW, NOW, NOW, "s", origin, trust, status, taint,
                        said=Said(quote) if quote else None)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "voice", "more", "trust", "taint", "status"),
    [
        ("episode", OWNER, {}, 1.0, 1.0, "active"),
        ("procedure", OWNER, {}, 1.0, 1.0, "active"),
        ("profile", OWNER, {}, 1.0, 1.0, "proposed"),
        ("episode", AGENT, {}, 0.7, 1.0, "active"),
        ("entity", replace(AGENT, taint=0.6), {}, 0.6, 0.6, "active"),
        ("fact", TAINTED, {}, 0.2, 0.2, "proposed"),
        ("episode", TAINTED, {}, 0.2, 0.2, "proposed"),
        ("episode", TAINTED, {"cited": True}, 0.2, 0.2, "active"),
        ("fact", TAINTED, {"cited": True}, 0.2, 0.2, "proposed"),  # a quote does not prove its key
        ("procedure", AGENT, {}, 0.7, 1.0, "proposed"),
        ("procedure", TAINTED, {"cited": True}, 0.2, 0.2, "proposed"),
        ("procedure", replace(OWNER, taint=0.9), {}, 0.9, 0.9, "proposed"),
        ("reflection", AGENT, {}, 0.7, 1.0, "active"),
        ("reflection", replace(AGENT, taint=0.6), {}, 0.6, 0.6, "proposed"),
        ("profile", AGENT, {"cited": True}, 0.7, 1.0, "proposed"),
        ("episode", MEMBER, {}, 0.4, 1.0, "proposed"),
        ("episode", AGENT, {"lineage": [record(1.0), record(0.2, 0.2)]}, 0.2, 0.2, "proposed"),
        ("episode", AGENT, {"most": 0.2}, 0.2, 0.2, "proposed"),  # said again
        ("entity", AGENT, {"replaced": record(0.7)}, 0.7, 1.0, "active"),
        ("entity", AGENT, {"replaced": record(1.0)}, 0.7, 1.0, "proposed"),
        ("entity", AGENT, {"replaced": record(0.2, quote="q")}, 0.7, 1.0, "proposed"),
        ("entity", AGENT, {"replaced": record(1.0), "cited": True}, 0.7, 1.0, "active"),
        ("entity", TAINTED, {"replaced": record(0.7)}, 0.2, 0.2, "proposed"),
    ],
)
def test_what_becomes_of_a_write(
    kind: str, voice: Voice, more: dict[str, Any], trust: float, taint: float, status: str
) -> None:
    verdict = admitted(kind, voice, more.pop("lineage", ()), **more)
    assert (verdict.trust, verdict.taint, verdict.status) == (trust, taint, status)
    assert bool(verdict.why) is (status != "active") and verdict.replaces is (
        "replaced" not in more or status == "active"
    )


def test_a_quote_of_a_lesser_turn_takes_no_place() -> None:
    """It stands beside what it would replace: the quote may be about anything."""
    verdict = admitted("entity", TAINTED, cited=True, replaced=record(1.0))
    assert (verdict.status, verdict.replaces) == ("active", False)


@pytest.mark.parametrize(
    ("voice", "of", "may"),
    [
        (OWNER, record(1.0), True),
        (AGENT, record(1.0), True),  # the owner's clean turn
        (AGENT, record(0.2, status="proposed"), True),
        (TAINTED, record(0.2, 0.2), True),
        (TAINTED, record(0.7), False),
        (TAINTED, record(0.2, 0.2, quote="q"), False),
        (TAINTED, record(0.2, 0.2, origin=Origin.HAND), False),
        (TAINTED, record(0.2, 0.2, status="proposed"), False),
        (TAINTED, record(0.2, 0.2, status="quarantined"), False),
        (replace(AGENT, authority=Role.MEMBER), record(0.7), True),
        (replace(AGENT, authority=Role.MEMBER), record(1.0, origin=Origin.OWNER), False),
        (replace(AGENT, authority=Role.NONE, taint=0.6), record(0.7), False),
    ],
)
def test_who_may_change_what(voice: Voice, of: MemoryRecord, may: bool) -> None:
    assert (may_change(voice, of) == "") is may


def test_below_the_floor_the_quote_alone_is_shown() -> None:
    assert shown(record(0.2, 0.2, quote="q"), 0.5) == ("q", 1.0, 1.0)
    assert shown(record(0.7, quote="q"), 0.5) == ("x", 0.7, 1.0)
    assert shown(record(0.2, 0.2), 0.5) == ("x", 0.2, 0.2)


@pytest.mark.parametrize(
    ("content", "kind", "metadata", "says"),
    [
        ("x", "dream", {}, "no kind"),
        ("x", "day", {}, "no kind"),
        (" \n\u200b", "episode", {}, "nothing in it"),
        ("a\0b", "episode", {}, "NUL"),
        ("x" * (LARGEST + 1), "episode", {}, "at most 64 KB"),
        ("ü" * (LARGEST // 2 + 1), "episode", {}, "at most 64 KB"),
        (7, "episode", {}, "a text"),
        ("x", "episode", {"source": "owner"}, "'source' cannot be said"),
        ("x", "episode", {"trust": 1.0}, "cannot be said"),
        ("x", "episode", {"origin": "owner"}, "cannot be said"),
        ("x", "episode", {"status": "active"}, "cannot be said"),
        ("x", "episode", {"private": False}, "cannot be said"),
        ("x", "episode", {"key": "k"}, "only a fact has a key"),
        ("x", "fact", {}, "needs a key"),
        ("x", "fact", {"key": "a\nb"}, "one line"),
        ("x", "fact", {"key": "https://evil.example/x"}, "can be a link"),
        ("x", "fact", {"key": "safe\u202ekey"}, "or hidden"),
        ("x", "fact", {"key": " User_Name "}, "owner alone"),
        ("x", "fact", {"key": "bot_name"}, "owner alone"),
        ("x", "fact", {"key": "k", "supersedes": "ep_0000000001"}, "its key"),
        ("x", "entity", {"supersedes": "fact:k"}, "another kind"),
        ("x", "episode", {"supersedes": ["a"]}, "one memory"),
        ("x", "episode", {"event_time": "yesterday"}, "time like"),
        ("x", "episode", {"event_time": 7}, "time like"),
        ("x", "episode", {"tags": "a"}, "list of words"),
        ("x", "episode", {"tags": ["a"] * 3 + [1]}, "list of words"),
        ("x", "episode", {"tags": [str(n) for n in range(17)]}, "16 tags"),
        ("x", "episode", {"tags": ["a" * 65]}, "64 characters"),
        ("x", "episode", {"tags": ["a\nb"]}, "one line"),
        ("x", "episode", {"derived_from": [1]}, "list of ids"),
        ("x", "episode", {"derived_from": ["a"] * 65}, "at most 64"),
        ("x", "episode", {"said": {"quote": "I said so."}}, "whole sentence"),
    ],
)
def test_what_cannot_be_kept_is_told(content: Any, kind: str, metadata: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        offered(content, kind, metadata, AGENT)


def test_what_is_said_of_a_memory_is_taken_as_it_is_meant() -> None:
    more = {
        "tags": [" a ", "", "a", "b"],
        "derived_from": ["x", "x"],
        "event_time": "2026-12-01T09:00:00+01:00",
        "key": None,
    }
    offer = offered("  text\r\n", "episode", more, AGENT)
    assert (offer.text, offer.tags, offer.derived_from) == ("text", ("a", "b"), ("x",))
    assert offer.event_time is not None and offer.event_time.timestamp() == 1796112000
    assert offered("Ann", "fact", {"key": "user_name"}, OWNER).key == "user_name"
    assert offered("x" * (LARGEST + 1), "episode", {}, OWNER).kind == "episode"
