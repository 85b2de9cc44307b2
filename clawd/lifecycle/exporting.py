"""What is known of a session's context, as others read it: CSV for a spreadsheet, JSON for a program, and a page
(`page.py`). Pure: from the bytes of `<stem>.metrics.jsonl`, `.decisions.jsonl` and `.state.json` to those of files.

Every line that can be read is a row of each format, in the order of the file. What cannot be read is counted, never
guessed; a last line that was torn by a crash is no fault. An unknown price is an empty cell, and null; never 0.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from clawd.lifecycle.journal import NO_LINES, Line, Lines

Format = Literal["csv", "json", "html"]
FORMATS: tuple[Format, ...] = ("csv", "json", "html")

SCHEMA = 1
_COST = ("input_cost_usd", "output_cost_usd", "total_cost_usd")
METRICS = (
    *("seq", "ts", "session_id", "step_index", "event", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("window_tokens", "total_tokens", "latency_ms", *_COST, "estimated", "agent_id", "memory_namespace"),
    *("method", "recall"),
)
DECISIONS = (
    *("seq", "ts", "session_id", "step_index", "action", "trigger", "total_tokens", "soft", "hard", "estimated"),
    *("policy", "recall", "confirm_required", "confirm_granted", "confirm_by", "reason", *_COST),
)
# A spreadsheet takes what begins so for a formula. https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Account:
    """All that is exported of one session. `state` is None where its state.json is missing or cannot be read."""

    session: str
    group: str
    state: Mapping[str, Any] | None = None
    metrics: Lines = NO_LINES
    decisions: Lines = NO_LINES


def files_of(account: Account, format: Format) -> dict[str, bytes]:
    """name → bytes of what an export in this format is."""
    if format == "csv":
        return {
            "metrics.csv": csv_of(account.metrics.rows, METRICS),
            "decisions.csv": csv_of(account.decisions.rows, DECISIONS),
        }
    if format == "json":
        return {"context.json": json_of(account)}
    from clawd.lifecycle.page import page_of

    return {"context.html": page_of(account).encode("utf-8", "replace")}


def notes_of(account: Account) -> list[str]:
    """A sentence for everything that an export leaves out."""
    told = [
        f"{found.unreadable:,} {'line' if found.unreadable == 1 else 'lines'} of {name}.jsonl cannot be read"
        for name, found in (("metrics", account.metrics), ("decisions", account.decisions))
        if found.unreadable
    ]
    return told if account.state is not None else [*told, "its state.json is missing, or cannot be read"]


def json_of(account: Account) -> bytes:
    """{schema, session, group, state|null, metrics[], decisions[], unreadable{metrics, decisions}}. ASCII: no text in
    it can act on whatever shows it."""
    whole = {
        "schema": SCHEMA,
        "session": account.session,
        "group": account.group,
        "state": account.state,
        "metrics": list(account.metrics.rows),
        "decisions": list(account.decisions.rows),
        "unreadable": {"metrics": account.metrics.unreadable, "decisions": account.decisions.unreadable},
    }
    return f"{json.dumps(whole, indent=1, allow_nan=False)}\n".encode()


def csv_of(rows: Iterable[Line], known: Sequence[str]) -> bytes:
    """RFC 4180, in UTF-8, a header first: the known columns in their order, then what else the rows have, sorted."""
    flat = [flattened(row) for row in rows]
    columns = columns_of(flat, known)
    out = io.StringIO(newline="")
    write = csv.writer(out).writerow
    write([_cell(column) for column in columns])
    for row in flat:
        write([_cell(row.get(column)) for column in columns])
    return out.getvalue().encode("utf-8", "replace")


def flattened(row: Line) -> Line:
    """The same with objects in it laid open: `confirm: {by}` is `confirm_by`."""
    flat: Line = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}_{key}": each for key, each in value.items()}
        else:
            flat[name] = value
    return flat


def columns_of(flat: Iterable[Line], known: Sequence[str]) -> list[str]:
    """The known columns, and after them, sorted, those that the rows have beside: but for what was an object in other
    rows and is null here."""
    more = {name for row in flat for name, value in row.items() if value is not None} - set(known)
    return [*known, *sorted(more)]


def number(value: Any) -> str | None:
    """A number in digits as they stand in JSON, without an exponent; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return str(value) if isinstance(value, int) else format(Decimal(repr(value)), "f")


def word(value: Any) -> str:
    """Any value in words."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    digits = number(value)
    if digits is not None:
        return digits
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cell(value: Any) -> str:
    """A cell of CSV; a text that a spreadsheet would run begins with an apostrophe."""
    text = word(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text
