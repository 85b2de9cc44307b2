"""What `groups/<group>/schedules/<id>.toml` may say. The file is the truth; the ledger has what became of it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, model_validator

from clawd.config.load import parse
from clawd.config.values import Binding, Count, Dollars, Table, Zone
from clawd.errors import UsageError

ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_SPAN = re.compile(r"\s*(\d{1,6}(?:\.\d{1,3})?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)?\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds_of(text: str) -> float:
    """How long "20s", "20m", "1.5h", "2 days" is; a bare number is seconds. Raises UsageError."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise UsageError(f'{text!r} is no span of time; write one like "20s", "20m", "24h" or "2d"')
    return float(match[1]) * _SECONDS[(match[2] or "s")[0]]


def _span(value: str) -> str:
    try:
        seconds_of(value)
    except UsageError as error:
        raise ValueError(error.message) from None
    return value


def _moment(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


Span = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value), AfterValidator(_span)
]
# A date and a time, in the schedule's own zone where it names none.
Moment = Annotated[str, BeforeValidator(_moment), AfterValidator(lambda value: datetime.fromisoformat(value) and value)]


class Allowance(Table):
    usd: Dollars | None = None
    """Dollars that one run may cost."""
    tokens: Count | None = None
    """Tokens that one run may use."""


class ScheduleFile(Table):
    """One schedule: when (`cron`, `every` or `at`), and what then (`prompt` or `skill`)."""

    cron: str | None = None
    """A cron line of five fields, like "0 9 * * mon-fri", or `@daily`."""
    every: Span | None = None
    """A span between runs, like "20m"; it counts from when the schedule was taken up."""
    at: Moment | None = None
    """Once, like 2026-12-01T09:00. The file moves to `done/` afterwards."""
    tz: Zone | None = None
    """The zone of `cron` and `at`; without it the group's."""
    prompt: str = ""
    """What the agent is told."""
    skill: str | None = None
    """The skill that it is told to use."""
    session: Literal["group", "own"] = "group"
    """The group's conversation, or one of the schedule's own."""
    deliver_to: Binding | None = None
    """The binding of the group to which the answer goes; without it the first."""
    catch_up: Literal["once", "skip", "all"] = "once"
    """What becomes of runs that were missed: the newest of them, none, or the newest ten."""
    catch_up_within: Span = "24h"
    """What is missed for longer is not made up for."""
    jitter: Span = "0s"
    """Each run is late by up to so much, by chance."""
    check: str | None = None
    """A command that is run in the sandbox first. The last line that it prints is JSON: `{"wake": true}` or false."""
    budget: Annotated[Allowance | None, BeforeValidator(lambda v: {"usd": v} if isinstance(v, int | float) else v)] = (
        None
    )
    """What one run may use: dollars, or `{usd, tokens}`."""
    until: Moment | None = None
    """After this it is never due again."""
    enabled: bool = True
    """Whether it is in force."""

    @model_validator(mode="after")
    def _one_of_each(self) -> ScheduleFile:
        if sum(each is not None for each in (self.cron, self.every, self.at)) != 1:
            raise ValueError("a schedule has one of cron, every and at")
        if bool(self.prompt.strip()) == (self.skill is not None):
            raise ValueError("a schedule has a prompt or a skill")
        return self


def parse_schedule(text: str, name: str) -> ScheduleFile:
    """Raises ConfigError with the line of each mistake; `name` is what the file is called there."""
    return parse(ScheduleFile, text, name)


def window(file: ScheduleFile) -> timedelta:
    return timedelta(seconds=seconds_of(file.catch_up_within))
