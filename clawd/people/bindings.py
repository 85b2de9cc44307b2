"""Which group a chat belongs to, by every `group.toml`; which conversation a message in it is part of; and how a chat
comes to have a group.

A chat that two groups claim belongs to neither. A `group.toml` that cannot be understood binds nothing meanwhile, and
while there is one, no chat is given to another group: it may be that one's.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import anyio
from anyio import to_thread

from clawd.config import edit
from clawd.config.home import Home, group_folders
from clawd.config.live import LiveConfig
from clawd.config.load import load_group, parse_group
from clawd.errors import ClawdError, ConfigError, UsageError
from clawd.files import sync_directory, write_atomic
from clawd.ids import folded, is_group_name
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import binding_of
from clawd.model import Incoming

MAIN = "main"  # the owner's own group


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message belongs: its group and the plain id of its conversation."""

    group: str
    base: str


@dataclass(frozen=True, slots=True)
class Index:
    """`claims`: the groups of each binding. `broken`: groups whose file cannot be understood, and why."""

    claims: Mapping[str, tuple[str, ...]]
    broken: Mapping[str, ConfigError]

    def of(self, binding: str) -> tuple[str, ...]:
        return self.claims.get(binding, ())

    def doubled(self) -> list[str]:
        """A sentence for each chat that more than one group claims."""
        return [twice(binding, names) for binding, names in self.claims.items() if len(names) > 1]


def twice(binding: str, names: Sequence[str]) -> str:
    named = " and ".join(names)
    return f"{binding} is in the bindings of {named}: it belongs to neither until one of their group.toml lets it go"


def index(folders: Iterable[str], bindings: Callable[[str], Sequence[str]]) -> Index:
    """`bindings` of a folder raises ConfigError."""
    claims: dict[str, tuple[str, ...]] = {}
    broken = {}
    for folder in folders:
        try:
            for binding in dict.fromkeys(bindings(folder)):
                claims[binding] = (*claims.get(binding, ()), folder)
        except ConfigError as error:
            broken[folder] = error
    return Index(claims, broken)


def of_home(home: Home) -> Index:
    """As the files are now, for a program that is no daemon."""
    return index(group_folders(home), lambda folder: load_group(home, folder).bindings)


def group_name(title: str, taken: Iterable[str]) -> str:
    """A name for a new group, like the title of its chat, that none has: "Família 👪" is `familia`."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9]+", "-", plain)[:40].strip("-") or "chat"
    there = {folded(name) for name in taken}
    names = (base if n == 1 else f"{base}-{n}" for n in range(1, len(there) + 3))
    return next(name for name in names if folded(name) not in there and is_group_name(name))


class Bindings:
    """`told` hears of each chat that is claimed twice."""

    def __init__(self, home: Home, config: LiveConfig, ledger: Ledger, told: Callable[[str], None]) -> None:
        self._home, self._config, self._ledger, self._told = home, config, ledger, told
        self._doubled: list[str] = []  # as it was told
        self._reading = anyio.Lock()

    async def now(self) -> Index:
        """One `stat` a group where nothing changed. One at a time: nothing is read twice."""
        async with self._reading:
            found = await to_thread.run_sync(self.read)
        doubled = found.doubled()
        for sentence in doubled:
            if sentence not in self._doubled:
                self._told(sentence)
        self._doubled = doubled
        return found

    def read(self) -> Index:
        """The same, in any thread."""
        return index(group_folders(self._home), self._bindings)

    def _bindings(self, folder: str) -> Sequence[str]:
        bound, problem = self._config.group(folder).bindings, self._config.problem_of(folder)
        if isinstance(problem, ConfigError):
            raise problem
        return bound

    # ── conversations ──

    async def place(self, chat: Incoming, group: str) -> Place:
        """Where a message belongs whose chat is bound to this group."""
        config = self._config.group(group)
        if config.sessions == "thread" and chat.thread:
            return Place(group, await self._base(f"{binding_of(chat)}:{chat.thread}", group))
        return Place(group, await self.base(group))

    async def base(self, group: str) -> str:
        """The plain id of a group's own conversation: its first binding, or its terminal."""
        return await self._base(self._config.first_binding(group), group)

    async def _base(self, base: str, group: str) -> str:
        return await self._ledger.do(lambda tx: groups.own_base(tx, base, group))

    # ── giving a chat a group ──

    async def bind_main(self, binding: str) -> None:
        """A direct chat of an owner is part of `main`. What was said there at the terminal before stays the same
        conversation. Raises ClawdError or OSError: then nothing changed."""
        spoken = await self._ledger.do(lambda tx: groups.session(tx, f"terminal:{MAIN}"))
        await to_thread.run_sync(self.bind, MAIN, binding, spoken is not None)

    def bind(self, group: str, binding: str, terminal: bool = False) -> None:
        """Add a chat to a group, in any thread; with `terminal`, behind its terminal if it is the first. Done already
        is no error. Raises ClawdError or OSError: then nothing changed."""
        self._check_free(binding, group)
        file = self._home.group(group).config_file
        bound = load_group(self._home, group).bindings
        if binding not in bound:
            first = [f"terminal:{group}"] if terminal and not bound else []
            edit.change(file, {}, {"bindings": [*first, binding]})

    def make(self, group: str, binding: str, shared: bool) -> None:
        """A new group, for this chat, in any thread: its folder with its `group.toml`, whole or not at all. Done
        already is no error. Raises ClawdError where there is a group of this name, or OSError."""
        if self._check_free(binding, group):
            return
        target, whole = self._home.group(group).root, self._home.groups / f".{secrets.token_hex(8)}.new"
        if not is_group_name(group):
            raise UsageError(f"{group!a} cannot be a group's name")
        answer = 'answer = "mention"\n' if shared else ""
        text = f"schema = 1\nbindings = [{json.dumps(binding)}]\n{answer}"
        parse_group(text)
        whole.mkdir(mode=0o700)
        try:
            write_atomic(whole / self._home.group(group).config_file.name, text.encode())
            os.rename(whole, target)  # noqa: PTH104  (onto an empty directory, too, but onto nothing else)
        except OSError as error:
            shutil.rmtree(whole, ignore_errors=True)
            if target.exists():
                raise ClawdError(f"there is a group {group} already", hint=f"clawd groups show {group}") from error
            raise
        sync_directory(self._home.groups)

    def _check_free(self, binding: str, group: str) -> bool:
        """Whether the chat is this group's already. Raises ClawdError where it is, or may be, another's."""
        found = self.read()
        others = [name for name in found.of(binding) if name != group]
        if others:
            raise ClawdError(f"{binding} belongs to the group {others[0]}")
        if found.broken:
            folder, error = next(iter(found.broken.items()))
            raise ClawdError(f"nothing can be bound while groups/{folder}/group.toml is not understood: {error}")
        return bool(found.of(binding))
