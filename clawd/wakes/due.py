"""What to do with a schedule at an instant: fire, make up for what was missed, leave out, end, or see that the clock
was wrong. Pure.

An instant is handled once: whatever is decided of it, `last_due` has passed it then, and nothing before that is due
again, however the clock is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from clawd.ledger.firings import Schedule
from clawd.schedules import times
from clawd.schedules.file import ScheduleFile, seconds_of, window
from clawd.schedules.times import Rule

ON_TIME = timedelta(seconds=60)  # what begins within that, and its jitter, is not late
WRONG = timedelta(days=1)  # a last instant so far ahead of the clock means that the clock was wrong
MOST = 10  # runs that are made up for at once, and that are noted as missed
_FIRST_SPAN = timedelta(hours=1)

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
    until: datetime | None = None
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
    wrong: datetime | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing but the schedule's own row changes."""
        return not (self.fire or self.passed or self.over or self.wrong)


def decide(of: Standing, now: datetime) -> Step:
    """At the instant `now`, by the wall clock."""
    since, last, wrong = min(of.since, now), of.last_due, None
    if last is not None and last - now > WRONG:
        last, wrong = now, last
    if not of.active:
        return Step(since, last, wrong=wrong)
    rule, once = of.rule, of.rule.at is not None
    floor = _floor(rule, since, last)
    end = now if of.until is None else min(now, of.until)
    found, before = _newest(rule, floor, end, since)
    ready = [due for due in found if _instant(of, due, since) <= now]
    handled = ready[-1] if ready else last
    coming = found[len(ready)] if len(ready) < len(found) else times.after(rule, max(floor, now), since=since)
    if coming is not None and of.until is not None and coming > of.until:
        coming = None
    fire, passed = _split(of, ready, before, now)
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


def _newest(rule: Rule, floor: datetime, end: datetime, since: datetime) -> tuple[list[datetime], str | None]:
    """The newest instants after `floor` until `end`, and in words what else there was: after a long time nobody counts
    each minute of it."""
    span = _FIRST_SPAN
    while end - span > floor:
        found, _ = times.dues(rule, end - span, end, since=since, newest=2 * MOST)
        if len(found) == 2 * MOST:
            return found, f"and all before it since {said(floor, rule.zone)}"
        span *= 8
    if end <= floor:
        return [], None
    found, before = times.dues(rule, floor, end, since=since, newest=2 * MOST)
    return found, f"and {before} before it" if before else None


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
    of: Standing, ready: list[datetime], before: str | None, now: datetime
) -> tuple[tuple[datetime, ...], tuple[PassOver, ...]]:
    """Of what is due which is fired, and why the rest is not."""
    if not ready:
        return (), ()
    zone = of.rule.zone
    late = [due for due in ready if _is_late(due, now, of.jitter)]
    wanted = [due for due in ready if due not in late or (now - due <= of.within and of.catch_up != "skip")]
    chosen = wanted[-MOST:] if of.catch_up == "all" else wanted[-1:]
    missed = [due for due in ready if due not in chosen]
    passed = []
    for n, due in enumerate(missed[-MOST:]):
        if now - due > of.within:
            why = "nothing could run then, and it is too long ago (catch_up_within)"
        elif of.catch_up == "skip":
            why = "nothing could run then, and it is not made up for (catch_up)"
        else:
            why = f"nothing could run then; the run of {said(chosen[-1], zone)} stands for it"
        left = len(missed) - MOST
        more = before if left <= 0 else f"and {left} before it" if before is None else f"and {left} before it, {before}"
        passed.append(PassOver(due, "miss", f"{why}, {more}" if n == 0 and more else why))
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
    rule = times.rule_of(file, of.facts["zone"])
    until = datetime.fromisoformat(file.until) if file.until is not None else None
    if until is not None and until.tzinfo is None:
        until = until.replace(tzinfo=ZoneInfo(rule.zone))
    return Standing(
        of.name, rule, of.since, of.last_due, file.catch_up, window(file), seconds_of(file.jitter),
        until and until.astimezone(UTC), file.enabled and of.paused is None, of.open,
    )  # fmt: skip
