"""Which processes end with a turn, as a table."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import pytest
from agent.processes import Process, doomed

RUNNER, FORWARDER = 10, 11
# pid: (parent, the turn in its environment). 20 and 30 are the commands of turns 1 and 2; 40–42 are orphans.
TREE = {
    1: (0, None),
    RUNNER: (1, None),
    FORWARDER: (RUNNER, None),
    12: (FORWARDER, None),
    20: (RUNNER, 1),
    21: (20, 1),
    30: (RUNNER, 2),
    31: (30, 2),
    32: (30, 1),
    40: (RUNNER, 1),
    41: (RUNNER, 2),
    42: (RUNNER, None),
    43: (42, 2),
    90: (1, 1),
}


@pytest.mark.parametrize(
    ("turn", "others", "ending"),
    [
        (1, {2}, {12, 20, 21, 32, 40, 42, 43}),
        (2, {1}, {12, 30, 31, 32, 41, 42, 43}),
        (1, set(), {12, 20, 21, 30, 31, 32, 40, 41, 42, 43}),
        (3, {1, 2}, {12, 42, 43}),
    ],
)
def test_doomed(turn: int, others: AbstractSet[int], ending: set[int]) -> None:
    table = {pid: Process(pid, parent, pid, "S") for pid, (parent, _) in TREE.items()}
    started = {20: 1, 30: 2}
    assert doomed(table, RUNNER, FORWARDER, started, lambda pid: TREE[pid][1], turn, others) == ending


@pytest.mark.parametrize(
    ("serves", "turn", "others", "ending"),
    [
        (1, 1, {2}, {12, 21, 40, 42, 43, 32}),  # its turn ends: what it started goes, it stays
        (1, 1, set(), {12, 21, 30, 31, 32, 40, 41, 42, 43}),
        (1, 2, {1}, {12, 30, 31, 32, 41, 42, 43}),  # another's turn ends: what it started for its own goes on
        (0, 2, set(), {12, 21, 30, 31, 32, 40, 41, 42, 43}),  # between turns it has nothing
    ],
)
def test_a_kept_engine_stays(serves: int, turn: int, others: AbstractSet[int], ending: set[int]) -> None:
    table = {pid: Process(pid, parent, pid, "S") for pid, (parent, _) in TREE.items()}
    started = {20: serves, 30: 2}
    assert doomed(table, RUNNER, FORWARDER, started, lambda pid: TREE[pid][1], turn, others, {20}) == ending
