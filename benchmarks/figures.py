"""A figure: the median and p95 of what was measured, as one JSON line."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """`goal` is what DESIGN asks for, in the same unit; None where it asks for a ratio or nothing."""

    what: str
    unit: str
    n: int
    p50: float
    p95: float
    goal: float | None

    def line(self) -> str:
        return json.dumps(asdict(self))


def figure(what: str, values: list[float], unit: str, goal: float | None = None) -> Figure:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return Figure(what, unit, len(values), round(statistics.median(ordered), 3), round(p95, 3), goal)
