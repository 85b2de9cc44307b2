"""Whether what lies at a path can be asked at all: a network share that is away, or a file system whose program hangs,
holds whoever looks for as long as it likes."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

SECONDS = 10.0  # a disk may have to start turning


class Answers:
    """Called with a path: True, whatever the answer is, False when none came in time. A path that hangs has one thread
    that waits for it, and is waited for once; it is well again when that thread is."""

    def __init__(self) -> None:
        self._asked: dict[Path, tuple[threading.Thread, float]] = {}

    def __call__(self, path: Path) -> bool:
        thread, until = self._asked.get(path) or self._ask(path)
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            return False
        self._asked.pop(path, None)
        return True

    def _ask(self, path: Path) -> tuple[threading.Thread, float]:
        thread = threading.Thread(target=_look, args=(path,), name="looks at a mount", daemon=True)
        thread.start()
        self._asked[path] = asked = thread, time.monotonic() + SECONDS
        return asked


def _look(path: Path) -> None:
    with suppress(OSError):
        path.stat()
