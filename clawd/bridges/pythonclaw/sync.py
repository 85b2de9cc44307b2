"""Both ways between a group and a PythonClaw home: what is new there is staged as an import is, and what is new here is
put there. Doing it again changes nothing.

Nothing of either side is lost or replaced but where the other is known to have it from here or there, and to be older:
sessions and daily logs only grow, a fact gives way only where it still is what both had. What both sides changed is
told, and neither is touched. Each chat with a memory of its own there has a group of its own here: its memory is synced
with that group's alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from clawd.arrivals.items import Brought, Item
from clawd.bridges.pythonclaw import home as homes
from clawd.bridges.pythonclaw import memories, ours, reading, target, writing
from clawd.bridges.pythonclaw.align import aligned
from clawd.bridges.pythonclaw.forms import CAP, index_bytes, memory_bytes, session_bytes, session_name
from clawd.bridges.pythonclaw.sessions import marked
from clawd.bridges.pythonclaw.target import Target, of_value
from clawd.bridges.pythonclaw.writing import DYNAMIC, JOBS, SESSIONS
from clawd.commands.arrivals import staged
from clawd.config.home import Home, group_folders
from clawd.errors import UnsafePath
from clawd.ids import folder_name
from clawd.memory import daily
from clawd.memory.keyed import FACTS, INDEX, Fact, with_fact
from clawd.model import Block
from clawd.sessions.format import parse, write_file
from clawd.sessions.names import rebuild

Way = Literal["same", "in", "out", "forgotten here", "forgotten there", "both"]
_NEVER = datetime(1970, 1, 2).astimezone()
_CAPPED = f"or PythonClaw, which keeps the last {CAP} messages, has dropped what both knew"
_BOTH = "it went on here and there in different ways: neither is touched"


def sync(home: Home, group: str, to: Path, dry_run: bool) -> dict[str, Any]:
    """{group, home, dry_run, came[as in staging], wrote[as in export], left[{from, why}]}. Raises NotFound,
    ConfigError, UsageError, Refused while PythonClaw runs, StorageError, UnsafePath."""
    ours.check(home, folder_name(group))
    root = homes.found(to)
    into = target.opened(root, dry_run)
    with into.alone():
        sides = _Sides(home, group, into, reading.read(root, None), reading.memory_of(root, group))
        coming = sides.settled()
        came = staged(home, coming, dry_run=dry_run) if coming.items else {"came": [], "left": []}
        into.write()
    for each in coming.left:
        into.account.leave(each.source, each.why)
    for row in came["left"]:
        into.account.leave(row["from"], row["why"])
    made = writing.report(group, into)
    return {**{key: made[key] for key in ("group", "home", "dry_run")}, "came": came["came"],
            "wrote": made["wrote"], "left": made["left"]}  # fmt: skip


def way(here: str | None, there: str | None, before: str | None, *, newer_here: bool, newer_there: bool) -> Way:
    """Which way a fact goes: by the digests of its values here, there, and when both had the same."""
    if here == there:
        return "same"
    if here is None:
        return "forgotten here" if before == there else "in"
    if there is None:
        return "forgotten there" if before is not None else "out"
    if before == there and newer_here:
        return "out"
    return "in" if before == here and newer_there else "both"


class _Sides:
    """A group, and what PythonClaw has for it. `folder` is the memory there that is this group's."""

    def __init__(self, home: Home, group: str, into: Target, brought: Brought, folder: str) -> None:
        self._home, self._group, self._into, self._brought, self._folder = home, group, into, brought, folder
        wanted = group if folder != writing.MEMORY else reading.MAIN
        self._items = [replace(item, group=group) for item in brought.items if item.group == wanted]

    def settled(self) -> Brought:
        """Puts what goes there, and gives what comes."""
        kept = ours.memory(self._home, self._group)
        for source, why in kept.left:
            self._into.account.leave(source, why)
        coming = [
            *self._sessions(),
            *self._facts(kept.facts),
            *self._days(kept.days),
            *self._index(kept.index),
            *self._others(),
        ]
        return replace(self._brought, items=coming)

    def _of(self, *kinds: str) -> list[Item]:
        return [item for item in self._items if item.kind in kinds]

    # ── sessions ──

    def _sessions(self) -> list[Item]:
        here, there = ours.sessions(self._home, self._group), dict[str, Item]()
        elsewhere = self._elsewhere()
        for item in self._of("session"):
            if (id := parse(item.files[""]).session) is not None:
                there[id] = item
        coming = list[Item]()
        for id, item in there.items():
            if id in here:
                coming += self._grown(id, here[id], item)
            elif id in elsewhere:
                other = elsewhere[id]
                self._into.account.leave(
                    item.source, f"it is of the group {other} here: sync that with --group {other}"
                )
            elif not self._into.ours(item.source):
                coming.append(item)
        missing = [id for id in writing.reachable(here, self._into) if id not in there]
        for id in missing:
            writing.session(id, here[id], self._into)
        return coming

    def _elsewhere(self) -> dict[str, str]:
        found = dict[str, str]()
        for folder in group_folders(self._home):
            if folder != self._group:
                found |= dict.fromkeys(rebuild(self._home.group(folder).sessions), folder)
        return found

    def _grown(self, id: str, here: list[Block], item: Item) -> list[Item]:
        there = parse(item.files[""]).blocks
        found = aligned(here, there)
        if found is None:
            self._into.account.leave(item.source, _BOTH if len(there) < CAP else f"{_BOTH}, {_CAPPED}")
        elif found.new_there:
            data = write_file(id, [*here, *marked(found.new_there)])
            return [replace(item, files={"": data})]
        elif found.new_here:
            self._append(id, found.new_here, here, item)
        return []

    def _append(self, id: str, new: Iterable[Block], here: list[Block], item: Item) -> None:
        """Behind what is there: as PythonClaw itself would write the whole, but for what it alone had."""
        path = f"{SESSIONS}/{session_name(id)}"
        try:
            old = self._into.there(path)
        except UnsafePath as error:
            self._into.account.leave(id, error.message)
            return
        if path != item.source or old is None or not old.endswith(b"\n---\n") or parse(old).problems:
            self._into.account.leave(id, f"{item.source} is damaged, or has another's name: it is not added to")
            return
        more = session_bytes(id, list(new))[len(session_bytes(id, [])) :]
        self._into.force("session", id, {path: old + more}, writing.noted(id, here), ours=self._into.ours(path))

    # ── memory ──

    def _facts(self, here: Mapping[str, Fact]) -> list[Item]:
        path, into = f"{self._folder}/{FACTS}", self._into
        try:
            data = into.there(path)
        except UnsafePath as error:
            into.account.leave(path, error.message)
            return []
        there = memories.read(data).facts if data is not None else {}
        here = {key: fact for key, fact in here.items() if key in there or not self._is_a_chats(fact)}
        coming, going = list[Fact](), list[Fact]()
        for key in dict.fromkeys(chain(there, here)):
            mine, its = here.get(key), there.get(key)
            mark, its_mark = (of_value(each.value) if each else None for each in (mine, its))
            goes = way(
                mark, its_mark, into.facts.get(key), newer_here=_newer(mine, its), newer_there=_newer(its, mine)
            )  # fmt: skip
            if goes == "in" and its is not None:
                coming.append(its)
            elif goes == "out" and mine is not None:
                going.append(mine)
            elif goes == "both":
                into.account.leave(f"memory/{FACTS} ({key})", "it has other values here and there: neither is touched")
            elif goes in ("forgotten here", "forgotten there"):
                into.account.leave(f"memory/{FACTS} ({key})", f"it was {goes}, and stays on the other side")
            elif mark is not None:
                into.facts[key] = mark
        if going:
            new = data or memory_bytes([])
            for fact in going:
                new = with_fact(new, fact.key, fact.value, fact.updated or _NEVER)
                into.facts[fact.key] = of_value(fact.value)
            into.force("facts", f"memory/{FACTS}", {path: new}, ours=data is None or into.ours(path))
        items = self._of("facts")
        if not coming or not items:
            return []
        return [replace(items[0], files={"": memories.file(coming)})]

    def _is_a_chats(self, fact: Fact) -> bool:
        """Whether it came from the memory of a chat, with `import --group`: it is not for the others there."""
        return self._merged.get(fact.key) == fact.value

    @cached_property
    def _merged(self) -> dict[str, str]:
        """What the chats have that are no groups here, under the keys that `import --group` gives it."""
        if self._folder != writing.MEMORY:
            return {}
        facts = reading.chats_facts(self._into.root, set(group_folders(self._home)))
        return {key: fact.value for key, fact in facts.items()}

    def _days(self, here: Mapping[date, bytes]) -> list[Item]:
        coming, there = list[Item](), dict[date, bytes]()
        for item in self._of("day"):
            day = daily.day_of(item.to.rpartition("/")[2])
            if day is None:
                continue
            there[day] = item.files[""]
            own = self._home.group(self._group).memory / f"{day}.md"
            mine = own.read_bytes() if own.is_file() and not own.is_symlink() else b""
            if not self._into.ours(item.source) and _missing(there[day], mine, day):
                coming.append(item)
        for day, data in here.items():
            path = f"{self._folder}/{day}.md"
            if day not in there:
                self._into.put("day", f"memory/{day}.md", {path: data})
            elif self._into.there(path) == there[day] and (more := _missing(data, there[day], day)):
                old = there[day].rstrip(b"\n") + b"\n\n" if there[day].strip() else b""
                is_ours = self._into.ours(path)
                self._into.force("day", f"memory/{day}.md", {path: old + more}, ours=is_ours)
        return coming

    def _index(self, here: str) -> list[Item]:
        path, items = f"{self._folder}/{INDEX}", self._of("index")
        if not items:
            if here:
                self._into.put("index", f"memory/{INDEX}", {path: index_bytes(here)})
            return []
        said, mine = items[0].files[""].decode("utf-8", "replace").strip(), index_bytes(here)
        if said == here.strip():
            return []
        if not here:
            return [] if self._into.ours(path) else items
        if self._into.ours(path):
            self._into.put("index", f"memory/{INDEX}", {path: mine})
        elif self._into.files.get(path) == target.digest(mine):
            return items
        else:
            self._into.account.leave(f"memory/{INDEX}", "it is another one here and there: neither is touched")
        return []

    # ── the rest ──

    def _others(self) -> list[Item]:
        """Skills and schedules go where they are not; what we put there does not come back."""
        coming = list[Item]()
        root, came = self._home.group(self._group).root, ours.came_from(self._home, self._group, self._into.root)
        if self._folder == writing.MEMORY:
            writing.others(self._home, self._group, self._into)
        for item in self._of("instructions", "profile", "note", "skill", "schedule"):
            path = re.sub(rf"\A({re.escape(JOBS)}|{re.escape(DYNAMIC)}): .*\Z", r"\1", item.source)
            written = [each for each in self._into.files if each == path or each.startswith(f"{path}/")]
            known = (root / item.to).exists() or all(map(self._into.ours, written))
            if not written or not known or item.to in came:
                coming.append(item)
        return coming


def _newer(one: Fact | None, other: Fact | None) -> bool:
    """Whether nothing says that it is the older one."""
    if one is None or other is None or one.updated is None or other.updated is None:
        return True
    return one.updated >= other.updated


def _missing(data: bytes, other: bytes, day: date) -> bytes:
    """The entries of a log that another log of the day has not."""
    there = {(each.at, each.key, each.text) for each in daily.parsed(other, day)}
    pieces = (each for each in daily.parsed(data, day) if (each.at, each.key, each.text) not in there)
    return b"".join(data[each.start : each.end] for each in pieces if each.at is not None)
