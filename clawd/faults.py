"""Named fault points for tests. Active only with `CLAWD_FAULT` set; without it `passing` is a no-op.

`CLAWD_FAULT=kill@claimed` ends the process with SIGKILL when it first passes `claimed`; `raise@claimed`
raises `InjectedFault`; `:N` waits for the N-th passage; several are separated by commas.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter


class InjectedFault(RuntimeError):
    """What `raise@point` raises."""


_plan: dict[str, tuple[str, int]] = {}
_passed: Counter[str] = Counter()


def load(spec: str | None) -> None:
    """Read a plan such as `kill@sending:3,raise@recorded`. Raises ValueError on a word that is not
    understood, and nothing is planned then."""
    _plan.clear()
    _passed.clear()
    plan: dict[str, tuple[str, int]] = {}
    for item in filter(None, (spec or "").split(",")):
        action, at, rest = item.strip().partition("@")
        point, _, nth = rest.partition(":")
        if not at or action not in ("kill", "raise") or not point or not re.fullmatch("[1-9][0-9]*", nth or "1"):
            raise ValueError(f"CLAWD_FAULT: {item!r} is not kill@POINT[:N] or raise@POINT[:N]")
        plan[point] = (action, int(nth or 1))
    _plan.update(plan)


def passing(point: str) -> None:
    """Say that the program passes `point`; the planned fault happens here."""
    if not _plan or point not in _plan:
        return
    action, nth = _plan[point]
    _passed[point] += 1
    if _passed[point] != nth:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise InjectedFault(f"raise@{point}")
