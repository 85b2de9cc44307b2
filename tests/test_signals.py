"""News: everybody hears it, nobody is waited for."""

import anyio
import pytest

from clawd.signals import MOST_TEXT, News, Signals

pytestmark = pytest.mark.anyio


async def test_every_subscriber_hears_what_is_said_after_it_came() -> None:
    signals = Signals()
    signals.emit(News("before"))
    with signals.subscribe() as one, signals.subscribe() as two:
        signals.emit(News("a", group="main"))
        signals.emit(News("b"))
        for subscription in (one, two):
            assert [(await anext(subscription)).kind for _ in range(2)] == ["a", "b"]


async def test_a_waiting_subscriber_wakes() -> None:
    signals = Signals()
    heard: list[str] = []

    async def listen() -> None:
        with signals.subscribe() as subscription:
            listening.set()
            async for news in subscription:
                heard.append(news.kind)
                if news.kind == "end":
                    return

    listening = anyio.Event()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await listening.wait()
            for kind in ("a", "b", "end"):
                signals.emit(News(kind))
                await anyio.lowlevel.checkpoint()
    assert heard == ["a", "b", "end"]


async def test_a_slow_subscriber_loses_the_oldest_and_blocks_nobody() -> None:
    signals = Signals()
    with signals.subscribe(limit=3) as subscription:
        for n in range(100):
            signals.emit(News(str(n)))
        assert [(await anext(subscription)).kind for _ in range(3)] == ["97", "98", "99"]


async def test_what_waits_for_a_slow_subscriber_is_bounded_by_its_length_too() -> None:
    signals = Signals()
    with signals.subscribe() as subscription:
        for n in range(100):
            signals.emit(News("delta", data={"n": n, "text": "x" * 60_000}))
        assert subscription.missed()
        waiting = subscription.arrived()
        assert sum(len(news.data["text"]) for news in waiting) <= MOST_TEXT
        assert waiting[-1].data["n"] == 99
        signals.emit(News("next"))
        assert not subscription.missed()
        assert (await anext(subscription)).kind == "next"


async def test_nobody_is_told_after_leaving() -> None:
    signals = Signals()
    with pytest.raises(RuntimeError), signals.subscribe() as subscription:
        raise RuntimeError
    signals.emit(News("late"))
    with anyio.move_on_after(0) as scope:
        await anext(subscription)
    assert scope.cancelled_caught


async def test_a_subscriber_knows_that_it_missed_something() -> None:
    """What depends on news reads the ledger then."""
    signals = Signals()
    with signals.subscribe(limit=2) as inbox:
        for number in range(2):
            signals.emit(News("turn", data={"turn": number}))
        assert not inbox.missed()
        signals.emit(News("turn"))
        assert inbox.missed() and not inbox.missed()
