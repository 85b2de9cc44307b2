"""A part that fails is started again, and nobody else notices."""

from __future__ import annotations

from collections import deque

import anyio
import anyio.lowlevel
import pytest

from clawd import supervise
from clawd.clock import SystemClock
from clawd.supervise import DEGRADED_FAILURES, DEGRADED_WINDOW_S, LONGEST_S, Part, backoff, is_degraded


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (6, 32), (7, LONGEST_S), (10_000, LONGEST_S)])
def test_the_pause_doubles_up_to_a_minute_and_is_spread(failures: int, seconds: float) -> None:
    assert (backoff(failures, 0.0), backoff(failures, 1.0)) == (0.75 * seconds, 1.25 * seconds)


def test_ten_failures_within_ten_minutes_are_a_degraded_part() -> None:
    times = deque([float(n) for n in range(DEGRADED_FAILURES)], maxlen=DEGRADED_FAILURES)
    assert is_degraded(times, DEGRADED_WINDOW_S)
    assert not is_degraded(times, DEGRADED_WINDOW_S + 1)
    times.pop()
    assert not is_degraded(times, 0.0)


@pytest.mark.anyio
async def test_a_part_that_always_fails_starves_nobody_is_told_once_and_lives_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "FIRST_S", 0.0)
    part, tries, told, beats = Part("part"), 0, list[str](), 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        if tries <= DEGRADED_FAILURES + 3:
            raise RuntimeError("no")
        part.state = "live"  # it was heard
        await anyio.sleep_forever()

    def tell(text: str) -> None:
        assert part.state == "degraded"
        told.append(text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervise.supervise, part, work, SystemClock(), tell)
        with anyio.fail_after(30):
            while tries <= DEGRADED_FAILURES + 3:
                beats += 1
                await anyio.lowlevel.checkpoint()
        assert part.state == "live" and part.error == "no"
        tasks.cancel_scope.cancel()
    assert told == ["part fails again and again: no"] and beats >= tries


@pytest.mark.anyio
async def test_a_part_that_ends_by_itself_is_not_shown_as_living() -> None:
    part = Part("part")

    async def work() -> None:
        assert part.state == "starting"

    await supervise.supervise(part, work, SystemClock(), lambda text: None)
    assert part.state == "dead"
