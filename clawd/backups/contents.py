"""What goes into a backup: the files of a home, or of a group's folder, as a walk finds them.

Everything is walked beneath its root without following anything: what lies in a group may be an agent's. Left out of a
home are what is made anew from the rest (`state/index`, `state/skills`), what is of a daemon's life alone (its lock,
socket, logs, what is handed to it), the key of the gateway's authority, the ballast, and earlier backups.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from clawd.backups.index import MOST_FILES, MOST_PATH, Folder, Skipped, is_path
from clawd.config.home import Home, group_folders
from clawd.errors import ClawdError
from clawd.files import directories_beneath, walk_beneath
from clawd.ids import is_group_name
from clawd.ledger.groups import UID_BASE

STATE = ("blobs", "audit", "calibrations")


@dataclass(frozen=True, slots=True)
class Source:
    """A file: `relative` beneath `root`, which is trusted, and what it is called in the archive."""

    root: Path
    relative: str
    path: str
    bytes: int


@dataclass(slots=True)
class Found:
    """What a walk found, and what it left out."""

    sources: list[Source] = field(default_factory=list)
    folders: dict[str, Folder] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.sources)


def of_home(home: Home) -> Found:
    """Everything of a home but its ledger and its trust ledger. Raises ClawdError where there is too much."""
    found = Found()
    for file in (home.config_file, home.people_file):
        _file(found, file)
    _tree(found, home.skills, "skills")
    for name in STATE:
        _tree(found, home.state / name, f"state/{name}")
    folders = group_folders(home)
    for name in folders:
        _tree(found, home.group(name).root, f"groups/{name}")
    for name in _others(home.groups):
        found.skipped.append(Skipped(f"groups/{name}", "it is no group's folder"))
    return found


def of_group(home: Home, group: str) -> Found:
    """Everything in a group's folder. Raises ClawdError where there is too much."""
    found = Found()
    _tree(found, home.group(group).root, f"groups/{group}")
    return found


def is_agents(status: os.stat_result) -> bool:
    """Whether a group's own user has it."""
    return status.st_uid >= UID_BASE and status.st_uid != os.geteuid()


def _others(groups: Path) -> Iterator[str]:
    if groups.is_dir():
        with os.scandir(groups) as entries:
            yield from (each.name for each in entries if not is_group_name(each.name) or each.is_symlink())


def _file(found: Found, file: Path) -> None:
    try:
        status = file.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode):
        found.sources.append(Source(file.parent, file.name, file.name, status.st_size))
    else:
        found.skipped.append(Skipped(file.name, "it is a link, or no plain file"))


def _tree(found: Found, root: Path, name: str) -> None:
    def left_out(path: str, why: str) -> None:
        found.skipped.append(Skipped(f"{name}/{path}", why))

    try:
        for relative, status in walk_beneath(root, left_out=left_out):
            path = f"{name}/{relative}"
            if not is_path(path):
                left_out(relative, f"its path has more than {MOST_PATH:,} bytes")
                continue
            found.sources.append(Source(root, relative, path, status.st_size))
            if len(found.sources) > MOST_FILES:
                raise ClawdError(
                    f"there are more than {MOST_FILES:,} files, the most that one backup holds; many are in {root}",
                    hint="back up the groups one by one: clawd backup create --group G",
                )
        for relative, status in directories_beneath(root):
            path = f"{name}/{relative}" if relative else name
            if is_path(path) and len(found.folders) < MOST_FILES:
                found.folders[path] = Folder(path, stat.S_IMODE(status.st_mode) & 0o777, is_agents(status))
    except OSError as error:
        found.skipped.append(Skipped(name, f"it cannot be opened ({error.strerror})"))
