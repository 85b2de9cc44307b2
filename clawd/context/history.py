"""The session's file as messages for a model: what stands there now, a person's edits included, never more than fits.

What is given is always what an API accepts: it begins with a user's message, each call has an id of its own and its
result next to it, nothing is empty. The same file gives the same bytes, and one that grew the same beginning for as
long as it fits: the cut moves by a quarter of what fits, not with each turn.

A user's block says who spoke in META: `from` (an origin's word; the owner where it is missing), `name`, `kind`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from clawd.clock import rfc3339
from clawd.context.fence import Fences, fenced, line
from clawd.context.parts import compact
from clawd.model import Block
from clawd.sessions.reading import sound, tail

BYTES = 400_000
EARLIER = "The conversation began earlier; what came before this is left out here."
SHORTENED = "The last turn was too long to be shown whole: this is how it began and how it ended."
_BLOCKS = 1 << 20
_LONGEST_TURN = 64 << 20  # bytes of a file that are looked through for the beginning of its last turn
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BAD_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")

Message = dict[str, Any]
Turn = list[Block]  # it begins with a user's block, but for the first of a file that has none there


def history(path: Path, fences: Fences, zone: str, limit: int = BYTES, without: Collection[int] = ()) -> list[Message]:
    """{role: user|assistant|tool, content, tool_calls?, tool_call_id?} of the file's last turns, at most `limit` bytes
    and the notes on what is left out; `without` are turns that the model is shown in another way. Raises UnsafePath for
    a file that is a link."""
    try:
        size = path.stat().st_size
    except OSError:
        return []
    step = max(1, limit // 4)
    start = max(0, -(-(size - limit) // step)) * step
    cut = start > 0
    turns = _turns(tail(path, _BLOCKS, size - start), without)
    if cut and turns and turns[0][0].role != "user":  # a piece of a turn is none
        turns = turns[1:]
    shortened = False
    if cut and not turns and (last := _turns(tail(path, _BLOCKS, _LONGEST_TURN), without)[-1:]):
        turns, shortened = [_shortened(last[0], limit)], True
    sizes = [len(compact(_messages([turn], fences, zone)).encode("utf-8", "replace")) for turn in turns]
    while (over := sum(sizes) > limit) and len(turns) > 1:
        turns, sizes, cut = turns[1:], sizes[1:], True
    if over and not shortened:
        turns, shortened = [_shortened(turns[0], limit)], True
    messages = _messages(turns, fences, zone)
    if shortened:
        messages.insert(0, _note(SHORTENED, fences, zone))
    if messages and (cut or messages[0]["role"] != "user"):
        messages.insert(0, _note(EARLIER, fences, zone))
    return messages


def _turns(blocks: Iterable[Block], without: Collection[int]) -> list[Turn]:
    turns: list[Turn] = []
    for block in sound([block for block in blocks if block.meta.get("turn") not in without]):
        if block.role == "user" or not turns:
            turns.append([])
        turns[-1].append(block)
    return turns


def _shortened(turn: Turn, limit: int) -> Turn:
    """The first and the last thing that was said in a turn, each cut in the middle."""
    said = [block for block in turn if block.role != "tool" and not block.tool_calls and block.content.strip()]
    return [replace(block, content=_clipped(block.content, limit // 32)) for block in [*said[:1], *said[1:][-1:]]]


def _clipped(text: str, most: int) -> str:
    left = len(text) - most
    return text if left <= 0 else f"{text[: most // 2]}\n[… {left} characters …]\n{text[-(most // 2) :]}"


def _messages(turns: Iterable[Turn], fences: Fences, zone: str) -> list[Message]:
    messages: list[Message] = []
    ids: dict[str, str] = {}  # of the newest calls: as the file has them → as they are sent
    used: set[str] = set()
    for block in (block for turn in turns for block in turn):
        if block.role == "tool":
            known = ids.pop(block.tool_call_id or "", None)
            if known is not None:
                messages.append({"role": "tool", "tool_call_id": known, "content": block.content})
        elif block.role == "assistant":
            said = block.content if block.content.strip() else ""
            if block.tool_calls:
                once = {str(call["id"]): call for call in block.tool_calls}
                ids = {id: _id(id, used) for id in once}
                calls = [_call(call, ids[id]) for id, call in once.items()]
                messages.append({"role": "assistant", "content": said, "tool_calls": calls})
            elif said:
                messages.append({"role": "assistant", "content": said})
        else:
            messages.append(_said(block, fences, zone))
    return messages


def _id(id: str, used: set[str]) -> str:
    """The id of a call as every API takes it, and once in a conversation."""
    own, n = id, 0
    while own in used or not _CALL_ID.fullmatch(own):
        own = f"call_{hashlib.sha256(f'{n} {id}'.encode('utf-8', 'replace')).hexdigest()[:24]}"
        n += 1
    used.add(own)
    return own


def _call(call: dict[str, Any], id: str) -> dict[str, Any]:
    """A call as it was made. What a person's edit left of it is mended: a name that no tool can have, arguments that
    are no object."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", "{}")
    try:
        whole = isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError, RecursionError):
        whole = False
    if not whole:
        arguments = compact(arguments if isinstance(arguments, dict) else {"arguments": arguments})
    name = _BAD_IN_NAME.sub("_", str(function.get("name") or "unknown"))[:64]
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _said(block: Block, fences: Fences, zone: str) -> Message:
    """A user's block, or a note of ours, in the fence of its turn."""
    user, turn = block.role == "user", block.meta.get("turn")
    fence = fences.of_turn(turn) if type(turn) is int else fences.of_text(block.content)
    at = None if block.at is None else rfc3339(block.at)
    meta = {name: value for name, value in block.meta.items() if isinstance(value, str)}
    kind, role = (meta.get("kind", "message"), meta.get("from", "owner")) if user else ("note", "system")
    return {
        "role": "user",
        "content": fenced(fence, [line(kind, role, meta.get("name") if user else None, at, block.content, zone)]),
    }


def _note(text: str, fences: Fences, zone: str) -> Message:
    return _said(Block("system", text), fences, zone)
