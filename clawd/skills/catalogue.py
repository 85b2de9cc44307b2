"""All skills of a group: those of every group (`skills/`) and its own (`groups/<g>/skills/`), which come before others
of the same name.

It is asked at each turn, and nothing is watched: a sound skill whose folder and SKILL.md are as they were is not read
again, which costs one listing of each directory and two looks at each skill. It may be asked in any thread.
"""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from clawd.config.home import Home
from clawd.ids import folded
from clawd.skills.skill import ARCHIVES, FILE, Skill, load

PROPOSED = ".proposed"  # beneath a group's skills/: what its agent asks for, until the owner says yes
_Stamp = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _Known:
    stamps: tuple[_Stamp, _Stamp]
    skill: Skill


class Catalogue:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[Path, dict[str, _Known]] = {}

    def of(self, group: str) -> list[Skill]:
        """What the group can use, by name. `group` is the name of its folder. One of its own that is refused hides that
        of all groups, too: nothing else answers to its name because of a slip of the pen."""
        named = _named(self.shared()) | _named(self.own(group))
        return [named[name] for name in sorted(named) if not named[name].errors]

    def refused(self, group: str) -> list[Skill]:
        """What lies there for the group and is not used, each with its `errors`."""
        return [each for each in (*self.shared(), *self.own(group)) if each.errors]

    def shared(self) -> list[Skill]:
        """Every skill of `skills/`, usable or not."""
        return self._all(self._home.skills, shared=True)

    def own(self, group: str) -> list[Skill]:
        """The group's own, usable or not."""
        return self._all(self._home.group(group).skills, shared=False)

    def proposed(self, group: str) -> list[Skill]:
        """What its agent asks for; none of it is used."""
        return self._all(self._home.group(group).skills / PROPOSED, shared=False)

    def _all(self, root: Path, *, shared: bool) -> list[Skill]:
        before, now = self._known.get(root, {}), dict[str, _Known]()
        try:
            names, problem = _names(root), _exposed(root)
        except FileNotFoundError:
            names, problem = [], None
        except OSError:
            return [load(root, shared=shared)]  # which says why
        for name in names:
            stamps = _stamp(f"{root}/{name}"), _stamp(f"{root}/{name}/{FILE}")
            known = before.get(name)
            # What is wrong with one may lie deeper than these show: it is looked for again.
            same = known is not None and known.stamps == stamps and not known.skill.errors
            now[name] = known if known and same else _Known(stamps, load(root / name, shared=shared))
        self._known[root] = now
        skills = {name: known.skill for name, known in now.items()}
        if problem:
            return [replace(each, errors=(*each.errors, problem)) for each in skills.values()]
        first = {folded(each.name): name for name, each in reversed(skills.items()) if not each.errors}
        return [_alone(each, name, first.get(folded(each.name), name)) for name, each in skills.items()]


def _named(skills: list[Skill]) -> dict[str, Skill]:
    """By name; of two with the same, the one that is not refused."""
    return {each.name: each for each in sorted(skills, key=lambda each: not each.errors)}


def _alone(skill: Skill, name: str, first: str) -> Skill:
    """The second of two that some systems, and people, take for one is refused."""
    if first == name:
        return skill
    twin = f"{first!a} has the same name, but for the case or the composition of its letters"
    return replace(skill, errors=(*skill.errors, twin))


def _names(root: Path) -> list[str]:
    """Folders, and what somebody might take for a skill; not what is hidden. Raises OSError."""
    with os.scandir(root) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.name[0] != "."
            and (entry.is_symlink() or entry.is_dir() or entry.name == FILE or entry.name.endswith(ARCHIVES))
        )


def _stamp(path: str) -> _Stamp:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _exposed(root: Path) -> str | None:
    """Why nothing in this directory is surely the owner's. Raises OSError."""
    status, where = root.lstat(), shlex.quote(str(root))
    if stat.S_ISLNK(status.st_mode):
        return f"{root} is a link: put the folder itself there"
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others could put anything into {root}: chown $(id -u) {where}; chmod go-w {where}"
    return None
