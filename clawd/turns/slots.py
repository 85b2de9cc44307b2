"""Who may have a sandbox, when there are fewer places than groups that want one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A run hands out so many turns before it gives its place to a group that waits.
TURNS_A_TERM = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A taken place: the run's group, live turns, turns handed out in this term, when it last worked (monotonic)."""

    group: str
    live: int
    handed_out: int
    last_worked: float
    ending: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Groups to start now, idle runs to end now, and runs that hand out nothing more and end when they are empty."""

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()


def decide(waiting: Sequence[str], places: Sequence[Place], max_live: int) -> Decision:
    """Groups that wait get free places in their order; then idle runs end, the longest idle first; then runs whose
    term is over drain. So no group waits behind another's backlog, and no sandbox is started for one turn of a crowd.
    """
    held = {place.group for place in places}
    wanting = [group for group in waiting if group not in held]
    free = max(0, max_live - len(places))
    start, rest = wanting[:free], wanting[free:]
    short = len(rest) - sum(place.ending for place in places)
    end: list[str] = []
    drain: list[str] = []
    if short > 0:
        idle = sorted(
            (place for place in places if not place.live and not place.ending and place.group not in waiting),
            key=lambda place: place.last_worked,
        )
        end = [place.group for place in idle[:short]]
        short -= len(end)
    if short > 0:
        tired = sorted(
            (p for p in places if not p.ending and p.handed_out >= TURNS_A_TERM and p.group not in end),
            key=lambda place: -place.handed_out,
        )
        drain = [place.group for place in tired[:short]]
    return Decision(tuple(start), tuple(end), tuple(drain))
