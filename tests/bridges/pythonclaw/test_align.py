"""Two histories of one session: the same, one that goes on, or two that went on by themselves."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.bridges.pythonclaw.align import aligned
from clawd.bridges.pythonclaw.forms import restorable, session_bytes
from clawd.bridges.pythonclaw.sync import way
from clawd.model import Block
from clawd.sessions.format import parse
from tests.sessions.strategies import blocks, steady

AT = datetime(2026, 3, 7, 10, tzinfo=UTC)
CALL = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
REFRESH = Block("system", "[Memory Refresh — session restored]\nx", AT)


def said(text: str) -> list[Block]:
    return [Block("user", each, AT) for each in text.split()]


def words(*lists: tuple[Block, ...]) -> list[str]:
    return [" ".join(each.content for each in blocks) for blocks in lists]


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ("a b", "a b", ["", ""]),
        ("a b c", "a b", ["c", ""]),
        ("a b", "a b c", ["", "c"]),
        ("", "a", ["", "a"]),
        ("a", "", ["a", ""]),
        ("a b", "a c", None),
        ("a b x", "a b y", None),
        ("a b c d", "b c d e", None),  # not so long that PythonClaw would have dropped the first
    ],
)
def test_the_shorter_one_is_how_the_longer_begins(here: str, there: str, expected: list[str] | None) -> None:
    found = aligned(said(here), said(there))
    assert (None if found is None else words(found.new_here, found.new_there)) == expected


@pytest.mark.parametrize(("here", "there", "expected"), [
    (range(60), range(10, 60), ["", ""]),
    (range(60), range(12, 62), ["", "60 61"]),
    (range(62), range(10, 60), ["60 61", ""]),
    (range(60), range(59, 109), None),  # one alone may be a chance
    (range(60), range(100, 150), None),
])  # fmt: skip
def test_what_its_cap_dropped_is_no_other_history(here: range, there: range, expected: list[str] | None) -> None:
    found = aligned(said(" ".join(map(str, here))), said(" ".join(map(str, there))))
    assert (None if found is None else words(found.new_here, found.new_there)) == expected


def test_a_cap_between_a_call_and_its_result_is_no_other_history() -> None:
    pair = [Block("assistant", "", AT, (CALL,)), Block("tool", "r", AT, tool_call_id="c")]
    rest = said(" ".join(map(str, range(49))))
    found = aligned([*said("x"), *pair, *rest], [pair[1], *rest, *said("new")])
    assert found is not None and words(found.new_here, found.new_there) == ["", "new"]


def test_snapshots_of_memory_are_no_part_of_it() -> None:
    found = aligned(said("a b"), [*said("a"), REFRESH, *said("b"), replace(REFRESH, content=f"{REFRESH.content} y")])
    assert found is not None and not found.new_here and not found.new_there


@steady
@given(st.lists(blocks, max_size=5), st.integers(0, 5))
def test_what_we_wrote_there_is_the_same_or_how_it_begins(given: list[Block], more: int) -> None:
    there = parse(session_bytes("cli", given[:more])).blocks
    found = aligned(given[:more], there)
    assert found is not None and not found.new_here and not found.new_there
    grown = aligned([*given[:more], *said("p q")], there)
    assert grown is not None and words(grown.new_here) == ["p q"]
    assert not grown.new_there or restorable(given[:more]) != list(given[:more])


HERE, THERE, OLD = "h", "t", "o"


@pytest.mark.parametrize(
    ("here", "there", "before", "newer_here", "newer_there", "expected"),
    [
        (HERE, HERE, None, True, True, "same"),
        (None, THERE, None, True, True, "in"),
        (HERE, None, None, True, True, "out"),
        (None, THERE, THERE, True, True, "forgotten here"),
        (None, THERE, OLD, True, True, "in"),
        (HERE, None, HERE, True, True, "forgotten there"),
        (HERE, None, OLD, True, True, "forgotten there"),
        (HERE, THERE, THERE, True, False, "out"),
        (HERE, THERE, THERE, False, True, "both"),
        (HERE, THERE, HERE, False, True, "in"),
        (HERE, THERE, HERE, True, False, "both"),
        (HERE, THERE, OLD, True, True, "both"),
        (HERE, THERE, None, True, False, "both"),
    ],
)
def test_which_way_a_fact_goes(
    here: str | None, there: str | None, before: str | None, newer_here: bool, newer_there: bool, expected: str
) -> None:
    assert way(here, there, before, newer_here=newer_here, newer_there=newer_there) == expected
