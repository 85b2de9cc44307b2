"""A `[[watch]]` of an agent's is written into its group's `group.toml`, or taken out of it. Whatever it says, it acts
for nobody above the turn that wrote it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from clawd.approvals.kind import Kind, Words
from clawd.approvals.words import named
from clawd.config import edit
from clawd.config.group import Watch as Rule
from clawd.config.home import Home
from clawd.config.load import load_group
from clawd.ledger import authored, groups
from clawd.ledger.db import Transaction
from clawd.trust import Role

MOST = 10  # of a group, by agents


@dataclass(frozen=True, slots=True)
class Change:
    """`rule` is all that it says, `sha256` that of it."""

    group: str
    action: Literal["add", "remove"]
    rule: dict[str, Any]
    sha256: str


class Watch(Kind):
    name, Effect, edits = "watch", Change, True

    def __init__(self, home: Home, watched: Callable[[str], None]) -> None:
        """`watched` is told which group has other watches now."""
        self._home, self._watched = home, watched
        self._one = threading.Lock()  # two of the same come to one

    def subject(self, effect: Change) -> str:
        return f"{effect.group} {effect.action} {effect.sha256}"

    def group(self, effect: Change) -> str:
        return effect.group

    def words(self, tx: Transaction, effect: Change) -> Words:
        rule, acts = Rule(**effect.rule), authored.acts(tx, "watch", effect.group, effect.sha256)
        where = ", ".join(map(named, rule.paths))
        if effect.action == "remove":
            return Words(f"no longer wake the group {effect.group} when files change in {where}")
        whom = "you" if acts.role is Role.OWNER else f"nobody above {acts.role}"
        return Words(
            f"wake the group {effect.group} whenever files change in {where}",
            [
                f"It acts for {whom}, and is trusted at {acts.taint:g}, for as long as it is there.",
                f"What counts: {', '.join(rule.events)}; names like {', '.join(map(named, rule.globs))}."
                f" At most {rule.max_per_hour} times an hour.",
            ],
            "What the agent is told then:",
            rule.prompt,
        )

    def reminder(self, effect: Change) -> str:
        return f"You asked to {effect.action} a watch on {', '.join(Rule(**effect.rule).paths)}."

    def rests_on(self, tx: Transaction, effect: Change) -> Any:
        return effect.action == "add" or effect.sha256 in self._there(effect.group)

    def refuse(self, tx: Transaction, effect: Change) -> str | None:
        there = self._there(effect.group)
        if effect.action == "remove":
            return None if effect.sha256 in there else "there is no such watch any more"
        if effect.sha256 in there:  # asked for twice, it is there once
            return None
        if groups.find(tx, effect.group) is None:
            return f"there is no group {effect.group}"
        if sum(authored.of_agent(tx, "watch", effect.group, each) is not None for each in there) >= MOST:
            return f"the group has {MOST} watches of its agent's, and it may not add to them"
        return None

    def _there(self, group: str) -> list[str]:
        return [digest(rule) for rule in load_group(self._home, group).watch]

    def edit(self, effect: Change) -> None:
        file = self._home.group(effect.group).config_file
        with self._one:
            there = effect.sha256 in self._there(effect.group)
            if effect.action == "add" and not there:
                edit.change(file, {}, {"watch": [Rule(**effect.rule).model_dump(mode="json", exclude_defaults=True)]})
            if effect.action == "remove" and there:
                edit.remove(file, "watch", lambda item: digest(Rule(**item)) == effect.sha256)

    def execute(self, tx: Transaction, effect: Change, now: str) -> str:
        where, done = ", ".join(Rule(**effect.rule).paths), "is" if effect.action == "add" else "is no longer"
        return f"the group {effect.group} {done} woken when files change in {where}"

    def after(self, effect: Change) -> None:
        self._watched(effect.group)


def digest(rule: Rule) -> str:
    """What a rule is known by, whoever wrote it."""
    return authored.digest(rule.model_dump(mode="json"))
