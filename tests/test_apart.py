"""What hangs is waited for once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import anyio
import pytest

from clawd import apart
from clawd.apart import Apart

pytestmark = pytest.mark.anyio


async def test_what_hangs_keeps_one_thread_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    look, over, looks = Apart(), threading.Event(), list[int]()

    def hanging() -> str:
        looks.append(1)
        over.wait(60)
        return "late"

    try:
        with monkeypatch.context() as short:
            short.setattr(apart, "SECONDS", 0.02)
            for _ in range(10):
                with pytest.raises(TimeoutError):
                    await look("share", hanging)
        with anyio.move_on_after(0.02):  # who leaves changes nothing
            await look("share", hanging)
        assert len(looks) == 1
        assert await look("disk", lambda: "here") == "here"
    finally:
        over.set()
    assert await look("share", hanging) == "late" and len(looks) == 2, "it is looked at again"


def test_who_asks_a_thing_that_hangs_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, over, looks = Apart(), threading.Event(), list[int]()

    def hanging() -> None:
        looks.append(1)
        over.wait(60)

    monkeypatch.setattr(apart, "ANSWER_SECONDS", 0.02)
    try:
        assert [seen.answers("share", hanging) for _ in range(10)] == [False] * 10 and len(looks) == 1
        assert seen.answers("disk", Path("/nowhere").stat), "an error is an answer"
    finally:
        over.set()
    until = time.monotonic() + 60
    while not seen.answers("share", hanging):
        assert time.monotonic() < until, "it is looked at again"


async def test_what_it_raises_is_heard() -> None:
    with pytest.raises(FileNotFoundError):
        await Apart()("file", Path("/nowhere/file").read_bytes)
