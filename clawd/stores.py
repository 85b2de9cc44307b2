"""The registry of what is kept about people, groups and channels: to find it, to erase it, to back it up.

Every room that keeps something registers a store when the program is put together; whoever erases or backs up
goes through all of them and needs to know none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from clawd.files import remove_tree, walk_beneath


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose things: a person's, a group's (by folder), a channel's."""

    kind: Literal["person", "group", "channel"]
    name: str


class Store(Protocol):
    """A place where things are kept. `locate` gives paths, or a phrase for what is no file (`ledger.db:
    inbound 7`)."""

    name: str

    def locate(self, scope: Scope) -> list[Path | str]: ...

    def erase(self, scope: Scope) -> None:
        """Take out everything that `locate` finds. Doing it twice is no error."""
        ...

    def back_up(self, scope: Scope, target: Path) -> None:
        """Copy everything that `locate` finds beneath the directory `target`."""
        ...


_stores: dict[str, Store] = {}


def register(store: Store) -> None:
    """Add a store; one of the same name takes its place."""
    _stores[store.name] = store


def stores() -> list[Store]:
    """All stores, in the order of registration."""
    return list(_stores.values())


class FileStore:
    """A store whose things are files: `trees` names the files and directories of a scope, each below
    `root`."""

    def __init__(self, name: str, root: Path, trees: Callable[[Scope], Iterable[Path]]) -> None:
        self.name = name
        self.root = root
        self._trees = trees

    def locate(self, scope: Scope) -> list[Path | str]:
        return [path for tree in self._trees(scope) for path in _files(tree)]

    def erase(self, scope: Scope) -> None:
        for tree in list(self._trees(scope)):
            if tree.is_dir() and not tree.is_symlink():
                remove_tree(tree)
            else:
                tree.unlink(missing_ok=True)

    def back_up(self, scope: Scope, target: Path) -> None:
        for path in self.locate(scope):
            copy = target / Path(path).relative_to(self.root)
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(path, copy, follow_symlinks=False)


def _files(tree: Path) -> list[Path]:
    """The regular files of a tree, or the file itself; no link is followed."""
    if tree.is_symlink():
        return []
    if tree.is_file():
        return [tree]
    return sorted(tree / relative for relative, _ in walk_beneath(tree))
