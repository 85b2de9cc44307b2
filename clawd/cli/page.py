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

_NOTHING = "–"
_PIPE = 10_000  # columns of what is not a terminal: nothing is cut there
_MOMENTS = frozenset(
    ("brought", "made", "expires", "last_inbound", "last_outbound", "opens", "received", "since", "ts", "updated")
)
COLOURS = {
    "error": "red",
    "warn": "yellow",
    "ok": "green",
    "failed": "red",
    "held": "yellow",
    "unknown": "yellow",
    "live": "green",
    "starting": "yellow",
    "degraded": "yellow",
    "dead": "red",
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


def give(
    value: Any, as_json: bool, columns: Sequence[str] = (), empty: str = "nothing", beneath: Sequence[str] = ()
) -> None:
    """Print a result: a list as a table of `columns`, an object as lines."""
    if as_json:
        write_json(value)
    elif isinstance(value, list):
        table(value, columns, empty, beneath)
    else:
        sys.stdout.write("\n".join(lines(value)) + "\n")


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str], empty: str, beneath: Sequence[str] = ()) -> None:
    """One row an object. Says `empty` on standard error when there is none.

    A terminal is narrow: there, columns in which nothing stands are left out, moments are short, and what a row has in
    a column of `beneath` follows on lines of its own."""
    if not rows:
        say(empty)
        return
    from rich.cells import cell_len
    from rich.padding import Padding
    from rich.text import Text

    narrow = sys.stdout.isatty()
    moment = when_shortly if narrow else when
    texts = [{column: (moment if column in _MOMENTS else cell)(row.get(column)) for column in columns} for row in rows]
    shown = list(columns)
    if narrow:
        said = {column for text in texts for column, word in text.items() if word not in ("", _NOTHING)}
        shown = [column for column in columns if column in said and column not in beneath]
    widths = {column: max(cell_len(column), *(cell_len(text[column]) for text in texts)) for column in shown}

    def line(words: dict[str, str], style: str = "") -> Text:
        padded = Text()
        for column in shown:
            word = words[column]
            padded.append(word, style=style or COLOURS.get(word, ""))
            padded.append(" " * (widths[column] - cell_len(word) + 2))
        padded.rstrip()
        return padded

    out = console()
    out.print(line({column: column.replace("_", " ") for column in shown}, "bold"))
    for text in texts:
        out.print(line(text), soft_wrap=True)
        for column in beneath:
            if column not in shown and text[column] not in ("", _NOTHING):
                out.print(Padding(Text(text[column], style="dim"), (0, 0, 0, 4)))


def when(time: str | None) -> str:
    """A moment of the contract in the machine's own time zone, to the second."""
    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M:%S}" if time else _NOTHING


def when_shortly(time: str | None) -> str:
    """The same as one says it: today by the clock alone."""
    day, _, clock = when(time).partition(" ")
    return clock if day == f"{datetime.now():%Y-%m-%d}" else f"{day} {clock[:5]}".rstrip()


def cell(value: Any) -> str:
    """A value in a few words, clean."""
    if value is None or value == []:
        return _NOTHING
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
