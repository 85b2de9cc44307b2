"""mmkr, whose agent ticks: each tick is recorded, and flushed while a call of it is open and when it is over.
`python -m tests.system.collecting HOME FIRST LAST` says before each flush which tick it is in, and what is in for
good."""

from __future__ import annotations

import sys

from clawd.bridges.mmkr import PythonClawCollector

AGENT = "agent-1"
OF_A_TICK = ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def said(tick: int) -> list[str]:
    """The words of the messages of a tick."""
    start, look = f"Tick {tick} — observe, think, act.\nLoaded {tick + 1} memories.", "Calling look"
    return [start, look, f"saw {tick}\n---\n### {tick}", look, f"ERROR: saw {tick} again", f"Tick {tick} is over."]


def main(home: str, first: int, last: int) -> None:
    to = PythonClawCollector(AGENT, home)
    for tick in range(first, last):
        to.record_tick_start(tick, None, tick + 1)
        for n in range(2):  # the same call, twice
            to.record_tool_call(tick, "look", {"at": tick})
            if n:
                _flush(to, tick)
            to.record_tool_result(tick, "look", f"saw {tick} again" if n else f"saw {tick}\n---\n### {tick}", bool(n))
        to.record_memory(f"What tick {tick} saw.", "sights")
        to.record_tick_end(tick, f"Tick {tick} is over.")
        _flush(to, tick)
        print("in", tick, flush=True)  # noqa: T201 (the test reads it)


def _flush(to: PythonClawCollector, tick: int) -> None:
    print("flush", tick, flush=True)  # noqa: T201
    to.flush_to_session_file()
    print("flush", tick, flush=True)  # noqa: T201
    to.flush_to_memory_log()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
