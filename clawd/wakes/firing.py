"""What becomes of a firing, inside of one transaction: a wake with its turn, or a failure that is told; and where the
answer of a schedule goes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from clawd.channel import ChannelLimits
from clawd.clock import rfc3339
from clawd.config.live import LiveConfig
from clawd.errors import ClawdError
from clawd.ledger import authored, deliveries, firings, groups, wakes
from clawd.ledger.db import Transaction
from clawd.ledger.deliveries import Address, address_of, binding_of
from clawd.ledger.firings import Schedule, utc
from clawd.model import Authority, Part
from clawd.schedules import times
from clawd.schedules.file import ScheduleFile, seconds_of
from clawd.trust import Origin
from clawd.wakes import due

SENDER = "clawd"


class Owner(Protocol):
    """Where the owner is told what concerns them alone."""

    def where(self, tx: Transaction, but_not: str | None = None) -> tuple[str, Address]: ...
    def tell_soon(self, text: str, but_not: str | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer goes (`to`: None while nobody knows) and in which conversation; `trouble` says why it cannot."""

    to: Address | None
    base: str = ""
    trouble: str | None = None


class Places:
    """Of every group. `base` gives the plain id of a group's own conversation."""

    def __init__(self, config: LiveConfig, base: Callable[[str], Awaitable[str]]) -> None:
        self._config, self._base = config, base

    def home(self, group: str) -> Address | None:
        """A group's own chat; None while nobody knows which that is."""
        try:
            return self._bound(group)[0]
        except ClawdError:
            return None

    async def of(self, group: str, deliver_to: str | None) -> Place:
        try:
            home, bound = self._bound(group)
            base = await self._base(group)
        except ClawdError as error:
            return Place(None, trouble=f"groups/{group}/group.toml is not understood: {error.message}")
        if deliver_to is None:
            return Place(home, base)
        if deliver_to not in bound:
            return Place(home, base, f"deliver_to: {deliver_to} is not in the bindings of {group}")
        return Place(address_of(deliver_to), base)

    def _bound(self, group: str) -> tuple[Address, Sequence[str]]:
        bindings = self._config.group(group).bindings
        if (problem := self._config.problem_of(group)) is not None:
            raise problem
        return address_of(self._config.first_binding(group)), (*bindings, f"terminal:{group}")


class Doing:
    """What one transaction does, and what it leaves to do: `chats` with something to be sent, `checks` that are to be
    run (firing and when it was due), whether a turn waits (`woken`) or a schedule `paused`, and what `owner` alone can
    be told."""

    def __init__(self, tx: Transaction, now: datetime, limits: Callable[[str], ChannelLimits]) -> None:
        self.tx, self.now, self._limits = tx, now, limits
        self.chats: set[Address] = set()
        self.checks: list[tuple[int, datetime]] = []
        self.owner: list[str] = []
        self.woken = self.paused = False

    def fire(self, of: Schedule, file: ScheduleFile, firing: int, at: datetime, place: Place, found: str = "") -> None:
        """Its wake and its turn. `found` is what its check found."""
        assert of.facts is not None
        acts, origin = authored.voice(self.tx, "schedule", of.group, of.sha256)
        text = file.prompt if file.prompt.strip() else f'Use the skill "{file.skill}".'
        zone = times.rule_of(file, of.facts["zone"]).zone
        late = due.lateness(at, self.now, seconds_of(file.jitter), zone)
        parts = [Part("typed", origin, text)]
        parts += [Part("quoted", Origin.TOOL, found, "check")] if found else []
        parts += [Part("quoted", Origin.SYSTEM, late, SENDER)] if late else []
        if file.session == "own":
            place = Place(place.to, f"cron:{of.group}:{of.id}")
        allowance = file.budget.model_dump(exclude_none=True) if file.budget is not None else None
        self.put(of, firing, at, place, acts, origin, parts, late=late, allowance=allowance)

    def put(
        self, of: Schedule, firing: int, at: datetime, place: Place, acts: Authority, origin: Origin,
        parts: Sequence[Part], *, late: str | None = None, allowance: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Wake its group with these parts."""
        assert place.to is not None
        base = groups.own_base(self.tx, place.base, of.group)
        woken = wakes.put(
            self.tx, "schedule", f"schedule:{of.name}:{of.generation}@{utc(at)}", group=of.group, base=base,
            to=place.to, rule=f"schedule:{of.id}", acts=acts, origin=origin, parts=parts, now=rfc3339(self.now),
            allowance=allowance,
        )  # fmt: skip
        if woken is None:  # its row was lost with a damaged ledger
            self.tx.move("firing", firing, "miss", reason="it was fired before")
            return
        firings.fire(self.tx, firing, woken.wake, woken.turn, self.now, late)
        self.woken = True

    def fail(self, of: Schedule, firing: int, why: str, to: Address | None) -> None:
        """It could not be run. That is told when it fails for the first time in a row, and when it pauses."""
        failures, paused = firings.fail(self.tx, firing, why)
        self.paused = self.paused or bool(paused)
        if failures > 1 and not paused:
            return
        text = f"The schedule {of.name} could not run: {why.rstrip('.')}." + (f" {paused}" if paused else "")
        self.notice(to, text)

    def notice(self, to: Address | None, text: str) -> None:
        """Tell a chat, or the owner where there is none."""
        if to is None:
            self.owner.append(text)
            return
        session, limits = binding_of(to), self._limits(to.channel)
        deliveries.enqueue(self.tx, to, session=session, kind="notice", text=text, now=rfc3339(self.now), limits=limits)
        self.chats.add(to)
