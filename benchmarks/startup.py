"""How fast a command and the daemon are there, beside an empty Python in the same run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.daemon import CLAWD, await_answer, home
from benchmarks.figures import Figure, figure


def timed(command: list[str], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def version() -> Iterator[Figure]:
    """`clawd --version` in a new process each time."""
    yield figure("python -c pass", timed([sys.executable, "-c", "pass"], 20), "ms")
    yield figure("clawd --version", timed([*CLAWD, "--version"], 20), "ms", goal=100)


def ready() -> Iterator[Figure]:
    """From the start of the process until the control socket answers."""
    taken = []
    with home(["main"]) as made:
        for _ in range(8):
            began = time.perf_counter()
            process = subprocess.Popen([*CLAWD, "run", "--home", str(made.root)], stderr=subprocess.DEVNULL)
            await_answer(made, process)
            taken.append((time.perf_counter() - began) * 1000)
            process.terminate()
            process.wait(30)
    yield figure("daemon ready", taken, "ms", goal=500)
