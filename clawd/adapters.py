"""The channels of this daemon: each supervised on its own, opened anew when its table of the config changes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from clawd.channel import NOTICE, Adapter, ChannelLimits, Inbox
from clawd.clock import Clock, rfc3339
from clawd.config import channels
from clawd.config.schema import Channels
from clawd.errors import ConfigError
from clawd.ids import new_id
from clawd.intake import Intake
from clawd.ledger import chats
from clawd.ledger.db import Ledger, Transaction
from clawd.model import Incoming, Outgoing, Receipt
from clawd.supervise import OUTAGE_S, Part, supervise
from clawd.tasks import Tasks

log = logging.getLogger(__name__)

STARTING_S = 30.0
# Lines without a row in a second, and for how long one is tried: of a flood of strangers the rest is told nothing, and
# those who may speak keep the connections and the platform's patience.
MOST_LINES, LINES_S, LINE_S = 8, 1.0, 60.0


class Adapters(dict[str, Adapter]):
    """By name, with how each of them is. `tables` gives the config's of now; `told(sentence, but_not=channel)` tells
    the owner on another one; `back(channel)` is called when one is live."""

    def __init__(
        self,
        tables: Callable[[], Channels],
        clock: Clock,
        tasks: Tasks,
        told: Callable[[str, str], None],
        back: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._tables, self._clock, self._tasks, self._told, self._back = tables, clock, tasks, told, back
        self.parts: dict[str, Part] = {}
        self._inbox: Callable[[Adapter, Part], Inbox] | None = None
        self._commands: Mapping[str, str] = {}
        self._open: dict[str, tuple[anyio.CancelScope, anyio.Event]] = {}
        self._reopening = anyio.Lock()
        for name in ("terminal", *tables().enabled()):
            self._make(name)

    def _make(self, name: str) -> None:
        def back() -> None:
            self._back(name)
            self._tasks.start_soon(self._register, name, name=f"commands of {name}")

        def told(sentence: str) -> None:
            self._tasks.start_soon(self._tell, sentence, name, name=f"told of {name}")

        try:
            self[name] = channels.adapter(self._tables(), name)
        except ConfigError as error:
            self[name] = channels.Closed(name, str(error))
        except Exception as error:  # a defect of one adapter is no other channel's
            log.exception("the channel %s cannot be made", name)
            self[name] = channels.Closed(name, f"it cannot be made ({type(error).__name__}); the log says more")
        part = self.parts[name] = Part(name, self._clock, told, back)
        part.broke = lambda: self._tasks.start_soon(self._outage, part, part.since, name=f"outage {name}")

    def limits(self, channel: str) -> ChannelLimits | None:
        adapter = self.get(channel)
        return adapter.limits if adapter else None

    def limits_of(self, channel: str) -> ChannelLimits:
        """Those of a channel that is not there now are what every platform takes."""
        return self.limits(channel) or NOTICE

    def is_live(self, channel: str) -> bool:
        part = self.parts.get(channel)
        return part is not None and part.state == "live"

    def is_open(self, channel: str) -> bool:
        """Whether it is worth trying to send by it: not before its platform was heard or failed, nor when it is dead.
        One that is not there is for the outbox to say."""
        part = self.parts.get(channel)
        return part is None or part.state in ("live", "degraded")

    def sent(self, channel: str) -> None:
        """A message has gone out by it just now."""
        if (part := self.parts.get(channel)) is not None:
            part.outbound = rfc3339(self._clock.now())

    def open(self, inbox: Callable[[Adapter, Part], Inbox], commands: Mapping[str, str]) -> None:
        """Open them all; `inbox` makes what each hands its messages to, `commands` are {word: help}."""
        self._inbox, self._commands = inbox, commands
        for name in self:
            self._start(name)

    def _start(self, name: str) -> None:
        scope, ended = self._open[name] = anyio.CancelScope(), anyio.Event()
        self._tasks.start_soon(self._keep_open, name, scope, ended, name=f"channel {name}")

    async def _keep_open(self, name: str, scope: anyio.CancelScope, ended: anyio.Event) -> None:
        assert self._inbox is not None
        adapter, part = self[name], self.parts[name]
        inbox = self._inbox(adapter, part)
        try:
            with scope:
                await supervise(part, lambda: adapter.run(inbox))
        finally:
            ended.set()

    async def _tell(self, sentence: str, about: str) -> None:
        """Tell the owner on another channel; one that is starting just now is given a while."""
        until = self._clock.monotonic() + STARTING_S
        others = [part for name, part in self.parts.items() if name not in (about, "terminal")]
        while any(part.state == "starting" for part in others) and not any(part.state == "live" for part in others):
            if self._clock.monotonic() >= until:
                break
            await anyio.sleep(STARTING_S / 60)
        self._told(sentence, about)

    async def _register(self, name: str) -> None:
        """Tell a platform that is there which commands there are; an adapter knows what its platform has already."""
        try:
            await self[name].commands(self._commands)
        except Exception as error:
            log.warning("the commands of %s were not registered: %s", name, type(error).__name__)

    async def _outage(self, part: Part, since: float) -> None:
        await anyio.sleep(OUTAGE_S)
        if self.parts.get(part.name) is part:  # it was not opened anew meanwhile
            part.look(since)

    def renew(self, changes: Sequence[str]) -> None:
        """The config was read again; `changes` are like "channels.telegram.token: …". What is dead is tried again."""
        wanted = self._tables().enabled()
        changed = {change.split(".")[1].split(":")[0] for change in changes if change.startswith("channels.")}
        dead = {name for name, part in self.parts.items() if part.state == "dead"}
        for name in sorted(({*self, *wanted} - {"terminal"}) & (changed | dead)):
            self._tasks.start_soon(self._again, name, name=f"reopen {name}")

    async def _again(self, name: str) -> None:
        async with self._reopening:  # two at once would leave a channel open that nobody knows of
            if (was := self._open.pop(name, None)) is not None:
                was[0].cancel()
                await was[1].wait()
            self.pop(name, None)
            self.parts.pop(name, None)
            if name in self._tables().enabled():
                self._make(name)
                self._start(name)

    async def list(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        """`channels list`."""
        return [
            {
                "channel": part.name,
                "state": part.state,
                "last_inbound": part.inbound,
                "last_outbound": part.outbound,
                "error": part.error,
            }
            for part in self.parts.values()
        ]


class ChannelInbox:
    """Implements `channel.Inbox` for one channel."""

    def __init__(
        self, adapter: Adapter, part: Part, intake: Intake, ledger: Ledger, clock: Clock, tasks: Tasks
    ) -> None:
        self._adapter, self._part, self._intake = adapter, part, intake
        self._ledger, self._clock, self._tasks = ledger, clock, tasks
        self._lines = 0
        self._told: deque[tuple[str, str, str]] = deque(maxlen=100)  # messages whose senders were told something

    async def receive(self, incoming: Incoming, cursor: str | None = None) -> Receipt:
        self.heard()
        receipt = await self._intake.receive(incoming, cursor)
        if receipt.message is not None:
            self._part.inbound = rfc3339(self._clock.now())
        elif receipt.told and incoming.channel != "terminal" and self._lines < MOST_LINES and self._is_first(incoming):
            self._lines += 1  # also in a shared chat: the door knows when to be silent
            self._tasks.start_soon(self._answer, incoming, receipt.told, name="a line without a row")
        return receipt

    def _is_first(self, incoming: Incoming) -> bool:
        """What has no row is not known again by the ledger, and a platform may give a message twice."""
        key = incoming.account, incoming.chat, incoming.platform_id
        first = key not in self._told
        self._told.append(key)
        return first

    async def _answer(self, incoming: Incoming, text: str) -> None:
        """What is told to whom the ledger knows nothing of: one try."""
        line = Outgoing(
            delivery=0,
            channel=incoming.channel,
            account=incoming.account,
            chat=incoming.chat,
            thread=incoming.thread,
            kind="notice",
            text=text,
            nonce=new_id(),
            reply_to=None if incoming.direct else incoming.platform_id,
        )
        try:
            try:
                with anyio.fail_after(LINE_S):
                    await self._adapter.send(line)
            except Exception as error:
                log.info("%s: a line for a stranger was not sent: %s", incoming.channel, type(error).__name__)
            await anyio.sleep(LINES_S)
        finally:
            self._lines -= 1

    async def keep(self, cursor: str) -> None:
        now, name = rfc3339(self._clock.now()), self._part.name
        await self._ledger.do(lambda tx: chats.keep(tx, name, cursor, now))

    async def moved(self, chat: str, now: str, cursor: str) -> None:
        at, name = rfc3339(self._clock.now()), self._part.name

        def work(tx: Transaction) -> None:
            chats.move(tx, name, "", chat, now)
            chats.keep(tx, name, cursor, at)

        await self._ledger.do(work)

    async def cursor(self) -> str | None:
        return await self._ledger.do(lambda tx: chats.cursor(tx, self._part.name))

    def heard(self) -> None:
        self._part.heard()

    def trouble(self, why: str) -> None:
        self._part.failed(why)
