"""Writing what was brought in to `groups/<g>/import/<source>/`, and the account of it, `import.json`.

Doing it twice changes nothing: an item is known by where it lies, and its bytes by their sha256. What a person changed
there, or took away, is theirs. Before anything is written, the account says what is coming: so a run that was killed
is known from a person's hand, and the next one ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from clawd import faults
from clawd.arrivals import account
from clawd.arrivals.account import Account, Entry, Note, told
from clawd.arrivals.items import Brought, Item, Left
from clawd.arrivals.report import report
from clawd.clock import Clock, SystemClock, rfc3339
from clawd.config.begin import ensure_group
from clawd.config.home import Home, group_folders
from clawd.errors import Refused, UnsafePath, UsageError
from clawd.files import remove_tree, sync_directory
from clawd.ids import folded, folder_name

MOST_GROUPS = 200  # of one home: whoever made that names them
_EDITED = "what lies in import/ was changed by hand, and stays"
_KEPT = f"{_EDITED}; another version has come since"
_AWAY = "it was taken out of import/ by hand"
_COMING, _GOING = ".coming-", ".going-"  # a folder that is being written, one that gives way to it


def stage(
    home: Home,
    brought: Brought,
    *,
    dry_run: bool,
    make: Callable[[str], object] | None = None,
    clock: Clock | None = None,
) -> dict[str, Any]:
    """{source, home, dry_run, groups[], made[], came[{kind, group, from, to, state: new|changed|same, use:
    waits|accepted|left, changed[]}], left[{from, why}], keys[], allowed[], chats[]}. `make` makes a group that is not
    there: those are `made`. Raises UsageError, Refused, StorageError, UnsafePath."""
    account.check_source(brought.source)
    make = make or (lambda name: ensure_group(home, folder_name(name)))
    now, came, left = rfc3339((clock or SystemClock()).now()), list[dict[str, Any]](), list(brought.left)
    groups, made = list(dict.fromkeys(item.group for item in brought.items)), list[str]()
    there = {folded(each): each for each in group_folders(home)}
    for group in groups:
        folder_name(group)
        if there.setdefault(folded(group), group) != group:
            raise UsageError(f"there is a group {there[folded(group)]!r} already; {group!a} differs in case alone")
    if len(groups) > MOST_GROUPS:
        raise UsageError(
            f"it is for {len(groups):,} groups; at most {MOST_GROUPS} are made at a time",
            hint="--group G brings all of it into one",
        )
    for group in groups:
        items, unfit = _sound(each for each in brought.items if each.group == group)
        left += unfit
        if group not in group_folders(home):
            made.append(group)
            if not dry_run:
                make(group)
        came += _Staged(home, brought, group, now, dry_run).put(items, left)
    return {
        "source": brought.source,
        "home": str(brought.home),
        "dry_run": dry_run,
        "groups": groups,
        "made": made,
        "came": came,
        "left": [{"from": each.source, "why": each.why} for each in left],
        "keys": list(brought.keys),
        "allowed": list(brought.allowed),
        "chats": list(brought.chats),
    }


def _sound(items: Iterable[Item]) -> tuple[list[Item], list[Left]]:
    """Those that can lie where they are to, and each other's twins nowhere."""
    left, taken = list[Left](), dict[str, Item]()
    for item in items:
        if why := account.refused(item.kind, item.to, item.files):
            left.append(Left(item.source, why))
            continue
        inside = dict[str, str]()
        twins = [path for path in item.files if inside.setdefault(folded(path), path) != path]
        if twins:
            left.append(Left(item.source, f"names in it differ in case or composition alone: {twins[0][:200]!a}"))
        elif (first := taken.get(folded(item.to))) is None:
            taken[folded(item.to)] = item
        elif first != item:
            left.append(Left(item.source, f"{first.source} has its place, {item.to}"))
    return list(taken.values()), left


