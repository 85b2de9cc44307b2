"""The heartbeat: a regular look at a checklist, by the clock, within the hours that its group says. Pure, but for
reading the list.

Nothing on the list that is due makes no wake, and so no model is called. An item may begin with when it is due, in
parentheses; any other one is due at each beat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from clawd.config.group import Heartbeat
from clawd.config.home import THEIRS
from clawd.errors import ClawdError, UnsafePath
from clawd.files import parts_of, read_owned
from clawd.ledger.firings import Schedule
from clawd.schedules import times
from clawd.schedules.file import ScheduleFile, seconds_of
from clawd.schedules.times import Rule

PROMPT = "If there is nothing to tell anybody, answer NOTHING."
MOST_BYTES = 64 << 10
_DAY = 24 * 60
_LONG = timedelta(days=1)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
_CHECKED = re.compile(r"\s*[-*+]\s+\[[xX]\]")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?:\[ \]\s+)?")
_WHEN = re.compile(r"\(([^()]{1,200})\)\s*")

Times = Callable[[str, datetime], Rule]  # a rule from words; raises ClawdError where they say no time


def rules(beat: Heartbeat, zone: str) -> list[Rule]:
    """When it beats: from the first of its hours on, `every` so long, up to the last. Empty where it is off."""
    if beat.hours is None:
        return []
    first, last = (_minutes(text) for text in beat.hours.split("-"))
    length = (last - first) % _DAY or _DAY
    step = max(1, int(seconds_of(beat.every.replace(" ", ""))) // 60)
    hours: dict[int, list[int]] = {}
    for minute in range(0, min(length + 1, _DAY), step):
        at = (first + minute) % _DAY
        hours.setdefault(at % 60, []).append(at // 60)
    zone = beat.tz or zone
    return [Rule(zone, cron=f"{minute} {','.join(map(str, sorted(each)))} * * *") for minute, each in hours.items()]


def _minutes(text: str) -> int:
    hour, _, minute = text.partition(":")
    return (int(hour) * 60 + int(minute or 0)) % _DAY


def next_beat(of: Sequence[Rule], moment: datetime) -> datetime | None:
    """The first beat after a moment."""
    found = (times.after(rule, moment, since=moment) for rule in of)
    return min((each for each in found if each is not None), default=None)


def checklist(folder: Path, name: str) -> str:
    """The list as the owner wrote it; empty where there is none. Raises UnsafePath."""
    first, *below = parts_of(name.casefold())
    if first in THEIRS or (below and first.startswith("work.")):  # one that `groups clean` has kept aside
        raise UnsafePath("it lies where others than the owner write")
    try:
        return read_owned(folder, name)[:MOST_BYTES].decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def items(text: str) -> list[str]:
    """What stands on a list and is not checked off. What is indented beneath an item belongs to it."""
    found: list[str] = []
    skipping = False
    for line in _COMMENT.sub("", text).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            skipping = False
        elif line[:1].isspace() and (skipping or found):
            if not skipping and not _CHECKED.match(line):
                found[-1] += f"\n{line.rstrip()}"
        else:
            skipping = _CHECKED.match(line) is not None
            if not skipping:
                found.append(line.strip())
    return found


def due_items(text: str, last: datetime, now: datetime, times_of: Times) -> list[str]:
    """The items that are due at a beat, when the one before was at `last`."""
    return [item for item in items(text) if _is_due(item, last, now, times_of)]


def _is_due(item: str, last: datetime, now: datetime, times_of: Times) -> bool:
    match = _WHEN.match(item, bullet.end() if (bullet := _BULLET.match(item)) else 0)
    if match is None:
        return True
    try:
        rule = times_of(match[1], last)
    except ClawdError:  # a remark in parentheses
        return True
    due = times.after(rule, last, since=last)
    return due is not None and due <= now


def words_in(zone: str) -> Times:
    """What a list's words for times mean in this zone."""
    from clawd.schedules import words

    def times_of(text: str, now: datetime) -> Rule:
        understood = words.expression(text, zone, now)
        return times.rule_of(ScheduleFile(**understood.fields, prompt="."), zone)

    return times_of


@dataclass(frozen=True, slots=True)
class Beat:
    """A look at a heartbeat. `due`: the beat that it is time for, `next` the one after; `text` what is due on the list,
    empty for nothing; `wrong` why the list cannot be read."""

    due: datetime | None
    next: datetime | None
    text: str = ""
    wrong: str | None = None


def decide(of: Sequence[Rule], since: datetime, last: datetime | None, now: datetime) -> Beat:
    """What it is time for. A beat that was missed is not made up for: the next one sees what was due then."""
    ahead = last is not None and last - now > _LONG
    floor = min(since, now) if last is None or ahead else max(min(since, now), last)
    floor = max(floor, now - _LONG)
    found = [each for rule in of for each in times.dues(rule, floor, now, since=floor, newest=1)[0]]
    return Beat(max(found, default=None), next_beat(of, now))


def look(of: Schedule, folder: Path, now: datetime) -> Beat:
    """At a group's heartbeat, with its list; in any thread."""
    assert of.facts is not None
    beat, zone = Heartbeat(**of.facts["heartbeat"]), of.facts["zone"]
    zone = beat.tz or zone
    found = decide(rules(beat, zone), of.since, of.last_due, now)
    if found.due is None:
        return found
    try:
        text = checklist(folder, beat.file)
    except (UnsafePath, OSError) as error:
        why = error.message if isinstance(error, UnsafePath) else str(error.strerror)
        return replace(found, wrong=f"{beat.file}: {why}")
    last = of.last_due if of.last_due is not None and of.last_due < now else min(of.since, now)
    return replace(found, text="\n".join(due_items(text, last, now, words_in(zone))))
