"""A channel that fails is opened again, nobody else notices, and an outage that lasts is told once, with its end."""

from __future__ import annotations

import os
from collections import deque
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest

from clawd import supervise
from clawd.channel import Fatal
from clawd.clock import SystemClock, TurnedClock
from clawd.log import redactor
from clawd.supervise import AGAIN, AGAIN_S, Part, is_flapping


def test_ten_outages_within_ten_minutes_are_too_many() -> None:
    times = deque([float(n) for n in range(AGAIN)], maxlen=AGAIN)
    assert is_flapping(times, AGAIN_S)
    assert not is_flapping(times, AGAIN_S + 1)
    times.pop()
    assert not is_flapping(times, 0.0)


def test_an_outage_is_told_when_it_lasts_and_so_is_its_end() -> None:
    told, back, broke = list[str](), list[int](), list[int]()
    clock = TurnedClock(datetime(2026, 12, 1, tzinfo=UTC))
    part = Part("chat", clock, told.append, lambda: back.append(1), lambda: broke.append(1))
    part.heard()
    assert (part.state, part.error, back) == ("live", None, [1])

    part.failed("no route")  # a short one
    part.failed("no route")
    first = part.since
    assert (part.state, part.error, broke) == ("degraded", "no route", [1])
    part.heard()
    part.look(first)
    assert told == [] and part.state == "live"

    clock.advance(1)
    part.failed("no name")  # a long one: looked at for the first, and for itself
    part.look(first)
    assert told == []
    part.look(part.since)
    part.look(part.since)
    part.heard()
    part.heard()
    assert told == ["chat does not work: no name. It is tried again and again.", "chat works again."]
    assert len(back) == 3

    for _ in range(AGAIN):  # many short ones
        part.failed("it blinks")
        part.heard()
    assert told[2:] == ["chat breaks off again and again: it blinks"]


@pytest.mark.anyio
async def test_what_always_fails_starves_nobody_and_lives_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawd.clock.FIRST_S", 0.0)
    part, tries, beats = Part("part", SystemClock()), 0, 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        if tries == 2:
            return  # ends by itself, which it may not
        if tries <= 9:
            raise RuntimeError("no")
        part.heard()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervise.supervise, part, work)
        with anyio.fail_after(30):
            while tries <= 9:
                beats += 1
                await anyio.lowlevel.checkpoint()
        assert part.state == "live" and part.error is None
        tasks.cancel_scope.cancel()
    assert beats >= tries


@pytest.mark.anyio
async def test_what_is_not_let_in_is_dead_and_told_at_once() -> None:
    told: list[str] = []
    part = Part("chat", SystemClock(), told.append)

    async def work() -> None:
        raise Fatal("the token is wrong")

    redactor.add("7:an-adapters-token")
    part.failed("no route to https://chat/bot7:an-adapters-token/send")
    assert part.error == "no route to https://chat/bot[secret]/send"
    await supervise.supervise(part, work)
    assert (part.state, part.error) == ("dead", "the token is wrong")
    assert len(told) == 1 and f"the token is wrong. Mend that, then: kill -HUP {os.getpid()}" in told[0]
