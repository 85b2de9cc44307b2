"""A conversation from elsewhere becomes one of the group: in the file of its id, or behind what came of it before.

It goes on from where it was: what is there already must be how it begins. Where both went on by themselves since, it is
left. Its text is trusted less than the owner's, and so is each turn of its session from then on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from clawd import faults
from clawd.arrivals.account import Entry
from clawd.arrivals.rooms import TRUST, Done, Rooms
from clawd.clock import rfc3339
from clawd.errors import UsageError
from clawd.ids import check_session_id
from clawd.ledger import groups
from clawd.model import Block
from clawd.sessions import reading
from clawd.sessions.file import SessionFile
from clawd.sessions.format import parse
from clawd.trust import Origin

_OURS = frozenset(
    ("turn", "n", "note", "key", "session", "base", "kind", "compact", "handoff")
)  # META by which our own blocks are known
_OVERLAP = 3  # messages by which it is sure that one conversation goes on where the other ends
_Said = tuple[str, str, str, str | None]
_ORIGINS = frozenset(each.value for each in Origin) - {Origin.SYSTEM.value}


async def session(rooms: Rooms, group: str, source: str, entry: Entry, files: Mapping[str, bytes]) -> Done:
    """Raises UsageError, Refused, StorageError."""
    read = await to_thread.run_sync(parse, files[""])
    if read.session is None or not read.blocks:
        raise UsageError("it has no messages" if read.session is not None else "it does not say which session it is")
    id = check_session_id(read.session)
    blocks = [_marked(block, f"{source}:{entry.source}") for block in read.blocks]
    row = await rooms.ledger.do(lambda tx: groups.open_session(tx, id, group, rfc3339(rooms.clock.now())))
    path = rooms.home.group(group).sessions / f"{row.stem}.md"
    mark = f"{source}:{hashlib.sha256(files['']).hexdigest()[:16]}"
    async with rooms.alone(row.id):
        new, why = await to_thread.run_sync(_following, path, mark, blocks, entry.parts)
        if new:
            await rooms.ledger.do(lambda tx: groups.distrust(tx, row.id, TRUST))
            faults.passing("arriving")
            await to_thread.run_sync(lambda: SessionFile(path, row.id).append(new, mark, True))
    parts = dict(entry.parts) if why else {"messages": str(len(blocks)), "digest": _digest(blocks)}
    return Done(f"sessions/{row.stem}.md", bool(new), why, parts)


def _following(path: Path, mark: str, blocks: list[Block], parts: Mapping[str, str]) -> tuple[list[Block], str]:
    """Which blocks are new, or why it is left. What an earlier try wrote of just these counts as not there."""
    # Notes of either program between what was said are no part of the conversation.
    places = [n for n, block in enumerate(blocks) if block.role != "system"]
    said = [_said(blocks[n]) for n in places]
    every = reading.load(path).blocks
    if said and _shared(_talk(every), said) == len(said):
        return [], ""
    there = [block for block in every if block.meta.get("turn") != mark]
    if not there:
        return blocks, ""
    shared = _shared(_talk(there), said)
    if shared is not None:
        return [] if shared == len(said) else blocks[places[shared - 1] + 1 if shared else 0 :], ""
    count = int(parts.get("messages", "0"))
    source = blocks[0].meta["source"]
    grew = 0 < count <= len(blocks) and _digest(blocks[:count]) == parts.get("digest")
    if grew and all(block.meta.get("source") == source for block in there):
        return blocks[count:], ""  # a person changed it here, or something of it was forgotten
    if not parts:
        return [], "there is a conversation of that id here, which is another one"
    return [], "the conversation went on here and there in different ways"


def _shared(known: Sequence[_Said], said: Sequence[_Said]) -> int | None:
    """How many of what was said there, its first, are known here; None where it is another conversation. PythonClaw
    keeps the last messages of a long one alone."""
    if said[: len(known)] == known:
        return len(known)
    if any(known[at : at + len(said)] == said for at in range(len(known) - len(said) + 1)):
        return len(said)
    most = min(len(known), len(said))
    return next((n for n in range(most, _OVERLAP - 1, -1) if known[-n:] == said[:n]), None)


def _talk(blocks: Sequence[Block]) -> list[_Said]:
    return [_said(block) for block in blocks if block.role != "system"]


def _marked(block: Block, source: str) -> Block:
    meta = {key: value for key, value in block.meta.items() if key not in _OURS}
    if "from" in meta and meta["from"] not in _ORIGINS:
        meta["from"] = Origin.EXTERNAL.value
    return replace(block, meta=meta | {"source": source})


def _said(block: Block) -> _Said:
    return block.role, block.content, json.dumps(block.tool_calls, sort_keys=True), block.tool_call_id


def _digest(blocks: Sequence[Block]) -> str:
    text = json.dumps([_said(each) for each in blocks])
    return hashlib.sha256(text.encode()).hexdigest()
