"""A figure: the median and p95 of what was measured, or the mean of shares, as one JSON line."""

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


@dataclass(frozen=True, slots=True)
class Share:
    """Of shares between 0 and 1 the mean and its standard error."""

    what: str
    n: int
    mean: float
    error: float
    goal: float | None

    def line(self) -> str:
        return json.dumps(asdict(self))


def share(what: str, values: list[float], goal: float | None = None) -> Share:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return Share(what, len(values), round(statistics.fmean(values), 4), round(error, 4), goal)
