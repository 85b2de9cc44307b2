"""Appending a turn of two messages to a session file that holds 10, 1,000 and 10,000 messages: time and bytes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import Figure, figure
from clawd.model import Block
from clawd.sessions.file import SessionFile


def append() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as directory:
        file = SessionFile(Path(directory) / "s.md", "bench:1")
        messages = 0
        for size in (10, 1000, 10_000):
            while messages < size:
                file.append(_turn(messages), messages)
                messages += 2
            taken, written = [], []
            for _ in range(50):
                before, began = _written(), time.perf_counter()
                file.append(_turn(messages), messages)
                taken.append((time.perf_counter() - began) * 1000)
                written.append(float(_written() - before))
                messages += 2
            yield figure(f"append a turn at {size} messages", taken, "ms")
            yield figure(f"bytes written by it at {size} messages", written, "bytes")


def _turn(number: int) -> list[Block]:
    now = datetime.now(UTC)
    return [Block("user", f"question {number:08}", now), Block("assistant", f"answer {number:08}", now)]


def _written() -> int:
    return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])
