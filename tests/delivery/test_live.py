"""Typing and text that grows, over a real ledger and outbox: what a chat sees of a turn at work, and what it never
sees once the turn has ended."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.channel import FormatRefused, NotSent, SendRefused, Unsure
from clawd.clock import SystemClock
from clawd.delivery import live as module
from clawd.delivery import outbox as outbox_module
from clawd.delivery.live import Live
from clawd.delivery.outbox import Outbox
from clawd.ids import new_id
from clawd.ledger import ends, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.model import Final, Lease
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from tests.delivery.platform import HANGS, Platform
from tests.ledger.conftest import NOW, Desk

pytestmark = pytest.mark.anyio
TO = Address("platform", "", "c1", "t9")
PATIENCE = 20


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger.open(tmp_path / "ledger.db")
    yield ledger
    ledger.close()


class Typing(Platform):
    def __init__(self, script: list[Any] | None = None, error: Exception | None = None, **limits: Any) -> None:
        super().__init__(script, **{"edits": True, "stream_s": 0.02, "stream_shared_s": 0.02, **limits})
        self.typed: list[tuple[str, str]] = []
        self.error = error

    async def typing(self, chat: str, thread: str) -> None:
        self.typed.append((chat, thread))
        if self.error:
            raise self.error

    @property
    def grown(self) -> list[str]:
        """The texts that were given to a message, in their order."""
        return [each.text for each in self.stored if each.kind == "stream"]


class World:
    """A turn at work in a chat of the platform."""

    def __init__(self, ledger: Ledger, platform: Typing, signals: Signals, outbox: Outbox, live: Live) -> None:
        self.ledger, self.platform, self.signals, self.outbox, self.live = ledger, platform, signals, outbox, live
        self.desk = Desk(ledger)
        if ledger.tx(lambda tx: tx.one("SELECT 1 FROM run")) is None:
            self.desk.run("r1")
        self.lease = Lease("", 0, 0, 0)

    async def claim(self, new: bool = True, shared: bool = False) -> None:
        def chat(tx: Transaction) -> None:
            tx.execute("UPDATE turn SET channel = 'platform', chat = 'c1', thread = 't9'")
            tx.execute(
                "INSERT OR IGNORE INTO chat (channel, account, chat, direct, title, seen)"
                " VALUES ('platform', '', 'c1', ?, '', '')",
                not shared,
            )

        if new:
            await self.ledger.do(lambda tx: tx.execute("UPDATE turn SET recorded_at = ended_at"))
            self.desk.accept(id=new_id())
            await self.ledger.do(chat)
        claim = await self.ledger.do(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
        assert claim is not None
        self.lease = Lease("r1", claim.turn["id"], claim.attempt, 0)
        self.tell("claimed")

    @property
    def turn(self) -> Any:
        return self.live._turns.get(self.lease.turn)

    def tell(self, state: str) -> None:
        self.signals.emit(News("turn", "main", "terminal:main", {"turn": self.lease.turn, "state": state}))

    def say(self, text: str, kind: str = "delta") -> None:
        data = {"turn": self.lease.turn, "text": text} if kind == "delta" else {"turn": self.lease.turn, "name": "x"}
        self.signals.emit(News(kind, "main", "terminal:main", data))

    async def end(self, how: str = "answered", text: str = "the answer", heard: bool = True) -> None:
        """As the counter does it: the ledger, the outbox, the news."""
        limits, turn = self.platform.limits, self.lease.turn

        def work(tx: Transaction) -> ends.Ended:
            if how == "answered":
                return ends.answer(tx, self.lease, Final(text), [], NOW, limits=limits)
            if how == "failed":
                return ends.fault(tx, turn, "it broke", NOW, limits=limits, final=True)
            if how == "stopped":
                ends.request_stop(tx, "terminal:main")
                return ends.stopped(tx, turn, NOW)
            if how == "held":
                return ends.hold_live(tx, turn, "no sandbox", NOW, limits=limits)
            return ends.requeue(tx, turn, NOW)

        ended = await self.ledger.do(work)
        assert ended.state == how
        if ended.deliveries:
            self.outbox.wake(TO)
        if heard:
            self.tell(how)

    async def until(self, what: Callable[[], Any]) -> None:
        with anyio.fail_after(PATIENCE):
            while not what():
                await anyio.sleep(0.002)

    async def grow(self) -> None:
        """Say a little more until it is seen."""
        seen = len(self.platform.grown)
        self.say("more ")
        await self.until(lambda: len(self.platform.grown) > seen)


@asynccontextmanager
async def working(ledger: Ledger, platform: Typing, wall: float = 600.0) -> AsyncIterator[World]:
    """At its end every task that shows a turn must have ended by itself."""
    async with anyio.create_task_group() as others:
        signals, clock = Signals(), SystemClock()
        outbox = Outbox(ledger, signals, clock, {"platform": platform}, Path("/nowhere"), Tasks(others))
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as shows:
                live = Live(ledger, signals, clock, {"platform": platform}, outbox, Tasks(shows), lambda group: wall)
                others.start_soon(live.run)
                await anyio.wait_all_tasks_blocked()
                yield World(ledger, platform, signals, outbox, live)
        while not outbox.idle:
            await anyio.sleep(0.002)
        assert not live._turns
        others.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEGIN_S", 0.02)
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(outbox_module, "backoff", lambda failures, chance: 0.01)


@pytest.mark.parametrize("how", ["answered", "failed", "stopped", "held", "queued"])
@pytest.mark.parametrize("error", [None, NotSent("429"), RuntimeError("a defect")])
async def test_typing_is_told_at_once_and_again_and_never_after_the_end(
    ledger: Ledger,
    how: str,
    error: Exception | None,
) -> None:
    platform = Typing(error=error, typing_s=0.02)
    async with working(ledger, platform) as world:
        await world.claim()
        await world.until(lambda: len(platform.typed) > 2)
        await world.end(how)
        seen = len(platform.typed)
    assert len(platform.typed) <= seen + 1  # one that was on its way
    assert set(platform.typed) == {("c1", "t9")}


async def test_typing_ends_with_the_turns_time_and_when_its_end_was_not_heard(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with working(ledger, Typing(typing_s=0.02), wall=0.05) as world:
        await world.claim()
        await world.until(lambda: world.platform.typed)
        await world.until(lambda: world.turn and world.turn.silent)
        await world.end()
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    async with working(ledger, Typing(typing_s=0.02)) as world:
        await world.claim()
        await world.until(lambda: world.platform.typed)
        await world.end(heard=False)


async def test_text_grows_in_one_message_which_is_the_answer_at_last(ledger: Ledger) -> None:
    platform = Typing(markup="spans", text=200)
    async with working(ledger, platform) as world:
        await world.claim()
        world.say("I **look** ")
        await world.until(lambda: platform.grown)
        await world.grow()
        await world.grow()
        world.say("", kind="tool")
        world.say("```\nnow")
        await world.until(lambda: "now" in platform.grown[-1])
        await world.end(text="the **answer**, " * 20)
    first, *edits = platform.stored
    assert (first.text, first.edits, first.formatted and first.formatted.text) == ("I **look** ", None, "I look")
    assert [each.edits for each in edits[:-1]] == ["id1"] * (len(edits) - 1) and edits[-1].edits is None
    assert platform.grown[-1] == "I **look** more more\n\n```\nnow\n```"
    shown = platform.shown()
    assert len(shown) == 2 and "".join(shown) == "the **answer**, " * 20
    assert [each["state"] for each in ledger.tx(lambda tx: tx.all("SELECT state FROM delivery"))] == ["sent"] * 3


@pytest.mark.parametrize("how", ["failed", "stopped", "held"])
async def test_a_turn_that_ends_otherwise_says_so_in_its_message(ledger: Ledger, how: str) -> None:
    async with working(ledger, Typing()) as world:
        await world.claim()
        await world.grow()
        await world.end(how)
    (shown,) = world.platform.shown()
    assert shown.startswith({"failed": "That did not work", "stopped": "Stopped.", "held": "Your message is kept"}[how])


async def test_another_attempt_writes_anew_into_the_same_message(ledger: Ledger) -> None:
    platform = Typing()
    async with working(ledger, platform) as world:
        await world.claim()
        await world.grow()
        await world.end("queued")
        await world.claim(new=False)
        world.say("again")
        await world.until(lambda: platform.grown[-1] == "again")
        await world.end()
    assert platform.shown() == ["the answer"]


@pytest.mark.parametrize(
    "trouble",
    [NotSent("429", 0.05), Unsure("reset"), SendRefused("gone"), FormatRefused("no"), RuntimeError("x"), HANGS],
)
async def test_with_the_first_trouble_only_the_answer_is_left(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Any,
) -> None:
    monkeypatch.setattr(outbox_module, "COURTESY_S", 0.05)
    platform = Typing(["ok", trouble])
    async with working(ledger, platform) as world:
        await world.claim()
        await world.grow()
        while len(platform.tried) < 2:
            world.say("more ")
            await anyio.sleep(0.002)
        world.say("much more")
        await world.end()
    assert [each.kind for each in platform.tried] == ["stream", "stream", "text"]
    assert platform.shown() == ["the answer"]


async def test_no_message_leaves_while_an_edit_is_under_way(ledger: Ledger) -> None:
    """Else the edit might come after it, and the answer be lost behind an earlier text."""
    platform = Typing()
    going, go = anyio.Event(), anyio.Event()
    send = platform.send

    async def slowly(message: Any) -> str:
        if message.kind == "stream" and message.edits:
            going.set()
            await go.wait()
        return await send(message)

    platform.send = slowly  # type: ignore[method-assign]
    async with working(ledger, platform) as world:
        await world.claim()
        await world.grow()
        world.say("more")
        with anyio.fail_after(PATIENCE):
            await going.wait()
        await world.end()
        await anyio.wait_all_tasks_blocked()
        assert len(platform.stored) == 1
        go.set()
    assert [each.kind for each in platform.stored] == ["stream", "stream", "text"]
    assert platform.shown() == ["the answer"]


async def test_a_short_answer_and_one_where_nothing_grows_is_one_message(
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with working(ledger, Typing(stream_shared_s=0.0, typing_s=0.02)) as world:
        await world.claim(shared=True)
        world.say("so far")
        await world.until(lambda: len(world.platform.typed) > 3)
        await world.end()
    assert [each.kind for each in world.platform.stored] == ["text"]
    monkeypatch.setattr(module, "BEGIN_S", 60.0)
    async with working(ledger, Typing(typing_s=0.02)) as world:
        await world.claim()
        world.say("so far")
        await world.until(lambda: len(world.platform.typed) > 3)
        await world.end()
    assert [each.kind for each in world.platform.stored] == ["text"]


async def test_a_message_that_never_left_is_taken_back(ledger: Ledger) -> None:
    platform = Typing([NotSent("no route", 0.1)] * 3)
    async with working(ledger, platform) as world:
        await world.claim()
        world.say("so far")
        await world.until(lambda: platform.tried)
        await world.end()
    assert platform.shown() == ["the answer"] and platform.grown == []


async def test_a_channel_that_shows_nothing_has_no_task(ledger: Ledger) -> None:
    async with working(ledger, Typing(stream_s=0.0)) as world:
        await world.claim()
        world.say("so far")
        await world.until(lambda: world.turn and world.turn.silent)
        world.say("more")
        await anyio.wait_all_tasks_blocked()
        assert world.turn and "more" not in world.turn.text
        await world.end()
    assert [each.kind for each in world.platform.stored] == ["text"]
