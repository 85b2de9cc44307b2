"""What the doctor looks at in contexts: limits and policies that cannot hold as the config says them, and files that
nothing is written to as somebody put a link there, or a pipe."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from clawd.commands.limits import problems
from clawd.config.home import Home, group_folders
from clawd.health.findings import Finding, finding


def limits(home: Home) -> Iterator[Finding]:
    """Of every group."""
    sound = True
    for group, sentence, hint in problems(home):
        sound = False
        said = f"{sentence} ({hint})" if hint else sentence
        yield finding("contexts", "error", f"group {group}: {said}", f"edit {shlex.quote(str(home.config_file))}")
    if sound:
        yield finding("contexts", "ok", "every group's profile and policies can hold")


_FILES = (".md", ".state.json", ".decisions.jsonl", ".metrics.jsonl")
_MOST_TOLD = 5


def files(home: Home) -> Iterator[Finding]:
    """Of every group: sessions' files, and the folders of manifests and exports."""
    odd = [path for group in group_folders(home) for path in _odd(home.group(group).root)]
    for path in odd[:_MOST_TOLD]:
        said = (
            f"nothing is written to {path.relative_to(home.root)}, nor what comes after it: it is not one of our files"
        )
        yield finding("contexts", "error", said, f"ls -ld {shlex.quote(str(path))}")
    if len(odd) > _MOST_TOLD:
        yield finding("contexts", "error", f"there are {len(odd) - _MOST_TOLD} more of these", None)


def _odd(root: Path) -> Iterator[Path]:
    for name in ("sessions", "manifests", "exports"):
        folder = root / name
        try:
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode):
                yield folder
            elif name == "sessions":
                with os.scandir(folder) as entries:
                    ours = [entry for entry in entries if entry.name.endswith(_FILES)]
                yield from (folder / entry.name for entry in ours if not entry.is_file(follow_symlinks=False))
        except FileNotFoundError:
            continue
