"""What an agent has done to a schedule: it is taken up, put out of force or in force again, or taken away. Whatever it
says, it acts for nobody above the turn that wrote it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from clawd.approvals.chats import is_barred
from clawd.approvals.kind import Kind, Words
from clawd.clock import Clock
from clawd.config.home import Home
from clawd.config.load import load_config, load_group, merged
from clawd.errors import ClawdError
from clawd.ledger import authored, firings, groups
from clawd.ledger.db import Transaction
from clawd.schedules import edits, store
from clawd.schedules.file import ScheduleFile, parse_schedule
from clawd.schedules.listing import local, locals_, proposed
from clawd.schedules.making import MOST, body, coming
from clawd.schedules.spoken import spoken
from clawd.schedules.times import rule_of, said
from clawd.trust import Role

Action = Literal["add", "remove", "pause", "resume"]
_TITLES = {"add": "take up the schedule {}", "remove": "take away the schedule {}", "pause": "pause the schedule {}",
           "resume": "have the schedule {} in force again"}  # fmt: skip
_DONE = {"add": "the schedule {} is in force", "remove": "the schedule {} is taken away, and kept in schedules/done/",
         "pause": "the schedule {} is paused", "resume": "the schedule {} is in force again"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """`text` is the file, whole: of `add` as it will be, else as it is. `sha256` is its."""

    group: str
    id: str
    action: Action
    text: str
    sha256: str


class Schedule(Kind):
    name, Effect, edits = "schedule", Change, True

    def __init__(self, home: Home, clock: Clock, look: Callable[[str], None]) -> None:
        """`look` is told that a group's schedules have changed."""
        self._home, self._clock, self._look = home, clock, look

    def subject(self, effect: Change) -> str:
        return f"{effect.group}/{effect.id} {effect.action} {edits.digest(body(effect.text))}"

    def group(self, effect: Change) -> str:
        return effect.group

    def words(self, tx: Transaction, effect: Change) -> Words:
        title = f"{_TITLES[effect.action].format(effect.id)} of the group {effect.group}"
        return Words(title, self._lines(tx, effect), f"Its file, schedules/{effect.id}.toml:", effect.text)

    def _lines(self, tx: Transaction, effect: Change) -> list[str]:
        acts, _ = authored.voice(tx, "schedule", effect.group, effect.sha256)
        whom = "you" if acts.role is Role.OWNER else f"nobody above {acts.role}"
        lines = [f"It acts for {whom}, and is trusted at {acts.taint:g}, for as long as it is there."]
        try:
            file = parse_schedule(effect.text, "its file")
            rule = rule_of(file, self._zone(effect.group))
        except ClawdError as error:
            return [*lines, f"As it is it does nothing: {error.message}."]
        dues = locals_(coming(rule, self._clock.now(), self._clock.now()), rule.zone)
        lines.insert(0, f"It is due {spoken(rule)}: {said(rule)}; next: {dues or 'never'}.")
        if rule.until is not None:
            lines.append(f"It ends on {local(rule.until, rule.zone)}.")
        if file.deliver_to:
            lines.append(f"Its answers go to {file.deliver_to}.")
        if file.check:
            lines.append("Before each run it runs a command of its own in the sandbox.")
        return lines

    def reminder(self, effect: Change) -> str:
        return f"You asked to {effect.action} the schedule {effect.id}."

    def rests_on(self, tx: Transaction, effect: Change) -> Any:
        there = edits.read(self._home.group(effect.group).schedules, effect.id)
        return None if there is None else edits.digest(there)

    def refuse(self, tx: Transaction, effect: Change) -> str | None:
        there = self.rests_on(tx, effect)
        if effect.action != "add":
            gone = f"there is no schedule {effect.id}" if there is None else f"the schedule {effect.id} was changed"
            return None if there == effect.sha256 else gone
        if there is not None:
            return f"there is a schedule {effect.id} already"
        if groups.find(tx, effect.group) is None:
            return f"there is no group {effect.group}"
        others = [each for each in proposed(tx, effect.group) if each["sha256"] != effect.sha256]
        if len(others) + len(store.stamps(self._home.group(effect.group).schedules)) >= MOST:
            return f"the group has {MOST} schedules, with those that are proposed, and an agent may not add to them"
        return self._unheard(tx, effect.group, parse_schedule(effect.text, "the schedule"))

    def _unheard(self, tx: Transaction, group: str, file: ScheduleFile) -> str | None:
        """Why its answers cannot go where it says."""
        if file.deliver_to is None:
            return None
        if (why := edits.unheard(file, group, load_group(self._home, group).bindings)) is not None:
            return why
        return f"the owner has not said yes to {file.deliver_to} yet" if is_barred(tx, group, file.deliver_to) else None

    def edit(self, effect: Change) -> None:
        directory = self._home.group(effect.group).schedules
        if effect.action == "add":
            edits.put(directory, effect.id, effect.text)
        elif effect.action != "remove":
            edits.switch(directory, effect.id, effect.text, effect.action == "resume")
        elif (there := edits.read(directory, effect.id)) == effect.text:
            edits.retire(directory, effect.id)
        elif there is not None:
            raise ClawdError(f"schedules/{effect.id}.toml was changed meanwhile")

    def execute(self, tx: Transaction, effect: Change, now: str) -> str:
        if effect.action == "resume" and firings.find(tx, (effect.group, effect.id)):
            firings.resume(tx, (effect.group, effect.id), self._clock.now())
        return _DONE[effect.action].format(f"{effect.group}/{effect.id}")

    def after(self, effect: Change) -> None:
        self._look(effect.group)

    def _zone(self, group: str) -> str:
        return merged(load_config(self._home, dict(os.environ)), load_group(self._home, group)).timezone
