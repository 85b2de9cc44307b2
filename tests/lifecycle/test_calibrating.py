"""Limits from past sessions, calculated by hand, and what is read of their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.lifecycle.calibrating import Found, Past, calibrate, past_of, sessions
from clawd.lifecycle.profiles import MARGIN

PEAKS = [100_000, 120_000, 140_000, 160_000, 200_000]
# The 90th percentile of five by nearest rank is the fifth: 200,000.


@pytest.mark.parametrize(
    ("compacts", "handoffs", "window", "soft", "hard"),
    [
        # No D: soft .7 * 200000 = 140000; hard 200000.
        ([], [], None, 140_000, 200_000),
        # soft .5*140000 + .5*90000 = 115000; hard .5*200000 + .5*180000 = 190000.
        ([90_000], [180_000], None, 115_000, 190_000),
        # The median of 80000, 90000, 101001 is 90000; of 170000, 181001 it is 175500.5:
        # hard 100000 + 87750.25 = 187750.25, rounded 188000.
        ([101_001, 80_000, 90_000], [170_000, 181_001], None, 115_000, 188_000),
        # soft 70000 + 44750 = 114750 -> 115000; half of a thousand goes up: 70000 + 45500 = 115500 -> 116000.
        ([89_500], [], None, 115_000, 200_000),
        ([91_000], [], None, 116_000, 200_000),
        # Handed over early: hard 100000 + 10000 = 110000, soft at most .8 of it: 88000.
        ([90_000], [20_000], None, 88_000, 110_000),
        # hard 100000 + 10500 = 110500 -> 111000, .8 of it 88800, rounded down.
        ([90_000], [21_000], None, 88_000, 111_000),
        # The window: 150000 - 8192 - 13000 = 128808 -> 128000; 3/4 of it 96000.
        ([90_000], [180_000], 150_000, 96_000, 128_000),
        # One that is large enough: hard 190000, 3/4 of it 142500: soft 115000 stays.
        ([90_000], [180_000], 1_000_000, 115_000, 190_000),
    ],
)
def test_the_figures(compacts: list[int], handoffs: list[int], window: int | None, soft: int, hard: int) -> None:
    past = [Past(peak, [], None) for peak in PEAKS]
    for n, tokens in enumerate(compacts):
        past[n] = Past(past[n].peak, [tokens], past[n].handoff)
    for n, tokens in enumerate(handoffs):
        past[n] = Past(past[n].peak, past[n].compacts, tokens)
    found = calibrate(past, window, 8192)
    assert (found.soft, found.hard) == (soft, hard)
    assert (found.sessions, found.peak, found.sufficient) == (5, 200_000, True)
    assert (found.compacts, found.handoffs) == (len(compacts), len(handoffs))


@pytest.mark.parametrize(
    ("count", "peak"),
    [(5, 5), (9, 9), (10, 9), (11, 10), (20, 18), (21, 19)],  # ceil(.9 * n)
)
def test_the_percentile_is_the_nearest_rank(count: int, peak: int) -> None:
    found = calibrate([Past(n * 10_000) for n in range(count, 0, -1)], None, 0)
    assert found.peak == found.hard == peak * 10_000


@pytest.mark.parametrize("past", [[], [Past(200_000, [100_000], 180_000)] * 4, [Past(700)] * 9])
def test_too_little_recommends_nothing(past: list[Past]) -> None:
    found = calibrate(past, None, 8192)
    assert (found.sessions, found.sufficient, found.soft, found.hard) == (len(past), False, None, None)


TOKENS = st.integers(0, 2_000_000)
PAST = st.builds(Past, TOKENS, st.lists(TOKENS, max_size=3), st.none() | TOKENS)


@given(st.lists(PAST, max_size=12), st.none() | TOKENS, st.integers(1, 64_000))
def test_whatever_went_before_it_can_hold(past: list[Past], window: int | None, output: int) -> None:
    found = calibrate(past, window, output)
    assert isinstance(found, Found)
    if found.soft is not None and found.hard is not None:
        assert found.soft % 1000 == found.hard % 1000 == 0 < found.soft <= 0.8 * found.hard
        assert window is None or found.hard + output + MARGIN <= window


def metric(event: str, step: int, window: Any) -> dict[str, Any]:
    return {"event": event, "step_index": step, "window_tokens": window}


def decision(action: str, step: int, tokens: Any, **more: Any) -> dict[str, Any]:
    return {"action": action, "step_index": step, "total_tokens": tokens, **more}


TURNS = [metric("turn", 1, 50), metric("turn", 2, 90), metric("turn", 3, 40)]


@pytest.mark.parametrize(
    ("metrics", "decisions", "past"),
    [
        ([], [decision("compact", 1, 9)], None),
        ([metric("error", 1, 50)], [], None),
        ([metric("turn", 1, None)], [], None),
        (TURNS, [], Past(90)),
        (
            [*TURNS, metric("compact", 2, 30)],
            [decision("continue", 1, 50), decision("compact", 2, 90)],
            Past(90, (90,)),
        ),
        # one that was not verified has no event of its own
        ([*TURNS, metric("error", 2, 90)], [decision("compact", 2, 90)], Past(90)),
        # it was done two turns later, and the one before it came to nothing
        ([*TURNS, metric("compact", 4, 30)], [decision("compact", 1, 50), decision("compact", 2, 90)], Past(90, (90,))),
        ([*TURNS, metric("compact", 0, 30)], [decision("compact", 0, 60)], Past(90, (60,))),
        ([*TURNS, metric("compact", 2, 30)], [decision("compact", 3, 40)], Past(90)),
        (TURNS, [decision("handoff", 3, 80, trigger="phase_boundary")], Past(90, (), 80)),
        (TURNS, [decision("handoff", 2, 70), decision("handoff", 3, 80)], Past(90, (), 80)),
        (TURNS, [decision("handoff", 3, 80, confirm={"required": True, "granted": False, "by": None})], Past(90)),
        (TURNS, [decision("handoff", 3, 80, confirm={"required": True, "granted": None, "by": None})], Past(90)),
        (
            TURNS,
            [decision("handoff", 3, 80, confirm={"required": True, "granted": True, "by": "anna"})],
            Past(90, (), 80),
        ),
        (TURNS, [decision("handoff", 3, "many"), decision("handoff", 3, -1), decision("handoff", 3, True)], Past(90)),
    ],
)
def test_how_a_session_went(metrics: list[dict[str, Any]], decisions: list[dict[str, Any]], past: Past | None) -> None:
    assert past_of(metrics, decisions) == past


def lines(*objects: dict[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in objects)


def test_what_is_read_of_a_group(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    assert list(sessions(tmp_path, "coding", "chat")) == []
    folder.mkdir()
    torn = lines(metric("turn", 1, 70)) + '{"event": "turn", "window_tok'
    (folder / "a.metrics.jsonl").write_text(torn)
    (folder / "a.decisions.jsonl").write_text(lines(decision("handoff", 1, 70)) + '{"act')
    (folder / "b.metrics.jsonl").write_bytes(b"\xff\n[1]\nnonsense\n" + lines(metric("turn", 1, 80)).encode())
    (folder / "b.state.json").write_text('{"profile": "coding"}')
    for name, profile in (("c", '"chat"'), ("d", "null")):
        (folder / f"{name}.metrics.jsonl").write_text(lines(metric("turn", 1, 90)))
        (folder / f"{name}.state.json").write_text(f'{{"profile": {profile}}}')
    (folder / "e.metrics.jsonl").symlink_to(folder / "c.metrics.jsonl")
    (folder / "f.decisions.jsonl").write_text(lines(decision("handoff", 1, 70)))
    assert list(sessions(tmp_path, "coding", "chat")) == [Past(70, (), 70), Past(80)]
    assert [past.peak for past in sessions(tmp_path, "chat", "chat")] == [70, 90, 90]
    assert [past.peak for past in sessions(tmp_path, "coding", "coding")] == [70, 80, 90]
