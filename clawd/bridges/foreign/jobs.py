"""Jobs of another claw's scheduler as schedules of ours, due at the same times.

What cannot be said in a schedule of ours, or was due but once and that is past, is left; what is said otherwise, is
told. A schedule is in force after it was accepted as it was there; one that had a script decide whether it runs is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from clawd.arrivals.items import Item
from clawd.bridges.foreign.place import Place, shown, table, text_of
from clawd.config.values import check_zone
from clawd.errors import ClawdError, ConfigError
from clawd.ids import free
from clawd.schedules import making, times
from clawd.schedules.file import parse_schedule

SHORTEST = 60.0  # seconds between two runs
_PROMPT = 64 << 10  # characters
_NAME = 40
_AT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Job:
    """`value` is a cron line, milliseconds, or a moment: RFC 3339 or milliseconds since the epoch. `zone` is "" where
    none is named; `own`: it runs in a conversation of its own. `said` are sentences on what is not carried over."""

    id: str
    source: str
    group: str
    kind: Literal["cron", "every", "at"]
    value: Any
    prompt: str
    name: str = ""
    zone: str = ""
    enabled: bool = True
    own: bool = False
    said: Sequence[str] = ()
    scripted: bool = False


class Jobs:
    def __init__(self, place: Place, now: datetime) -> None:
        self._place, self._now = place, now
        self._taken = set[tuple[str, str]]()
        self._seen = set[tuple[str, str]]()
        self._items = list[Item]()

    def add(self, job: Job) -> None:
        """One job, once: the first of an id and group holds."""
        if (job.group, job.id) in self._seen:
            return
        self._seen.add((job.group, job.id))
        try:
            self._items.append(self._item(job))
        except ConfigError as error:
            self._place.leave(
                job.source, "; ".join(shown(each["what"]) for each in error.errors) or shown(error.message)
            )
        except ClawdError as error:
            self._place.leave(job.source, shown(error.message))

    def items(self) -> list[Item]:
        return sorted(self._items, key=lambda item: (item.group, item.to))

    def _item(self, job: Job) -> Item:
        """Raises ClawdError, which says why there can be none."""
        changed = list(job.said)
        prompt = text_of(job.prompt).strip()
        if not prompt:
            raise ClawdError("it does not say what is to be done")
        if len(prompt) > _PROMPT:
            raise ClawdError(f"what is to be done has more than {_PROMPT:,} characters")
        fields: dict[str, Any] = {job.kind: self._due(job, changed), "prompt": prompt}
        if job.zone:
            try:
                fields["tz"] = check_zone(job.zone)
            except ValueError:
                raise ClawdError(f"{shown(job.zone)} is no time zone") from None
        elif job.kind == "cron" or (job.kind == "at" and datetime.fromisoformat(fields["at"]).tzinfo is None):
            changed.append("it names no time zone: the group's holds")
        if job.own:
            fields["session"] = "own"
        if job.scripted:
            changed.append("a script decided whether it ran, which is not carried over: it is switched off")
        if not job.enabled or job.scripted:
            fields["enabled"] = False
        source = self._place.brought.source
        head = f"{source}: {shown(job.name or job.id)}"
        text = making.written(fields, head)
        rule = times.rule_of(parse_schedule(text, "it"), "UTC", shortest=SHORTEST)
        if not making.coming(rule, self._now, self._now):
            raise ClawdError("it was due once, and that is past" if job.kind == "at" else "it is never due")
        name = making.name_of(job.name or prompt)[:_NAME]
        id = free(name, lambda each: (job.group, each) not in self._taken)
        self._taken.add((job.group, id))
        return Item(
            "schedule", shown(job.source), f"schedules/{id}.toml", {"": text.encode()}, job.group, tuple(changed)
        )

    def _due(self, job: Job, changed: list[str]) -> str:
        """The value of `cron`, `every` or `at`. Raises ClawdError."""
        if job.kind == "every":
            seconds = _milliseconds(job.value) / 1000
            if seconds < SHORTEST:
                changed.append(f"it ran every {seconds:g} s: it runs once a minute")
            return times.span(max(seconds, SHORTEST))
        if job.kind == "at":
            return _moment(job.value)
        cron = " ".join(text_of(job.value).split())
        first, _, rest = cron.partition(" ")
        if len(cron.split()) == 6:
            if first not in ("0", "00"):
                raise ClawdError("its cron line counts seconds")
            changed.append("its cron line named second 0, which is left out")
            cron = rest
        return cron


def _milliseconds(value: Any) -> float:
    try:
        number = float(text_of(value))
    except ValueError:
        number = 0.0
    if not 0 < number < 1e14:
        raise ClawdError("it does not say how often it runs")
    return number


def _moment(value: Any) -> str:
    text = text_of(value).strip()
    try:
        if _AT.match(text):
            return datetime.fromisoformat(text).isoformat()
        return datetime.fromtimestamp(float(text) / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        raise ClawdError("it does not say when it is due") from None


def delivered(value: Any) -> list[str]:
    """What is told of a job's `delivery`, or of the fields of a payload that say where its answers went. An address on
    the web may hold a key, and is not told."""
    given = table(value)
    to, channel = text_of(given.get("to")), text_of(given.get("channel"))
    if given.get("mode") == "webhook" or "://" in to:
        return ["its answers went to an address on the web: they go to the group's first chat"]
    if given.get("mode") == "none" or not (to or channel) or channel == "last":
        return []
    return [f"its answers went to {shown(' '.join(filter(None, (channel, to))))}: they go to the group's first chat"]
