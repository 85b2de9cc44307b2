"""mmkr's recorder beside a daemon that talks in the same session: killed between and within its flushes, it begins
again with ticks that it had recorded before, and each thing is there once, in its order, each result at its call."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from clawd.commands import looking
from clawd.sessions import reading
from tests.system.collecting import AGENT, OF_A_TICK, said
from tests.system.conftest import Home
from tests.system.test_recorder import start, talk

pytestmark = pytest.mark.timeout(60)

SESSION, TICKS, AGAIN = f"mmkr:{AGENT}", 40, 2
KILLS = (0, 0.002, 0.004, 0.007, 0.011, 0.016, 0.022)  # seconds after a flush was begun, the last is between two


def recorded(home: Home, first: int, kill: tuple[int, float] | None = None) -> int:
    """Record from a tick on, to the end or until it is killed so many seconds after the n-th flush was begun; gives the
    last tick that is in for good."""
    words = [sys.executable, "-m", "tests.system.collecting", str(home.root), str(first), str(TICKS)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=home.environment())
    home.started.append(process)
    assert process.stdout is not None
    flushes, last = 0, first - 1
    for line in process.stdout:
        what, tick = line.split()
        last = int(tick) if what == "in" else last
        flushes += what == "flush"
        if kill is not None and flushes == kill[0]:
            time.sleep(kill[1])
            process.kill()
            kill = None
    process.wait(60)
    return last


def test_a_recorder_that_is_killed_and_says_ticks_again(home: Home) -> None:
    home.json("groups", "add", "main")
    home.json("groups", "set", "main", "external", '["mmkr:*"]')
    start(home)
    words, over = list[str](), threading.Event()
    talking = threading.Thread(target=talk, args=(home, words, over), daemon=True)
    talking.start()
    last = -1
    for n, after in enumerate(KILLS):
        last = max(last, recorded(home, max(0, last - AGAIN), (13 + n, after)))
        if n == len(KILLS) // 2:
            home.kill()
            start(home)
    assert 0 < last < TICKS and recorded(home, max(0, last - AGAIN)) == TICKS - 1
    over.set()
    talking.join()
    home.settled(len(words))

    read = reading.load(looking.session_file(home.layout, SESSION))
    assert not read.errors
    outside = [block for block in read.blocks if reading.is_external(block)]
    expected = [each for tick in range(TICKS) for each in zip(OF_A_TICK, said(tick), strict=True)]
    assert [(block.role, block.content) for block in outside] == expected
    ids = [call["id"] for block in read.blocks for call in block.tool_calls]
    assert len(ids) == len({*ids}) == 2 * TICKS
    for block, behind in zip(read.blocks, [*read.blocks[1:], None], strict=True):
        for call in block.tool_calls:
            assert behind is not None and behind.tool_call_id == call["id"]
    assert sorted(block.content for block in read.blocks if block.content in words) == sorted(words)
    logs = "".join(path.read_text() for path in home.layout.group("main").memory.glob("[0-9]*.md"))
    assert [logs.count(f"What tick {tick} saw.") for tick in range(TICKS)] == [1] * TICKS
