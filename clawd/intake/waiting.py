"""What is durable and has no turn yet: it waits for its sender's rate, for the rest of its album, for its files.

Timers are here alone; what each message waits for is in the ledger, so that a restart goes on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta

import anyio

from clawd.clock import Clock, rfc3339
from clawd.intake.attachments import Attachments, not_fetched
from clawd.intake.decision import Rules
from clawd.intake.rates import RATE_WINDOW_S, Rates
from clawd.ledger import held, inbound, steering
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.inbound import Accepted
from clawd.model import Incoming
from clawd.tasks import Tasks

log = logging.getLogger(__name__)

ALBUM_S = 1.2  # after the last message of an album
LATE_S = 2.0  # after the last message that came too late: a chat is told once of all of them
AT_ONCE = 4  # messages whose files are fetched side by side

Key = tuple[str, ...]


def why_held(incoming: Incoming, ours: bool, wait: float) -> str | None:
    """Why a message is held at first, if it is: `wait` is what its sender has to wait."""
    if not ours:
        return held.UNADDRESSED if incoming.album else held.LISTENING
    if wait:
        return held.RATE
    if incoming.kind == "command":
        return None
    return held.ALBUM if incoming.album else held.FETCHING if incoming.attachments else None


def interrupted(tx: Transaction, accepted: Accepted, followups: str, now: str) -> Row | None:
    """Where a newer message ends what is at work: the turn that is asked to stop for this one, durably."""
    if not accepted.fresh or accepted.turn is None or followups != "interrupt":
        return None
    return steering.interrupt(tx, accepted.turn, now)


class Waiting:
    """`go_on` is told a group with a new turn, and the live turn that is to stop for it; `tell` puts a notice for the
    chat of a message into the outbox."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        clock: Clock,
        tasks: Tasks,
        rates: Rates,
        attachments: Attachments,
        rules: Callable[[str], Rules],
        stale_hours: Callable[[str], float],
        go_on: Callable[[str, Row | None], None],
        tell: Callable[[Transaction, Row, str, str], None],
        deliver: Callable[[Address], None],
    ) -> None:
        self._ledger, self._clock, self._tasks, self._rates = ledger, clock, tasks, rates
        self._attachments, self._rules, self._stale_hours = attachments, rules, stale_hours
        self._go_on, self._tell, self._deliver = go_on, tell, deliver
        self._last: dict[Key, float] = {}  # of an album, or of what came too late in a chat: when its last one came
        self._slow: dict[str, deque[Row]] = {}  # by sender: what waits for their rate, in its order
        self._fetching = anyio.CapacityLimiter(AT_ONCE)

    def wait(self, sender: str) -> float:
        """Seconds until the sender may speak again: 0 now, and then it counts. Nothing overtakes what waits already."""
        return RATE_WINDOW_S if sender in self._slow else self._rates.wait(sender)

    def begin(self, row: Row, reason: str) -> None:
        """A message is held, for this reason."""
        if reason == held.RATE:
            if (rows := self._slow.get(row["sender"])) is not None:
                rows.append(row)
            else:
                self._slow[row["sender"]] = deque([row])
                self._tasks.start_soon(self._at_their_rate, row["sender"], name=f"rate of message {row['seq']}")
        elif reason in (held.ALBUM, held.UNADDRESSED):
            key = tuple(row[name] for name in ("channel", "account", "chat", "album"))
            self._settle(key, row, ALBUM_S, self._album_over)
        elif reason == held.FETCHING:
            self._tasks.start_soon(self._fetch, row, name=f"files of message {row['seq']}")
        elif reason == held.OLD:
            key = tuple(row[name] for name in ("channel", "account", "chat"))
            self._settle(key, row, LATE_S, self._tell_late)

    async def recover(self) -> None:
        """After a restart: all of them wait again."""
        now = rfc3339(self._clock.now())
        await self._ledger.do(lambda tx: held.expire_lines(tx, now))
        for row in await self._ledger.do(held.waiting):
            self.begin(row, row["reason"])
        for row in await self._ledger.do(held.late):
            self.begin(row, held.OLD)

    def _settle(self, key: Key, row: Row, quiet: float, then: Callable[[Row], object]) -> None:
        """`then`, with the newest of them, once no further one has come for a while."""
        begun = key in self._last
        self._last[key] = self._clock.monotonic()
        if not begun:
            self._tasks.start_soon(self._once_quiet, key, row, quiet, then)

    async def _once_quiet(self, key: Key, row: Row, quiet: float, then: Callable[[Row], object]) -> None:
        while (left := self._last[key] + quiet - self._clock.monotonic()) > 0:
            await anyio.sleep(left)
        del self._last[key]
        await then(row)  # type: ignore[misc]

    async def _at_their_rate(self, sender: str) -> None:
        rows = self._slow[sender]
        while rows:
            while wait := self._rates.wait(sender):
                await anyio.sleep(wait)
            try:
                await self._after_rate(rows[0])
            except Exception:  # those behind it go on
                log.exception("message %s could not be taken", rows[0]["seq"])
            rows.popleft()
        del self._slow[sender]

    async def _after_rate(self, row: Row) -> None:
        if row["album"]:
            await self._held_for(row, held.ALBUM)
        elif not held.have_files(row):
            await self._held_for(row, held.FETCHING)
        else:
            await self._release([row], row)

    async def _held_for(self, row: Row, reason: str) -> None:
        await self._ledger.insist(lambda tx: held.change(tx, row["seq"], reason))
        self.begin(row, reason)

    async def _fetch(self, row: Row) -> None:
        async with self._fetching:
            await self._attachments.fetch(row)
        if row["album"]:
            await self._ledger.insist(lambda tx: held.change(tx, row["seq"], held.ALBUM))
            await self._album_over(row)
        else:
            await self._release([row], row)

    async def _album_over(self, row: Row) -> None:
        """No more of an album comes: its files are fetched, then all of it is one turn. Of one in which nothing is for
        us, what the group listens to is kept."""
        listens = self._rules(row["grp"]).listen

        def look(tx: Transaction) -> tuple[list[Row], list[Row]]:
            rows = held.album(tx, row)
            reasons = {each["reason"] for each in rows}
            if reasons & {held.FETCHING, held.RATE}:
                return [], []
            if held.ALBUM not in reasons:
                for each in rows:
                    _not_for_us(tx, each, listens)
                return [], []
            lacking = [each for each in rows if not held.have_files(each)]
            for each in rows:
                held.change(tx, each["seq"], held.FETCHING if each in lacking else held.ALBUM)
            return rows, lacking

        rows, lacking = await self._ledger.insist(look)
        for each in lacking:
            self.begin(each, held.FETCHING)
        if rows and not lacking:
            await self._release(rows, row)

    async def _release(self, rows: list[Row], row: Row) -> None:
        now, followups = rfc3339(self._clock.now()), self._rules(row["grp"]).followups
        seqs = [each["seq"] for each in rows]

        def release(tx: Transaction) -> tuple[Accepted | None, Row | None]:
            accepted = inbound.release(tx, seqs, now)
            return accepted, interrupted(tx, accepted, followups, now) if accepted else None

        accepted, stopped = await self._ledger.insist(release)
        if accepted:
            self._go_on(row["grp"], stopped)

    async def _tell_late(self, row: Row) -> None:
        hours = self._stale_hours(row["channel"])
        now = self._clock.now()
        until = (now - timedelta(hours=hours)).astimezone().strftime("%Y-%m-%d %H:%M")

        def tell(tx: Transaction) -> None:
            n = held.tell_late(tx, row["channel"], row["account"], row["chat"])
            if n:
                what, it = (f"{n} messages", "they are") if n > 1 else ("1 message", "it is")
                was = "were" if n > 1 else "was"
                said = f"{what} from before {until} {was} not answered, for {it} older than {hours:g} h;"
                self._tell(tx, row, f"{said} say it again if it still matters.", rfc3339(now))

        await self._ledger.insist(tell)
        self._deliver(Address.of(row))


def _not_for_us(tx: Transaction, row: Row, listens: bool) -> None:
    if not listens:
        held.expire(tx, row["seq"])
        return
    for n, file in enumerate(held.files(row)):
        held.dealt_with(tx, row["seq"], n, [not_fetched(file["name"])])
    held.change(tx, row["seq"], held.LISTENING)
    held.bound_lines(tx, row["seq"])
