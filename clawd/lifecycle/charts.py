"""Which plots a session's context has, from its rows. Pure.

x is the row of metrics.jsonl, called by its step; a decision belongs to the first row of its step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from clawd.lifecycle import exporting
from clawd.lifecycle.exporting import Account
from clawd.lifecycle.journal import Line
from clawd.lifecycle.plots import Marker, Plot, Point, Series

ENOUGH = 0.85  # recall that a summary must have


class Chart(NamedTuple):
    """`plot` is None where nothing is known: `told` says so. `key` is (class, name) of what is drawn."""

    plot: Plot | None
    key: tuple[tuple[str, str], ...]
    told: str

    @property
    def title(self) -> str:
        return self.plot.title if self.plot is not None else self.told.partition(":")[0]


def charts(account: Account) -> list[Chart]:
    """The window, tokens in all, what it cost, recall."""
    rows = account.metrics.rows
    steps = [exporting.word(row.get("step_index")) for row in rows]
    return [
        _window(account, steps),
        _one("total", "Tokens in all", "total", _points(rows, "total_tokens"), steps, "nothing was counted"),
        _one("cost", "Cost in dollars", "cost", _costs(rows), steps, "nobody knows the price of what answered", "$"),
        _recall(account, steps),
    ]


def _window(account: Account, steps: list[str]) -> Chart:
    title, rows = "Window, in tokens", account.metrics.rows
    window = _points(rows, "window_tokens")
    if not window:
        return Chart(None, (), f"{title}: nothing was counted")
    soft, hard = _limit(account, "soft"), _limit(account, "hard")
    marks = list(_marks(account, dict(window)))
    counts = [sum(mark.kind == kind for mark in marks) for kind in ("compact", "handoff")]
    told = (
        f"{len(window)} values over the steps {steps[0]} to {steps[-1]}, at most"
        f" {max(y for _, y in window):,.0f} tokens; {counts[0]} compactions, {counts[1]} handovers."
    )
    lines = [
        Series("hard", hard, "hard", stepped=True),
        Series("soft", soft, "soft", stepped=True),
        Series("window", window),
    ]
    key = (("window", "window"), ("compact", "compaction"), ("handoff", "handover"))
    return Chart(Plot("window", title, told, lines, steps, marks), key, told)


def _one(id: str, title: str, css: str, points: list[Point], steps: list[str], nothing: str, unit: str = "") -> Chart:
    if not points:
        return Chart(None, (), f"{title}: {nothing}")
    told = f"{len(points)} values, at the end {points[-1][1]:,g}."
    return Chart(Plot(id, title, told, [Series(css, points)], steps, unit=unit), (), told)


def _recall(account: Account, steps: list[str]) -> Chart:
    title = "Recall of what is pinned"
    places, known = _places(account), dict[float, float]()
    for row in (*account.metrics.rows, *account.decisions.rows):
        recall, x = _number(row, "recall"), places.get(_key(row))
        if recall is not None and x is not None:
            known[x] = recall
    points = sorted(known.items())
    if not points:
        last = _number(account.state or {}, "last_recall")
        why = "nothing was compacted that could be checked" if last is None else f"at the last compaction {last:g}"
        return Chart(None, (), f"{title}: {why}")
    told = f"{len(points)} compactions, at the lowest {min(y for _, y in points):g}; {ENOUGH:g} is enough."
    enough = Series("soft", [(0, ENOUGH), (max(len(steps) - 1, 0), ENOUGH)], "enough", stepped=True)
    return Chart(Plot("recall", title, told, [enough, Series("recall", points)], steps, top=1.0), (), told)


def _points(rows: Any, name: str) -> list[Point]:
    return [(n, value) for n, row in enumerate(rows) if (value := _number(row, name)) is not None]


def _costs(rows: Any) -> list[Point]:
    """What was spent so far, at each row whose cost is known."""
    spent, points = Decimal(0), list[Point]()
    for n, row in enumerate(rows):
        digits = exporting.number(row.get("total_cost_usd"))
        if digits is not None:
            spent += Decimal(digits)
            points.append((n, float(spent)))
    return points


def _key(row: Line) -> str:
    return exporting.word(row.get("step_index"))


def _places(account: Account) -> dict[str, int]:
    """step → the row where it stands first."""
    places: dict[str, int] = {}
    for n, row in enumerate(account.metrics.rows):
        places.setdefault(_key(row), n)
    return places


def _limit(account: Account, name: str) -> list[Point]:
    """A limit over all rows, as each decision had it; before the first and without any as the state has it."""
    said = {_key(row): value for row in account.decisions.rows if (value := _number(row, name)) is not None}
    now = next(iter(said.values()), _number(account.state or {}, name))
    points = list[Point]()
    for n, row in enumerate(account.metrics.rows):
        now = said.get(_key(row), now)
        if now is not None:
            points.append((n, now))
    return points


def _marks(account: Account, window: Mapping[float, float]) -> Iterator[Marker]:
    """Compactions and handovers, at the row of their step."""
    places = _places(account)
    for row in account.decisions.rows:
        x = places.get(_key(row))
        if row.get("action") not in ("compact", "handoff") or x is None:
            continue
        y = window.get(x, _number(row, "total_tokens"))
        if y is not None:
            told = f"step {_key(row)}: {row['action']}, {exporting.word(row.get('trigger'))}, at {y:,.0f} tokens"
            yield Marker(row["action"], x, y, told)


def _number(row: Mapping[str, Any], name: str) -> float | None:
    """A number that is not below 0."""
    digits = exporting.number(row.get(name))
    value = float(digits) if digits is not None else None
    return value if value is not None and 0 <= value < 1e18 else None
