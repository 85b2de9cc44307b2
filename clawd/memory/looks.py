"""What the files beneath a directory look like, by which it is seen that one is another by now. Nothing is followed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from clawd.errors import UnsafePath
from clawd.files import DEEPEST, directory_beneath
from clawd.memory import tree
from clawd.memory.tree import Stamp as Stat

SETTLED_NS = 50_000_000  # what was changed so lately may be changed again without its time telling


def signature(root: Path, path: str) -> str | None:
    """Of a file; None where there is none."""
    try:
        status = (root / path).lstat()
    except OSError:
        return None
    return sig(Stat(status.st_mtime_ns, status.st_size, status.st_ino))


def sig(stat: Stat) -> str:
    return f"{stat.mtime_ns}:{stat.size}:{stat.ino}"


def moved(root: Path, folder: str) -> int:
    """When something came to a directory or left it last, in ns; -1 where there is none."""
    try:
        return (root / folder).lstat().st_mtime_ns
    except OSError:
        return -1


def listed(root: Path, folder: str) -> tuple[dict[str, str], list[str]]:
    """The files with memories in a directory, with their stats, and the directories in it."""
    files, below = dict[str, str](), list[str]()
    try:
        at = directory_beneath(root, folder)
    except (OSError, UnsafePath):
        return files, below
    try:
        with os.scandir(at) as entries:
            for each in entries:
                path = f"{folder}/{each.name}" if folder else each.name
                if each.is_dir(follow_symlinks=False):
                    if tree.holds(f"{path}/a.md") and path.count("/") < DEEPEST:
                        below.append(path)
                elif tree.holds(path):
                    with suppress(FileNotFoundError):
                        status = each.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            files[path] = sig(Stat(status.st_mtime_ns, status.st_size, status.st_ino))
    finally:
        os.close(at)
    return files, below
