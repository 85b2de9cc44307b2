"""The guard of the event loop can fail, and does so for what blocks alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.blocking import INEXACT, LIMIT, Guard, Reading

FAR = LIMIT * 6


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What a guard of this test's own says; the one that watches all tests is not told."""
    heard: list[str] = []
    guard = Guard(heard.append, lenient=True).install()
    yield heard
    guard.remove()


def sleeping() -> None:
    time.sleep(FAR)


def working() -> None:
    end = time.thread_time() + FAR
    while time.thread_time() < end:
        json.dumps(list(range(1000)))


def reading() -> None:
    reader, writer = os.pipe()
    threading.Timer(FAR, os.close, [writer]).start()
    os.read(reader, 1)
    os.close(reader)


@pytest.mark.expects_block
@pytest.mark.parametrize("block", [sleeping, working, reading])
def test_what_blocks_the_loop_is_told_with_its_place(told: list[str], block: object) -> None:
    async def culprit() -> None:
        await asyncio.sleep(0)
        block()  # type: ignore[operator]
        await asyncio.sleep(0)

    asyncio.run(culprit())
    [sentence] = told
    assert "blocked for" in sentence and "culprit" in sentence and Path(__file__).name in sentence


def test_waiting_blocks_nothing(told: list[str]) -> None:
    async def patient() -> None:
        await asyncio.sleep(FAR)
        await asyncio.to_thread(time.sleep, FAR)

    asyncio.run(patient())
    assert told == []


def test_a_thread_that_is_not_let_run_is_not_blamed() -> None:
    """The loop's process is stopped in mid-callback... by more work than there are processors, at the lowest rank."""
    script = (
        "import asyncio, os, time\nfrom tests.blocking import Guard\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.nice(19)\n"
        "guard = Guard(print, lenient=True).install()\n"
        "async def main():\n"
        "    end = time.thread_time() + 0.03\n"
        "    while time.thread_time() < end: pass\n"
        "began = time.perf_counter(); asyncio.run(main()); print('took', time.perf_counter() - began)\n"
    )
    hog = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    hogs = [subprocess.Popen([sys.executable, "-c", hog]) for _ in range(2)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
    finally:
        for each in hogs:
            each.send_signal(signal.SIGKILL)
            each.wait()
    assert done.stdout.startswith("took"), done.stdout


@pytest.mark.parametrize(
    ("spent", "own"),
    [
        ({"clock": 1.0}, 1.0),
        ({"clock": 1.0, "process": 1.0, "thread": 1.0}, 1.0),
        ({"clock": 1.0, "process": 0.7, "thread": 0.1}, 0.4),
        ({"clock": 1.0, "delayed": {"1": 3.3, "3": 0.6}}, 0.1),  # 2 ended, 3 began
        ({"clock": 1.0, "stolen": 0.5, "collected": 0.25}, 0.25),
    ],
)
def test_what_counts(spent: dict[str, Any], own: float) -> None:
    fields: dict[str, Any] = dict.fromkeys(("clock", "process", "thread", "stolen", "collected"), 0.0)
    fields["delayed"] = {"1": 3.0, "2": 5.0}
    before, after = Reading(**fields, modules=1), Reading(**{**fields, **spent}, modules=1)
    assert after.own(before) == pytest.approx(own - INEXACT * (1 - own))
