"""A group's folder as a store: everything in it that no other store has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clawd.config.home import Home
from clawd.stores import FileStore, Scope


def group_folder_store(home: Home) -> FileStore:
    """Erased with the folder itself goes what other stores keep in it; they find nothing then, which is no
    error."""

    def trees(scope: Scope) -> Iterator[Path]:
        if scope.kind == "group":
            group = home.group(scope.name)
            yield from sorted(path for path in group.root.glob("*") if path not in (group.sessions, group.memory))

    return FileStore("group folder", home.root, trees)
