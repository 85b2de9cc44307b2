"""What an experiment found: the same script played on several memory backends, as data and as a page. Pure, but for
looking into the memory of a home that was played in.

Recall here: a script's *facts* are the texts that it gives `memory_write`, its *queries* what it asks `memory_search`
for later on. A fact is found when one of the queries behind it, asked of the memory as it is at the end, gives it among
the first `K`. Recall is the share of facts that are found; null where a script has no facts, or no queries behind them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from clawd.lifecycle.page import head_of
from clawd.text import made_visible

K = 3  # hits of a query among which a fact counts as found
SCHEMA = 1
_COLUMNS = (
    ("backend", "Backend"), ("completed", "Completed"), ("steps", "Steps"), ("peak", "Largest window"),
    ("cumulative", "Tokens in all"), ("compactions", "Compactions"), ("recall", "Facts found"),
    ("compaction_recall", "Compactions' recall"), ("interventions", "Interventions"), ("wall_s", "Seconds"),
    ("note", "Note"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """What a script keeps, and what it asks for after that."""

    text: str
    queries: Sequence[str]


def facts_of(steps: Sequence[Mapping[str, Any]]) -> list[Fact]:
    """The facts of a script, in the order in which it keeps them."""
    calls = [call for step in steps for call in step.get("tool_calls") or () if isinstance(call, Mapping)]
    found = []
    for at, call in enumerate(calls):
        text = _argument(call, "memory_write", "content")
        if text:
            later = (_argument(each, "memory_search", "query") for each in calls[at + 1 :])
            found.append(Fact(text, [query for query in later if query]))
    return found


def _argument(call: Mapping[str, Any], tool: str, name: str) -> str:
    value = (call.get("arguments") or {}).get(name) if call.get("name") == tool else None
    return value if isinstance(value, str) else ""


def recall(facts: Sequence[Fact], search: Callable[[str], Sequence[str]]) -> float | None:
    """The share of the facts that are found. `search` gives the texts of the best hits."""
    queries = {query for fact in facts for query in fact.queries}
    if not queries:
        return None
    hits = {query: [_plain(text) for text in search(query)] for query in queries}
    found = [any(_plain(fact.text) in text for query in fact.queries for text in hits[query]) for fact in facts]
    return round(sum(found) / len(found), 4)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def seed_of(sha256: str) -> int:
    """A number that is the same for the same script. Nothing here is drawn by chance; it names the sessions."""
    return int(sha256[:8], 16)


def report(sha256: str, script: str, backends: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """{schema, script, script_sha256, seed, k, backends: {name: {completed, steps, tokens{peak, cumulative},
    compactions, recall, compaction_recall, interventions, wall_s, note?}}}"""
    return {
        "schema": SCHEMA,
        "script": script,
        "script_sha256": sha256,
        "seed": seed_of(sha256),
        "k": K,
        "backends": {name: dict(found) for name, found in backends.items()},
    }


def json_of(found: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(found, indent=1, allow_nan=False)}\n".encode()


def rows_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A flat row a backend."""
    return [
        {
            "backend": name,
            **{key: value for key, value in each.items() if key != "tokens"},
            **(each.get("tokens") or {}),
        }
        for name, each in found["backends"].items()
    ]


def page_of(found: Mapping[str, Any]) -> bytes:
    """One page that opens offline: everything in it is escaped, and it runs and loads nothing."""
    shown = [(key, head) for key, head in _COLUMNS if any(row.get(key) is not None for row in rows_of(found))]
    heads = "".join(f"<th>{escape(head)}</th>" for _, head in shown)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(row.get(key))}</td>" for key, _ in shown) + "</tr>\n" for row in rows_of(found)
    )
    told = (
        f"The same script, {found['script']}, on each backend (sha256 {found['script_sha256']}, seed {found['seed']})."
        f" Facts found: of what the script keeps, the share that one of its later searches gives among the first"
        f" {found['k']}. Interventions: handovers, questions and errors."
    )
    return "\n".join(
        (
            head_of("Memory backends"),
            '<header>\n<p class="kind">An experiment</p>\n<h1>Memory backends</h1>',
            f'<p class="facts">{_text(told)}</p>\n</header>\n<main>',
            f'<section class="rows wide"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>',
            "</table></section>",
            "</main>\n</body>\n</html>\n",
        )
    ).encode("utf-8", "replace")


def _text(value: Any) -> str:
    return escape(made_visible(str(value)))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _text(f"{value:,}" if isinstance(value, int) else value)
