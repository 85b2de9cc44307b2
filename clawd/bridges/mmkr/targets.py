"""Where an agent's messages and memories go: a PythonClaw home, or a clawd home. Both keep what has a key once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Protocol

from clawd.bridges.mmkr.messages import Kept, Piece
from clawd.config.home import Home, is_home
from clawd.errors import UsageError
from clawd.ids import check_session_id, safe_name

DEFAULT = "~/.pythonclaw"


@dataclass(slots=True)
class Written:
    """What became of something: how much was added, how much was there before, and what was left and why."""

    added: int = 0
    known: int = 0
    left: list[str] = field(default_factory=list)


class Target(Protocol):
    """Calls block. Raises ClawdError, OSError; what was not written may be said again."""

    @property
    def session_file(self) -> Path: ...

    @property
    def memory_dir(self) -> Path: ...

    def write(self, pieces: Sequence[Piece]) -> Written:
        """Messages; they are counted, not the pieces."""
        ...

    def keep(self, memories: Sequence[Kept], now: datetime, day: date | None = None) -> Written:
        """Memories, each in the log of its own local day, or all of them in that of `day`; `now` is the time of those
        that have none."""
        ...


def session_of(agent_id: str) -> str:
    """The id of an agent's session. Raises UsageError for what can be none."""
    if not isinstance(agent_id, str) or not agent_id.strip():
        raise UsageError("an agent needs an id, like agent-1")
    return check_session_id(f"mmkr:{agent_id}")


def fact_key(session: str, topic: str) -> str:
    """The key of a durable fact, `mmkr_<agent>_<topic>`."""
    return f"{safe_name(session)}_{safe_name(topic)}"[:200]


def target_of(claw_home: str | Path, session: str, group: str | None = None) -> Target:
    """What lies at `claw_home`; what is no home yet becomes one of PythonClaw's. Nothing is made or written here."""
    root = Path(claw_home).expanduser().absolute()
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is not a directory")
    if _is_clawd(root):
        from clawd.bridges.mmkr.into_clawd import ClawdTarget

        return ClawdTarget(Home(root), session, group)
    from clawd.bridges.mmkr.into_pythonclaw import PythonClawTarget

    if group is not None:
        raise UsageError(f"{root} is no clawd home: it has no groups", hint="leave --group out")
    return PythonClawTarget(root, session)


def _is_clawd(root: Path) -> bool:
    if (root / "context").is_dir() or (root / "pythonclaw.json").exists():
        return False
    return is_home(root) or ((root / "groups").is_dir() and (root / "state").is_dir())
