"""Schedules: what a person asks of them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from clawd.config.home import Home
from clawd.config.load import load_config, machine_zone
from clawd.config.values import check_zone
from clawd.errors import ClawdError, NotFound, UsageError
from clawd.schedules.file import ScheduleFile
from clawd.schedules.times import after, instant, rule_of
from clawd.schedules.words import expression

Shown = dict[str, Any]


def next_times(home: Home, expr: str, zone: str | None, start: str | None, n: int) -> Shown:
    """The next `n` times of a cron line, a span, a moment or plain words: {times[], said, error|null}, each time with
    the offset of its zone. A home is not needed; its zone is taken where there is one and none is named."""
    try:
        zone = _zone(home, zone)
        moment = since = datetime.now(UTC) if start is None else instant(start, zone, "--after")
        found = expression(expr, zone, since)
        rule = rule_of(ScheduleFile.model_validate({**found.fields, "prompt": "x"}), zone)
        times: list[str] = []
        while len(times) < n and (due := after(rule, moment, since=since)) is not None:
            times.append(_local(due, zone))
            moment = due
        if not times:
            raise UsageError(f"{found.said}: that is past")
    except ClawdError as error:
        return {"times": [], "said": None, "error": str(error)}
    return {"times": times, "said": found.said, "error": None}
