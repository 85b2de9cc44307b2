"""When a rule tells of changes, whose they are, and in which words."""

from __future__ import annotations

import json
import math

import pytest

from clawd.config.group import Watch
from clawd.ledger.seen import Changes, Known, Stat
from clawd.trust import Origin
from clawd.wakes.settling import Own, due, parts, rule_id, wait
from clawd.wakes.tree import Found


@pytest.mark.parametrize(
    "first, last, settle, expected",
    [
        (0, 0, 2, 2),
        (0, 5, 2, 7),
        (0, 19.5, 2, 20),  # ten times
        (0, 100, 30, 60),  # a minute
        (0, 5, 120, 120),  # but what was asked for
        (0, 0, 0, 1),  # a file must stand still for a second
        (0, 0.9, 0.1, 1),
    ],
)
def test_when_changes_are_told(first: float, last: float, settle: float, expected: float) -> None:
    assert due(first, last, settle) == expected


@pytest.mark.parametrize(
    "made, cooldown, most, expected",
    [
        ([], 60, 12, (0, False)),
        ([9_990], 60, 12, (50, False)),
        ([9_940], 60, 12, (0, False)),
        ([6_500, 9_000, 9_900], 60, 3, (100, True)),
        ([6_300, 9_000, 9_900], 60, 3, (0, False)),
        ([6_500, 9_000, 9_990], 60, 3, (50, False)),
        ([20_000], 60, 1, (0, False)),  # by a clock that was wrong
    ],
)
def test_when_a_rule_may_wake(made: list[float], cooldown: float, most: int, expected: tuple[float, bool]) -> None:
    assert wait(made, 10_000, cooldown, most) == expected


def seen(ino: int = 1) -> Known:
    return Known(b"x", Stat(1, 1, ino), b"h")


def at(when: float, uid: int = 0, ino: int = 1) -> Found:
    return Found(Stat(2, 2, ino), uid, when)


@pytest.mark.parametrize(
    "known, found, uid, own",
    [
        (seen(), at(150), None, True),
        (seen(), at(99), None, False),  # before the turn began
        (seen(), at(203), None, False),
        (None, at(1_000), None, True),  # in the one that is live
        (seen(), None, None, True),
        (None, at(1_000, uid=0), 64_001, False),  # a root daemon's agent made it, or did not
        (None, at(250, uid=64_001), 64_001, True),
        (seen(), at(150, uid=0, ino=2), 64_001, False),
        (seen(), at(150, uid=0, ino=1), 64_001, True),  # written to where it is: its owner says nothing
    ],
)
def test_whose_a_change_is(known: Known | None, found: Found | None, uid: int | None, own: bool) -> None:
    spans = [(100.0, 202.0), (900.0, math.inf)]
    assert Own(True, uid, spans, 1_000)(known, found) is own
    assert not Own(False, uid, spans, 1_000)(known, found), "where the sandbox cannot write"


def test_what_is_told() -> None:
    watch = Watch(paths=["work"], prompt="Read it.")
    first = [(b"work/a\n\xff", "added", 5), (b"work/b", "deleted", None)]
    asked, said, listed = parts(watch, Origin.AGENT, Changes({"added": 1, "deleted": 1}, first), down=True)
    assert (asked.kind, asked.origin, asked.text) == ("typed", Origin.AGENT, "Read it.")
    assert said.origin == Origin.SYSTEM and "1 added, 1 deleted. Some of it changed while clawd was not" in said.text
    assert (listed.kind, listed.origin) == ("attachment", Origin.DOCUMENT)
    assert [json.loads(line) for line in listed.text.splitlines()] == [
        {"path": "work/a\n\udcff", "event": "added", "size": 5},
        {"path": "work/b", "event": "deleted"},
    ]
    assert listed.text.isascii()
    many = Changes({"added": 20_000}, [(b"work/%d" % n, "added", 1) for n in range(50)])
    said, listed = parts(Watch(paths=["work"]), Origin.OWNER, many, down=False)
    assert said.text.endswith("20,000 added.")
    assert len(listed.text.splitlines()) == 21 and listed.text.endswith("… and 19,980 more")


def test_a_rule_is_known_by_what_it_looks_at() -> None:
    one, other = Watch(paths=["work"], prompt="x"), Watch(paths=["work"], prompt="y", cooldown=5)
    assert rule_id(one) == rule_id(other) != rule_id(one, 1)
    assert (
        len({rule_id(Watch(paths=["work"], globs=["*.md"])), rule_id(Watch(paths=["work", "*.md"])), rule_id(one)}) == 3
    )
