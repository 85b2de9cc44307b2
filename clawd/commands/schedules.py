"""Schedules: what a person asks of them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from clawd.config.home import Home
from clawd.config.load import load_config, machine_zone
from clawd.config.values import check_zone
from clawd.errors import ClawdError, NotFound, UsageError
from clawd.schedules.file import ScheduleFile
from clawd.schedules.times import instant, rule_of, upcoming
from clawd.schedules.words import expression

Shown = dict[str, Any]
_MOST = 1000


def next_times(home: Home, expr: str, zone: str | None, after: str | None, count: int) -> Shown:
    """When a cron line, a span, a moment or plain words are due next: {times[], said, error|null}, each time with the
    offset of its zone. Without a zone it is the home's, which need not exist."""
    try:
        zone = _zone(home, zone)
        moment = datetime.now(UTC) if after is None else instant(after, zone, "--after")
        found = expression(expr, zone, moment)
        rule = rule_of(ScheduleFile.model_validate({**found.fields, "prompt": "x"}), zone)
        times = islice(upcoming(rule, moment, since=moment), min(count, _MOST))
        return {
            "times": [due.astimezone(ZoneInfo(zone)).isoformat() for due in times],
            "said": found.said,
            "error": None,
        }
    except ClawdError as error:
        return {"times": [], "said": None, "error": str(error)}


def _zone(home: Home, named: str | None) -> str:
    if named is None:
        try:
            return load_config(home, dict(os.environ)).claw.timezone or machine_zone()
        except NotFound:
            return machine_zone()
    try:
        return check_zone(named)
    except ValueError as error:
        raise UsageError(f"--tz: {error}") from None
