"""What to do with a schedule at an instant: fire, make up for what was missed, leave out, end, or see that the clock
was wrong. Pure.

An instant is handled once: whatever is decided of it, `last_due` has passed it then, and nothing before that is due
again, however the clock is set.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from clawd.ledger.firings import Schedule
from clawd.schedules import times
from clawd.schedules.file import ScheduleFile, seconds_of, window
from clawd.schedules.store import file_of
from clawd.schedules.times import Rule

log = logging.getLogger(__name__)

ON_TIME = timedelta(seconds=60)  # what begins within that, and its jitter, is not late
WRONG = timedelta(days=1)  # a last instant so far ahead of the clock means that the clock was wrong
MOST = 10  # runs that are made up for at once, and that are noted as missed

CatchUp = Literal["once", "skip", "all"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A schedule as it stands. `jitter` in seconds; `open`: when the run was due that is not over yet; `active`: it is
    enabled and not paused."""

    name: str
    rule: Rule
    since: datetime
    last_due: datetime | None = None
    catch_up: CatchUp = "once"
    within: timedelta = timedelta(hours=24)
    jitter: float = 0.0
    active: bool = True
    open: datetime | None = None


@dataclass(frozen=True, slots=True)
class PassOver:
    """`event` is the move of its row: `skip` or `miss`."""

    due: datetime
    event: Literal["skip", "miss"]
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now, and how the schedule stands then: `next` is when it is due, `look` when there is something to do
    for that. `fire`: what was due then runs now. `over`: it was for once. `wrong`: what was known of it lay so far
    ahead of the clock."""

    since: datetime
    last_due: datetime | None
    next: datetime | None = None
    look: datetime | None = None
    fire: tuple[datetime, ...] = ()
    passed: tuple[PassOver, ...] = ()
    over: bool = False
    wrong: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether nothing but the schedule's own row changes."""
        return not (self.fire or self.passed or self.over or self.wrong)


def decide(of: Standing, now: datetime) -> Step:
    """At the instant `now`, by the wall clock."""
    since, last, wrong = min(of.since, now), of.last_due, False
    if last is not None and last - now > WRONG:
        last, wrong = now, True
    if not of.active:
        return Step(since, last, wrong=wrong)
    rule, once = of.rule, of.rule.at is not None
    floor = _floor(rule, since, last)
    found, more = times.dues(rule, floor, now, since=since, newest=2 * MOST)
    ready = [due for due in found if _instant(of, due, since) <= now]
    handled = ready[-1] if ready else last
    coming = found[len(ready)] if len(ready) < len(found) else times.after(rule, max(floor, now), since=since)
    fire, passed = _split(of, ready, more, now)
    over = once and coming is None and handled is not None
    if over and not ready and rule.at is not None and rule.at <= (handled or now):
        # Nobody knows that it was fired, where there is no row of it.
        passed = (PassOver(rule.at, "miss", "what is known to have been done is later than that"),)
    look = _instant(of, coming, since) if coming is not None else None
    return Step(since, handled, coming, look, fire, passed, over, wrong)


def _floor(rule: Rule, since: datetime, last: datetime | None) -> datetime:
    """Only later instants are due. What is for once is due also where it was taken up too late."""
    if rule.at is not None:
        return last if last is not None else rule.at - timedelta(microseconds=1)
    return since if last is None else max(since, last)


def _instant(of: Standing, due: datetime, since: datetime) -> datetime:
    """When to begin what is due then. The jitter never comes near the next one."""
    if of.jitter <= 0:
        return due
    following = times.after(of.rule, due, since=since)
    seconds = of.jitter if following is None else min(of.jitter, (following - due).total_seconds() / 2)
    return times.jittered(of.name, due, seconds)


def _is_late(due: datetime, now: datetime, jitter: float) -> bool:
    return now - due > ON_TIME + timedelta(seconds=jitter)


def _split(
    of: Standing, ready: list[datetime], more: int, now: datetime
) -> tuple[tuple[datetime, ...], tuple[PassOver, ...]]:
    """Of what is due which is fired, and why the rest is not."""
    if not ready:
        return (), ()
    zone = of.rule.zone
    late = [due for due in ready if _is_late(due, now, of.jitter)]
    wanted = [due for due in ready if due not in late or (now - due <= of.within and of.catch_up != "skip")]
    chosen = wanted[-MOST:] if of.catch_up == "all" else wanted[-1:]
    missed = [due for due in ready if due not in chosen]
    passed, left = [], max(0, len(missed) - MOST) + more
    before = f", and {'more than ' if more >= times.MANY else ''}{left} before it" if left else ""
    for n, due in enumerate(missed[-MOST:]):
        if now - due > of.within:
            why = "nothing could run then, and it is too long ago (catch_up_within)"
        elif of.catch_up == "skip":
            why = "nothing could run then, and it is not made up for (catch_up)"
        else:
            why = f"nothing could run then; the run of {said(chosen[-1], zone)} stands for it"
        passed.append(PassOver(due, "miss", why if n else why + before))
    if of.open is not None and chosen and not (of.catch_up == "all" and late):
        why = f"the run of {said(of.open, zone)} is not over"
        return (), (*passed, *(PassOver(due, "skip", why) for due in chosen))
    return tuple(chosen), tuple(passed)


def lateness(due: datetime, now: datetime, jitter: float, zone: str) -> str | None:
    """In words that what was due then begins too late now, like "due 09:00, ran 11:42, late": with dates where it was
    on another day. None where it does not."""
    if not _is_late(due, now, jitter):
        return None
    place = ZoneInfo(zone)
    same = due.astimezone(place).date() == now.astimezone(place).date()
    shape = "%H:%M" if same else "%Y-%m-%d %H:%M"
    return f"due {due.astimezone(place):{shape}}, ran {now.astimezone(place):{shape}}, late"


def said(moment: datetime, zone: str) -> str:
    """A time of a schedule, as a person there reads it."""
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"


def standing(of: Schedule, file: ScheduleFile) -> Standing:
    """A schedule of the ledger whose file says this."""
    assert of.facts is not None
    return Standing(
        of.name, times.rule_of(file, of.facts["zone"]), of.since, of.last_due, file.catch_up, window(file),
        seconds_of(file.jitter), file.enabled and of.paused is None, of.open,
    )  # fmt: skip


def decided(found: Sequence[Schedule], now: datetime) -> list[tuple[Schedule, Step]]:
    """What to do for each that says anything. One that cannot be decided is a defect, and disturbs no other."""
    steps = []
    for of in found:
        try:
            if of.facts is not None:
                steps.append((of, decide(standing(of, file_of(of.facts)), now)))
        except Exception:
            log.exception("schedule %s cannot be decided", of.name)
    return steps
