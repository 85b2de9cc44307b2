"""A word to whoever waits: after a second, and then now and again, on what a command is doing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clawd.cli.page import say

FIRST_S, AGAIN_S = 1.0, 10.0  # until the first line, and between two


@contextmanager
def patiently(doing: Callable[[], str]) -> Iterator[None]:
    """While this is open, `doing` gives what is said; it is called in another thread."""
    began, over = time.monotonic(), threading.Event()

    def tell() -> None:
        pause = FIRST_S
        while not over.wait(pause):
            said = doing()
            if not over.is_set():
                say(f"{said} ({time.monotonic() - began:,.0f} s so far)")
            pause = AGAIN_S

    teller = threading.Thread(target=tell, name="patience", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
