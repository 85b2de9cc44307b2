"""What a bridge finds in another claw's home, before any of it is written anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["instructions", "profile", "session", "facts", "index", "day", "note", "skill", "schedule"]
"""instructions CLAUDE.md · profile user_profile.md · session a session file of ours · facts MEMORY.md in PythonClaw's
keyed form · index INDEX.md · day a daily log YYYY-MM-DD.md · note any other Markdown that is remembered · skill a
folder with a SKILL.md · schedule a schedule's TOML."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing. `source` is where it lay, relative to that home; `to` where it is to lie beneath `import/<source>/`:
    CLAUDE.md, user_profile.md, sessions/<stem>.md, memory/MEMORY.md, memory/INDEX.md, memory/<date>.md,
    memory/notes/<name>.md, skills/<name>, schedules/<id>.toml. `files` are its bytes, by path beneath `to`; of what is
    one file by "". `group` is the clawd group that it is for. `changed` are sentences on what is not as it was."""

    kind: Kind
    source: str
    to: str
    files: Mapping[str, bytes]
    group: str = "main"
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """What is not brought in, and why, as a sentence's end."""

    source: str
    why: str


@dataclass(slots=True)
class Brought:
    """All that one home has. `keys` are names of credentials that the person must enter anew (never their values);
    `allowed` sentences on who was allowed what there; `chats` sentences on which chats belonged to which group."""

    source: str
    home: Path
    items: list[Item] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    chats: list[str] = field(default_factory=list)
