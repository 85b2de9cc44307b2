"""A schedule from what somebody says: the text of its file, how it was understood, and when it will be due. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from clawd.config.values import check_zone
from clawd.errors import ConfigError, UsageError
from clawd.schedules import times
from clawd.schedules.file import ScheduleFile, parse_schedule
from clawd.schedules.times import Rule

LASTS = timedelta(days=180)  # what an agent makes without an end
MOST = 50  # schedules of a group to which an agent may add
_REMINDER = re.compile(r"\W*(\w+\W+){0,3}?(remind\s+(me|us)|erinnere?\s+(mich|uns))\b", re.IGNORECASE)
_ID_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Draft:
    """`fields` are the keys of its file. `id` is one that would be good, `said` how `when` was understood, `next` the
    first three times. `until` was not asked for."""

    id: str
    fields: Mapping[str, Any]
    file: ScheduleFile
    said: str
    expr: str
    zone: str
    next: Sequence[datetime]
    until: datetime | None = None


def drafted(when: str, more: Mapping[str, Any], zone: str, now: datetime, *, by_agent: bool = False) -> Draft:
    """`when` in any form, with what is to be done in the same words unless `more`, other keys of the file, has it.
    Raises UsageError."""
    from clawd.schedules import words

    fields = {key: value for key, value in more.items() if value not in (None, "")}
    try:
        zone = check_zone(fields.get("tz", zone))
    except ValueError as error:
        raise UsageError(f"tz: {error}") from None
    if "prompt" in fields or "skill" in fields:
        found = words.expression(when, zone, now)
    else:
        found = words.understood(when, zone, now)
        if not found.rest:
            raise UsageError('say what is to be done then, as in "every weekday at 9: say good morning"')
        fields["prompt"] = f"Remind me: {found.rest}" if _REMINDER.match(when) else found.rest
    fields = {**fields, **found.fields}
    until = None
    if by_agent and "at" not in fields and "until" not in fields:
        until = (now + LASTS).replace(microsecond=0)
        fields["until"] = until.isoformat()
    try:
        file = parse_schedule(written(fields), "the schedule")
    except ConfigError as error:
        raise UsageError("; ".join(each["what"] for each in error.errors) or error.message) from error
    rule = times.rule_of(file, zone, shortest=times.BY_AGENT if by_agent else times.BY_HAND)
    if not (dues := coming(rule, now, now)):
        raise UsageError(f"{found.said}: that is past")
    does = fields.get("prompt", fields.get("skill", ""))
    return Draft(name_of(does), fields, file, found.said, times.said(rule), zone, dues, until)


def coming(rule: Rule, moment: datetime, since: datetime) -> list[datetime]:
    """The first three times after a moment."""
    return list(islice(times.upcoming(rule, moment, since=since), 3))


def name_of(text: str) -> str:
    """A name like what it does: "Remind me: stretch, now!" is `stretch-now`."""
    plain = unicodedata.normalize("NFKD", text.removeprefix("Remind me:")).encode("ascii", "ignore").decode().lower()
    name = ""
    for word in re.findall(r"[a-z0-9]+", plain):
        if name and len(name) + len(word) >= _ID_LENGTH:
            break
        name = f"{name}-{word}" if name else word[:_ID_LENGTH]
    return name or "schedule"


def written(fields: Mapping[str, Any], head: str = "") -> str:
    """The file; `head` is what its first line says of it."""
    comment = f"# {head}\n" if head else ""
    keys = [key for key in ScheduleFile.model_fields if key in fields]
    return comment + "".join(["schema = 1\n", *(f"{key} = {_value(fields[key])}\n" for key in keys)])


def body(text: str) -> str:
    """A file without what its first line says of it."""
    return text.partition("\n")[2] if text.startswith("#") else text


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError("this holds half a character") from None
    lines = [json.dumps(line, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f") for line in value.split("\n")]
    return f'"{lines[0]}"' if len(lines) == 1 else '"""\n{}"""'.format("\n".join(lines))
