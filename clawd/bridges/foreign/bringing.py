"""One home as it is brought: its place, and what becomes of each kind of thing in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from clawd.arrivals.items import Brought, Item
from clawd.bridges.foreign.jobs import Jobs
from clawd.bridges.foreign.pages import Pages
from clawd.bridges.foreign.place import Place, shown, within
from clawd.bridges.foreign.skills import Skills
from clawd.bridges.foreign.talks import Talks
from clawd.errors import UsageError
from clawd.ids import folded, free, group_like, is_group_name

MAIN = "main"
HEARTBEAT = "HEARTBEAT.md"
_ITEMS = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])[ \t]+(?!\[[xX]\])\S", re.MULTILINE)


class Bringing:
    """`group` is the clawd group that everything is for; without one each folder or agent is for its own."""

    def __init__(self, home: Path, source: str, group: str | None, now: datetime | None) -> None:
        """Raises UsageError where `home` is no folder, or nothing can be called like `group`."""
        if group is not None and not is_group_name(group):
            raise UsageError(f"{group!a} cannot be a group's name")
        self.place = Place(home, source)
        self.pages, self.skills, self.talks = Pages(self.place), Skills(self.place), Talks(self.place)
        self.jobs = Jobs(self.place, now or datetime.now(UTC))
        self._group = group
        self._groups = dict[str, str]()  # by what they were called there

    def group(self, name: str, *, main: bool = False) -> str:
        """The clawd group of a folder or an agent, called like it, or as nearly as it may be."""
        if self._group is not None:
            return self._group
        if name not in self._groups:
            taken = {folded(each) for each in self._groups.values()}
            like = MAIN if main else group_like(name, self.place.brought.source)
            self._groups[name] = free(like, lambda each: main or folded(each) not in taken)
            if self._groups[name] != name:
                self.place.brought.chats.append(f"what was {shown(name)} there is the group {self._groups[name]}")
        return self._groups[name]

    def heartbeat(self, group: str, path: str) -> None:
        """A checklist that is looked at again and again: left, with what makes it one of ours."""
        if (found := self.place.text(path)) is None:
            return
        if not _ITEMS.search(found.text):
            self.place.leave(path, "there is nothing on its checklist")
            return
        self.place.leave(
            path,
            f"a checklist begins to count with your word: copy it to groups/{group}/{HEARTBEAT}, then "
            f"clawd groups set {group} heartbeat.hours 9-18",
        )

    def memories(self, group: str, folder: str, but: Callable[[str], bool] = lambda name: False) -> None:
        """Every Markdown file of a folder of memory, at any depth, but those whose path in it says so."""
        for path in self.place.files(folder):
            named = path.removeprefix(f"{folder}/")
            if but(named):
                continue
            if not path.endswith(".md"):
                self.place.leave(path, "only Markdown is brought of its memory")
            else:
                self.pages.memory(group, path, named)

    def rest(self, folder: str, known: Callable[[str], bool], why: str) -> None:
        """Say of everything in a folder that is not known that it is left."""
        for name in self.place.names(folder):
            if not known(name):
                path = within(folder, name)
                self.place.leave(path + ("/" if self.place.kind(path) == "folder" else ""), why)

    def done(self) -> Brought:
        brought = self.place.brought
        items: list[Item] = [*self.pages.items(), *self.skills.items(), *self.jobs.items(), *self.talks.items()]
        brought.items = sorted(items, key=lambda item: (item.group, item.to))
        return brought
