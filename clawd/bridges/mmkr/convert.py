"""An mmkr trace as a session and memories: read once, in order, in memory that does not grow with it.

Everything has a key, so a trace may be converted as often as one likes, also after it grew, or after a conversion that
was killed: what is there is not added again. Messages come in pieces of about a megabyte, each in one durable write; a
torn one is completed by the next conversion.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from clawd.bridges.mmkr.events import Broken, Reader, lines_of
from clawd.bridges.mmkr.messages import Kept, Piece, Telling
from clawd.bridges.mmkr.targets import DEFAULT, Target, Written, session_of, target_of
from clawd.bridges.mmkr.words import tell
from clawd.errors import NotFound, UsageError
from clawd.files import plain

NAMED = 100  # broken lines, and things that were left, which are named; all are counted
_AT_ONCE = 1 << 20  # bytes of the trace between two writes, about
_AGENTS = 20  # that are named


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a conversion is: bytes of the trace, and messages that it gave."""

    done: int
    total: int
    messages: int


def convert_trace_to_pythonclaw(
    trace_path: str | Path,
    agent_id: str,
    output_dir: str | Path | None = None,
    *,
    group: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Into the home at `output_dir`, PythonClaw's or clawd's (~/.pythonclaw).

    {session_file, memory_log (the directory), ticks_converted, messages_generated, session_id}: what the trace holds,
    whether it was there before or not. Beyond these {memories, lines, broken (how many lines were left out),
    broken_lines[{line, why}], mended, mended_lines[{line, why}], agents[], added{messages, memories}, known{…},
    left[]}. `progress` is called now and then, and at the end. Raises NotFound, UsageError, ClawdError, OSError; what
    was written stays, and is known the next time.
    """
    path, session = Path(trace_path).expanduser(), session_of(agent_id)
    with _opened(path) as file:
        conversion = _Conversion(target_of(output_dir or DEFAULT, session, group), file, progress)
        conversion.run()
    return {"session_file": str(conversion.target.session_file), **conversion.report(), "session_id": session}


def _opened(path: Path) -> BinaryIO:
    try:
        return open(path, "rb", opener=plain)
    except FileNotFoundError:
        raise NotFound(f"there is no trace {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


@dataclass(slots=True)
class _Conversion:
    target: Target
    file: BinaryIO
    progress: Callable[[Progress], None] | None
    telling: Telling = field(default_factory=Telling)
    pieces: list[Piece] = field(default_factory=list)
    memories: list[Kept] = field(default_factory=list)
    messages: Written = field(default_factory=Written)
    kept: Written = field(default_factory=Written)
    agents: set[str] = field(default_factory=set)
    broken_named: list[dict[str, Any]] = field(default_factory=list)
    mended_named: list[dict[str, Any]] = field(default_factory=list)
    lines: int = 0
    broken: int = 0
    mended: int = 0
    remembered: int = 0
    unnamed: int = 0

    def run(self) -> None:
        status = os.fstat(self.file.fileno())
        undated = datetime.fromtimestamp(status.st_mtime, UTC)  # the best that is known of a memory without a time
        done = since = 0
        for taken in self._read():
            done, since = done + taken, since + taken
            if since >= _AT_ONCE:
                self._write(undated)
                since = 0
                if self.progress is not None:
                    self.progress(Progress(done, max(done, status.st_size), self.telling.messages))
        self.telling.close()
        self._write(undated)
        if self.progress is not None:
            self.progress(Progress(done, done, self.telling.messages))

    def report(self) -> dict[str, Any]:
        return {
            "memory_log": str(self.target.memory_dir),
            "ticks_converted": self.telling.ticks,
            "messages_generated": self.telling.messages,
            "memories": self.remembered,
            "lines": self.lines,
            "broken": self.broken,
            "broken_lines": self.broken_named,
            "mended": self.mended,
            "mended_lines": self.mended_named,
            "agents": sorted(self.agents),
            "added": {"messages": self.messages.added, "memories": self.kept.added},
            "known": {"messages": self.messages.known, "memories": self.kept.known},
            "left": self._left(),
        }

    def _left(self) -> list[str]:
        """The first of what was left, and how many others there are."""
        every = self.messages.left + self.kept.left
        more = self.unnamed + len(every[NAMED:])
        return every[:NAMED] + ([f"and {more:,} more"] if more else [])

    def _read(self) -> Iterator[int]:
        """Each line of the trace is told; gives the bytes that it took."""
        reader = Reader()
        for line, taken in lines_of(self.file):
            self.lines += 1
            for each in reader.read(line):
                if isinstance(each, Broken):
                    self._note(each)
                    continue
                if each.agent and len(self.agents) < _AGENTS:
                    self.agents.add(each.agent)
                tell(each, self.telling)
            self.pieces += self.telling.ready()
            self.memories += self.telling.kept()
            yield taken

    def _note(self, each: Broken) -> None:
        self.broken += not each.kept
        self.mended += each.kept
        named = self.mended_named if each.kept else self.broken_named
        if len(named) < NAMED:
            named.append({"line": each.line, "why": each.why})

    def _write(self, undated: datetime) -> None:
        self.pieces += self.telling.ready()
        if self.pieces:
            self._add(self.messages, self.target.write(self.pieces))
            self.pieces.clear()
        if self.memories:
            self.remembered += len(self.memories)
            self._add(self.kept, self.target.keep(self.memories, undated))
            self.memories.clear()

    def _add(self, total: Written, more: Written) -> None:
        total.added += more.added
        total.known += more.known
        room = max(0, NAMED - len(total.left))
        total.left += more.left[:room]
        self.unnamed += len(more.left[room:])
