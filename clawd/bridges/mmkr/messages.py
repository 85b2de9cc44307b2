"""What an agent did, as messages of a session: each call followed by its result, each tick begun by a user's message.
Pure; in memory is what waits for a result, and of the last two ticks what tells two equal things apart.

Keys. Everything has a key that follows from what it is: the tick, the kind and the words, and which of several equal
ones in the tick it is. So a live recorder, the same one started again, and a trace that was converted later give the
same thing the same key, and whoever keeps keys keeps it once. A tick's start is known by its number alone, because a
trace says less about it than a recorder. Where a trace's ticks begin again at a lower number, its agent was begun anew,
and that is part of its keys. What keys cannot tell: that an agent which was killed did the very same thing again in
the same tick, after a new start of the recorder.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from clawd.bridges.mmkr.events import GENERAL
from clawd.model import Block

NO_RESULT = "[no result was recorded]"
NO_CALL = "[the call of {tool} was not recorded]"
LATE = "[the result of an earlier call of {tool}]"
UNNAMED = "unnamed"
_WAITING = 1000  # pieces that wait behind a call; then they go before it
_OPEN = 1000  # calls that wait; then the first one is told to have no result
_COUNTED = 100_000  # different things of one tick that are told apart at a time


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages that belong side by side: one, or a call and its result. `key` names the first, and `result_key` a
    call's result, which is "" where none is known."""

    key: str
    blocks: tuple[Block, ...]
    result_key: str = ""

    def late(self) -> Piece:
        """The result alone, for a session in which its call stands already without one: it needs a call of its own."""
        call, result = self.blocks
        made = {**call.tool_calls[0], "id": f"{call.tool_calls[0]['id']}_late"}
        words, key = LATE.format(tool=made["function"]["name"]), digest("late", self.key)
        again = replace(call, content=words, tool_calls=(made,), meta={**call.meta, "key": key})
        return Piece(key, (again, replace(result, tool_call_id=made["id"])), self.result_key)


@dataclass(frozen=True, slots=True)
class Kept:
    """Something to remember. `topic`: a durable fact that replaces what was kept under it."""

    key: str
    content: str
    at: datetime | None
    category: str = GENERAL
    importance: float = 0.5
    topic: str = ""


@dataclass(slots=True, eq=False)
class _Call:
    """A call on its way: it waits for its result, or has one."""

    key: str
    tool: str
    block: Block
    own_id: str = ""
    stand_in: str = ""
    failed: bool = False
    result: Block | None = None

    def piece(self) -> Piece:
        """With its result; else with what the call itself said of it, or that nothing is known."""
        if self.result is not None:
            return Piece(self.key, (self.block, self.result), str(self.result.meta["key"]))
        content = self.stand_in or NO_RESULT
        if self.stand_in and self.failed:
            content = f"ERROR: {content}"
        call, meta = self.block.tool_calls[0]["id"], _meta(digest("none", self.key))
        result = Block("tool", content, self.block.at, tool_call_id=call, meta=meta)
        return Piece(self.key, (self.block, result))


