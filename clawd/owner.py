"""The owner: who that is, and where they are told and asked beside any turn: in their newest direct chat on a channel
that is live, else at the terminal, now or when it next opens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from clawd.channel import NOTICE, ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.ledger import chats, deliveries
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import TERMINAL, Address, address_of, binding_of
from clawd.people.roster import LiveRoster
from clawd.signals import Signals
from clawd.tasks import Tasks
from clawd.trust import Role

log = logging.getLogger(__name__)

AGAIN_S = 86400.0  # what goes wrong in the same words is told again after so long
_AT_TERMINAL = "owner"  # who is at the terminal has no name in people.toml


class Owner:
    """`is_live` says it of a channel; `limits` are its own. Implements `approvals.Owners`."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        tasks: Tasks,
        deliver: Callable[[Address], None],
        roster: LiveRoster,
        is_live: Callable[[str], bool],
        limits: Callable[[str], ChannelLimits] = lambda channel: NOTICE,
    ) -> None:
        self._ledger, self._clock, self._tasks, self._deliver = ledger, clock, tasks, deliver
        self._roster, self._is_live, self._limits = roster, is_live, limits

    def names(self) -> Sequence[str]:
        return [person.name for person in self._roster.read().owners()]

    def name_of(self, channel: str, sender: str) -> str | None:
        if channel == "terminal":
            return _AT_TERMINAL if sender == Role.OWNER else None
        person = self._roster.read().by_account(sender)
        return person.name if person is not None and person.role == Role.OWNER.value else None

    def where(self, tx: Transaction, but_not: str | None = None, here: Address | None = None) -> tuple[str, Address]:
        direct = chats.direct(tx)
        if here is not None:  # it comes first
            if here.channel == "terminal":
                return _AT_TERMINAL, here
            at = here.channel, here.account, here.chat
            direct = sorted(direct, key=lambda row: (row["channel"], row["account"], row["chat"]) != at)
        for row in direct:
            if row["channel"] in (but_not, "terminal") or not self._is_live(row["channel"]):
                continue
            if (name := self.name_of(row["channel"], row["sender"])) is not None:
                return name, Address(row["channel"], row["account"], row["chat"], "")
        return _AT_TERMINAL, TERMINAL

    async def tell(
        self, text: str, but_not: str | None = None, also: Sequence[str] = (), level: int = logging.ERROR
    ) -> None:
        """Once while nobody has seen it. `but_not` is the channel that it is about; `also` are bindings of chats to
        tell, too."""
        log.log(level, "%s", text)
        now = rfc3339(self._clock.now())

        def tell(tx: Transaction) -> set[Address]:
            chats = (address_of(binding) for binding in also)
            told = {self.where(tx, but_not)[1], *(at for at in chats if self._is_live(at.channel))}
            for at in told:
                if at != TERMINAL or text not in [row["text"] for row in deliveries.unseen(tx, at.chat, at.thread)]:
                    limits = self._limits(at.channel)
                    deliveries.enqueue(tx, at, session=binding_of(at), kind="notice", text=text, now=now, limits=limits)
            return told

        for at in await self._ledger.insist(tell):
            self._deliver(at)

    def tell_soon(self, text: str, but_not: str | None = None) -> None:
        self._tasks.start_soon(self.tell, text, but_not)

    async def troubles(self, signals: Signals) -> None:
        """What goes wrong beside a turn, each sentence once a day."""
        told: dict[str, float] = {}
        with signals.subscribe() as news:
            async for each in news:
                now = self._clock.monotonic()
                told = {what: since for what, since in told.items() if now - since < AGAIN_S}
                if each.kind == "trouble" and (what := str(each.data["what"])) not in told:
                    told[what] = now
                    await self.tell(what)
