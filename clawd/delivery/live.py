"""What a chat sees of a turn at work: that an answer is on its way, and its text as it grows.

All of it is courtesy. It lives in signals and calls of adapters, goes only where no message has to wait, and ends with
the first trouble; the turn's answer comes through the outbox, and nothing of here comes after it. While no turn is at
work nothing runs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from clawd.channel import Adapter, ChannelLimits, NotSent
from clawd.clock import Clock, rfc3339
from clawd.ids import is_job
from clawd.ledger import deliveries, streams
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import Address
from clawd.ledger.streams import Showing
from clawd.markdown import formatted, pieces
from clawd.model import Outgoing
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.text import visible

log = logging.getLogger(__name__)

BEGIN_S = 1.0  # for so long text must come before a message is made of it: a short answer needs none
RETRY_S = 1.0  # after which what may not go now is tried again
LOOK_S = 10.0  # signals may be lost: so often, at least, the ledger says whether the turn is at work
_OVER = frozenset({"answered", "stopped", "failed", "held", "queued", "joined"})


class Courtesies(Protocol):
    """The part of the outbox that is needed here."""

    def wake(self, address: Address) -> None: ...

    def hold(self, address: Address, seconds: float) -> None: ...

    async def courtesy(self, address: Address, shared: bool, work: Callable[[], Awaitable[object]]) -> bool: ...


@dataclass(slots=True)
class _Turn:
    """A turn at work. `since`: when the text of this attempt began to come (monotonic)."""

    id: int
    group: str
    over: bool = False
    silent: bool = False  # nothing of it is shown here
    text: str = ""
    most: int = 1 << 20  # characters of it that can be shown
    since: float = math.inf
    broken: bool = False  # a tool was used since the last text
    look: bool = False  # something became of the message that grows
    news: anyio.Event = field(default_factory=anyio.Event)

    def anew(self) -> None:
        self.text, self.since, self.broken = "", math.inf, False

    def grow(self, text: str, now: float) -> None:
        if self.silent or len(self.text) >= self.most:
            return
        if self.broken and self.text:
            self.text = self.text.rstrip() + "\n\n"
        self.broken = False
        self.text += text
        self.since = min(self.since, now)
        self.news.set()


class Live:
    """`wall_seconds(group)`: how long a turn of it may take."""

    def __init__(
        self,
        ledger: Ledger,
        signals: Signals,
        clock: Clock,
        channels: Mapping[str, Adapter],
        outbox: Courtesies,
        tasks: Tasks,
        wall_seconds: Callable[[str], float],
    ) -> None:
        self._ledger, self._clock, self._channels = ledger, clock, channels
        self._outbox, self._tasks, self._wall_seconds = outbox, tasks, wall_seconds
        self._turns: dict[int, _Turn] = {}
        self._signals = signals

    async def run(self) -> None:
        """Hear of turns until cancelled."""
        with self._signals.subscribe() as self._news:
            async for each in self._news:
                self._hear(each)

    def _hear(self, news: News) -> None:
        id = news.data.get("turn")
        if not isinstance(id, int) or is_job(news.session):
            return
        turn = self._turns.get(id)
        if news.kind == "turn":
            state = news.data["state"]
            if state == "claimed":
                (turn or self._begin(id, news.group)).anew()
            elif turn is not None and state in _OVER:
                self._end(turn)
        elif news.kind == "delta":  # the first news of it may be lost, or was an earlier daemon's
            (turn or self._begin(id, news.group)).grow(news.data["text"], self._clock.monotonic())
        elif turn is not None and news.kind == "tool":
            turn.broken = True
        elif turn is not None and news.kind == "delivery":
            turn.look = True
            turn.news.set()

    def _begin(self, id: int, group: str) -> _Turn:
        turn = self._turns[id] = _Turn(id, group)
        self._tasks.start_soon(self._follow, turn, name=f"live turn {id}")
        return turn

    def _end(self, turn: _Turn) -> None:
        turn.over = True
        turn.news.set()
        if self._turns.get(turn.id) is turn:
            del self._turns[turn.id]

    def _is_over(self, turn: _Turn) -> bool:
        """Whether the turn has ended, also by what was not heard yet."""
        for each in self._news.arrived():
            self._hear(each)
        return turn.over

    async def _follow(self, turn: _Turn) -> None:
        shown = await self._ledger.do(lambda tx: streams.showing(tx, turn.id))
        adapter = self._channels.get(shown.to.channel) if shown else None
        if shown is None or adapter is None or not (adapter.limits.typing_s or adapter.limits.stream_s):
            turn.silent = True
            if shown is None:
                self._end(turn)
            return
        turn.most = 2 * adapter.limits.text
        try:
            await _Shown(turn, shown, adapter, self).until_over()
        finally:
            turn.silent = True


class _Shown:
    """One turn in its chat."""

    def __init__(self, turn: _Turn, shown: Showing, adapter: Adapter, live: Live) -> None:
        self._turn, self._shown, self._adapter, self._live = turn, shown, adapter, live
        limits = adapter.limits
        self._every = limits.stream_shared_s if shown.shared else limits.stream_s
        self._typing_s = limits.typing_s
        self._streams = self._every > 0 and limits.edits
        self._text: str | None = None  # what the message shows
        now = live._clock.monotonic()
        self._type_at = now if self._typing_s else math.inf
        self._edit_at, self._look_at = now, now + LOOK_S
        self._until = now + live._wall_seconds(turn.group)

    async def until_over(self) -> None:
        turn, monotonic = self._turn, self._live._clock.monotonic
        while not self._live._is_over(turn) and monotonic() < self._until:
            turn.news = anyio.Event()
            if turn.look or monotonic() >= self._look_at:
                await self._look()
            elif monotonic() >= self._type_at:
                await self._type()
            elif monotonic() >= self._grow_at():
                await self._grow()
            else:
                next = min(self._type_at, self._grow_at(), self._look_at, self._until)
                with anyio.move_on_after(max(0.0, next - monotonic())):
                    await turn.news.wait()

    async def _look(self) -> None:
        turn = self._turn
        turn.look, self._look_at = False, self._live._clock.monotonic() + LOOK_S
        shown = await self._live._ledger.do(lambda tx: streams.showing(tx, turn.id))
        if shown is None:
            self._live._end(turn)
            return
        if self._shown.row is not None and shown.row is None:  # it failed
            self._streams = False
        self._shown = shown

    async def _type(self) -> None:
        now = self._live._clock.monotonic()
        went = await self._try(lambda: self._adapter.typing(self._shown.chat, self._shown.to.thread))
        self._type_at = now + (RETRY_S if went is False else self._typing_s)

    def _grow_at(self) -> float:
        """When the message is next to be sent or changed."""
        new = self._streams and self._text != self._turn.text and (self._shown.row is None or self._shown.message)
        return max(self._edit_at, self._turn.since + BEGIN_S) if new else math.inf

    async def _grow(self) -> None:
        limits, whole, now = self._adapter.limits, self._turn.text, self._live._clock.monotonic()
        piece = pieces(whole, deliveries.room(limits))[0]
        self._edit_at = now + self._every
        if not visible(piece):
            return
        if self._shown.row is None:
            self._text = whole
            await self._send(piece, limits)
        elif await self._edit(piece, limits):
            self._text, self._type_at = whole, max(self._type_at, now + self._typing_s)
        else:
            self._edit_at = now + min(RETRY_S, self._every)

    async def _send(self, piece: str, limits: ChannelLimits) -> None:
        turn, live = self._turn, self._live
        now = rfc3339(live._clock.now())
        await live._ledger.do(lambda tx: streams.begin(tx, turn.id, piece, now, limits=limits))
        live._outbox.wake(self._shown.to)
        await self._look()

    async def _edit(self, piece: str, limits: ChannelLimits) -> bool:
        shown, turn = self._shown, self._turn
        form = await anyio.to_thread.run_sync(formatted, piece, limits)
        if self._live._is_over(turn):
            return False
        message = Outgoing(
            delivery=shown.row or 0,
            channel=shown.to.channel,
            account=shown.to.account,
            chat=shown.chat,
            thread=shown.to.thread,
            kind="stream",
            text=piece,
            formatted=form,
            nonce="",
            session=shown.session,
            turn=turn.id,
            edits=shown.message,
        )
        went = await self._try(lambda: self._adapter.send(message))
        if went is None:
            log.info("turn %s is shown on %s when it has ended", turn.id, shown.to.channel)
            self._streams = False
        return went is True

    async def _try(self, work: Callable[[], Awaitable[object]]) -> bool | None:
        """Whether it went; None when the platform would not have it."""
        try:
            return await self._live._outbox.courtesy(self._shown.to, self._shown.shared, work)
        except Exception as error:
            if isinstance(error, NotSent) and error.retry_after is not None:
                self._live._outbox.hold(self._shown.to, error.retry_after)
            log.debug("turn %s: a courtesy to %s failed: %s", self._turn.id, self._shown.to.channel, error)
            return None
