"""A skill that an agent wrote is kept in its group: always with the owner's yes, who is shown its SKILL.md whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawd.approvals.kind import Kind, Words
from clawd.approvals.words import named
from clawd.config.home import Home
from clawd.errors import UnsafePath
from clawd.files import read_beneath
from clawd.ledger import authored
from clawd.ledger.db import Transaction
from clawd.skills import proposals
from clawd.skills.catalogue import PROPOSED
from clawd.skills.manifest import Manifest, manifest, version
from clawd.skills.skill import FILE, MOST


@dataclass(frozen=True, slots=True)
class Proposed:
    """`sha256` is that of the folder's manifest: paths, rights and contents."""

    group: str
    name: str
    sha256: str


class Skill(Kind):
    name, Effect, edits, undoes, most = "skill", Proposed, True, True, proposals.MOST_WAITING

    def __init__(self, home: Home) -> None:
        self._home = home

    def subject(self, effect: Proposed) -> str:
        return f"{effect.group} {effect.name} {effect.sha256}"

    def group(self, effect: Proposed) -> str:
        return effect.group

    def words(self, tx: Transaction, effect: Proposed) -> Words:
        acts = authored.acts(tx, "skill", effect.group, effect.sha256)
        at, found = self._at(effect), self._manifest(effect)
        size = sum(file.size for file in found.files)
        lines = [
            f"Its agent made it: {len(found.files)} files with {size:,} bytes, in {at}. What they say is not ours.",
            f"It came from a turn that acted for {acts.role}, with a trust of {acts.taint:g}: whatever reads it may do"
            " no more than that turn could.",
        ]
        if self._used(effect) is not None:
            lines.append("It takes the place of the skill of this name, which is kept aside.")
        elif (self._home.skills / effect.name).exists():
            lines.append("It takes the place, in this group, of the skill of this name that all groups have.")
        listed = "\n".join(f"{file.path}  {file.size} bytes  {file.sha256}" for file in found.files)
        text = read_beneath(at, FILE, MOST).decode("utf-8", "replace")
        return Words(
            f"use the skill {named(effect.name)} in the group {effect.group}",
            lines,
            "Its files, then its SKILL.md, whole:",
            f"{listed}\n\n{text}",
        )

    def reminder(self, effect: Proposed) -> str:
        return f'You proposed the skill "{effect.name}".'

    def rests_on(self, tx: Transaction, effect: Proposed) -> Any:
        return {"manifest": self._manifest(effect).sha256, "replaces": self._used(effect)}

    def refuse(self, tx: Transaction, effect: Proposed) -> str | None:
        if self._manifest(effect).sha256 != effect.sha256:
            return f"{self._at(effect)} is not what was proposed"
        return None

    def edit(self, effect: Proposed) -> None:
        proposals.accept(self._skills(effect), effect.name, effect.sha256)

    def execute(self, tx: Transaction, effect: Proposed, now: str) -> str:
        return f"the skill {effect.name} is used from the next turn on"

    def undo(self, effect: Proposed) -> None:
        proposals.withdraw(self._skills(effect), effect.name, effect.sha256)

    def _skills(self, effect: Proposed) -> Path:
        return self._home.group(effect.group).skills

    def _at(self, effect: Proposed) -> Path:
        return self._skills(effect) / PROPOSED / effect.name

    def _manifest(self, effect: Proposed) -> Manifest:
        """Raises UnsafePath."""
        try:
            return manifest(self._at(effect))
        except OSError as error:
            raise UnsafePath(f"{self._at(effect)} cannot be read ({error.strerror})") from None

    def _used(self, effect: Proposed) -> str | None:
        """The skill that it would replace, by the sha256 of its manifest."""
        at = self._skills(effect) / effect.name
        return version(at) or ("unreadable" if at.exists() or at.is_symlink() else None)
