"""When a rule is due. Pure: instants in UTC from a rule and an instant; the next one comes from cronsim."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Rule:
    """One of `cron` (five fields), `every` (seconds) and `at` (an instant). `zone` is that of a cron line."""

    zone: str
    cron: str | None = None
    every: float | None = None
    at: datetime | None = None
