"""An mmkr trace of 10 and of 50 MB made into a session: seconds, and the most memory that it took, the first time and
again."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.figures import Figure, figure

SIZES = (10, 50)
_CONVERT = """
import resource, sys, time
from clawd.bridges.mmkr import convert_trace_to_pythonclaw
began = time.perf_counter()
convert_trace_to_pythonclaw(sys.argv[1], "bench", sys.argv[2])
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def mmkr() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as directory:
        for size in SIZES:
            trace = Path(directory) / f"{size}.jsonl"
            _write(trace, size << 20)
            for when in ("", ", again"):
                took = subprocess.run(
                    [sys.executable, "-c", _CONVERT, str(trace), f"{directory}/{size}"],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                seconds, peak = map(float, took.stdout.split())
                yield figure(f"convert a trace of {size} MB{when}", [seconds], "s")
                yield figure(f"memory of it{when}", [peak], "MB")


def _write(trace: Path, size: int) -> None:
    """Ticks as mmkr's collector and its engine write them."""
    with trace.open("w") as file:
        for tick in count(1):
            if file.tell() > size:
                return
            at = 1772877600 + 60 * tick
            file.writelines(json.dumps(event | {"tick": tick}) + "\n" for event in _events(tick, at))


def _events(tick: int, at: int) -> Iterator[dict[str, object]]:
    yield {"event_type": "mmkr:tick_start", "ts": at}
    for n in range(5):
        yield {"event_type": "tool_call", "tool": "read", "args": {"path": f"notes/{n}.md", "of": tick}, "ts": at + n}
        yield {"event": "tool_result", "tool": "read", "result": f"line {n} of {tick}\n" * 20, "ts": at + n}
    yield {"event": "llm_response", "phase": "LIFE", "response": f"what I think of {tick} " * 20, "ts": at + 8}
    yield {
        "event_type": "memory_write",
        "content": f"what is worth keeping of {tick}",
        "category": "plan",
        "ts": at + 9,
    }
    yield {"event_type": "mmkr:tick_end", "summary": f"Tick {tick} is done.", "ts": at + 10}
