"""The guard of the event loop: what one callback takes of the loop's thread for more than 50 ms is a defect, because
nobody else is served meanwhile.

Only what the callback did itself counts: not the time that its thread could have run and was not let (the kernel tells,
`schedstat`), that a hypervisor took away, that other threads computed or waited for a processor meanwhile (they may
have held the interpreter). What is read for that is read before a callback only when the last reading is older than
10 ms, so that watching costs next to nothing; so up to 10 ms of others' time may count in a callback's favour.

A first import, and a collection of the garbage of all tests so far, are no callback's own doing in a test process:
there a callback that imports is not judged, collecting does not count, and a test may block its own task (its fixtures
make files and ledgers). In a daemon all of it counts.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from asyncio import Handle, Task
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 0.05  # seconds
_FRESH = 0.01  # seconds that a reading before a callback may be old
INEXACT = 0.03  # of the time that was taken away: of five seconds the kernel's account was seen to lack 30 ms
_TASKS = Path("/proc/self/task")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds so far: by the clock, of this process and of this thread on a processor, of each living thread waiting
    for one, stolen from the machine, and collecting garbage in this thread; and how many modules there are."""

    clock: float
    process: float
    thread: float
    delayed: dict[str, float]
    stolen: float
    collected: float
    modules: int

    def own(self, before: Reading) -> float:
        """Seconds since `before` that were this thread's own doing: it worked, or was blocked by what it asked for."""
        others = (self.process - before.process) - (self.thread - before.thread)
        delayed = sum(max(0.0, all - before.delayed.get(task, 0.0)) for task, all in self.delayed.items())
        gone = delayed + (self.stolen - before.stolen) + (self.collected - before.collected)
        return self.clock - before.clock - (1 + INEXACT) * (max(0.0, others) + gone)


class Guard:
    """Watches every event loop of this process. `tell` is given a sentence for each callback that blocks one."""

    def __init__(self, tell: Callable[[str], None], *, lenient: bool, limit: float = LIMIT) -> None:
        self._tell, self._lenient, self._limit = tell, lenient, limit
        self._collected, self._collecting = 0.0, 0.0
        self._last: dict[int, Reading] = {}
        self._run = Handle._run

    def install(self) -> Guard:
        """Watch from now on, until `remove`."""
        guard, run = self, self._run

        def watched(handle: Handle) -> None:
            before = guard._before()
            began = time.perf_counter()
            try:
                run(handle)
            finally:
                if time.perf_counter() - began > guard._limit:
                    guard._judge(handle, before, began)

        Handle._run = watched  # type: ignore[method-assign]
        if self._lenient:
            gc.callbacks.append(self._on_collection)
        return self

    def remove(self) -> None:
        Handle._run = self._run  # type: ignore[method-assign]
        with suppress(ValueError):
            gc.callbacks.remove(self._on_collection)

    def _before(self) -> Reading:
        thread = threading.get_ident()
        last = self._last.get(thread)
        if last is None or time.perf_counter() - last.clock > _FRESH:
            last = self._last[thread] = self._read()
        return last

    def _judge(self, handle: Handle, before: Reading, began: float) -> None:
        now = self._last[threading.get_ident()] = self._read()
        if self._lenient and now.modules != before.modules:
            return
        own = now.own(before) - (began - before.clock)
        if own > self._limit and not (self._lenient and is_test(handle)):
            imported = list(sys.modules)[before.modules : now.modules]
            by = described(handle) + (f", which imported {', '.join(imported[:5])} …" if imported else "")
            self._tell(f"the event loop was blocked for {own * 1000:.0f} ms by {by}")

    def _read(self) -> Reading:
        delayed: dict[str, float] = {}
        for task in _TASKS.iterdir():
            with suppress(OSError):  # it ended
                delayed[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
        stolen = int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / _TICK
        return Reading(
            time.perf_counter(),
            time.process_time(),
            time.thread_time(),
            delayed,
            stolen,
            self._collected,
            len(sys.modules),
        )

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self._collected += time.perf_counter() - self._collecting


def is_test(handle: Handle) -> bool:
    """Whether it is a step of the task in which anyio runs the test itself and its fixtures."""
    coroutine = _coroutine(handle)
    return coroutine is not None and coroutine.cr_code.co_name == "_run_tests_and_fixtures"


def described(handle: Handle) -> str:
    """Where a callback's code is: for a step of a task, where its coroutines stand after it, outermost first."""
    coroutine, places = _coroutine(handle), []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is not None:
            places.append(f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})")
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return " > ".join(places) or repr(handle)


def _coroutine(handle: Handle) -> Any:
    """The coroutine of the task that this is a step of, None for any other callback."""
    task = getattr(getattr(handle, "_callback", None), "__self__", None)
    return task.get_coro() if isinstance(task, Task) else None
