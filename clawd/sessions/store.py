"""The sessions as a store: a group's files, or those of a channel's sessions in every group, with what was made of
them elsewhere in the group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clawd.config.home import GroupHome, Home
from clawd.sessions.names import rebuild
from clawd.stores import FileStore, Scope


def session_store(home: Home) -> FileStore:
    """A person's own lines are not told apart in the files: their sessions are found through the ledger."""

    def trees(scope: Scope) -> Iterator[Path]:
        if scope.kind == "group":
            yield home.group(scope.name).sessions
        elif scope.kind == "channel" and home.groups.is_dir():
            for group in sorted(home.groups.iterdir()):
                for sessions in (home.group(group.name).sessions, *_brought_in(home.group(group.name))):
                    for id, stem in rebuild(sessions).items():
                        if id.startswith(f"{scope.name}:"):
                            yield from sessions.glob(f"{stem}.*")
                            if sessions == home.group(group.name).sessions:
                                yield from _told_of(home.group(group.name), stem)

    return FileStore("sessions", home.root, trees)


def _told_of(group: GroupHome, stem: str) -> Iterator[Path]:
    """What a session handed on, and what was exported of it; no link is followed."""
    if not group.exports.is_symlink() and (group.exports / stem).is_dir():
        yield group.exports / stem
    if not group.manifests.is_symlink():  # a moment without `_`, then the session's
        yield from (each for each in group.manifests.glob("*.json") if each.stem.partition("_")[2] == stem)


def _brought_in(group: GroupHome) -> list[Path]:
    """Where conversations of elsewhere wait for the owner's word; no link is followed."""
    folders = [] if group.arrivals.is_symlink() else sorted(group.arrivals.glob("*/sessions"))
    return [each for each in folders if not each.is_symlink() and not each.parent.is_symlink()]
