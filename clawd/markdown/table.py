"""Tables as text of fixed width."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from clawd.text import units

WIDEST = 80  # of a table whose columns are aligned; a wider one is read better without
_BETWEEN = re.compile(r"(?<!\\)\|")
_MARGIN = re.compile(r"[ \t>]*")
_MARKER = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+")


def is_ruler(line: str) -> bool:
    """Whether it may be the line below a table's head."""
    return "-" in line and "|" in line and not line.strip(" \t\r\n>|:-")


def cells(line: str, *, first: bool = False) -> list[str]:
    """The cells of a row as they stand, without the margin of what the table is in; `first`: there may be a list's
    marker before it."""
    margin = (_MARKER.match(line) if first else None) or _MARGIN.match(line)
    row = line[margin.end() if margin else 0 :].strip()
    row = row.removeprefix("|")
    if row.endswith("|") and not row.endswith("\\|"):
        row = row[:-1]
    return [cell.strip() for cell in _BETWEEN.split(row)]


def width(cell: str) -> int:
    """Columns of a screen, and never less than its units."""
    if cell.isascii():
        return len(cell)
    return max(units(cell), sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in cell))


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of each column, the widest cell."""
    columns = [0] * max(map(len, rows))
    for row in rows:
        for n, cell in enumerate(row):
            columns[n] = max(columns[n], width(cell))
    return columns


def total(columns: Sequence[int]) -> int:
    return sum(columns) + 3 * (len(columns) - 1)


def laid_out(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first one the head, as lines: aligned, or with bars alone where that is too wide."""
    columns = widths(rows)
    if total(columns) > WIDEST:
        return "\n".join(" | ".join(row) for row in rows)
    lines = [" | ".join(cell + " " * (columns[n] - width(cell)) for n, cell in enumerate(row)).rstrip() for row in rows]
    return "\n".join([lines[0], "-+-".join("-" * each for each in columns), *lines[1:]])
