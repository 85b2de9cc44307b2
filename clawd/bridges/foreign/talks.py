"""Conversations of another claw as sessions of ours: who said what, when, with calls of tools beside their results.

Each block's META says its `source`, and of a message that is not surely the owner's, that it is a member's. The newest
messages of a long one are brought.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from clawd.arrivals.items import Item
from clawd.bridges.foreign.place import Place, shown, table, text_of
from clawd.clock import moment_of
from clawd.ids import Stems
from clawd.ledger.injected import NO_RESULT
from clawd.model import Block
from clawd.sessions.format import write_file
from clawd.sessions.reading import sound

BLOCKS = 20_000
BYTES = 32 << 20
SESSIONS = 1_000
_ID = 300  # characters


class Talks:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._items = list[Item]()
        self._stems = dict[str, Stems]()
        self._ids = set[tuple[str, str]]()

    def add(self, group: str, source: str, id: str, blocks: Sequence[Block], *said: str) -> None:
        """A session, which becomes `<claw>:<id>`. Nothing where it has no message."""
        claw, changed = self._place.brought.source, list(said)
        kept, unknown = _paired(blocks)
        if not kept:
            self._place.leave(source, "it has no messages")
            return
        if len(self._items) == SESSIONS:
            self._place.leave(source, f"more than {SESSIONS:,} conversations came before it")
            return
        if unknown:
            changed.append(f"{unknown} results of no known call are left out")
        if (newest := _bounded(kept)) < len(kept):
            changed.append(f"only the newest {newest:,} of {len(kept):,} messages are brought")
            kept = _paired(kept[-newest:])[0]
        id = self._named(group, f"{claw}:{_plain(id)}")
        kept = [replace(block, meta={"source": claw, **block.meta}) for block in kept]
        to = f"sessions/{self._stems.setdefault(group, Stems()).choose(id)}.md"
        self._items.append(Item("session", shown(source), to, {"": write_file(id, kept)}, group, tuple(changed)))

    def items(self) -> list[Item]:
        return sorted(self._items, key=lambda item: (item.group, item.to))

    def _named(self, group: str, id: str) -> str:
        name, n = id, 1
        while (group, name) in self._ids:
            n += 1
            name = f"{id}~{n}"
        self._ids.add((group, name))
        return name


def said(role: str, text: str, at: Any, *, name: str = "", owner: bool = True) -> Block:
    """A message. `at` is RFC 3339 (without a zone it is local), or seconds or milliseconds since the epoch."""
    meta: dict[str, Any] = {}
    if role == "user" and not owner:
        meta = {"from": "member"} | ({"name": shown(name)} if name else {})
    return Block(role, text_of(text), moment(at), meta=meta)


def called(text: str, at: Any, calls: Iterable[dict[str, Any]]) -> Block:
    """A message of the agent's that calls tools."""
    return Block("assistant", text_of(text), moment(at), tool_calls=tuple(calls))


def result(call: Any, text: str, at: Any) -> Block:
    """What a tool gave."""
    return Block("tool", text_of(text), moment(at), tool_call_id=text_of(call))


def call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """One call in the OpenAI shape; `arguments` are JSON already, or a value."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    function = {"name": text_of(name) or "unknown", "arguments": text_of(text)}
    return {"id": text_of(id), "type": "function", "function": function}


def moment(value: Any) -> datetime | None:
    """When it was; None where it does not say."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        except (ValueError, OverflowError, OSError):
            return None
    return moment_of(value) if isinstance(value, str) else None


def words(content: Any) -> str:
    """The text of a message's content: text itself, or parts of which one may be an image."""
    if not isinstance(content, list):
        return text_of(content)
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append(text_of(part))
        elif (kind := text_of(table(part).get("type"))) in ("text", "input_text", "output_text"):
            parts.append(text_of(part.get("text")))
        elif kind not in ("thinking", "reasoning", "toolCall", "tool_use", ""):
            parts.append(f"[{shown(kind)}]")
    return "\n\n".join(filter(None, parts))


def _paired(blocks: Iterable[Block]) -> tuple[list[Block], int]:
    """The same messages, each call beside its result, and those without one given none; how many results had no call.
    Messages without any words are left out."""
    said = [_with_ids(block, n) for n, block in enumerate(blocks) if block.role == "tool" or _says(block)]
    kept = sound(said, NO_RESULT)
    known = set(map(id, kept))
    return kept, sum(block.role == "tool" and id(block) not in known for block in said)


def _says(block: Block) -> bool:
    return bool(block.tool_calls or block.content.strip())


def _with_ids(block: Block, n: int) -> Block:
    """The block, each call of which has an id, and no two the same one."""
    calls = (one if one["id"] else {**one, "id": f"call_{n}_{k}"} for k, one in enumerate(block.tool_calls))
    return replace(block, tool_calls=tuple({one["id"]: one for one in calls}.values())) if block.tool_calls else block


def _bounded(blocks: Sequence[Block]) -> int:
    """How many of the last are not too much."""
    size = 0
    for n, block in enumerate(reversed(blocks)):
        size += len(block.content) + sum(len(one["function"]["arguments"]) for one in block.tool_calls) + 200
        if n == BLOCKS or size > BYTES:
            return n
    return len(blocks)


def _plain(id: str) -> str:
    """An id on one line that can be read, of at most 300 characters."""
    return "".join(each for each in text_of(id) if each.isprintable()).strip()[:_ID] or "chat"
