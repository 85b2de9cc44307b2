"""The memory of a group on the owner's word. Looking works on the files and the index, whether a daemon runs or not;
what changes anything is the same behind the control socket and under the home's lock.

Functions that give JSON-ready data under the contract's names.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from clawd import scopes
from clawd.clock import SystemClock, moment_of, rfc3339
from clawd.commands.looking import check_group
from clawd.config.home import Home
from clawd.config.load import load_config, load_group, merged
from clawd.errors import UsageError
from clawd.gateway.audit import since
from clawd.ledger import recalled
from clawd.ledger.db import peek
from clawd.ledger.groups import GroupRow
from clawd.memory import admission, consolidate, text
from clawd.memory.protocol import Voice
from clawd.memory.record import ID, PREFIXES, MemoryRecord
from clawd.memory.store import OWNER, GroupMemory, Written
from clawd.turns.memory import Memories
from clawd.turns.tending import Tending

Shown = dict[str, Any]
Params = dict[str, Any]
_HIT = ("id", "kind", "score", "text", "source", "origin", "trust", "status", "event_time", "file")
STATUSES = ("active", "proposed", "quarantined", "superseded")


def is_id(said: str) -> bool:
    """Whether it can be a memory's id."""
    return ID.fullmatch(said) is not None or said.startswith(("fact:", "day:", "file:"))


def opened(home: Home, group: str, backend: str | None = None) -> GroupMemory:
    """The memory of a group, as its config has it, or with another backend. Raises NotFound, ConfigError."""
    check_group(home, group)
    table = merged(load_config(home, dict(os.environ)), load_group(home, group)).memory
    root = home.group(group).memory
    return GroupMemory(
        root, home.state, group, SystemClock(), backend=backend or table.backend, floor=table.floor, mem0=table.mem0
    )  # fmt: skip


# ── looking ──


def searched(
    memory: GroupMemory, query: str, *, k: int, kind: str | None = None, after: str | None = None,
    untrusted: bool = False, explain: bool = False, namespace: str | None = None,
) -> Shown:  # fmt: skip
    """{lanes[], hits[{id, kind, score, text, source, origin, trust, status, event_time, file}]}, with `explain` the
    parts of each score, too. Raises UsageError."""
    moment = None if after is None else since(after, datetime.now(UTC)) or moment_of(_instant(after))
    kinds = frozenset({kind} if kind else ())
    hits, lanes = memory.find(
        query, OWNER, k=k, kinds=kinds, since=moment.timestamp() if moment else None, untrusted=untrusted,
        spaces=_spaces(namespace),
    )  # fmt: skip
    rows = []
    for hit in hits:
        row = {**shown(memory, hit.record), "score": round(hit.score, 4), "text": hit.text, "trust": hit.trust}
        parts = {"parts": {name: round(part, 4) for name, part in hit.parts.items()}} if explain else {}
        rows.append({name: row[name] for name in _HIT} | parts)
    return {"lanes": list(lanes), "hits": rows}


def listed(memory: GroupMemory, kind: str | None, statuses: Sequence[str], namespace: str | None = None) -> list[Shown]:
    """Every memory in one of `statuses`, and in a namespace where that is said, the newest last."""
    found, spaces = memory.every(kind=kind, statuses=frozenset(statuses) or frozenset({"active"})), _spaces(namespace)
    return [shown(memory, each) for each in found if spaces is None or each.namespace in spaces]


def _spaces(namespace: str | None) -> list[str] | None:
    """Raises UsageError."""
    return None if namespace is None else [scopes.namespace(namespace)]


def pending(memory: GroupMemory) -> list[Shown]:
    """What waits for the owner's word, the oldest first, each with `why` it waits."""
    return [{**shown(memory, each), "why": why_it_waits(each, memory.floor)} for each in memory.pending()]


def why(home: Home, memory: GroupMemory, id: str) -> Shown:
    """{id, source, origin, trust, status, lineage[], shown_in[], history[]}. Raises NotFound."""
    known = memory.why(id)
    shown_in = peek(home.ledger_file, lambda tx: recalled.shown_in(tx, memory.group, id)) or []
    return {**known, "shown_in": [dict(row) for row in shown_in]}


def shown(memory: GroupMemory, record: MemoryRecord) -> Shown:
    """One memory with all that is known of it."""
    said = {"quote": record.said.quote, "inbound": record.said.inbound} if record.said else None
    return {
        "id": record.id,
        "kind": record.kind,
        "status": record.status,
        "trust": record.trust,
        "origin": record.origin.value,
        "source": record.source,
        "event_time": rfc3339(record.event_time),
        "created": rfc3339(record.created),
        "updated": rfc3339(record.updated),
        "taint": record.taint,
        "private": record.private,
        "key": record.key or None,
        "namespace": record.namespace or None,
        "tags": list(record.tags),
        "derived_from": list(record.derived_from),
        "supersedes": record.supersedes,
        "said": said,
        "file": _file(memory, record),
        "text": record.text,
    }


def digest(said: str) -> str:
    """By which an approval knows that a text is the one that was shown."""
    return text.digest(said)


def why_it_waits(record: MemoryRecord, floor: float) -> str:
    """What a proposal waits for, as a sentence's end."""
    if record.supersedes:
        return f"it would stand in the place of {record.supersedes}"
    voice = Voice(record.origin, taint=record.taint)
    waits = admission.admitted(record.kind, voice, cited=record.said is not None, floor=floor).why
    return waits or f"it is trusted at {record.trust:g} only"


