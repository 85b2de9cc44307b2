"""The three things that the runner asks of the kernel beyond `os`: prctl(2)."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


def hide() -> None:
    """No other process of this user may read or change this one's memory, or trace it."""
    _prctl(PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Whatever this process's descendants leave behind becomes its own child."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Die when `parent` does, also when it already has."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
