"""When the next request to a chat may go: a table of what a platform takes, over a clock that is turned."""

import math
from datetime import UTC, datetime

import pytest

from clawd.channel import Rates
from clawd.clock import TurnedClock
from clawd.delivery import rates
from clawd.delivery.rates import Pace

A, B, ELSEWHERE = ("c", "", "a"), ("c", "", "b"), ("other", "", "a")


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock(datetime(2026, 12, 1, tzinfo=UTC))


def pace(clock: TurnedClock, *figures: float) -> Pace:
    return Pace(lambda channel: Rates(*figures) if channel == "c" else Rates(), clock.monotonic)  # type: ignore[arg-type]


def times(pace: Pace, clock: TurnedClock, messages: int, shared: bool = False) -> list[float]:
    """When so many messages of one chat go, each as soon as it may."""
    gone = []
    for _ in range(messages):
        while (wait := pace.wait(A, shared)) > 0:
            clock.advance(wait)
        clock.advance(pace.pay(A, shared))
        gone.append(round(clock.monotonic(), 6))
    return gone


@pytest.mark.parametrize(
    ("figures", "shared", "expected"),
    [
        ((0, 0, 0), True, [0, 0, 0, 0, 0]),
        ((1, 0, 0), False, [0, 1, 2, 3, 4]),
        ((0, 2, 0), True, [0, 0, 60, 60, 120]),
        ((0, 2, 0), False, [0, 0, 0, 0, 0]),  # the minute is that of shared chats
        ((10, 2, 0), True, [0, 10, 60, 70, 120]),
        ((0, 0, 0.5), False, [0, 0.5, 1, 1.5, 2]),
        ((1, 3, 0.5), True, [0, 1, 2, 60, 61]),
    ],
)
def test_messages_of_a_chat(
    clock: TurnedClock, figures: tuple[float, ...], shared: bool, expected: list[float]
) -> None:
    assert times(pace(clock, *figures), clock, 5, shared) == expected


def test_a_channels_chats_take_turns_and_another_channel_has_its_own(clock: TurnedClock) -> None:
    each = pace(clock, 100, 0, 0.5)
    assert [each.pay(A, False), each.pay(B, False), each.pay(ELSEWHERE, False)] == [0, 0.5, 0]
    assert (each.wait(A, False), each.wait(B, False), each.wait(ELSEWHERE, False)) == (100, 100.5, 0)


@pytest.mark.parametrize("seconds", [0.5, 300, 36_000])
def test_what_the_platform_said_holds_that_chat_alone_and_as_long(clock: TurnedClock, seconds: float) -> None:
    each = pace(clock, 1)
    each.pay(A, False)
    assert each.hold(A, seconds)
    assert (each.wait(A, False), each.wait(B, False)) == (max(1, seconds), 0)
    assert not each.spare(A, False) and each.spare(B, False)
    clock.advance(max(1, seconds))
    assert each.wait(A, False) == 0


def test_nobody_is_held_for_ever(clock: TurnedClock) -> None:
    each = pace(clock)
    assert each.hold(A, 1e9) and each.wait(A, False) == 86_400


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
def test_what_is_no_time_holds_nothing(clock: TurnedClock, seconds: float) -> None:
    each = pace(clock)
    assert not each.hold(A, seconds)
    assert each.wait(A, False) == 0


def test_no_message_waits_for_a_courtesy(clock: TurnedClock) -> None:
    each = pace(clock, 1, 4, 0.1)
    assert each.spare(A, True)
    assert not each.spare(A, True)  # its own pace
    assert not each.spare(B, True)  # the channel's
    assert each.wait(A, True) == 0
    clock.advance(1)
    assert each.spare(A, True)
    clock.advance(1)
    assert not each.spare(A, True)  # the other half of the minute is for messages
    assert each.spare(B, True)
    assert times(each, clock, 2, shared=True) == [2.1, 3.1]
    assert not each.spare(A, True)
    clock.advance(60)
    assert each.spare(A, True)


def test_a_courtesy_waits_for_messages(clock: TurnedClock) -> None:
    each = pace(clock, 1)
    each.pay(A, False)
    assert not each.spare(A, False)
    clock.advance(1)
    assert each.spare(A, False)


def test_chats_that_are_free_are_forgotten(clock: TurnedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_MOST", 10)
    each = pace(clock, 1, 20)
    each.hold(A, 10_000)
    for n in range(100):
        each.pay(("c", "", str(n)), True)
        clock.advance(61)
    assert len(each._chats) <= 10
    assert each.wait(A, False) == 10_000 - 6100
