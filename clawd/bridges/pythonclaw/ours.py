"""What a group of ours has that PythonClaw can have, too: read through the rooms that keep it, and never written.

Of memory only what is active and trusted at or above the group's floor: of a record whose own text is below it, the
owner's words alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from clawd.arrivals import account
from clawd.bridges.pythonclaw.sessions import SOURCE
from clawd.commands.looking import check_group
from clawd.commands.memory import opened
from clawd.config.home import Home
from clawd.config.load import load_config, load_group, merged
from clawd.errors import UnsafePath
from clawd.files import read_beneath
from clawd.memory import daily, keyed
from clawd.memory.admission import shown
from clawd.memory.judgement import HEADING
from clawd.memory.keyed import FACTS, INDEX, Fact
from clawd.memory.store import GroupMemory
from clawd.model import Block
from clawd.schedules import store
from clawd.schedules.file import ScheduleFile
from clawd.sessions import reading
from clawd.sessions.names import rebuild
from clawd.skills.catalogue import Catalogue
from clawd.skills.manifest import look
from clawd.skills.skill import Skill

Whys = list[tuple[str, str]]
"""(what it is, as a path in the group; why it is left, as a sentence's end)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """`facts` in the order of MEMORY.md; `days` as the bytes of their files; `index` is the text of INDEX.md."""

    facts: dict[str, Fact] = field(default_factory=dict)
    days: dict[date, bytes] = field(default_factory=dict)
    index: str = ""
    left: Whys = field(default_factory=list)


def check(home: Home, group: str) -> None:
    """Raises NotFound where there is no such group."""
    check_group(home, group)


def sessions(home: Home, group: str) -> dict[str, list[Block]]:
    """The messages of each session that has any, by its id."""
    root = home.group(group).sessions
    if root.is_symlink() or not root.is_dir():
        return {}
    found = {id: reading.load(root / f"{stem}.md").blocks for id, stem in sorted(rebuild(root).items())}
    return {id: blocks for id, blocks in found.items() if blocks}


def memory(home: Home, group: str) -> Memory:
    """Raises NotFound, ConfigError."""
    root = home.group(group).memory
    if not root.is_dir():
        return Memory()
    with _opened(home, group) as kept:
        return _memory(kept, root)


def _memory(kept: GroupMemory, root: Path) -> Memory:
    left, facts, days, index = Whys(), dict[str, Fact](), dict[date, bytes](), ""
    others = dict[str, int]()
    for record in kept.every():
        text, trust, _ = shown(record, kept.floor)
        place = f"memory/{record.file}"
        if record.kind == "day":
            if day := daily.day_of(record.file):
                data, less = _day(kept, root, record.file, day)
                days |= {day: data} if data else {}
                left += [(place, f"{less} of its entries are not trusted enough")] if less else []
        elif trust < kept.floor:
            left.append((f"{place} ({record.key})" if record.key else place, "it is not trusted enough"))
        elif record.kind == "fact":
            facts[record.key] = Fact(record.key, text, record.event_time)
        elif record.file == INDEX:
            index = text
        else:
            others[record.kind] = others.get(record.kind, 0) + 1
    left += [(f"memory ({kind})", f"PythonClaw has no place for these {count}") for kind, count in others.items()]
    order = keyed.parsed(_bytes(root, FACTS))[1]
    places = {key: n for n, key in enumerate(order)}
    ordered = sorted(facts, key=lambda key: (places.get(key, len(places)), key))
    said = {key: order[key].updated if key in order else None for key in ordered}
    sound = {key: Fact(key, facts[key].value, said[key] or facts[key].updated) for key in ordered}
    return Memory(sound, days, index, left)


def _day(kept: GroupMemory, root: Path, name: str, day: date) -> tuple[bytes, int]:
    """The bytes of a day's log without what is not trusted enough, and how many entries that are."""
    good = {(each.key, each.text) for each in kept.entries(f"day:{day}") if each.trust >= kept.floor}
    data = _bytes(root, name)
    pieces, found, less = list[bytes](), False, 0
    for piece in daily.parsed(data, day):
        if (piece.key, piece.text) in good:
            found = True
        elif piece.text.strip() and not HEADING.fullmatch(piece.text):
            less += 1
            continue
        pieces.append(data[piece.start : piece.end])
    return (b"".join(pieces) if found else b""), less


def skills(home: Home, group: str) -> Iterator[tuple[Skill, dict[str, bytes]]]:
    """The group's own skills that can be used, each with its files, and those that cannot, with none."""
    for skill in Catalogue(home).own(group):
        files = dict[str, bytes]()
        try:
            if not skill.errors:
                files = {
                    path: read_beneath(skill.path, path, status.st_size) for path, status in look(skill.path).files
                }
        except (UnsafePath, OSError):
            files = {}
        yield skill, files


def schedules(home: Home, group: str, left: Whys) -> dict[str, ScheduleFile]:
    """The group's schedules by id."""
    root, found = home.group(group).schedules, dict[str, ScheduleFile]()
    for id in sorted(store.stamps(root)):
        try:
            read = store.read(root, id, zone(home, group), f"schedules/{id}.toml")
        except FileNotFoundError:
            continue
        if read.facts is None:
            left.append((f"schedules/{id}.toml", f"it cannot be read: {read.error}"))
        else:
            found[id] = store.file_of(read.facts)
    return found


def zone(home: Home, group: str) -> str:
    """The group's time zone. Raises ConfigError."""
    return merged(load_config(home, dict(os.environ)), load_group(home, group)).timezone


def came_from(home: Home, group: str, other: Path) -> dict[str, str]:
    """What the group has that was brought in from this PythonClaw home: where it lies in `import/pythonclaw/`, and
    where it lay there."""
    kept = account.read(home.group(group).arrivals / SOURCE)
    if kept is None or Path(kept.home).resolve() != other.resolve():
        return {}
    return {each.to: each.source for each in kept.items if each.accepted}


@contextmanager
def _opened(home: Home, group: str) -> Iterator[GroupMemory]:
    kept = opened(home, group)
    try:
        yield kept
    finally:
        kept.close()


def _bytes(root: Path, name: str) -> bytes:
    try:
        return read_beneath(root, name, keyed.LIMIT)
    except (FileNotFoundError, UnsafePath):
        return b""
