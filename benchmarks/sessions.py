"""Appending a turn of two messages to a session file that holds 10, 1,000 and 10,000 messages: time and bytes. Beside
it, in the same run and on the same disk, the same turn in PythonClaw's own store, which writes the file anew: without
its limit, so that it keeps as much as we do, and with its usual one of 50 messages. Ours waits until the disk has it;
PythonClaw does not.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, figure
from clawd.model import Block
from clawd.sessions.file import SessionFile
from tests.bridges.real_pythonclaw import ESC, PythonClaw, Unavailable

TURNS = 50  # measured ones
LIMITS = {"without a limit": 0, "of its last 50 messages": 50}


def append() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as directory:
        ours = SessionFile(Path(directory) / "s.md", "bench:1")
        messages, costs = 0, dict[int, list[Figure]]()
        for size in (10, 1000, 10_000):
            while messages < size:
                ours.append(_turn(messages), messages)
                messages += 2
            append = [lambda n=n: ours.append(_turn(n), n) for n in range(messages, messages + 2 * TURNS, 2)]
            messages += 2 * TURNS
            costs[size] = list(_measured("append a turn", "bytes written by it", size, append))
            yield from costs[size]
        try:
            claw = PythonClaw(ESC, fetch=False)
        except Unavailable as error:
            print(f"nothing to compare with: {error}", file=sys.stderr)
            return
        for size in (1000, 10_000):
            for limit, most in LIMITS.items():
                store, held = claw.store(Path(directory), most), [_PROMPT, *_messages(size)]
                save = [lambda store=store, held=held: _save(store, held) for _ in range(TURNS)]
                what = f"PythonClaw {ESC} saves a turn {limit}"
                for mine, its in zip(
                    costs[size], _measured(what, f"bytes written when {what}", size, save), strict=True
                ):
                    yield its
                    yield figure(f"{its.what}, as a multiple of ours", [its.p50 / mine.p50], "times")


_PROMPT = {"role": "system", "content": "prompt"}


def _measured(what: str, bytes: str, size: int, turns: list[Callable[[], None]]) -> Iterator[Figure]:
    taken, written = [], []
    for turn in turns:
        before, began = _written(), time.perf_counter()
        turn()
        taken.append((time.perf_counter() - began) * 1000)
        written.append(float(_written() - before))
    yield figure(f"{what} at {size} messages", taken, "ms")
    yield figure(f"{bytes} at {size} messages", written, "bytes")


def _turn(number: int) -> list[Block]:
    now = datetime.now(UTC)
    return [Block("user", f"question {number:08}", now), Block("assistant", f"answer {number:08}", now)]


def _messages(count: int) -> list[dict[str, Any]]:
    """As its agent holds them."""
    now = datetime.now().isoformat(timespec="seconds")
    return [
        {"role": block.role, "content": block.content, "_ts": now}
        for number in range(0, count, 2)
        for block in _turn(number)
    ]


def _save(store: Any, held: list[dict[str, Any]]) -> None:
    """What its agent does at the end of a turn: two messages more, and the file is written."""
    held += [{"role": block.role, "content": block.content} for block in _turn(len(held))]
    store.save("bench:its", held)


def _written() -> int:
    return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])