class Telling:
    """The messages of one agent, in the order in which it did things. Each method gives the message that it adds;
    `ready` and `kept` give what can be written."""

    def __init__(self) -> None:
        self._numbering = _Numbering()
        self._queue: deque[Piece | _Call] = deque()
        self._open: list[_Call] = []
        self._kept: deque[Kept] = deque()
        self._begun: _Place | None = None
        self.ticks = self.calls = self.messages = 0

    def start(self, tick: int | None, at: datetime | None, content: str) -> Block:
        """A tick begins: what is still open of the one before has no result."""
        self._enter(tick, begins=True)
        self.close()
        key = self._numbering.key("start")
        self._begun = self._numbering.place
        return self._add(key, Block("user", content, at))

    def call(
        self,
        tick: int | None,
        at: datetime | None,
        tool: str,
        args: str,
        content: str = "",
        *,
        own_id: str = "",
        stand_in: str = "",
        failed: bool = False,
        phase: str = "",
    ) -> Block:
        """A call; `args` is JSON text of an object. `stand_in` is what it says of its own result."""
        self._within(tick, at)
        tool = tool or UNNAMED
        key = self._numbering.key("call", tool, _canonical(args))
        function = {"name": tool, "arguments": args}
        block = Block(
            "assistant",
            content or f"Calling {tool}",
            at,
            tool_calls=({"id": f"call_{key}", "type": "function", "function": function},),
            meta=_meta(key, phase),
        )
        self._wait(_Call(key, tool, block, own_id, stand_in, failed))
        self.calls += 1
        self.messages += 2
        return block

    def result(
        self, tick: int | None, at: datetime | None, tool: str, content: str, *, own_id: str = "", phase: str = ""
    ) -> Block:
        """The result of the first open call of this id, else of this tool; of no call, it gets one that says so."""
        self._within(tick, at)
        call = self._call_of(tool, own_id)
        if call is None:
            tool = tool or UNNAMED
            key = self._numbering.key("result", tool, content)
            made = {"id": f"call_{key}", "type": "function", "function": {"name": tool, "arguments": "{}"}}
            block = Block("assistant", NO_CALL.format(tool=tool), at, tool_calls=(made,), meta=_meta(key, phase))
            call = _Call(key, tool, block)
            self._queue.append(call)
            self.messages += 2
        else:
            self._open.remove(call)
            if call.stand_in:  # it is no result any more, but still what the trace says
                call.block = replace(call.block, content=f"{call.block.content}\nOutcome: {call.stand_in}")
        key = digest("result", call.key)
        call.result = Block("tool", content, at, tool_call_id=call.block.tool_calls[0]["id"], meta=_meta(key, phase))
        return call.result

    def end(self, tick: int | None, at: datetime | None, content: str, summary: str) -> Block:
        """A tick ends; it is known by its summary, because a trace says less about the rest than a recorder."""
        self._within(tick, at)
        self.close()
        return self._add(self._numbering.key("end", summary), Block("assistant", content, at))

    def note(
        self, tick: int | None, at: datetime | None, kind: str, content: str, role: str = "assistant", phase: str = ""
    ) -> Block:
        """Anything else that was said or done."""
        if role == "user":
            self._enter(tick)
            self._begun = self._numbering.place
        else:
            self._within(tick, at)
        return self._add(self._numbering.key(kind, content), Block(role, content, at), phase)

    def keep(
        self, tick: int | None, at: datetime | None, content: str, category: str, importance: float, topic: str = ""
    ) -> Kept:
        """Something to remember; it is no message."""
        self._enter(tick)
        key = self._numbering.key("memory", topic or category, content)
        kept = Kept(key, content, at, category, importance, topic)
        self._kept.append(kept)
        return kept

    def close(self) -> None:
        """No open call will get a result any more."""
        self._open.clear()

    def ready(self) -> Iterator[Piece]:
        """What is whole, in order, each once. What follows an open call waits for it; where that is too much, it goes
        first."""
        waiting = deque[Piece | _Call]()
        too_much = len(self._queue) > _WAITING
        while self._queue:
            first = self._queue.popleft()
            if isinstance(first, _Call):
                if first in self._open:
                    waiting.append(first)
                    if too_much:
                        continue
                    break
                first = first.piece()
            yield first
        self._queue.extendleft(reversed(waiting))

    def kept(self) -> Iterator[Kept]:
        """What is to be remembered, each once."""
        while self._kept:
            yield self._kept.popleft()

    def _enter(self, tick: int | None, begins: bool = False) -> None:
        if self._numbering.enter(tick, begins):
            self.ticks += 1
            self.close()

    def _within(self, tick: int | None, at: datetime | None) -> None:
        """A tick that nobody began begins with our own words."""
        self._enter(tick)
        if tick is not None and self._begun != self._numbering.place and not self._numbering.straggling:
            self.start(tick, at, opening(tick))

    def _add(self, key: str, block: Block, phase: str = "") -> Block:
        block = replace(block, meta=_meta(key, phase))
        self._queue.append(Piece(key, (block,)))
        self.messages += 1
        return block

    def _wait(self, call: _Call) -> None:
        self._queue.append(call)
        self._open.append(call)
        if len(self._open) > _OPEN:
            del self._open[0]

    def _call_of(self, tool: str, own_id: str) -> _Call | None:
        named = (call for call in self._open if own_id and call.own_id == own_id)
        alike = (call for call in self._open if not tool or call.tool == tool)
        return next(named, None) or next(alike, None)


_Place = tuple[int, int | None]  # how often the agent was begun anew, and the tick


class _Numbering:
    """Keys, and how far the ticks have come."""

    def __init__(self) -> None:
        self.place: _Place | None = None
        self._last: _Place | None = None
        self._counts: dict[_Place, dict[str, int]] = {}

    @property
    def straggling(self) -> bool:
        """Whether this is something of the tick before, said late."""
        return self.place != self._last

    def enter(self, tick: int | None, begins: bool) -> bool:
        """Go to a tick; gives whether it is a new one. A lower number than the last is that of an agent begun anew,
        unless it is the tick before, which does not begin."""
        run, last = self._last or (1, None)
        if (run, tick) in self._counts and not (begins and (run, tick) != self._last):
            self.place = (run, tick)
            return False
        if last is not None and (tick is None or tick < last):
            run += 1
        self._counts = {at: counts for at, counts in self._counts.items() if at == self._last and at[0] == run}
        self.place = self._last = (run, tick)
        self._counts[self.place] = {}
        return True

    def key(self, *what: str) -> str:
        """16 hex digits that name this thing, the n-th of its kind in the tick."""
        assert self.place is not None
        counts = self._counts[self.place]
        if len(counts) > _COUNTED:
            part = counts.get("", 1) + 1
            counts.clear()
            counts[""] = part
        thing = digest(*map(str, self.place), str(counts.get("", 1)), *what)
        counts[thing] = n = counts.get(thing, 0) + 1
        return digest(thing, str(n))


def opening(tick: int | None) -> str:
    """The words with which mmkr begins a tick."""
    return f"Tick {'–' if tick is None else tick} — observe, think, act."


def digest(*words: str) -> str:
    """16 hex digits of some words, the same for ever."""
    data = json.dumps(words).encode()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _canonical(args: str) -> str:
    """The same for the same arguments, however they were written."""
    try:
        return json.dumps(json.loads(args), sort_keys=True)
    except (ValueError, RecursionError):
        return args


def _meta(key: str, phase: str = "") -> dict[str, Any]:
    return {"key": key, "phase": phase} if phase else {"key": key}
