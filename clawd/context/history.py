"""The session's file as messages for a model: what stands there now, a person's edits included, never more than fits.

It begins with a user's message, and each call has its result next to it; what else an API asks for is seen to by
whoever sends it. The same file gives the same bytes, and one that grew the same beginning for as long as it fits: the
cut moves by a quarter of what fits, not with each turn.

A user's block says who spoke in META: `from` (an origin's word; the owner where it is missing), `name`, `kind`. What
was brought in from elsewhere (`source`) nobody saw the owner say: it is shown as a `hand`'s, or as less. What another
program put in is always shown as what was said by that, whatever its role: its answers are not the agent's, and its
calls were never ours.
What memory gave before something of it was forgotten is left out: it may hold that.

What was read of a session is kept in memory, so that a turn costs what came to the file since the last one; it is
good only as long as the file still begins with the same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clawd.clock import rfc3339
from clawd.context.fence import Fences, fenced, line
from clawd.context.memories import FORGOTTEN, outdated
from clawd.context.parts import compact
from clawd.model import Block
from clawd.sessions.format import MARKER_LINE, parse
from clawd.sessions.reading import is_external, read_from, sound, tail
from clawd.trust import TRUST, Origin

BYTES = 400_000
EARLIER = "The conversation began earlier; what came before this is left out here."
SHORTENED = "The last turn was too long to be shown whole: this is how it began and how it ended."
_BLOCKS = 1 << 20
_LONGEST_TURN = 64 << 20  # bytes of a file that are looked through for the beginning of its last turn
_KEPT_BYTES = 4 << 20  # of all sessions' files in memory

# Of what was brought in only these say who spoke: they are worth no more than a person's hand, which is the rest.
_BELOW = frozenset(str(each) for each in Origin if TRUST[each] < TRUST[Origin.HAND])

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """A user's message and what followed it; the first of a file may lack the former. `size` is that of its JSON."""

    messages: list[Message]
    size: int
    begun: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    how: tuple[str, str | None]  # zone, forgot
    start: int
    data: bytes
    turns: list[Turn]


