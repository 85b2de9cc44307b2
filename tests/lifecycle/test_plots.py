from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.lifecycle.charts import charts
from clawd.lifecycle.exporting import Account, Lines
from clawd.lifecycle.plots import WIDTH, Marker, Plot, Series, amount, scale, svg, thinned
from tests.lifecycle.accounts import account, decision, metric

NAME = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0, (1.0, 0.25)), (1, (1.0, 0.25)), (100_000, (100_000, 25_000)), (101_000, (150_000, 50_000)), (7, (8, 2))],
)
def test_axes_end_at_round_numbers(most: float, expected: tuple[float, float]) -> None:
    assert scale(most) == expected


@settings(max_examples=100)
@given(st.floats(1e-9, 1e15))
def test_an_axis_has_few_ticks_and_room_for_all(most: float) -> None:
    ceiling, step = scale(most)
    assert ceiling >= most * 0.99999 and 2 <= round(ceiling / step) <= 5


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (7, "7"), (0.004, "0.004"), (999, "999"), (1000, "1k"), (62_500, "62.5k"), (1_500_000, "1.5M")],
)
def test_amounts_are_short(value: float, said: str) -> None:
    assert amount(value) == said


def test_no_peak_is_lost_where_a_line_is_thinned() -> None:
    points = [(float(n), 10.0 if n == 777 else math.sin(n)) for n in range(5000)]
    kept = thinned(points, 100)
    assert len(kept) <= 102 and (777.0, 10.0) in kept and kept[0][0] < 100 and kept[-1] == points[-1]
    assert kept == sorted(kept)


def test_a_plot_says_what_it_is_and_stays_in_its_frame() -> None:
    lines = [Series("window", [(0, 5), (1, 50)]), Series("hard", [(0, 40), (1, 40)], "hard", stepped=True)]
    plot = Plot("p", "a < b", "<script>", lines, ["1", "2"], [Marker("compact", 1, 50, 'step "2"')])
    drawn = svg(plot)
    root = ElementTree.fromstring(drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '))
    assert [root.findtext(f"{NAME}{name}") for name in ("title", "desc")] == ["a < b", "<script>"]
    assert [each.text for each in root.iterfind(f".//{NAME}g/{NAME}title")] == ['step "2"']
    places = [float(each.attrib["x"]) for each in root.iterfind(f".//{NAME}text")]
    assert min(places) >= 0 and max(places) <= WIDTH
    assert "style" not in drawn and "href" not in drawn


@pytest.mark.parametrize("rows", [1, 2, 3, 30, 2000])
def test_any_number_of_steps_is_drawn(rows: int) -> None:
    metrics = [metric(1, 1000 + n, 1000 * n, 0.5) | {"step_index": n} for n in range(rows)]
    found = charts(account(metrics=Lines(metrics), decisions=Lines()))
    plots = [each.plot for each in found]
    assert [plot is not None for plot in plots] == [True, True, True, False]
    assert all(len(svg(plot)) < 40_000 for plot in plots if plot is not None)


def test_the_window_has_its_limits_and_a_mark_for_what_was_done() -> None:
    window, total, cost, recall = (each.plot for each in charts(account()))
    assert window is not None and total is not None and cost is not None and recall is not None
    assert {line.css: line.points for line in window.lines} == {
        "hard": [(n, 100_000) for n in range(4)],
        "soft": [(n, 60_000) for n in range(4)],
        "window": [(0, 30_000), (1, 61_000), (2, 14_000), (3, 101_000)],
    }
    assert [(mark.kind, mark.x, mark.y) for mark in window.markers] == [("compact", 1, 61_000), ("handoff", 3, 101_000)]
    assert window.markers[0].told == "step 2: compact, soft_compact, at 61,000 tokens"
    assert total.lines[0].points[-1] == (3, 206_000)
    assert cost.lines[0].points == [(0, 0.2), (1, 0.6), (3, 0.7)]  # of the third nobody knows it
    assert recall.lines[-1].points == [(1, 0.95)]


def test_limits_follow_the_decisions_and_else_the_state() -> None:
    changed = [decision(1, "continue", "none", 1, soft=10), decision(2, "continue", "none", 1, soft=20)]
    metrics = Lines([metric(n, 5, 5) for n in (1, 2, 3)])
    found = charts(account(metrics=metrics, decisions=Lines(changed)))[0].plot
    assert found is not None
    assert [line.points for line in found.lines if line.css == "soft"] == [[(0, 10), (1, 20), (2, 20)]]
    found = charts(account(metrics=metrics, decisions=Lines()))[0].plot
    assert found is not None and found.lines[1].points[0] == (0, 60_000)


def test_where_nothing_is_known_that_is_said() -> None:
    assert [(each.plot, each.told) for each in charts(Account("a", "main"))] == [
        (None, "Window, in tokens: nothing was counted"),
        (None, "Tokens in all: nothing was counted"),
        (None, "Cost in dollars: nobody knows the price of what answered"),
        (None, "Recall of what is pinned: nothing was compacted that could be checked"),
    ]
