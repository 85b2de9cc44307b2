"""The outbox: one task for each chat that has something to say, alive only while it has.

Row k+1 of a chat waits until row k is decided. A row is `sending` on the disk before the platform is called, so that
after a crash what may have arrived is known; it is then found, sent as if new, or repeated once and marked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import anyio

from clawd import faults
from clawd.channel import NOTICE, Adapter, NotSent, SendRefused, Unsure
from clawd.clock import Clock, rfc3339
from clawd.ledger import deliveries
from clawd.ledger.db import Ledger, Row
from clawd.ledger.deliveries import Address
from clawd.ledger.moves import delivery_after_doubt
from clawd.model import Outgoing
from clawd.signals import News, Signals
from clawd.tasks import Tasks

log = logging.getLogger(__name__)

_LONGEST_WAIT = 60.0


class Outbox:
    """Sends what the ledger holds. `wake` says that a chat has news; `start` looks through all of them once."""

    def __init__(
        self,
        ledger: Ledger,
        signals: Signals,
        clock: Clock,
        channels: Mapping[str, Adapter],
        blobs: Path,
        tasks: Tasks,
        failed: Callable[[], None] = lambda: None,
        owner_terminal: str = "main",
    ) -> None:
        self._ledger, self._signals, self._clock = ledger, signals, clock
        self._channels, self._blobs, self._tasks = channels, blobs, tasks
        self._failed, self._owner_terminal = failed, owner_terminal
        self._awake: dict[tuple[str, str, str], anyio.Event] = {}

    async def start(self) -> None:
        for address in await self._ledger.do(deliveries.waiting_chats):
            self.wake(address)

    def wake(self, address: Address) -> None:
        """There may be something to send to this chat."""
        key = (address.channel, address.account, address.chat)
        if (event := self._awake.get(key)) is not None:
            event.set()
            return
        self._awake[key] = anyio.Event()
        self._tasks.start_soon(self._drain, key, name=f"outbox {address.channel}:{address.chat}")

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._awake

    async def _drain(self, key: tuple[str, str, str]) -> None:
        wait = 1.0
        try:
            while True:
                self._awake[key] = anyio.Event()
                try:
                    row = await self._ledger.do(lambda tx: deliveries.take(tx, *key))
                    if row is None:
                        if self._awake[key].is_set():
                            continue
                        return
                    pause = await self._step(row)
                except Exception:  # a defect of ours is this chat's delay, not the end of the daemon
                    log.exception("outbox: a delivery to %s:%s failed", key[0], key[2])
                    pause = wait
                wait = min(wait * 2, _LONGEST_WAIT) if pause is not None else 1.0
                if pause is not None:
                    await anyio.sleep(min(max(pause, wait / 2), _LONGEST_WAIT))
        finally:
            self._awake.pop(key, None)

    async def _step(self, row: Row) -> float | None:
        """Decide on a row, as it was when it was taken. Gives seconds to wait before the next one, or None."""
        adapter = self._channels.get(row["channel"])
        message = outgoing(row, self._blobs)
        if row["kind"] == "reaction" and row["state"] != "pending":
            await self._decide(row, "fail", error="nobody knows whether the reaction arrived")
            return None
        if row["state"] == "sending":  # since before a crash
            await self._decide(row, "doubt")
            return None
        if row["state"] == "pending":
            faults.passing("sending")
        if adapter is None:
            await self._decide(row, "fail", error=f"channel {row['channel']} is not configured")
            return None
        if row["kind"] == "reaction":
            await self._react(row, adapter, message)
            return None
        if row["state"] == "unknown":
            return await self._resolve(row, adapter, message)
        return await self._send(row, adapter, message)

    async def _send(self, row: Row, adapter: Adapter, message: Outgoing) -> float | None:
        try:
            platform_id = await adapter.send(message)
        except NotSent as refusal:
            await self._decide(row, "bounce", error=str(refusal))
            return refusal.retry_after
        except SendRefused as refusal:
            await self._decide(row, "fail", error=str(refusal))
            return None
        except Exception as error:  # an adapter's defect is one chat's doubt, not the end of the outbox
            if not isinstance(error, Unsure):
                log.exception("channel %s failed while sending", row["channel"])
            await self._decide(row, "doubt", error=str(error))
            return None
        faults.passing("sent")
        await self._decide(row, "arrive", platform_id=platform_id)
        faults.passing("delivered")
        return None

    async def _react(self, row: Row, adapter: Adapter, message: Outgoing) -> None:
        """One try: nothing behind a reaction waits for it, and none is made twice."""
        try:
            platform_id = await adapter.send(message)
        except Exception as error:
            if not isinstance(error, NotSent | SendRefused | Unsure):
                log.exception("channel %s failed while reacting", row["channel"])
            await self._decide(row, "fail", error=f"the reaction {row['text']} was not made: {error}")
            return
        await self._decide(row, "arrive", platform_id=platform_id)

    async def _resolve(self, row: Row, adapter: Adapter, message: Outgoing) -> float | None:
        """A send whose answer was lost."""
        found = await adapter.find(message) if adapter.limits.tells else None
        decision = delivery_after_doubt(adapter.limits.tells, found is not None)
        await self._decide(row, decision, platform_id=found)
        if decision != "repeat":
            return None
        try:
            platform_id = await adapter.send(replace(message, repeat=True))
        except NotSent as refusal:
            await self._decide(row, "bounce", error=str(refusal))
            return refusal.retry_after
        except Exception as error:
            log.warning("delivery %s: the repeat is in doubt too: %s", row["id"], error)
            return None
        await self._ledger.do(
            lambda tx: tx.execute("UPDATE delivery SET platform_id = ? WHERE id = ?", platform_id, row["id"])
        )
        return None

    async def _decide(self, row: Row, event: str, *, platform_id: str | None = None, error: str | None = None) -> None:
        state = await self._ledger.insist(
            lambda tx: deliveries.decide(tx, row["id"], event, platform_id=platform_id, error=error)
        )
        if state == "failed":
            await self._tell_elsewhere(row, error or "")
        self._signals.emit(
            News(
                "delivery",
                session=row["session"],
                data={"delivery": row["id"], "turn": row["turn"], "state": state},
            )
        )

    async def _tell_elsewhere(self, row: Row, error: str) -> None:
        """A delivery failed for good: the owner hears of it at the terminal, and the conversation keeps a note."""
        log.error("delivery %s to %s:%s failed: %s", row["id"], row["channel"], row["chat"], error)
        self._failed()
        if row["channel"] == "terminal":
            return
        to = Address("terminal", "", self._owner_terminal, "")
        text = (
            f"An answer could not be delivered to {row['channel']}:{row['chat']}: {error}. It is delivery {row['id']}."
        )
        await self._ledger.insist(
            lambda tx: deliveries.enqueue(
                tx,
                to,
                session=row["session"],
                kind="notice",
                text=text,
                now=rfc3339(self._clock.now()),
                limits=NOTICE,
            )
        )
        self.wake(to)


def outgoing(row: Row, blobs: Path) -> Outgoing:
    """A row of the outbox as its adapter, or a reader of the terminal, gets it."""
    return Outgoing(
        delivery=row["id"],
        channel=row["channel"],
        chat=row["chat"],
        thread=row["thread"],
        kind=row["kind"],
        text=row["text"],
        nonce=row["nonce"],
        session=row["session"],
        turn=row["turn"],
        path=blobs / row["blob"] if row["blob"] else None,
        name=row["name"],
        repeat=row["state"] in ("unknown", "resent"),
        target=row["target"],
    )
