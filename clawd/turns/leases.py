"""What keeps a turn alive: pure decisions over a live turn's clock readings (seconds, monotonic)."""

from __future__ import annotations

from dataclasses import dataclass

LEASE_S = 60.0
CONFIRM_S = 10.0
WALL_S = 900.0
STOP_GRACE_S = 5.0
LOOK_S = 10.0  # how often the size of work/ is looked at


@dataclass(slots=True)
class LiveTurn:
    """A claimed turn as this daemon sees it. All times are monotonic: `began` is the claim, `heard` the last word from
    its worker, `handed` when it was last handed out."""

    turn: int
    session: str
    attempt: int
    worker: int
    began: float
    heard: float
    handed: float
    confirmed: bool = False
    stopping: float | None = None
    why: str | None = None  # what it is ended for, when nobody asked for that


def verdict(live: LiveTurn, now: float, wall: float = WALL_S) -> str:
    """What a live turn is due: `ok`, `unconfirmed` (hand it out again), `lost` (its sandbox must die),
    `late` (over its wall time: ask it to stop), `stuck` (it was asked to stop and did not)."""
    if live.stopping is not None and now - live.stopping > STOP_GRACE_S:
        return "stuck"
    if now - live.heard > LEASE_S:
        return "lost"
    if live.stopping is None and now - live.began > wall:
        return "late"
    return "unconfirmed" if not live.confirmed and now - live.handed > CONFIRM_S else "ok"


def next_look(live: LiveTurn, now: float) -> float:
    """Seconds until `verdict` may change, at most LOOK_S."""
    due = [live.handed + CONFIRM_S - now] if not live.confirmed else []
    if live.stopping is not None:
        due.append(live.stopping + STOP_GRACE_S - now)
    return max(0.05, min((each for each in due if each > 0), default=LOOK_S))
