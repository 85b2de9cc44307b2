"""mmkr's recorder: it is told what an agent does, and puts it into a session and a memory that PythonClaw, or clawd,
reads. The names, parameters and results are those of mmkr's integrations/pythonclaw_collector.py.

What is flushed is durable, and only then forgotten here. A call that waits for its result, and what follows it, is
flushed when the result is there or its tick ended. Whoever was killed may say a tick again: what was flushed of it is
not added twice (messages.py says what can be told apart). May be called from several threads.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date as Date
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from clawd.bridges.mmkr.bullets import bullet, stamp
from clawd.bridges.mmkr.events import GENERAL, arguments_of
from clawd.bridges.mmkr.messages import Kept, Piece, Telling
from clawd.bridges.mmkr.targets import DEFAULT, session_of, target_of
from clawd.bridges.mmkr.words import calling, result_told, tick_ended, tick_started
from clawd.clock import Clock, SystemClock
from clawd.errors import UsageError
from clawd.model import Block


@dataclass(frozen=True, slots=True)
class PythonClawMessage:
    """A message that was recorded. `ts` is UTC in ISO 8601, to the second; `name` is a result's tool."""

    role: str
    content: str
    ts: str
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    block: Block | None = field(default=None, repr=False, compare=False)

    def to_markdown_block(self) -> str:
        """As it stands in a session's file of PythonClaw."""
        from clawd.sessions.format import write_block

        made = Block(
            self.role,
            self.content,
            datetime.fromisoformat(self.ts),
            tool_calls=tuple(self.tool_calls),
            tool_call_id=self.tool_call_id,
        )
        return write_block(self.block or made).decode()


@dataclass(frozen=True, slots=True)
class PythonClawMemoryEntry:
    """A memory that was recorded. `ts` is UTC in ISO 8601, to the second."""

    content: str
    ts: str
    source: str = "mmkr"
    importance: float = 0.5
    tags: list[str] = field(default_factory=list)

    def to_markdown_entry(self) -> str:
        """As it stands in a day's log of PythonClaw."""
        return bullet(self.content, self.ts, self.tags[0] if self.tags else GENERAL, self.importance)


