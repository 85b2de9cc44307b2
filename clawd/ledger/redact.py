"""Taking words out of a group's conversation: every row that holds text, but for what is still to be read as it was
said (messages that wait, questions to the owner that are open)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clawd.ledger.db import Row, Transaction

SLICE = 200  # rows that are read, and written, at a time: the writing thread is never held up for long

# What tells how a message is to be read, and no part of it.
STRUCTURE = frozenset(
    ("id", "kind", "origin", "role", "sender", "at", "name", "tool_call_id", "handle", "file", "stop_reason", "model")
)


@dataclass(frozen=True, slots=True)
class Place:
    """A table with text. `rows` says which of it are a group's; `plain` columns are text, `values` are JSON, in which
    what has a name of `structure` is no text."""

    table: str
    key: tuple[str, ...]
    rows: str
    plain: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    structure: frozenset[str] = STRUCTURE


_TURNS = "SELECT id FROM turn WHERE grp = ?"
_SESSIONS = "SELECT id FROM session WHERE grp = ?"
# Of what is held on to, and of manifests and journals.
_LEDGER = STRUCTURE | {
    *("schema", "schema_version", "manifest_id", "session_id", "parent_manifest_id", "group_id", "created_at", "by"),
    *("agent_id", "memory_namespace", "profile", "trigger", "action", "policy", "ts", "event", "sha256", "class"),
    "memory_refs",
}
PLACES = (
    # What the owner told us, and we them, beside any turn may be about any group.
    Place(
        "inbound",
        ("seq",),
        "(grp = ? OR kind = 'command') AND state NOT IN ('received', 'held')",
        ("reason",),
        ("parts",),
    ),
    Place(
        "wake",
        ("id",),
        f"id IN (SELECT wake FROM turn_wake WHERE turn IN ({_TURNS} AND state NOT IN ('queued', 'held')))",
        ("why",),
        ("text",),
    ),
    # The newest step of a turn that lives may be posted once more, and must be the same then.
    Place(
        "step",
        ("turn", "n"),
        f"turn IN ({_TURNS}) AND NOT EXISTS (SELECT 1 FROM turn t WHERE t.id = step.turn AND t.state = 'claimed'"
        " AND step.n = (SELECT MAX(n) FROM step s WHERE s.turn = t.id))",
        values=("message",),
    ),
    Place("effect", ("id",), f"turn IN ({_TURNS})", values=("result",)),
    Place("turn", ("id",), "grp = ?", ("error",), ("final",)),
    Place(
        "delivery",
        ("id",),
        "(turn IS NULL OR session IN (SELECT id FROM session WHERE grp = ?))",
        ("text", "error"),
        ("buttons",),
    ),
    Place("job", ("id",), "grp = ?", ("prompt",), ("answer",)),
    Place("question", ("id",), "grp = ? AND state <> 'open'", ("text", "note"), ("choices",)),
    Place(
        "approval",
        ("id",),
        "grp = ? AND state NOT IN ('open', 'approved', 'executing') AND kind NOT IN ('group', 'bind')",
        ("words", "result"),
        ("effect",),
    ),
    Place("noted", ("id",), f"turn IN ({_TURNS})", values=("notes",)),
    Place("pinned", ("id",), f"session IN ({_SESSIONS})", ("text",)),
    Place("compaction", ("id",), f"session IN ({_SESSIONS})", ("text", "error"), ("ledger",), _LEDGER),
    Place("context", ("rowid",), "grp = ?", ("goal",), ("manifest", "seed", "refused"), _LEDGER),
    Place("journal", ("id",), f"session IN ({_SESSIONS})", values=("line",), structure=_LEDGER),
    Place("play", ("rowid",), f"session IN ({_SESSIONS})", values=("script",)),
    # By its key a block is known in the session's file.
    Place("injected", ("id",), "grp = ?", values=("blocks",), structure=STRUCTURE | {"key"}),
)


Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Of one row: by column what it was and what it is to be."""

    key: Key
    columns: dict[str, tuple[str, str]]


def read(tx: Transaction, place: Place, group: str, after: Key | None) -> tuple[list[Row], Key | None]:
    """One slice of a table behind the key `after`, and the key to go on behind, None at the end."""
    keys = ", ".join(place.key)
    rows = tx.all(
        f"SELECT {keys}, {', '.join((*place.plain, *place.values))} FROM {place.table}"
        f" WHERE ({keys}) > ({', '.join('?' for _ in place.key)}) AND {place.rows} ORDER BY {keys} LIMIT {SLICE}",
        *(after or (-1,) * len(place.key)),
        group,
    )
    return rows, _key(rows[-1], place) if len(rows) == SLICE else None


def changes(
    place: Place, rows: list[Row], text: Callable[[str], str], value: Callable[[Any, frozenset[str]], Any]
) -> list[Change]:
    """What becomes of the rows when their texts, and the texts in their values, are such. Pure."""
    found = []
    for row in rows:
        new = {name: (row[name], text(row[name])) for name in place.plain if row[name]}
        new |= {
            name: (row[name], _value(row[name], place.structure, text, value)) for name in place.values if row[name]
        }
        if new := {name: each for name, each in new.items() if each[0] != each[1]}:
            found.append(Change(_key(row, place), new))
    return found


def write(tx: Transaction, place: Place, made: list[Change]) -> int:
    """Those that are still as they were read; gives how many that are."""
    count = 0
    for each in made:
        sets = ", ".join(f"{name} = ?" for name in each.columns)
        where = " AND ".join(f"{name} = ?" for name in (*place.key, *each.columns))
        old, new = zip(*each.columns.values(), strict=True)
        count += tx.execute(f"UPDATE {place.table} SET {sets} WHERE {where}", *new, *each.key, *old).rowcount
    return count


def _key(row: Row, place: Place) -> Key:
    return tuple(row[name] for name in place.key)


def _value(
    held: str,
    structure: frozenset[str],
    text: Callable[[str], str],
    value: Callable[[Any, frozenset[str]], Any],
) -> str:
    """The JSON as it was where nothing of it changes. What is none (the answer of a job) is text."""
    try:
        old = json.loads(held)
    except ValueError:
        return text(held)
    new = value(old, structure)
    return held if new == old else json.dumps(new, ensure_ascii=False)
