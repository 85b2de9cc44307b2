"""The session's file as messages for a model: what stands there now, a person's edits included, never more than fits.

It begins with a user's message, and each call has its result next to it; what else an API asks for is seen to by
whoever sends it. The same file gives the same bytes, and one that grew the same beginning for as long as it fits: the
cut moves by a quarter of what fits, not with each turn.

A user's block says who spoke in META: `from` (an origin's word; the owner where it is missing), `name`, `kind`. What
was brought in from elsewhere (`source`) nobody saw the owner say: it is shown as a `hand`'s, or as less. What another
program put in is always shown as what was said by that, whatever its role: its answers are not the agent's, and its
calls were never ours.
What memory gave before something of it was forgotten is left out: it may hold that.

A compaction's block stands for what came before its cut, and comes first; so does the manifest that a session began
with. Which blocks are compactions the ledger says, never the file: what was put in, brought in or copied stands for
nothing. The file says what they say: a person may have edited one, or taken it out, and then the one before it holds.

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
from clawd.ledger.contexts import AS_IT_IS, Compacted, Standing
from clawd.lifecycle import masking
from clawd.lifecycle.compaction import is_ours, mark_of, turn_of
from clawd.model import Block
from clawd.sessions.format import MARKER_LINE, parse
from clawd.sessions.reading import is_external, markers, read_from, sound, tail
from clawd.trust import TRUST, Origin

BYTES = 400_000
EARLIER = "The conversation began earlier; what came before this is left out here."
SHORTENED = "The last turn was too long to be shown whole: this is how it began and how it ended."
_BLOCKS = 1 << 20
_LONGEST_TURN = 64 << 20  # bytes of a file that are looked through for the beginning of its last turn
_KEPT_BYTES = 4 << 20  # of all sessions' files in memory
_WIDER = 8  # times what fits is read of a file in which tool output is left out
_BLOCK_BYTES = 1 << 20  # of a compaction's block, with what a person made of it
_PLACES = 256  # of compactions that were looked for

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
class Front:
    """What comes first of a session: `block` stands for all of its file before the byte `start`, at this `trust`. Of
    the turns up to `masked` tool output is left out, by the compaction `by`. `known` are all that the ledger has."""

    block: Block | None = None
    trust: float = 1.0
    start: int = 0
    masked: int | None = None
    by: int | None = None
    known: frozenset[int] = frozenset()
    seeded: bool = False


_How = tuple[str, str | None, Front]  # zone, forgot


@dataclass(frozen=True, slots=True)
class _Kept:
    how: _How
    start: int
    data: bytes
    turns: list[Turn]


class Histories:
    """The histories of all sessions. Calls block, and may come from any thread."""

    def __init__(self, fences: Fences) -> None:
        self._fences = fences
        self._kept: dict[Path, _Kept] = {}  # the one that was used last at the end
        self._places: dict[tuple[Path, int], tuple[int, int]] = {}  # where the ledger's hints do not lead any more
        self._lock = threading.Lock()

    def of(
        self,
        path: Path,
        zone: str,
        limit: int = BYTES,
        without: Collection[int] = (),
        forgot: str | None = None,
        standing: Standing = AS_IT_IS,
    ) -> list[Message]:
        """{role: user|assistant|tool, content, tool_calls?, tool_call_id?} of the file's last turns, at most `limit`
        bytes and the notes on what is left out; `without` are turns that the model is shown in another way, `forgot`
        when something of the group's memory was forgotten last. Raises UnsafePath for a file that is a link."""
        return self.shown(path, self.front(path, standing), zone, limit, without, forgot)

    def shown(
        self,
        path: Path,
        front: Front,
        zone: str,
        limit: int = BYTES,
        without: Collection[int] = (),
        forgot: str | None = None,
    ) -> list[Message]:
        """The same behind a given front."""
        try:
            size = path.stat().st_size
        except OSError:
            return []
        step, fixed = max(1, limit // 4), front.block is not None or front.masked is not None
        room = limit * _WIDER if fixed else limit
        start = front.start + max(0, -(-(size - front.start - room) // step)) * step
        data, cut, shortened, how = read_from(path, start), start > front.start, False, (zone, forgot, front)
        fresh = bool(without)
        turns = self._rendered(_blocks(data, start), how, without) if fresh else self._turns(path, how, start, data)
        if cut and turns and not turns[0].begun:  # a piece of a turn is none
            turns = turns[1:]
        over = sum(turn.size for turn in turns) - limit
        drop = -(-over // step) * step if fixed else over
        while drop > 0 and len(turns) > 1:
            drop, turns, cut = drop - turns[0].size, turns[1:], True
        over = sum(turn.size for turn in turns) > limit
        if over or (cut and not turns):
            groups = _grouped(tail(path, _BLOCKS, _LONGEST_TURN), without)
            last = [block for group in groups[-1:] for block in _shortened(group, limit)]
            turns, shortened, cut = self._rendered(last, how), bool(last), cut or len(groups) > 1
        messages = [message for turn in turns for message in turn.messages]
        if shortened:
            messages.insert(0, self._note(SHORTENED, zone))
        if messages and (cut or (front.block is None and messages[0]["role"] != "user")):
            messages.insert(0, self._note(EARLIER, zone))
        if front.block is not None:
            messages.insert(0, self._stands(front.block, front.trust, zone))
        return messages

    @staticmethod
    def reach(limit: int) -> int:
        """How many bytes of a file are read for `limit` that are shown."""
        return limit * _WIDER

    def front(self, path: Path, standing: Standing) -> Front:
        """What comes first of a session's file as it stands. Raises UnsafePath for a file that is a link."""
        known = frozenset(each.id for each in standing.compactions)
        masked = by = None
        scanned = False
        for each in standing.compactions:
            if not each.written or (each.upto is None and by is not None):
                continue
            found = _placed(path, each, *self._places.get((path, each.id), (each.starts, each.kept)))
            if found is None and not scanned:
                scanned = True
                self._scan(path, standing.compactions)
            if found is None and (hints := self._places.get((path, each.id))) is not None:
                found = _placed(path, each, *hints)
            if found is None:
                continue
            block, start = found
            if by is None and each.masked is not None:
                masked, by = each.masked, each.id
            if each.upto is not None:
                return Front(block, min(each.trust, _stated(block)), start, masked, by, known, standing.seeded)
        if standing.seeded and (seed := _seed(path)) is not None:
            return Front(seed[0], _stated(seed[0]), seed[1], masked, by, known, True)
        return Front(masked=masked, by=by, known=known, seeded=standing.seeded)

    def _scan(self, path: Path, compactions: Sequence[Compacted]) -> None:
        """Look for compactions in a file that somebody changed. It is read once, line by line."""
        wanted = {each.id: each.upto for each in compactions if each.written}
        starts: dict[int, int] = {}
        kept: dict[int, int] = {}
        behind = sorted((upto, id) for id, upto in wanted.items() if upto is not None)
        for at, block in markers(path):
            if (mark := mark_of(block)) is not None and mark.id in wanted:
                starts[mark.id] = at
            elif (turn := turn_of(block)) is not None:
                while behind and behind[0][0] < turn:
                    kept[behind.pop(0)[1]] = at
        with self._lock:
            for id in wanted:
                self._places.pop((path, id), None)
                if id in starts:
                    self._places[path, id] = starts[id], min(kept.get(id, starts[id]), starts[id])
            while len(self._places) > _PLACES:
                del self._places[next(iter(self._places))]

    def _turns(self, path: Path, how: _How, start: int, data: bytes) -> list[Turn]:
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

    def _rendered(self, blocks: Iterable[Block], how: _How, without: Collection[int] = ()) -> list[Turn]:
        turns, (zone, forgot, front) = [], how
        for group in _grouped(blocks, without):
            old = outdated(((block.tool_calls, block.tool_call_id, block.at) for block in group), forgot)
            messages = [
                message if not is_old else {**message, "content": FORGOTTEN}
                for block, is_old in zip(group, old, strict=True)
                if (message := self._message(block, zone, front)) is not None
            ]
            size = len(compact(messages).encode("utf-8", "replace"))
            turns.append(Turn(messages, size, group[0].role == "user"))
        return turns

    def _message(self, block: Block, zone: str, front: Front) -> Message | None:
        if block.role == "tool":
            hidden = masking.is_masked(block, front.masked)
            content = masking.placeholder(block, front.by) if hidden else block.content
            return {"role": "tool", "tool_call_id": block.tool_call_id, "content": content}
        if (mark := mark_of(block)) is not None and mark.id in front.known:
            return None  # it came first, or another did
        if front.seeded and front.block is not None and "handoff" in block.meta and is_ours(block):
            return None
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
        if not user and {"compact", "handoff"} & block.meta.keys():  # what the ledger does not know stands for nothing
            role = "hand"
        if "source" in meta:  # brought in from elsewhere: we did not see who said it
            role = meta["from"] if user and meta.get("from") in _BELOW else "hand"
        said = line(kind, role, meta.get("name") if user else None, at, block.content, zone)
        return {"role": "user", "content": fenced(fence, [said])}

    def _stands(self, block: Block, trust: float, zone: str) -> Message:
        """What stands for what came before: the agent's own words, and no more than its trust."""
        kind = "handoff" if "handoff" in block.meta else "compaction"
        at = None if block.at is None else rfc3339(block.at)
        said = line(kind, str(Origin.AGENT), None, at, block.content, zone)
        said = {**{name: said[name] for name in ("kind", "from")}, "trust": round(trust, 3), **said}
        return {"role": "user", "content": fenced(self._fences.of_text(block.content), [said])}

    def _note(self, text: str, zone: str) -> Message:
        return self._said(Block("system", text), zone)


def _placed(path: Path, of: Compacted, starts: int | None, kept: int | None) -> tuple[Block, int] | None:
    """The block of a compaction and where what it keeps begins, if they are at these places."""
    if starts is None or (of.upto is not None and kept is None):
        return None
    block = _block_at(path, starts)
    mark = None if block is None else mark_of(block)
    if block is None or mark is None or mark.id != of.id:
        return None
    if of.upto is None or kept is None:
        return block, 0
    if kept != starts:
        first = next(markers(path, kept), None)
        if first is None or first[0] != kept or (turn := turn_of(first[1])) is None or turn <= of.upto:
            return None
    return block, kept


def _block_at(path: Path, at: int) -> Block | None:
    data = read_from(path, at, _BLOCK_BYTES)
    data = data[1:] if at else data
    places = [match.start() for _, match in zip(range(2), MARKER_LINE.finditer(data), strict=False)]
    if not places or places[0] != 0:
        return None
    return parse(data[: places[1] if len(places) > 1 else None], whole=False).blocks[0]


def _seed(path: Path) -> tuple[Block, int] | None:
    """The manifest that a file begins with, and where it ends."""
    places = [at for _, (at, _) in zip(range(2), markers(path), strict=False)]
    block = _block_at(path, places[0]) if places else None
    if block is None or "handoff" not in block.meta or not is_ours(block):
        return None
    return block, places[1] if len(places) > 1 else path.stat().st_size


def _stated(block: Block) -> float:
    """The trust that a compaction's or a manifest's block names."""
    said = block.meta.get("compact", block.meta.get("handoff"))
    trust = said.get("trust") if isinstance(said, dict) else None
    return float(trust) if isinstance(trust, int | float) and 0 <= trust <= 1 else 0.0


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