class _Staged:
    """What one group has of it."""

    def __init__(self, home: Home, brought: Brought, group: str, now: str, dry_run: bool) -> None:
        self._home, self._brought, self._group, self._now, self._dry = home, brought, group, now, dry_run
        self._place = home.group(group).arrivals / brought.source

    def put(self, items: list[Item], left: list[Left]) -> list[dict[str, Any]]:
        """A row for each; what stays as it was by a person's hand is added to `left`."""
        if self._dry:
            with told(self._place):
                return self._compared(account.read(self._place), items, left)[0]
        if not items:
            return []
        account.place_of(self._home, self._group, self._brought.source)
        with told(self._place), account.alone(self._place), account.still(self._place):
            account.sweep(self._place)
            before = account.read(self._place)
            rows, entries, coming = self._compared(before, items, left)
            known = {each.to: each for each in before.items} if before is not None else {}
            others = [each for to, each in known.items() if to not in entries]
            if coming:
                marked = {to: each.model_copy(update={"coming": entries[to].sha256}) for to, each in known.items()
                          if to in coming}  # fmt: skip
                for to in coming - marked.keys():
                    marked[to] = entries[to].model_copy(update={"sha256": "", "coming": entries[to].sha256})
                untouched = [each for to, each in known.items() if to not in coming]
                account.write(self._place, self._account(before, [*untouched, *marked.values()], left, new=True))
                faults.passing("staging")
                for item in items:
                    if item.to in coming:
                        self._write(item)
                        faults.passing("staged")
            after = self._account(before, [*others, *entries.values()], left, new=bool(coming))
            account.write(self._place, after)
            account.put(self._place, account.REPORT, report(self._group, after).encode())
        return rows

    def _compared(
        self, before: Account | None, items: list[Item], left: list[Left]
    ) -> tuple[list[dict[str, Any]], dict[str, Entry], set[str]]:
        """The rows, the entries as they will be, and what of them is to be written."""
        if before is not None and before.home != str(self._brought.home):
            raise Refused(
                f"what lies in {self._place} came from {before.home}, not from {self._brought.home}",
                hint="move that folder away, or bring this into another group (--group)",
            )
        known = {each.to: each for each in before.items} if before is not None else {}
        rows, entries, coming = list[dict[str, Any]](), dict[str, Entry](), set[str]()
        for item in items:
            entry, sha256 = known.get(item.to), account.digest(item.files)
            fresh = Entry.model_validate(
                {"kind": item.kind, "from": item.source, "to": item.to, "sha256": sha256, "changed": item.changed,
                 "at": self._now}
            )  # fmt: skip
            state, kept = "same", ""
            try:
                files = account.lying(self._place, item.to)
            except (FileNotFoundError, NotADirectoryError):
                files = None
            except UnsafePath as error:
                files, kept = None, error.message
            lies = None if files is None else account.digest(files)
            ours = entry is not None and lies in {entry.sha256, entry.coming}
            if kept:
                entries[item.to] = entry or fresh.model_copy(update={"sha256": "", "state": "left", "why": kept})
            elif lies == sha256 and entry is not None and entry.sha256 == sha256:
                entries[item.to] = entry.model_copy(update={"coming": ""})
            elif lies == sha256:  # an earlier run was killed behind it
                state = "changed" if entry is not None and entry.sha256 else "new"
                entries[item.to] = _again(entry, fresh)
            elif entry is not None and lies is None and not entry.coming:
                kept = _AWAY
                entries[item.to] = entry
            elif lies is not None and not ours:
                kept = _KEPT if entry is None or entry.sha256 != sha256 else _EDITED
                entries[item.to] = entry or fresh.model_copy(update={"sha256": ""})
            else:
                state = "changed" if entry is not None and entry.sha256 else "new"
                entries[item.to] = _again(entry, fresh)
                coming.add(item.to)
            if kept:
                left.append(Left(item.source, kept))
            rows.append(
                {"kind": item.kind, "group": self._group, "from": item.source, "to": item.to, "state": state,
                 "use": entries[item.to].state, "changed": list(item.changed)}
            )  # fmt: skip
        return rows, entries, coming

    def _account(self, before: Account | None, items: Iterable[Entry], left: list[Left], *, new: bool) -> Account:
        brought = self._brought
        return Account.model_validate({
            "schema": account.SCHEMA,
            "source": brought.source,
            "home": str(brought.home),
            "brought": self._now if new or before is None else before.brought,
            "items": tuple(sorted(items, key=lambda each: (each.kind, each.to))),
            "left": tuple(Note.model_validate({"from": each.source, "why": each.why}) for each in left),
            "keys": tuple(brought.keys),
            "allowed": tuple(brought.allowed),
            "chats": tuple(brought.chats),
        })  # fmt: skip

    def _write(self, item: Item) -> None:
        if "" in item.files:
            account.put(self._place, item.to, item.files[""])
            return
        parent, _, name = item.to.rpartition("/")
        folder = account.make(self._place, parent)
        _swept(folder, name)
        new, old = folder / f"{_COMING}{name}", folder / f"{_GOING}{name}"
        for path, data in item.files.items():
            account.put(self._place, f"{parent}/{new.name}/{path}", data)
        account.make(self._place, f"{parent}/{new.name}")
        if (folder / name).exists():
            (folder / name).rename(old)
            faults.passing("staging-swap")
        new.rename(folder / name)
        sync_directory(folder)
        remove_tree(old)


def _swept(folder: Path, name: str) -> None:
    """What a killed run left of it."""
    for left in (folder / f"{_COMING}{name}", folder / f"{_GOING}{name}"):
        remove_tree(left)


def _again(entry: Entry | None, fresh: Entry) -> Entry:
    """What came anew waits, and what was made of it before is remembered."""
    return fresh if entry is None else fresh.model_copy(update={"accepted": entry.accepted, "parts": entry.parts})
