"""What a person types while the agent works: whole lines, which are not shown until they are whole, so that they
and what is printed never tear each other. What is not ended yet when the work is done appears at the next prompt."""

from __future__ import annotations

import os
import select
import socket
import sys
import termios
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

_LINE = 4096  # bytes: the kernel's longest line


class Keyboard:
    """The terminal on standard input; nothing that is typed is shown until the block ends. Used from the main thread,
    whose interrupts pass through."""

    def __enter__(self) -> Keyboard:
        self._woken, self._waking = socket.socketpair()
        self._kept = termios.tcgetattr(sys.stdin)
        silent = [*self._kept]
        silent[3] &= ~termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, self._kept)
        self._woken.close()
        self._waking.close()

    def watch(self, work: Future[Any]) -> None:
        """`lines` looks up when this work is done."""
        work.add_done_callback(self._wake)

    def _wake(self, work: Future[Any]) -> None:
        with suppress(OSError):
            self._waking.send(b".")

    def lines(self) -> list[str] | None:
        """The next line, more where they were pasted; none when watched work was done before. None at the end of
        the input."""
        ready, _, _ = select.select([sys.stdin, self._woken], [], [])
        if self._woken in ready:
            self._woken.recv(_LINE)
            return []
        typed = os.read(sys.stdin.fileno(), _LINE)
        # A paste that began at the prompt has the carriage returns of its raw mode.
        return typed.decode("utf-8", "surrogateescape").replace("\r", "\n").split("\n") if typed else None
