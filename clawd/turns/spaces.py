"""Which memories the turns of a group keep and find: by its group.toml as it is now, and what a session began with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from clawd.config.group import GroupConfig
from clawd.errors import ClawdError
from clawd.ledger import contexts
from clawd.ledger.db import Row, Transaction
from clawd.memory.protocol import Voice
from clawd.scopes import Scopes

MOST_BESIDE = 8  # other groups that one search looks into


@dataclass(frozen=True, slots=True)
class Space:
    """Where the turns of a session keep and find memories, and who its agent is."""

    scopes: Scopes
    agent_id: str = ""

    def bound(self, voice: Voice) -> Voice:
        """The voice of such a turn."""
        source = f"{voice.source} ({self.agent_id})" if self.agent_id else voice.source
        return replace(voice, source=source, namespace=self.scopes.namespace, spaces=self.scopes.spaces)


class Spaces:
    """`config` gives what a group.toml says now, and raises ConfigError where that never could be read; `sound` says
    whether it can be read as it is now; `groups` are all that there are. They are asked at each search: who is no more
    listed is cut off at the next one."""

    def __init__(
        self,
        config: Callable[[str], GroupConfig] = lambda group: GroupConfig(),
        sound: Callable[[str], bool] = lambda group: True,
        groups: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        self._config, self._sound, self._groups = config, sound, groups

    def of(self, tx: Transaction, turn: Row) -> Space:
        """Of a turn's session: what it began with goes before what group.toml says."""
        row = contexts.find(tx, turn["session"])
        agent, namespace = (row["agent_id"], row["memory_namespace"]) if row is not None else (None, None)
        return self.space(turn["grp"], agent, namespace)

    def space(self, group: str, agent_id: str | None = None, namespace: str | None = None) -> Space:
        """What holds in a group where nothing else is said."""
        config = self._config(group)
        named = namespace if namespace is not None else config.memory_namespace or ""
        return Space(Scopes(group, self._lists(group), named), agent_id or config.agent_id or "")

    def beside(self, scopes: Scopes) -> list[tuple[str, frozenset[str]]]:
        """The other groups that list what this one lists, each with what of its memory may be read. Reads the groups'
        files: for a thread."""
        if not scopes.lists:
            return []
        found = []
        for group in sorted(self._groups()):
            try:
                spaces = scopes.beside(Scopes(group, self._lists(group)))
            except ClawdError:
                continue
            if spaces:
                found.append((group, spaces))
        return found

    def _lists(self, group: str) -> frozenset[str]:
        """None while a mistake may be in what takes one away."""
        shared = self._config(group).shared
        return frozenset(shared) if self._sound(group) else frozenset()
