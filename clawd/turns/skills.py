"""Skills of live runs: what a sandbox is shown of them, and what reading one does to its turn.

What somebody uses stays as it is until the turns end that were handed out with it; only what is new comes at once. A
skill that an agent wrote is not there for a turn above the one that wrote it, until that turn reads it and has fallen.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio import to_thread

from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.context.skills import Listed, listed, lowers
from clawd.errors import NotFound, StorageError, UsageError
from clawd.ids import is_job
from clawd.ledger import approvals, authored, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.model import Authority, Lease
from clawd.skills import proposals
from clawd.skills.shelf import Shelf, Version, acting
from clawd.tasks import Whole
from clawd.trust import Role, at_least, lowest
from clawd.turns.run import Run

log = logging.getLogger(__name__)
KIND: Literal["skill"] = "skill"


@dataclass(slots=True)
class _State:
    """What one run sees. `using` are turns that were handed out with it."""

    run: str
    shown: Mapping[str, Version | None] = field(default_factory=dict)
    listed: Listed = field(default_factory=Listed)
    using: set[int] = field(default_factory=set)
    lock: anyio.Lock = field(default_factory=anyio.Lock)


@dataclass(frozen=True, slots=True)
class Opened:
    """A skill that a turn may read now. `copy` has its files, on the host."""

    version: Version
    copy: Path
    note: str


class Skills:
    """Of all groups. The shelf has the copies."""

    def __init__(self, home: Home, ledger: Ledger, clock: Clock, shelf: Shelf) -> None:
        self._home, self._ledger, self._clock, self.shelf = home, ledger, clock, shelf
        self._states: dict[str, _State] = {}  # by group
        self._whole = Whole()

    def of(self, group: str) -> Listed:
        """What the turn of a group that was claimed last is told of."""
        state = self._states.get(group)
        return state.listed if state else Listed()

    def adopted(self, run: Run) -> None:
        """A run of an earlier daemon goes on, with the turns that it has."""
        self._states[run.group] = _State(run.id, using=set(run.live))

    async def ended(self, run: str, group: str) -> None:
        """It is known dead."""
        if (state := self._states.get(group)) is not None and state.run == run:
            del self._states[group]
        await to_thread.run_sync(self.shelf.drop, run)

    async def renew(self, run: Run, acts: Authority, turn: int | None = None) -> None:
        """Have a run see what the turn may see that it is about to be handed, or the command beside its turns, which
        acts so. What cannot be is told by what is `refused`. Raises StorageError where what it may not see stays."""
        state = self._states.get(run.group)
        if state is None or state.run != run.id:
            state = self._states[run.group] = _State(run.id)
        async with state.lock:
            state.using = {each for each in state.using if each in run.live and each != turn}
            busy = any(not is_job(run.live[each].session) for each in state.using)
            if turn is None and busy:
                return
            try:
                await self._render(run, state, acts, busy)
            except (StorageError, OSError) as error:
                log.error("the skills of group %s cannot be shown: %s", run.group, error)
                sentence = f"The skills cannot be shown as they are now: {error}"
                state.listed = listed([each for each in state.shown.values() if each], acts, [sentence])
                if state.listed.lowering:  # they are there, for its hands too
                    raise StorageError(sentence) from error
            if turn is not None:
                state.using.add(turn)

    async def _render(self, run: Run, state: _State, acts: Authority, busy: bool) -> None:
        versions, told = await to_thread.run_sync(self.shelf.look, run.group)
        if versions:
            by = await self._ledger.do(lambda tx: authored.every(tx, KIND, run.group))
            versions = acting(versions, by)
        now = listed(versions, acts, told)
        shown = state.shown or await to_thread.run_sync(self.shelf.on, run.id, versions)
        wanted = {each.key: each for each in now.told}
        if shown != wanted or not shown:
            shown = await to_thread.run_sync(lambda: self.shelf.render(run.id, wanted, shown, busy=busy))
        state.shown = shown
        # While others use them, some are older than what lies there.
        usable = tuple(version for each in now.told if (version := shown.get(each.key)) is not None)
        state.listed = Listed(usable, tuple(each for each in now.lowering if each.key not in shown), now.refused)

    # ── what tools do ──

    def names(self, run: Run) -> list[dict[str, str]]:
        """What skill_read lists."""
        now = self.of(run.group)
        free = [{"name": each.skill.name, "description": each.skill.description} for each in now.told]
        return free + [{"name": each.skill.name, "note": lowers(each)} for each in now.lowering]

    async def open(self, run: Run, lease: Lease, name: str, host_tools: frozenset[str]) -> Opened:
        """What a turn reads: where that is more than it may go on with, it has fallen when this returns. Raises
        NotFound, and UsageError where it may not fall."""
        return await self._whole(self._open(run, lease, name, host_tools))

    async def _open(self, run: Run, lease: Lease, name: str, host_tools: frozenset[str]) -> Opened:
        state = self._states.get(run.group) or _State(run.id)
        async with state.lock:
            # A group's own ("own/…") before one of all groups ("shared/…").
            seen = {each.skill.name: each for _, each in sorted(state.shown.items(), reverse=True) if each}
            hidden = {each.skill.name: each for each in state.listed.lowering}
            version = seen.get(name) or hidden.get(name)
            if version is None:
                raise NotFound(f"there is no skill {name!r}; there are {', '.join(sorted(seen | hidden)) or 'none'}")
            rows = await self._ledger.do(lambda tx: self._fall(tx, run, lease, version, host_tools))
            for row in rows:
                if (live := run.live.get(row["id"])) is not None:
                    live.role = lowest([live.role, Role(row["authority"])])
                    live.taint = min(live.taint, row["taint"])
            if name not in seen:
                # Now it may be there. Nothing of it was, so nothing that is used is touched.
                wanted = {version.key: version}
                state.shown = await to_thread.run_sync(
                    lambda: self.shelf.render(run.id, wanted, state.shown, busy=True)
                )
                left = tuple(each for each in state.listed.lowering if each is not version)
                state.listed = Listed((*state.listed.told, version), left, state.listed.refused)
        note = f"this skill was {lowers(version).partition(';')[0]}; this turn may do no more than that now"
        return Opened(version, self.shelf.copy_of(version), note if name in hidden else "")

    def _fall(self, tx: Transaction, run: Run, lease: Lease, version: Version, tools: frozenset[str]) -> list[Row]:
        """In the ledger; gives the live turns of the run as they are then."""
        row, acts = turns.check_lease(tx, lease), version.acts
        role = lowest([Role(row["authority"]), acts.role])
        if role != row["authority"] or acts.taint < row["taint"]:
            if not at_least(role, run.spec.within.role):
                raise UsageError(
                    f"{version.skill.name} cannot be read here: it was {lowers(version).partition(';')[0]}, and this"
                    " sandbox has directories of the host that only turns of the owner may write to"
                )
            turns.fall(tx, run.id, acts.taint, role=role)
        allowed = version.skill.allowed_tools
        if allowed is not None:
            turns.narrow(tx, lease.turn, tools & {named(each) for each in allowed})
        return turns.claimed_by(tx, run.id)

    async def propose(self, run: Run, lease: Lease, name: str, text: str | None) -> str:
        """Keep a copy of what a turn proposes, noted as its own before it is anywhere: the folder `name` of its
        `work/`, or a SKILL.md. Gives the sha256 of its manifest. Raises UsageError, UnsafePath, StorageError."""
        skills, work = self._home.group(run.group).skills, run.spec.work if text is None else None

        def draft() -> str:
            with proposals.drafted(skills, name, work, text or "") as (folder, manifest):
                # Or the same words, which are the owner's, would be this turn's from now on.
                if any(each.sha256 == manifest.sha256 for each in self.shelf.look(run.group)[0]):
                    raise UsageError(f"there is a skill already that is the same as {name}, file by file")
                anyio.from_thread.run(self._note, run.group, lease, name, manifest.sha256)
                proposals.place(skills, name, folder)
                return manifest.sha256

        try:
            return await to_thread.run_sync(draft)
        except OSError as error:
            raise StorageError(f"the skill {name} could not be kept: {error.strerror}") from error

    async def _note(self, group: str, lease: Lease, name: str, sha256: str) -> None:
        def note(tx: Transaction) -> None:
            turns.check_lease(tx, lease)
            waiting = {each["name"]: each["sha256"] for each in _waiting(tx, group)}
            if waiting.get(name, sha256) != sha256:
                raise UsageError(f"another {name} waits for the owner's word already; choose another name")
            if name not in waiting and len(waiting) >= proposals.MOST_WAITING:
                raise UsageError(f"{proposals.MOST_WAITING} skills wait for the owner's word already")
            authored.note(tx, KIND, group, name, sha256, lease.turn, rfc3339(self._clock.now()))

        await self._ledger.do(note)

    async def recover(self) -> None:
        """Before there are turns: what agents proposed, and nobody is asked about, goes. A crash leaves it, or a word
        that was said while no daemon ran."""

        def known(tx: Transaction) -> list[tuple[str, set[str], set[str]]]:
            groups = [row["grp"] for row in tx.all("SELECT DISTINCT grp FROM authored WHERE kind = ?", KIND)]
            return [(group, set(authored.every(tx, KIND, group)), {each["name"] for each in _waiting(tx, group)})
                    for group in groups]  # fmt: skip

        for group, theirs, waiting in await self._ledger.do(known):
            try:
                await to_thread.run_sync(proposals.clear, self._home.group(group).skills, theirs, waiting)
            except OSError as error:
                log.warning("what the agent of %s once proposed cannot be removed: %s", group, error)

    def withdraw(self, group: str, name: str, sha256: str) -> None:
        """Nobody was asked: the copy goes."""
        with suppress(OSError):  # it is in the next one's way, which removes it
            proposals.withdraw(self._home.group(group).skills, name, sha256)


def _waiting(tx: Transaction, group: str) -> list[dict[str, Any]]:
    """The effects of proposals that are not at their end."""
    return [json.loads(row["effect"]) for row in approvals.live(tx, KIND, group)]


@dataclass(frozen=True, slots=True)
class TurnSkills:
    """The skills of one turn, for the tools that it calls. `tools` are all host tools."""

    _skills: Skills
    _run: Run
    _lease: Lease
    tools: frozenset[str]

    def names(self) -> list[dict[str, str]]:
        return self._skills.names(self._run)

    async def open(self, name: str) -> Opened:
        return await self._skills.open(self._run, self._lease, name, self.tools)

    async def propose(self, name: str, text: str | None) -> str:
        return await self._skills.propose(self._run, self._lease, name, text)

    def withdraw(self, name: str, sha256: str) -> None:
        self._skills.withdraw(self._run.group, name, sha256)


def named(tool: str) -> str:
    """The host tool that an entry of `allowed-tools` means: `mcp__clawd__send_message(*)` is send_message."""
    return tool.partition("(")[0].removeprefix("mcp__clawd__")
