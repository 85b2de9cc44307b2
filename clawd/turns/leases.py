"""What keeps a turn alive: pure decisions over a live turn's clock readings (seconds, monotonic)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawd.trust import Role
from clawd.usage.budgets import BudgetSpent

if TYPE_CHECKING:
    from clawd.ledger.db import Row

LEASE_S = 60.0
RETURN_S = 30.0  # after a restart of the daemon: how long a runner has to return
CONFIRM_S = 10.0
PAUSE_AFTER_S = 1.0  # how long a sandbox is at rest before it is frozen
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
    role: Role = Role.NONE  # for whom it acts
    taint: float = 1.0  # what it has fallen to, in the ledger too
    told: bool = False  # its person knows that a request was refused
    alarms: int = 0  # how often the owner was told of something worse
    choice: str | None = None  # of engine, model and effort for it alone, JSON
    alone: int | None = None  # nothing waited behind it when its run had been woken so often
    spent: BudgetSpent | None = None  # its last model call was refused, because this budget is spent

    @classmethod
    def returning(cls, row: Row, now: float) -> LiveTurn:
        """A claimed turn after a restart of the daemon. Its worker had it, or asks for it once more."""
        held = row["id"], row["session"], row["attempt"], row["worker"]
        stopping = now if row["stop_requested"] else None
        acts = {"role": Role(row["authority"]), "taint": row["taint"], "choice": row["choice"]}
        return cls(*held, now, now + RETURN_S - LEASE_S, now, confirmed=True, stopping=stopping, **acts)


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
