"""What a command prints: JSON for programs, a table or lines for people (colour only on a terminal)."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from clawd.cli.clean import clean

if TYPE_CHECKING:
    from rich.console import Console

_PIPE = 10_000  # columns of what is not a terminal: nothing is cut there
_MOMENTS = frozenset(("received", "since", "updated"))
_COLOURS = {
    "error": "red",
    "warn": "yellow",
    "ok": "green",
    "failed": "red",
    "held": "yellow",
    "unknown": "yellow",
}


def settled(value: Any) -> Any:
    """The value, awaited where it must be."""
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def console(*, stderr: bool = False) -> Console:
    """Where styled text goes. It never interprets what is printed as markup."""
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else _PIPE
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False, soft_wrap=width is not None)


def write_json(value: Any) -> None:
    """One object or array. ASCII, so that no text in it can act on a terminal."""
    sys.stdout.write(json.dumps(value, indent=2 if sys.stdout.isatty() else None) + "\n")


def say(sentence: str) -> None:
    """A sentence beside the result: on standard error."""
    sys.stderr.write(clean(sentence) + "\n")
    sys.stderr.flush()


def give(value: Any, as_json: bool, columns: Sequence[str] = (), empty: str = "nothing") -> None:
    """Print a result: a list as a table of `columns`, an object as lines."""
    if as_json:
        write_json(value)
    elif isinstance(value, list):
        table(value, columns, empty)
    else:
        sys.stdout.write("\n".join(lines(value)) + "\n")


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str], empty: str) -> None:
    """One row an object. Says `empty` on standard error when there is none."""
    if not rows:
        say(empty)
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        words = [(when if column in _MOMENTS else cell)(row.get(column)) for column in columns]
        grid.add_row(*(Text(word, style=_COLOURS.get(word, "")) for word in words))
    console().print(grid)


def when(time: str | None) -> str:
    """A moment of the contract in the machine's own time zone, to the second."""
    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M:%S}" if time else "–"


def cell(value: Any) -> str:
    """A value in a few words, clean."""
    if value is None or value == []:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    if isinstance(value, dict):
        return " ".join(f"{clean(str(key))}={cell(each)}" for key, each in value.items())
    return clean(str(value))


def lines(value: dict[str, Any], indent: str = "") -> list[str]:
    """An object as `key  value` lines; lists of objects beneath their key."""
    width = max((len(key) for key in value), default=0)
    result = []
    for key, each in value.items():
        if isinstance(each, list) and each and isinstance(each[0], dict):
            result.append(f"{indent}{clean(key)}")
            result += [f"{indent}  {cell(item)}" for item in each]
        else:
            text = cell(each).replace("\n", "\n" + indent + " " * (width + 2))
            result.append(f"{indent}{clean(key):<{width}}  {text}")
    return result