class Histories:
    """The histories of all sessions. Calls block, and may come from any thread."""

    def __init__(self, fences: Fences) -> None:
        self._fences = fences
        self._kept: dict[Path, _Kept] = {}  # the one that was used last at the end
        self._lock = threading.Lock()

    def of(
        self, path: Path, zone: str, limit: int = BYTES, without: Collection[int] = (), forgot: str | None = None
    ) -> list[Message]:
        """{role: user|assistant|tool, content, tool_calls?, tool_call_id?} of the file's last turns, at most `limit`
        bytes and the notes on what is left out; `without` are turns that the model is shown in another way, `forgot`
        when something of the group's memory was forgotten last. Raises UnsafePath for a file that is a link."""
        try:
            size = path.stat().st_size
        except OSError:
            return []
        step = max(1, limit // 4)
        start = max(0, -(-(size - limit) // step)) * step
        data, cut, shortened, how = read_from(path, start), start > 0, False, (zone, forgot)
        fresh = bool(without)
        turns = self._rendered(_blocks(data, start), how, without) if fresh else self._turns(path, how, start, data)
        if cut and turns and not turns[0].begun:  # a piece of a turn is none
            turns = turns[1:]
        while (over := sum(turn.size for turn in turns) > limit) and len(turns) > 1:
            turns, cut = turns[1:], True
        if over or (cut and not turns):
            groups = _grouped(tail(path, _BLOCKS, _LONGEST_TURN), without)
            last = [block for group in groups[-1:] for block in _shortened(group, limit)]
            turns, shortened, cut = self._rendered(last, how), bool(last), cut or len(groups) > 1
        messages = [message for turn in turns for message in turn.messages]
        if shortened:
            messages.insert(0, self._note(SHORTENED, zone))
        if messages and (cut or messages[0]["role"] != "user"):
            messages.insert(0, self._note(EARLIER, zone))
        return messages

    def _turns(self, path: Path, how: tuple[str, str | None], start: int, data: bytes) -> list[Turn]:
        with self._lock:
            kept = self._kept.pop(path, None)
        turns = None
        if kept is not None and (kept.how, kept.start) == (how, start) and data.startswith(kept.data):
            more = _appended(data[len(kept.data) :])
            turns = None if more is None else kept.turns + self._rendered(more, how)
        if turns is None:
            turns = self._rendered(_blocks(data, start), how)
        with self._lock:
            self._kept[path] = _Kept(how, start, data, turns)
            while len(self._kept) > 1 and sum(len(each.data) for each in self._kept.values()) > _KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
        return turns

    def _rendered(
        self, blocks: Iterable[Block], how: tuple[str, str | None], without: Collection[int] = ()
    ) -> list[Turn]:
        turns, (zone, forgot) = [], how
        for group in _grouped(blocks, without):
            old = outdated(((block.tool_calls, block.tool_call_id, block.at) for block in group), forgot)
            messages = [
                message if not is_old else {**message, "content": FORGOTTEN}
                for block, is_old in zip(group, old, strict=True)
                if (message := self._message(block, zone)) is not None
            ]
            size = len(compact(messages).encode("utf-8", "replace"))
            turns.append(Turn(messages, size, group[0].role == "user"))
        return turns

    def _message(self, block: Block, zone: str) -> Message | None:
        if block.role == "tool":
            return {"role": "tool", "tool_call_id": block.tool_call_id, "content": block.content}
        if block.role != "assistant":
            return self._said(block, zone)
        if block.tool_calls:
            return {"role": "assistant", "content": block.content, "tool_calls": list(block.tool_calls)}
        return {"role": "assistant", "content": block.content} if block.content.strip() else None

    def _said(self, block: Block, zone: str) -> Message:
        """A user's block, or a note, in the fence of its turn. A note that came from elsewhere is none of ours."""
        user, turn = block.role == "user", block.meta.get("turn")
        fence = self._fences.of_turn(turn) if type(turn) is int else self._fences.of_text(block.content)
        at = None if block.at is None else rfc3339(block.at)
        meta = {name: value for name, value in block.meta.items() if isinstance(value, str)}
        kind, role = (meta.get("kind", "message"), meta.get("from", "owner")) if user else ("note", "system")
        if "source" in meta:  # brought in from elsewhere: we did not see who said it
            role = meta["from"] if user and meta.get("from") in _BELOW else "hand"
        said = line(kind, role, meta.get("name") if user else None, at, block.content, zone)
        return {"role": "user", "content": fenced(fence, [said])}

    def _note(self, text: str, zone: str) -> Message:
        return self._said(Block("system", text), zone)


def _blocks(data: bytes, start: int) -> list[Block]:
    """The blocks of a file from `start` on, or of all of it."""
    first = MARKER_LINE.search(data, data.find(b"\n") + 1 if start else 0)
    return parse(data[first.start() :], whole=False).blocks if first else []


def _appended(data: bytes) -> list[Block] | None:
    """The blocks that were written behind others; None when they cannot be understood without those."""
    first = MARKER_LINE.search(data)
    if first is None or data[: first.start()].strip():
        return None if data.strip() else []
    blocks = [_foreign(block) for block in parse(data[first.start() :], whole=False).blocks]
    called = {call.get("id") for block in blocks for call in block.tool_calls}
    apart = all(block.role != "tool" or block.tool_call_id in called for block in blocks)
    return blocks if apart and blocks[0].role == "user" else None


def _grouped(blocks: Iterable[Block], without: Collection[int]) -> list[list[Block]]:
    """Sound blocks, from each user's block to the next."""
    groups: list[list[Block]] = []
    kept = [_foreign(block) for block in blocks if block.meta.get("turn") not in without]
    for block in sound([block if block.role == "assistant" else replace(block, tool_calls=()) for block in kept]):
        if block.role == "user" or not groups:
            groups.append([])
        groups[-1].append(block)
    return groups


def _foreign(block: Block) -> Block:
    """A block of another program as something that was said to us; ours as it is."""
    if not is_external(block) or block.role == "user":
        return block
    calls = [_call(call) for call in block.tool_calls]
    result = [f"[result of {block.tool_call_id}]"] if block.role == "tool" else []
    text = "\n".join(filter(None, [*result, block.content, *calls]))
    return replace(
        block, role="user", content=text, tool_calls=(), tool_call_id=None, meta=block.meta | {"kind": block.role}
    )


def _call(call: dict[str, Any]) -> str:
    function = call.get("function")
    function = function if isinstance(function, dict) else call
    return f"[call {call.get('id')}: {function.get('name')} {function.get('arguments')}]"


def _shortened(turn: Sequence[Block], limit: int) -> list[Block]:
    """The first and the last thing that was said in a turn, each cut in the middle."""
    said = [block for block in turn if block.role != "tool" and not block.tool_calls and block.content.strip()]
    return [replace(block, content=_clipped(block.content, limit // 32)) for block in [*said[:1], *said[1:][-1:]]]


def _clipped(text: str, most: int) -> str:
    left = len(text) - most
    return text if left <= 0 else f"{text[: most // 2]}\n[… {left} characters …]\n{text[-(most // 2) :]}"
