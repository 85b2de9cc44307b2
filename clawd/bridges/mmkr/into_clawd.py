"""Into a clawd home: messages and memories of another program, of the group whose `external` names the session, through
the daemon where one runs, else under the home's lock; many in one call. What the home finds wrong is left and told, and
holds up nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

from clawd.bridges.client import Client, Entry, Message
from clawd.bridges.mmkr.messages import Kept, Piece
from clawd.bridges.mmkr.targets import Written, fact_key
from clawd.clock import rfc3339
from clawd.config.home import Home, group_folders
from clawd.errors import ConfigError, UsageError
from clawd.ids import matches, session_stem
from clawd.model import Block

SPACE = "mmkr"  # of the keys
_SILENT = "[nothing]"
_MOST, _LARGEST = 100, 8 << 20  # things, and characters, of one call
T = TypeVar("T", Piece, Kept)


class ClawdTarget:
    def __init__(self, home: Home, session: str, group: str | None = None) -> None:
        self._home, self._session, self._group = home, session, group
        self._client = Client(home.root, group)

    @property
    def session_file(self) -> Path:
        from clawd.sessions.names import session_of

        sessions = self._home.group(self._folder()).sessions
        plain, own = (sessions / f"{session_stem(self._session, taken)}.md" for taken in (False, True))
        held = session_of(plain)
        return own if held is not None and held != self._session else plain

    @property
    def memory_dir(self) -> Path:
        return self._home.group(self._folder()).memory

    def write(self, pieces: Sequence[Piece]) -> Written:
        written = Written()

        def inject(some: Sequence[Piece]) -> None:
            # A call that was told to have no result has another key than the same call with one: if the result comes
            # after all, both are told.
            said = [([*map(_message, each.blocks)], f"{SPACE}:{each.result_key or each.key}") for each in some]
            for (messages, _), answer in zip(said, self._client.inject_many(self._session, said), strict=True):
                self._group = answer["group"]
                _count(written, answer, len(messages))

        for some in _portions(pieces, lambda each: sum(map(_length, each.blocks))):
            _each_that_can(some, inject, lambda each: f"a message of {each.blocks[0].role}", written)
        return written

    def keep(self, memories: Sequence[Kept], now: datetime, day: date | None = None) -> Written:
        written = Written()

        def remember(some: Sequence[Kept]) -> None:
            entries = [self._entry(each, each.at or now, day) for each in some]
            for each, answer in zip(some, self._client.remember_many(self._session, entries), strict=True):
                if answer["state"] == "refused":
                    written.left.append(f"{_called(each)}: {answer.get('why', 'it was refused')}")
                else:
                    _count(written, answer, 1)

        for some in _portions(memories, lambda each: len(each.content)):
            _each_that_can(some, remember, _called, written)
        return written

    def _entry(self, kept: Kept, at: datetime, day: date | None) -> Entry:
        if day is not None:
            at = datetime.combine(day, at.astimezone().time()).astimezone()
        entry: Entry = {
            "text": _whole(kept.content),
            "at": rfc3339(at),
            "tags": [_whole(kept.category), SPACE],
            "key": f"{SPACE}:{kept.key}",
        }
        if kept.topic:
            entry["fact"] = fact_key(self._session, _whole(kept.topic))
        return entry

    def _folder(self) -> str:
        """The group that the home answered with, or that was named, else the first one that lets the session in."""
        if self._group is None:
            self._group = next(filter(self._lets_in, group_folders(self._home)), "main")
        return self._group

    def _lets_in(self, folder: str) -> bool:
        from clawd.config.load import load_group

        try:
            external = load_group(self._home, folder).external
        except ConfigError:  # of another group, perhaps: what is written is told of it where it matters
            return False
        return any(matches(pattern, self._session) for pattern in external)


def _each_that_can(
    some: Sequence[T], take: Callable[[Sequence[T]], None], name: Callable[[T], str], written: Written
) -> None:
    """Where one of several is wrong none is taken: then in halves, until it is alone, and is left."""
    try:
        take(some)
    except UsageError as error:
        if len(some) == 1:
            written.left.append(f"{name(some[0])}: {error.message}")
            return
        for half in (some[: len(some) // 2], some[len(some) // 2 :]):
            _each_that_can(half, take, name, written)


def _portions(things: Sequence[T], length: Callable[[T], int]) -> Iterator[Sequence[T]]:
    start = size = 0
    for at, each in enumerate(things):
        if at > start and (at - start == _MOST or size + length(each) > _LARGEST):
            yield things[start:at]
            start, size = at, 0
        size += length(each)
    if start < len(things):
        yield things[start:]


def _count(written: Written, answer: dict[str, Any], things: int) -> None:
    known = answer["state"] == "known"
    written.known += things * known
    written.added += things * (not known)


def _called(kept: Kept) -> str:
    return f"a memory of {kept.category}"


def _length(block: Block) -> int:
    return len(block.content) + sum(len(call["function"]["arguments"]) for call in block.tool_calls)


def _message(block: Block) -> Message:
    silent = not block.content.strip() and not block.tool_calls and block.role != "tool"
    message: Message = {"role": block.role, "content": _SILENT if silent else _whole(block.content)}
    if block.at is not None:
        message["at"] = rfc3339(block.at)
    if block.tool_calls:
        message["tool_calls"] = [
            {**call, "function": {name: _whole(text) for name, text in call["function"].items()}}
            for call in block.tool_calls
        ]
    if block.tool_call_id is not None:
        message["tool_call_id"] = block.tool_call_id
    return message


def _whole(text: str) -> str:
    """Two halves of a character as one, and one alone as the sign for it: no file and no socket has them."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
