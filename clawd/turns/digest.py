"""One message to the owner about memories that wait for their word, instead of one each: some seconds after the last
one came and no turn of its group is at work, and at most one a day for each group, or an hour while many are new."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path

import anyio
from anyio import to_thread

from clawd.channel import ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.errors import ClawdError
from clawd.ledger import deliveries, remembering
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address, binding_of
from clawd.memory.provenance import TrustLedger
from clawd.trust import Origin
from clawd.turns.memory import Memories

log = logging.getLogger(__name__)

AFTER_S = 15.0
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MANY = 10


def when(
    now: datetime,
    told: datetime | None,
    known: Collection[str],
    waiting: Collection[str],
    outside: Collection[str] = (),
) -> datetime | None:
    """When the owner is to be told of what waits, if they were told of `known` before; None: of nothing that is new.
    `outside` of these are from other programs, which have nobody told sooner, however much they write."""
    new = [each for each in waiting if each not in known]
    if not new:
        return None
    many = sum(each not in outside for each in new) > MANY
    return now if told is None else max(now, told + (HOUR if many else DAY))


class Digest:
    """`where` is the owner's chat; `busy` says whether a turn of a group is at work."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        memories: Memories,
        trust: Path,
        *,
        where: Callable[[Transaction], tuple[str, Address]],
        limits: Callable[[str], ChannelLimits],
        deliver: Callable[[Address], None],
        busy: Callable[[str], bool],
        after_s: float = AFTER_S,
    ) -> None:
        self._ledger, self._clock, self._memories, self._trust = ledger, clock, memories, trust
        self._where, self._limits, self._deliver, self._busy = where, limits, deliver, busy
        self._after_s = after_s
        self._due: dict[str, float] = {}
        self._news = anyio.Event()

    def waits(self, group: str) -> None:
        """Something of a group's memory waits for the owner. From the event loop."""
        self._due[group] = self._clock.monotonic() + self._after_s
        self._news.set()

    def _again(self, group: str, seconds: float) -> None:
        """Look once more then, or when something came meanwhile."""
        self._due.setdefault(group, self._clock.monotonic() + seconds)

    async def run(self) -> None:
        """Tell what is due; first what an earlier daemon could not."""
        for group in await to_thread.run_sync(proposed, self._trust):
            self._again(group, self._after_s)
        while True:
            self._news = anyio.Event()
            now = self._clock.monotonic()
            for group in [group for group, due in self._due.items() if due <= now]:
                del self._due[group]
                await self._look(group)
            if self._due:
                with anyio.move_on_after(max(0.0, min(self._due.values()) - self._clock.monotonic())):
                    await self._news.wait()
            else:
                await self._news.wait()

    async def _look(self, group: str) -> None:
        if self._busy(group):
            return self._again(group, self._after_s)
        try:
            waiting = await self._memories.do(group, lambda memory: memory.pending())
        except (ClawdError, OSError) as error:
            log.warning("what waits in the memory of %s cannot be read (%s)", group, type(error).__name__)
            return None
        now, ids = self._clock.now(), [each.id for each in waiting]
        outside = {each.id for each in waiting if each.origin is Origin.EXTERNAL}

        def tell(tx: Transaction) -> tuple[datetime | None, Address | None]:
            due = when(now, *remembering.told(tx, group), ids, outside)
            if due is None or due > now:
                return due, None
            _, at = self._where(tx)
            deliveries.enqueue(
                tx, at, session=binding_of(at), kind="notice", text=said(group, len(ids), len(outside)),
                now=rfc3339(now), limits=self._limits(at.channel),
            )  # fmt: skip
            remembering.tell(tx, group, ids, now)
            return due, at

        due, at = await self._ledger.insist(tell)
        if at is not None:
            self._deliver(at)
        elif due is not None:
            self._again(group, (due - now).total_seconds())
        return None


_GONE = frozenset(("delete", "reject"))


def proposed(trust: Path) -> set[str]:
    """Groups in which something waits, by the trust ledger. It blocks."""
    waiting = set[tuple[str, str]]()
    for stamp in TrustLedger(trust).read():
        waits = stamp.status == "proposed" and stamp.op not in _GONE
        (waiting.add if waits else waiting.discard)((stamp.group, stamp.id))
    return {group for group, _ in waiting}


def said(group: str, count: int, outside: int = 0) -> str:
    """The message. `outside` of them are from other programs."""
    whose = "" if group == "main" else f" in the group {group}"
    command = "clawd memory pending" if group == "main" else f"clawd memory pending --group {group}"
    what = "1 memory waits" if count == 1 else f"{count} memories wait"
    some = "" if outside == count else f"{outside} of them "
    theirs = f" ({some}from other programs)" if outside else ""
    return f"{what} for your word{whose}{theirs}: /memory shows what it is, or `{command}`."
