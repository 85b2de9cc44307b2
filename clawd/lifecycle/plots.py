"""Plots as SVG that stands in a page: no script, no style of its own, a title and a description for whoever does not
see it. Pure. Colours and fonts are the page's, by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
_At = Callable[[float, float], tuple[str, str]]

WIDTH, HEIGHT = 480, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 18, 34
_MOST = 400  # points of a line: more than that show nothing more
_DOTS = 40  # of a line with so few points each is seen
_TICKS = 4


@dataclass(frozen=True, slots=True)
class Series:
    """A line: `name` is written at its beginning, where that is wanted. `stepped`: a value holds until the next."""

    css: str
    points: Sequence[Point]
    name: str = ""
    stepped: bool = False


@dataclass(frozen=True, slots=True)
class Marker:
    """Something that happened at `x`, told in a sentence. Its form is another one for each kind."""

    kind: str
    x: float
    y: float
    told: str


@dataclass(frozen=True, slots=True)
class Plot:
    """`steps` are the labels of x = 0, 1, 2 …; `top` is the highest value that y must reach, `unit` stands before
    amounts."""

    id: str
    title: str
    told: str
    lines: Sequence[Series]
    steps: Sequence[str]
    markers: Sequence[Marker] = ()
    top: float | None = None
    unit: str = ""


def svg(plot: Plot) -> str:
    """The plot; all text in it is escaped."""
    values = [y for line in plot.lines for _, y in line.points]
    ceiling, step = scale(plot.top if plot.top is not None else max(values, default=1.0))
    last = max(len(plot.steps) - 1, 1)

    def at(x: float, y: float) -> tuple[str, str]:
        across = _LEFT + (WIDTH - _LEFT - _RIGHT) * (x / last if len(plot.steps) > 1 else 0.5)
        down = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(y / ceiling, 1.0)
        return _short(across), _short(down)

    head = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{plot.id}-t {plot.id}-d">'
        f'<title id="{plot.id}-t">{escape(plot.title)}</title><desc id="{plot.id}-d">{escape(plot.told)}</desc>'
    )
    parts = [head, *_grid(ceiling, step, plot.unit, at), *_below(plot.steps, at)]
    for line in plot.lines:
        parts += _line(line, at, one=len(plot.steps) == 1)
    parts += [_marker(marker, at) for marker in plot.markers]
    return "".join([*parts, "</svg>"])


def scale(most: float) -> tuple[float, float]:
    """(where an axis from 0 ends, how far its ticks are apart), in round numbers."""
    if most <= 0:
        return 1.0, 0.25
    rough = most / _TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * 0.999999)
    return step * math.ceil(most / step * 0.999999), step


def amount(value: float, unit: str = "") -> str:
    """A number in a few characters: 1.2M, 350k, $0.004."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{unit}{_few(value / size)}{letter}"
    return f"{unit}{_few(value)}"


def _few(value: float) -> str:
    digits = 3 - math.floor(math.log10(value)) if 0 < value < 100 else 0
    text = f"{value:.{max(digits - 1, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def thinned(points: Sequence[Point], most: int = _MOST) -> list[Point]:
    """At most about so many points, with the lowest and the highest of each stretch: no peak is lost."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / (most / 2))
    kept = list[Point]()
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _grid(ceiling: float, step: float, unit: str, at: _At) -> list[str]:
    parts = []
    for n in range(round(ceiling / step) + 1):
        _, y = at(0, n * step)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" y1="{y}" x2="{WIDTH - _RIGHT}" y2="{y}"/>'
            f'<text x="{_LEFT - 8}" y="{y}" dy="0.35em" text-anchor="end">{escape(amount(n * step, unit))}</text>'
        )
    return parts


def _below(steps: Sequence[str], at: _At) -> list[str]:
    """Labels of the x axis: the first, the last, and some between."""
    if not steps:
        return []
    every = max(math.ceil((len(steps) - 1) / _TICKS), 1)
    shown = [n for n in range(0, len(steps) - 1, every) if n <= len(steps) - 1 - every * 0.6] + [len(steps) - 1]
    return [
        f'<text x="{at(n, 0)[0]}" y="{HEIGHT - 12}" text-anchor="{"end" if n and n == len(steps) - 1 else "middle"}">'
        f"{escape(steps[n])}</text>"
        for n in shown
    ]


def _line(line: Series, at: _At, one: bool) -> list[str]:
    if not line.points:
        return []
    points = thinned(line.points)
    if one and line.stepped:
        path = f"M{_LEFT} {at(0, points[0][1])[1]}H{WIDTH - _RIGHT}"
    else:
        first, *rest = (at(*point) for point in points)
        drawn = (f"H{x}V{y}" if line.stepped else f"L{x} {y}" for x, y in rest)
        path = f"M{first[0]} {first[1]}{''.join(drawn)}"
    parts = [f'<path class="line {line.css}" d="{path}"/>']
    if not line.stepped and len(points) <= _DOTS:
        size = 4 if len(points) == 1 else 2.6
        parts += [f'<circle class="dot {line.css}" cx="{x}" cy="{y}" r="{size}"/>' for x, y in (at(*p) for p in points)]
    if line.name:
        _, y = at(*points[0])
        parts.append(f'<text class="name {line.css}" x="{_LEFT + 4}" y="{y}" dy="-0.4em">{escape(line.name)}</text>')
    return parts


def _marker(marker: Marker, at: _At) -> str:
    x, y = at(marker.x, marker.y)
    form = {
        "compact": f'<circle cx="{x}" cy="{y}" r="6"/>',
        "handoff": f'<path d="M{x} {y}m0 -8l8 8l-8 8l-8 -8z"/>',
    }.get(marker.kind, f'<rect x="{_short(float(x) - 4)}" y="{_short(float(y) - 4)}" width="8" height="8"/>')
    return f'<g class="mark {escape(marker.kind)}"><title>{escape(marker.told)}</title>{form}</g>'


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
