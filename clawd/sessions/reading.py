"""Reading sessions: the whole file, its tail, a count, a check; and what of it may be sent to a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clawd.errors import UnsafePath
from clawd.files import open_beneath
from clawd.model import Block
from clawd.sessions.format import MARKER_LINE, parse
from clawd.trust import TRUST, Origin

_LONGEST_LINE = 64 << 20
NO_RESULT = "Error: this call was interrupted, and no result of it is known."


@dataclass(frozen=True, slots=True)
class SessionRead:
    """A session as its file has it. `errors` are sentences; `repaired` counts what reading had to mend."""

    id: str | None
    blocks: list[Block] = field(default_factory=list)
    repaired: int = 0
    errors: list[str] = field(default_factory=list)


def load(path: Path) -> SessionRead:
    """The whole file. One that does not exist is an empty session. Raises UnsafePath for a link or special
    file."""
    parsed = parse(_read(path, 0))
    errors = parsed.problems + broken_calls(parsed.blocks)
    return SessionRead(parsed.session, parsed.blocks, len(errors), errors)


def tail(path: Path, max_blocks: int, max_bytes: int = 4 << 20) -> list[Block]:
    """At most the last `max_blocks` messages of at most the last `max_bytes`, without reading what precedes
    them."""
    data = _read(path, max_bytes)
    first = MARKER_LINE.search(data, 0 if len(data) <= max_bytes else data.find(b"\n") + 1)
    if first is None or max_blocks <= 0:
        return []
    return parse(data[first.start() :], whole=False).blocks[-max_blocks:]


def read_from(path: Path, start: int, most: int = -1) -> bytes:
    """The file's bytes from `start` on, and one before them; at most `most`. Empty when there is no file."""
    try:
        descriptor = open_beneath(path.parent, path.name)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(max(0, start - 1))
        return file.read(most)


def markers(path: Path, start: int = 0) -> Iterator[tuple[int, Block]]:
    """(offset, block without its content) of each message from the byte `start` on, read line by line. Nothing when
    there is no file."""
    try:
        descriptor = open_beneath(path.parent, path.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    with os.fdopen(descriptor, "rb") as file:
        at, fresh = file.seek(start), start == 0  # whether a line begins here
        while line := file.readline(_LONGEST_LINE):
            if (fresh or at == start) and MARKER_LINE.match(line):
                for block in parse(line, whole=False).blocks:
                    yield at, block
            fresh = line.endswith(b"\n")
            at += len(line)


def trust(path: Path) -> float:
    """The lowest trust of what a file says is in it from outside, or stands for what is not, 1.0 where it says nothing
    of the kind. It is read line by line. Raises OSError, UnsafePath."""
    lowest = 1.0
    with os.fdopen(open_beneath(path.parent, path.name), "rb") as file:
        for line in file:
            if (match := MARKER_LINE.match(line)) is None:
                continue
            for block in parse(match[0] + b"\n", whole=False).blocks:
                origin = Origin.EXTERNAL if is_external(block) else Origin.HAND if "source" in block.meta else None
                lowest = min(lowest, TRUST[origin] if origin else 1.0, _stated(block))
    return lowest


def _stated(block: Block) -> float:
    """The trust of what a compaction or a manifest says, which went into it: the lowest where that is not stated."""
    said = block.meta.get("compact", block.meta.get("handoff"))
    if block.role != "system" or said is None:
        return 1.0
    found = said.get("trust") if isinstance(said, dict) else None
    known = isinstance(found, int | float) and 0 <= found <= 1
    return float(found) if known and found is not None else TRUST[Origin.EXTERNAL]


def is_external(block: Block) -> bool:
    """Whether another program put it into the session: then its role says only what it was there."""
    return block.meta.get("from") == Origin.EXTERNAL


def count(path: Path) -> int:
    """How many messages the file holds."""
    return sum(1 for _ in MARKER_LINE.finditer(_read(path, 0)))


def check(path: Path) -> dict[str, Any]:
    """`clawd session check`: {ok, file, messages, repaired, errors[]}."""
    try:
        read = load(path)
        errors = read.errors if path.exists() else ["there is no such file"]
        if path.exists() and read.id is None:
            errors = ["line 1: the header '# Session: <id>' is missing", *errors]
    except (OSError, UnsafePath) as error:
        read, errors = SessionRead(None), [str(error)]
    return {
        "ok": not errors,
        "file": str(path),
        "messages": len(read.blocks),
        "repaired": read.repaired,
        "errors": errors,
    }


def sound(blocks: Sequence[Block], none: str = NO_RESULT) -> list[Block]:
    """What may be sent to a model: each call followed at once by its result, no result without its call.

    A call without a result gets `none` for one; results that others were written between move up to their
    calls.
    """
    kept: list[Block] = []
    for index, block in enumerate(blocks):
        if block.role == "tool":
            continue  # taken along by its call, or an orphan
        if not block.tool_calls:
            kept.append(block)
            continue
        calls = [call for call in block.tool_calls if isinstance(call.get("id"), str)]
        if calls or block.content:
            kept.append(replace(block, tool_calls=tuple(calls)))
        results = _results(blocks, index)
        kept += [results.get(call["id"]) or Block("tool", none, block.at, tool_call_id=call["id"]) for call in calls]
    return kept


def broken_calls(blocks: Sequence[Block]) -> list[str]:
    """A sentence for every call without a result, and every result without a call."""
    answered: set[int] = set()
    problems: list[str] = []
    for index, block in enumerate(blocks):
        if not block.tool_calls:
            continue
        results = _results(blocks, index)
        answered |= {id(result) for result in results.values()}
        problems += [
            f"message {index + 1}: the tool call {call.get('id')!r} has no result"
            for call in block.tool_calls
            if call.get("id") not in results
        ]
    for index, block in enumerate(blocks):
        if block.role == "tool" and id(block) not in answered:
            problems.append(f"message {index + 1}: a tool result ({block.tool_call_id!r}) has no call")
    return problems


def _results(blocks: Sequence[Block], index: int) -> dict[str, Block]:
    """The results of the calls of `blocks[index]`: the first of each id before the next message with
    calls."""
    results: dict[str, Block] = {}
    wanted = {call["id"] for call in blocks[index].tool_calls if isinstance(call.get("id"), str)}
    for block in map(blocks.__getitem__, range(index + 1, len(blocks))):
        if block.tool_calls or len(results) == len(wanted):
            break
        if block.role == "tool" and block.tool_call_id is not None and block.tool_call_id in wanted:
            results.setdefault(block.tool_call_id, block)
    return results


def _read(path: Path, last: int) -> bytes:
    """The file's bytes; with `last`, that many from its end and one before them. Empty when there is no
    file."""
    try:
        descriptor = open_beneath(path.parent, path.name)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    with os.fdopen(descriptor, "rb") as file:
        if last:
            file.seek(max(0, os.fstat(descriptor).st_size - last - 1))
        return file.read()
