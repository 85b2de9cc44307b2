"""Which tool output is left out, and what stands for it."""

from __future__ import annotations

from typing import Any

import pytest

from clawd.lifecycle import compaction
from clawd.lifecycle.compaction import Cut, Mark, block_of, cut, fruitless, mark_of
from clawd.lifecycle.masking import LONG, freed, is_masked, last_masked, placeholder
from clawd.model import Block


def result(turn: Any, length: int = LONG + 1) -> Block:
    return Block("tool", "é" * (length // 2) + "x" * (length % 2), tool_call_id="c", meta={"turn": turn})


@pytest.mark.parametrize(("turns", "last"), [([], None), ([4, 5, 6], None), ([3, 4, 5, 6], 3), ([1, 2, 3, 4, 5], 2)])
def test_the_newest_three_turns_are_shown_whole(turns: list[int], last: int | None) -> None:
    assert last_masked(turns) == last


@pytest.mark.parametrize(
    ("block", "masked"),
    [
        (result(3), True),
        (result(4), False),  # newer
        (result(3, LONG), False),  # bytes, not characters
        (result("import"), False),
        (Block("assistant", "x" * 1000, meta={"turn": 3}), False),
        (Block("user", "x" * 1000, meta={"turn": 3}), False),
    ],
)
def test_only_long_output_of_older_turns_is_left_out(block: Block, masked: bool) -> None:
    assert is_masked(block, 3) is masked
    assert not is_masked(block, None)


def test_what_stands_for_it_is_the_same_each_time_and_frees_the_rest() -> None:
    said = placeholder(result(3, 5000), 7)
    assert said == placeholder(result(3, 5000), 7) and "5000 bytes" in said and "compaction 7" in said
    assert freed([result(3, 5000), result(9, 5000)], 3, 7) == 2500 - len(said)
    assert len(placeholder(result(3, 10**9), 10**6)) < LONG


def said(turn: int | str | None, size: int = 100, **meta: Any) -> list[Block]:
    of = {} if turn is None else {"turn": turn}
    return [Block("user", "u", meta=of | meta), Block("assistant", "a" * size, meta=of | meta)]


@pytest.mark.parametrize(
    ("blocks", "room", "wanted"),
    [
        ([], 1000, Cut(None)),
        (said(1, 10_000), 1000, Cut(None)),  # one turn, which stays
        ([*said(1), *said(2, 10_000)], 1000, Cut(None, 1, 2)),
        ([*said(1), *said(2), *said(3)], 600, Cut(None, 1, 2)),
        ([*said(1), *said(2), *said(3), *said(5)], 10**6, Cut(1, 3, 6)),  # there is room for all: the newest stays
        ([*said(None), *said("import"), *said(7)], 10, Cut(None, 0, 4)),  # what came before the first turn
        ([*said(1), Block("user", "tick", meta={"from": "external"}), *said(2)], 10, Cut(None, 1, 3)),
        ([*said(1), *said(1, note="delivery 3"), *said(2)], 10, Cut(None, 1, 4)),  # a late note begins no turn
    ],
)
def test_a_compaction_keeps_the_newest_turns_that_fit(blocks: list[Block], room: int, wanted: Cut) -> None:
    assert cut(blocks, room) == wanted


def test_a_block_says_what_it_is_and_no_other_program_s_does() -> None:
    mark = Mark(7, "summary", 3, None, 0.5, 0.9)
    block = block_of(mark, "text", None)
    assert mark_of(block) == mark
    for meta in ({"source": "x"}, {"from": "external"}, {"key": "k"}, {"note": "compaction 8"}, {"compact": [1]}):
        assert mark_of(Block("system", "text", meta=block.meta | meta)) is None
    assert mark_of(Block("user", "text", meta=block.meta)) is None
    edited = block_of(Mark(7, "summary", 3, None, 7.0), "t", None)
    found = mark_of(edited)
    assert found is not None and found.trust == 0.0


@pytest.mark.parametrize(
    ("before", "after", "no_use"), [(100, 91, True), (100, 90, False), (100, 120, True), (0, 0, False)]
)
def test_a_compaction_that_frees_next_to_nothing_is_known(before: int, after: int, no_use: bool) -> None:
    assert fruitless(before, after) is no_use
    assert compaction.ENOUGH < 1