def _file(memory: GroupMemory, record: MemoryRecord) -> str | None:
    return str(memory.root / record.file) if record.file else None


def _instant(said: str) -> str:
    """A time as a person writes it, as RFC 3339; without an offset it is what clocks show here. Raises UsageError."""
    try:
        return datetime.fromisoformat(said).astimezone().isoformat()
    except ValueError:
        raise UsageError(
            f"{said!a} is no time", hint="write it like 2026-12-01, 2026-12-01T09:00 or 2026-12-01T09:00:00+01:00"
        ) from None


# ── changing ──


class MemoryOperations:
    """`group` finds the group, makes it where it may, or raises NotFound."""

    def __init__(self, memories: Memories, tending: Tending, group: Callable[[str], Awaitable[GroupRow]]) -> None:
        self._memories, self._tending, self._group = memories, tending, group

    def table(self) -> dict[str, Callable[[Params], Awaitable[Shown]]]:
        done = {name: partial(self._do, operation) for name, operation in _DONE.items()}
        return {**done, **{name: partial(operation, self) for name, operation in _OWN.items()}}

    async def _do(self, operation: Callable[[GroupMemory, Params], Shown], params: Params) -> Shown:
        group = await self._named(params)
        return {"group": group, **await self._memories.do(group, lambda memory: operation(memory, params))}

    async def delete(self, params: Params) -> Shown:
        """{group, id, also[], sessions, rows, left[]}: what was derived from it alone goes with it, and their texts
        leave so many files and rows of conversations; `left` are sentences on what keeps them."""
        group, id = await self._named(params), _id(params)
        also, done = await self._memories.forget(group, id, OWNER)
        return {"group": group, "id": id, "also": also, "sessions": done.sessions, "rows": done.rows, "left": done.left}

    async def consolidate(self, params: Params) -> Shown:
        """{group, changed, actions[{action: merge|supersede|summarise|conflict, ids, into, why}]}: with `dry_run` what
        would be done, and nothing is changed."""
        group, dry = await self._named(params), bool(params.get("dry_run"))
        steps = await self._tending.consolidate(group, dry_run=dry)
        return {
            "group": group,
            "changed": 0 if dry else consolidate.changed(steps),
            "actions": [step.shown() for step in steps],
        }

    async def reflect(self, params: Params) -> Shown:
        """{group, reflections[{id, status, text, turn}]}: of one turn, or of those that nobody looked at yet. Raises
        NotFound, UsageError."""
        group, turn = await self._named(params), params.get("turn")
        if turn is not None and not isinstance(turn, int):
            raise UsageError("turn is the number of a turn")
        found = await self._tending.reflect(group, turn)
        return {"group": group, "reflections": [each.shown() for each in found]}

    async def _named(self, params: Params) -> str:
        return (await self._group(str(params.get("group") or "main"))).name


def _wrote(memory: GroupMemory, params: Params) -> Shown:
    content, kind = str(params.get("text") or ""), str(params.get("kind") or "episode")
    if not content.strip():
        raise UsageError("say what is to be kept: clawd memory write TEXT, or - for standard input")
    if kind not in PREFIXES:
        raise UsageError(f"{kind!a} is no kind of memory; there are {', '.join(sorted(PREFIXES))}")
    if (kind == "fact") is not bool(params.get("key")):
        raise UsageError("a fact has a key, and nothing else has: --kind fact --key KEY")
    given = {name: params[name] for name in ("key", "tags", "supersedes", "derived_from") if params.get(name)}
    if params.get("event_time"):
        given["event_time"] = _instant(str(params["event_time"]))
    space = scopes.namespace(params["namespace"]) if params.get("namespace") else ""
    return _written(memory, memory.put(content, kind, given, replace(OWNER, namespace=space)))


def _updated(memory: GroupMemory, params: Params) -> Shown:
    content = str(params.get("text") or "")
    if not content.strip():
        raise UsageError("say what it is to be; clawd memory delete forgets it")
    return _written(memory, memory.change(_id(params), content, OWNER))


def _written(memory: GroupMemory, written: Written) -> Shown:
    record = memory.get(written.id)
    waits = {} if written.status == "active" else {"why": written.why, "conflicts": written.conflicts}
    return {**shown(memory, record), **waits, "status": written.status}


def _rejected(memory: GroupMemory, params: Params) -> Shown:
    memory.reject(_id(params))
    return {"id": params["id"], "status": "rejected"}


def _id(params: Params) -> str:
    id = params.get("id")
    if not isinstance(id, str) or not id:
        raise UsageError("id is missing")
    return id


_DONE: dict[str, Callable[[GroupMemory, Params], Shown]] = {
    "memory.write": _wrote,
    "memory.update": _updated,
    "memory.approve": lambda of, params: shown(of, of.approve(_id(params), sha256=params.get("sha256"))),
    "memory.reject": _rejected,
    "memory.quarantine": lambda of, params: shown(of, of.quarantine(_id(params))),
    "memory.trust": lambda of, params: shown(of, of.trust(Path(str(params.get("file") or "")))),
    "memory.reindex": lambda of, params: {"documents": of.reindex()},
}
_OWN = {
    "memory.delete": MemoryOperations.delete,
    "memory.consolidate": MemoryOperations.consolidate,
    "memory.reflect": MemoryOperations.reflect,
}
OPERATIONS = (*_DONE, *_OWN)
