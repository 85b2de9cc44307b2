"""The first files of a home and of a group. What a person already has is never touched."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from clawd.clock import Clock, SystemClock
from clawd.config.home import Home
from clawd.files import write_atomic
from clawd.resources import shipped

_PEOPLE = """\
schema = 1

# Who may speak, and from where. Whoever sits at this machine's terminal as its user is the owner: they need
# no entry. Everybody else is nobody until an entry says otherwise, or `clawd pair` made one:
#
# [[people]]
# name = "Ada"
# role = "owner"               # owner, admin or member
# accounts = ["telegram:7"]    # their ids on the channels
"""

_CLAUDE_MD = """\
# Instructions

<!-- What stands here is in every prompt of this group. It is yours: the agent can read it, never write it.
     Write what always holds: what this group is for, how to answer, what never to do. Short is better. -->
"""

_USER_PROFILE = """\
# About me

<!-- What the agent should always know of you: your name, your town, your work, your tastes.
     It is sent with every prompt of this group; where others read along, only if group.toml says so. -->
"""


def init_home(home: Home, *, name: str = "clawd", user: str | None = None, clock: Clock | None = None) -> list[Path]:
    """Make a home that works as it is; gives the files that were made. Doing it again adds only what is
    missing."""
    home.create()
    made = [
        _keep(home.config_file, shipped("config.example.toml").read_bytes()),
        _keep(home.people_file, _PEOPLE.encode()),
        *ensure_group(home, "main"),
        _keep(home.group("main").memory / "MEMORY.md", _memory(name, user or _user(), clock or SystemClock())),
        *_skills(home),
    ]
    return [path for path in made if path is not None]


def ensure_group(home: Home, folder: str) -> list[Path]:
    """Make a group's folders and its two files where they are missing; gives the files that were made."""
    group = home.group(folder)
    group.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in (group.sessions, group.memory, group.skills, group.inbox, group.work):
        directory.mkdir(mode=0o700, exist_ok=True)
    made = [_keep(group.claude_md, _CLAUDE_MD.encode()), _keep(group.user_profile, _USER_PROFILE.encode())]
    return [path for path in made if path is not None]


def _skills(home: Home) -> Iterator[Path]:
    """The skills that ship, each whole, unless something has its name."""
    for folder in sorted(each.parent for each in shipped("skills").glob("*/SKILL.md")):
        if (to := home.skills / folder.name).exists() or to.is_symlink():
            continue
        for source in sorted(each for each in folder.rglob("*") if each.is_file() and each.suffix != ".pyc"):
            file = to / source.relative_to(folder)
            file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomic(file, source.read_bytes(), 0o644)
            yield file


TEMPLATES = frozenset({_CLAUDE_MD.encode(), _USER_PROFILE.encode()})  # what nobody has written anything into yet


def untouched(user_profile: Path) -> bool:
    """Whether a group's profile says nothing of anybody yet."""
    return not user_profile.exists() or user_profile.read_bytes() == _USER_PROFILE.encode()


def _keep(path: Path, data: bytes) -> Path | None:
    """Write a file unless something has that name; gives its path if it was written."""
    if path.exists() or path.is_symlink():
        return None
    write_atomic(path, data)
    return path


def _memory(name: str, user: str, clock: Clock) -> bytes:
    """The reserved keys, in PythonClaw's MEMORY.md format."""
    updated = clock.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
    entries = [
        f"## {key}\n> Updated: {updated}\n\n{value}\n" for key, value in (("bot_name", name), ("user_name", user))
    ]
    return ("# Long-Term Memory\n\n" + "\n".join(entries)).encode()


def _user() -> str:
    """Who is at the terminal: the account's full name where it has one, else its name."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return "owner"
    return entry.pw_gecos.split(",")[0].strip() or entry.pw_name
