"""Where a value stands in a TOML text, so that an error can name the line. Pure; a near miss gives the
table's line."""

from __future__ import annotations

import re

_TABLE = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, location: tuple[str, ...]) -> int | None:
    """The line, from 1, of the longest beginning of `location` that the text names; list indexes count
    `[[tables]]`."""
    best: tuple[int, int] = (0, 0)
    table: tuple[str, ...] = ()
    seen: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if header := _TABLE.match(line):
            table = _parts(header[2])
            if header[1] == "[[":
                seen[table] = seen.get(table, -1) + 1
                table = (*table, str(seen[table]))
            found = table
        elif key := _KEY.match(line):
            found = (*table, *_parts(key[1]))
        else:
            continue
        if location[: len(found)] == found and len(found) > best[0]:
            best = (len(found), number)
    return best[1] or None


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