class PythonClawCollector:
    """Records one agent into the home at `claw_home`: PythonClaw's, or clawd's (in `group`, where several would take
    its session). Nothing is written before a flush."""

    def __init__(
        self,
        agent_id: str,
        claw_home: str | Path | None = DEFAULT,
        mmkr_data: str | Path | None = None,
        *,
        group: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.agent_id, self.session_id = agent_id, session_of(agent_id)
        self.mmkr_data = Path(mmkr_data or "~/.mmkr").expanduser()
        self.left: list[str] = []  # what a home would not take, and why
        self._target = target_of(claw_home or DEFAULT, self.session_id, group)
        self._clock = clock or SystemClock()
        self._alone = threading.RLock()
        self._telling = Telling()
        self._pieces: list[Piece] = []
        self._memories: list[Kept] = []
        self._tick: int | None = None
        self._ticks = self._tools = self._remembered = 0

    @property
    def session_file(self) -> Path:
        return self._target.session_file

    @property
    def sessions_dir(self) -> Path:
        return self._target.session_file.parent

    @property
    def memory_dir(self) -> Path:
        return self._target.memory_dir

    def record_tick_start(
        self, tick: int, goals: Sequence[str] | None = None, memory_count: int = 0
    ) -> PythonClawMessage:
        """A tick begins: a user's message."""
        with self._alone:
            self._tick = _tick(tick)
            words = tick_started(tick, map(str, goals or ()), memory_count)
            return _message(self._telling.start(tick, self._now(), words))

    def record_tool_call(
        self, tick: int, tool_name: str, args: dict[str, Any] | None = None, reasoning: str | None = None
    ) -> PythonClawMessage:
        """A call of a tool, with an id of its own."""
        with self._alone:
            self._tools += 1
            args_text = arguments_of(_plain(args))
            words = reasoning or calling(tool_name)
            return _message(self._telling.call(_tick(tick), self._now(), tool_name, args_text, words))

    def record_tool_result(self, tick: int, tool_name: str, result: Any, is_error: bool = False) -> PythonClawMessage:
        """The result of the first call of this tool in this tick that has none."""
        text = result if isinstance(result, str) else json.dumps(_plain(result), ensure_ascii=False)
        with self._alone:
            words = result_told(text, is_error)
            return _message(self._telling.result(_tick(tick), self._now(), tool_name, words), name=tool_name)

    def record_tick_end(
        self, tick: int, summary: str, tools_used: int = 0, actions_taken: Sequence[str] | None = None
    ) -> PythonClawMessage:
        """A tick ends: an assistant's message. A call that is still without a result has none."""
        with self._alone:
            self._ticks += 1
            words = tick_ended(summary, tools_used, map(str, actions_taken or ()))
            return _message(self._telling.end(_tick(tick), self._now(), words, summary))

    def record_memory(
        self, content: str, category: str = GENERAL, importance: float = 0.5, *, fact: str = ""
    ) -> PythonClawMemoryEntry:
        """Something to remember: a line of the day's log. With `fact`, a durable one under the key
        mmkr_<agent>_<fact>, which replaces what was kept there."""
        with self._alone:
            self._remembered += 1
            kept = self._telling.keep(self._tick, self._now(), content, category, importance, fact)
            ts = stamp(kept.at or self._now())
            return PythonClawMemoryEntry(content, ts, f"mmkr:{category}", importance, [category, "mmkr"])

    def flush_to_session_file(self) -> Path:
        """Append what was recorded to the session; gives its file. What cannot be written is kept for the next time.
        Raises ClawdError, OSError."""
        with self._alone:
            self._pieces += self._telling.ready()
            if self._pieces:
                self.left += self._target.write(self._pieces).left
                self._pieces.clear()
            return self._target.session_file

    def flush_to_memory_log(self, date: str | Date | None = None) -> Path:
        """Append what was remembered to the logs of its local days, or all of it to that of `date`; gives the log of
        that day, or of today. Raises ClawdError, OSError."""
        with self._alone:
            day = _day(date)
            self._memories += self._telling.kept()
            if self._memories:
                self.left += self._target.keep(self._memories, self._now(), day).left
                self._memories.clear()
            shown = day or self._now().astimezone().date()
            return self._target.memory_dir / f"{shown.isoformat()}.md"

    def session_stats(self) -> dict[str, Any]:
        """What was recorded, whether it was flushed or not."""
        return {
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "ticks_recorded": self._ticks,
            "tools_recorded": self._tools,
            "memories_recorded": self._remembered,
            "session_file": str(self.session_file),
            "memory_dir": str(self.memory_dir),
        }

    def close(self) -> None:
        """Flush all of it: calls that have no result will get none."""
        with self._alone:
            self._telling.close()
            self.flush_to_session_file()
            self.flush_to_memory_log()

    def __enter__(self) -> PythonClawCollector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _now(self) -> datetime:
        return self._clock.now()


def _message(block: Block, name: str | None = None) -> PythonClawMessage:
    ts = stamp(block.at) if block.at else ""
    return PythonClawMessage(
        block.role, block.content, ts, list(block.tool_calls), block.tool_call_id, name, block=block
    )


def _tick(tick: Any) -> int:
    if isinstance(tick, bool) or not isinstance(tick, int):
        raise UsageError(f"a tick is a whole number, not {str(tick)[:40]!a}")
    return tick


def _day(date: str | Date | None) -> Date | None:
    """Raises UsageError: a day becomes the name of a file."""
    if date is None or (isinstance(date, Date) and not isinstance(date, datetime)):
        return date
    try:
        return Date.fromisoformat(str(date))
    except ValueError:
        raise UsageError(f"a day is like 2026-03-07, not {str(date)[:40]!a}") from None


def _plain(value: Any) -> Any:
    """A value of the agent's own as JSON has it; what JSON has not becomes its text."""
    return json.loads(json.dumps(value, default=str, ensure_ascii=False), parse_constant=str)
