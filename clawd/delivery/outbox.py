"""The outbox: one task for each chat that has something to say, alive only while it has.

Row k+1 of a chat waits until row k is decided, and no chat waits for another. A row is `sending` on the disk before the
platform is called, so that after a crash what may have arrived is known; it is then found, sent as if new, or repeated
once and marked. An edit is no repeat: the same text again changes nothing.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from clawd import faults
from clawd.channel import (
    NOTICE,
    Adapter,
    ChatMoved,
    FormatRefused,
    NotSent,
    Rates,
    SendRefused,
    Unsure,
)
from clawd.clock import LONGEST_S, Clock, backoff, rfc3339
from clawd.delivery.message import shaped
from clawd.delivery.rates import Key, Pace
from clawd.ledger import chats, deliveries
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import TERMINAL, Address
from clawd.ledger.moves import delivery_after_doubt
from clawd.log import redactor
from clawd.model import Outgoing
from clawd.signals import News, Signals
from clawd.tasks import Tasks

log = logging.getLogger(__name__)

SEND_S, FILE_S = 60.0, 600.0  # after which nobody knows any more whether it arrived
COURTESY_S = 10.0  # for no longer a message waits for what was begun before it
_DOUBTS = 5  # an edit that is so often in doubt is a message of its own


@dataclass(slots=True)
class _Chat:
    """A chat at work. `news`: something may have come since it was looked at; `plain`: the row whose form the platform
    refused; `until`: when its rest ends (monotonic), 0 while it has none."""

    news: bool = False
    failures: int = 0
    doubts: int = 0
    plain: int = 0
    until: float = 0.0
    up: anyio.Event = field(default_factory=anyio.Event)

    def again(self) -> float:
        """Seconds before the next try, after one that failed."""
        self.failures += 1
        return backoff(self.failures, random.random())


class Outbox:
    """Sends what the ledger holds. `wake` says that a chat has news; `start` looks through all of them once.

    `failed` is told of every send that failed for good, `tell_owner(sentence, but_not=channel)` what to say of it;
    `sent(channel)` of each that arrived. While `is_open(channel)` says no, nothing is tried there; nothing is repeated
    before `is_live(channel)`.
    """

    def __init__(
        self,
        ledger: Ledger,
        signals: Signals,
        clock: Clock,
        channels: Mapping[str, Adapter],
        blobs: Path,
        tasks: Tasks,
        failed: Callable[[], None] = lambda: None,
        tell_owner: Callable[[str, str], Awaitable[None]] | None = None,
        sent: Callable[[str], None] = lambda channel: None,
        is_open: Callable[[str], bool] = lambda channel: True,
        is_live: Callable[[str], bool] = lambda channel: True,
    ) -> None:
        self._ledger, self._signals, self._clock = ledger, signals, clock
        self._channels, self._blobs, self._tasks = channels, blobs, tasks
        self._failed, self._tell_owner, self._sent, self._is_open = failed, tell_owner, sent, is_open
        self._is_live = is_live
        self._pace = Pace(self._rates, clock.monotonic)
        self._chats: dict[Key, _Chat] = {}
        self._courtesies: dict[Key, anyio.Event] = {}
        self._closed = False

    def _rates(self, channel: str) -> Rates:
        adapter = self._channels.get(channel)
        return adapter.limits.rates if adapter else Rates()

    async def start(self) -> None:
        for address in await self._ledger.do(deliveries.waiting_chats):
            self.wake(address)

    def wake(self, address: Address) -> None:
        """There may be something to send to this chat."""
        key = _key(address)
        if (chat := self._chats.get(key)) is not None:
            chat.news = True
            return
        self._chats[key] = _Chat()
        self._tasks.start_soon(self._drain, key, name=f"outbox {address.channel}:{address.chat}")

    def back(self, channel: str) -> None:
        """The channel works again: what waits for it is tried now."""
        for (name, _, _), chat in self._chats.items():
            if name == channel:
                chat.failures = 0
                chat.up.set()

    def try_pace(self, address: Address, shared: bool) -> bool:
        """Whether a courtesy (an edit of a message that grows, a typing notice) may go to this chat now; it counts. One
        that may not is dropped: nothing waits for it."""
        key = _key(address)
        return key not in self._chats and key not in self._courtesies and self._pace.spare(key, shared)

    async def courtesy(self, address: Address, shared: bool, work: Callable[[], Awaitable[object]]) -> bool:
        """Do a courtesy if it may go now; gives whether it did. No message of the chat leaves while it is under way: a
        message that grows never shows an earlier text than its last one. Raises what `work` raises, and TimeoutError.
        """
        if not self.try_pace(address, shared):
            return False
        key = _key(address)
        over = self._courtesies[key] = anyio.Event()
        try:
            with anyio.fail_after(COURTESY_S):
                await work()
        finally:
            del self._courtesies[key]
            over.set()
        return True

    def hold(self, address: Address, seconds: float) -> None:
        """The platform wants nothing for this chat for so long: what it said to a courtesy."""
        self._pace.hold(_key(address), seconds)

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._chats

    async def close(self, grace: float) -> None:
        """Send what can be sent within `grace` seconds, then begin nothing; what is under way has as long again."""
        for self._closed in (False, True):
            until = self._clock.monotonic() + grace
            with anyio.move_on_after(grace):
                while any(chat.until < until for chat in self._chats.values()):
                    await anyio.sleep(0.02)

    async def _drain(self, key: Key) -> None:
        chat = self._chats[key]
        try:
            while not self._closed:
                chat.news = False
                if (courtesy := self._courtesies.get(key)) is not None:
                    await courtesy.wait()
                try:
                    pause = await self._next(key, chat)
                except Exception:  # a defect of ours is this chat's delay, not the end of the daemon
                    log.exception("outbox: a delivery to %s:%s failed", key[0], key[2])
                    pause = chat.again()
                if pause is None and not chat.news:
                    return
                if pause:
                    await self._rest(chat, pause)
        finally:
            self._chats.pop(key, None)

    async def _rest(self, chat: _Chat, seconds: float) -> None:
        """Wait, at most until the channel works again."""
        chat.up = anyio.Event()
        chat.until = self._clock.monotonic() + seconds
        with anyio.move_on_after(seconds):
            await chat.up.wait()
        chat.until = 0.0

    async def _next(self, key: Key, chat: _Chat) -> float | None:
        """Decide on the chat's oldest row when it may. Gives seconds to rest before going on; None: nothing is left."""
        if not self._is_open(key[0]):
            return LONGEST_S
        row = await self._ledger.do(lambda tx: deliveries.head(tx, *key))
        if row is None:
            return None
        shared = not row["direct"]
        if (wait := self._pace.wait(key, shared)) > 0:
            return wait
        if (turn := self._pace.pay(key, shared)) > 0:
            await anyio.sleep(turn)
        if self._closed or (row := await self._ledger.do(lambda tx: deliveries.take(tx, *key))) is None:
            return 0.0
        return await self._step(row, key, chat)

    async def _step(self, row: Row, key: Key, chat: _Chat) -> float:
        """Decide on a row, as it was when it was taken. Gives seconds to rest before the next one."""
        adapter, state = self._channels.get(key[0]), row["state"]
        if row["kind"] == "reaction" and state != "pending":
            await self._decide(row, "fail", error="nobody knows whether the reaction arrived")
        elif state == "sending":  # since before a crash
            await self._decide(row, "bounce" if row["edited"] else "doubt")
        elif adapter is None:
            await self._decide(row, "fail", error=f"channel {key[0]} is not configured")
        elif state == "unknown":
            return await self._resolve(row, adapter, chat, key)
        else:
            faults.passing("sending")
            if row["kind"] == "reaction":
                await self._react(row, adapter)
            else:
                return await self._send(row, adapter, chat, key)
        return 0.0

    async def _send(self, row: Row, adapter: Adapter, chat: _Chat, key: Key, repeat: bool = False) -> float:
        message = await shaped(row, self._blobs, adapter.limits, repeat, plain=chat.plain == row["id"])
        try:
            with anyio.fail_after(FILE_S if message.path else SEND_S):
                platform_id = await adapter.send(message)
        except NotSent as refusal:
            await self._decide(row, "bounce", error=str(refusal))
            return self._refused(key, chat, refusal)
        except FormatRefused as refusal:
            if message.formatted is None:
                await self._decide(row, "fail", error=str(refusal))
                return 0.0
            log.info("delivery %s goes as plain text: %s", row["id"], refusal)
            chat.plain = row["id"]
            await self._decide(row, "bounce", error=str(refusal))
            return 0.0
        except ChatMoved as moved:
            log.warning("%s: chat %s is %s now", key[0], message.chat, moved.chat)
            new = moved.chat
            await self._decide(row, "bounce", error=str(moved), also=lambda tx: chats.move(tx, *key, new))
            return chat.again() if chat.failures else 0.0
        except SendRefused as refusal:
            if message.edits is None:
                await self._decide(row, "fail", error=str(refusal))
            else:
                await self._decide(row, "bounce", error=str(refusal), also=lambda tx: deliveries.as_new(tx, row["id"]))
            return 0.0
        except Exception as error:  # an adapter's defect is one chat's doubt, not the end of the outbox
            if not isinstance(error, Unsure | TimeoutError):
                log.exception("channel %s failed while sending", key[0])
            return await self._doubt(row, message, chat, repeat, str(error) or "the platform did not answer")
        faults.passing("sent")
        if repeat:
            await self._ledger.insist(lambda tx: deliveries.identify(tx, row["id"], platform_id))
        else:
            await self._decide(row, "arrive", platform_id=platform_id)
        faults.passing("delivered")
        chat.failures = chat.doubts = 0
        self._sent(key[0])
        return 0.0

    async def _doubt(self, row: Row, message: Outgoing, chat: _Chat, repeat: bool, why: str) -> float:
        """Nobody knows whether it arrived. The platform has a moment before it is asked, or is sent it again."""
        if repeat:  # never a third time by itself
            await self._tell_elsewhere(row, f"it was sent twice, and no answer came: {why}", "may not have come")
            return chat.again()
        chat.doubts += 1
        again = message.edits is not None and chat.doubts < _DOUBTS
        await self._decide(row, "bounce" if again else "doubt", error=why)
        return chat.again()

    def _refused(self, key: Key, chat: _Chat, refusal: NotSent) -> float:
        if refusal.retry_after is None or not self._pace.hold(key, refusal.retry_after):
            return chat.again()
        if refusal.retry_after > LONGEST_S:
            log.warning("%s:%s waits for %.0f s: %s", key[0], key[2], refusal.retry_after, refusal)
        return 0.0

    async def _react(self, row: Row, adapter: Adapter) -> None:
        """One try: nothing behind a reaction waits for it, and none is made twice."""
        message = await shaped(row, self._blobs, adapter.limits)
        try:
            with anyio.fail_after(SEND_S):
                platform_id = await adapter.send(message)
        except Exception as error:
            if not isinstance(error, NotSent | SendRefused | Unsure | TimeoutError):
                log.exception("channel %s failed while reacting", row["channel"])
            await self._decide(row, "fail", error=f"the reaction {row['text']} was not made: {error}")
            return
        await self._decide(row, "arrive", platform_id=platform_id)

    async def _resolve(self, row: Row, adapter: Adapter, chat: _Chat, key: Key) -> float:
        """A send whose answer was lost. A message that grows is not repeated: its turn's answer comes as another."""
        found, tells = None, adapter.limits.tells and row["edited"] is None
        if tells:
            try:
                with anyio.fail_after(SEND_S):
                    found = await adapter.find(await shaped(row, self._blobs, adapter.limits))
            except Unsure as error:
                log.info("%s cannot tell whether delivery %s arrived: %s", key[0], row["id"], error)
                tells = False
            except Exception as error:
                log.info("%s cannot say whether delivery %s arrived: %s", key[0], row["id"], error)
                return self._refused(key, chat, error) if isinstance(error, NotSent) else chat.again()
        if row["kind"] == "stream" and found is None:
            await self._decide(row, "fail", error="nobody knows whether it arrived")
            return 0.0
        decision = delivery_after_doubt(tells, found is not None)
        if decision == "repeat" and not self._is_live(key[0]):  # there is one try: not while the platform is in trouble
            return LONGEST_S
        await self._decide(row, decision, platform_id=found)
        return await self._send(row, adapter, chat, key, repeat=True) if decision == "repeat" else 0.0

    async def _decide(
        self,
        row: Row,
        event: str,
        *,
        platform_id: str | None = None,
        error: str | None = None,
        also: Callable[[Transaction], None] = lambda tx: None,
    ) -> None:
        error = redactor.clean(error) if error else None  # an adapter's own words: they reach people

        def decide(tx: Transaction) -> str:
            also(tx)
            return deliveries.decide(tx, row["id"], event, platform_id=platform_id, error=error)

        state = await self._ledger.insist(decide)
        if state == "failed" and row["kind"] == "reaction":
            self._failed()  # the conversation has a note of it; it is nothing to call the owner for
        elif state == "failed" and row["kind"] != "stream":
            await self._tell_elsewhere(row, error or "")
        self._signals.emit(
            News(
                "delivery",
                session=row["session"],
                data={"delivery": row["id"], "turn": row["turn"], "state": state},
            )
        )

    async def _tell_elsewhere(self, row: Row, error: str, what: str = "could not be delivered") -> None:
        """A delivery failed for good: the owner hears of it on another channel, and the conversation keeps a note. Of
        one that is in doubt for good, the owner hears."""
        log.error("delivery %s %s to %s:%s: %s", row["id"], what, row["channel"], row["chat"], error)
        self._failed()
        if row["channel"] == "terminal":
            return
        text = f"An answer {what} to {row['channel']}:{row['chat']}: {error}. It is delivery {row['id']}."
        ours = row["turn"] is None and row["effect"] is None and row["inbound"] is None
        if self._tell_owner is not None and not ours:
            await self._tell_owner(text, row["channel"])
            return
        # What was for the owner itself is told where it cannot fail: no channel reports of another for ever.
        session, now = row["session"], rfc3339(self._clock.now())
        await self._ledger.insist(
            lambda tx: deliveries.enqueue(
                tx, TERMINAL, session=session, kind="notice", text=text, now=now, limits=NOTICE
            )
        )
        self.wake(TERMINAL)


def _key(address: Address) -> Key:
    return (address.channel, address.account, address.chat)
