"""What a turn is handed: its wakes, its steps so far, its engine and that engine's needs. JSON-ready, no secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from clawd.clock import Clock
from clawd.config.group import Effective
from clawd.config.home import Home
from clawd.errors import ConfigError
from clawd.ledger.turns import Claim
from clawd.model import Offer

SCRIPT_BYTES = 4 << 20
LIMITS = {"steps": 50, "wall_s": 900, "tool_s": 120, "output_bytes": 30 << 10, "final_bytes": 256 << 10}


class Composer:
    """Puts offers together. `settings` gives a group's config as it stands now, `environment` what its commands find
    the gateway by, with `{token}` for the run's token."""

    def __init__(
        self,
        home: Home,
        clock: Clock,
        settings: Callable[[str], Effective],
        environment: Callable[[str], dict[str, str]] = lambda group: {},
    ) -> None:
        self._home, self._clock, self._settings, self._environment = home, clock, settings, environment

    def engine(self, group: str) -> str | None:
        """Who answers the group's turns; None while its config cannot be read, which `offer` tells."""
        try:
            return str(self._settings(group).model.engine)
        except ConfigError:
            return None

    def offer(self, claim: Claim) -> Offer:
        """Raises ConfigError when the engine lacks what it needs."""
        row = claim.turn
        settings = self._settings(row["grp"])
        context: dict[str, Any] = {
            "group": row["grp"],
            "session": row["session"],
            "ordinal": row["ordinal"],
            "authority": claim.authority,
            "engine": settings.model.engine,
            "time": self._clock.now().astimezone(ZoneInfo(settings.timezone)).isoformat(timespec="seconds"),
            "timezone": settings.timezone,
            "environment": self._environment(row["grp"]),
        }
        if settings.model.engine == "scripted":
            context["script"] = self._script(settings.model.script)
        return Offer(row["id"], claim.attempt, claim.steps, claim.wakes, context, dict(LIMITS))

    def _script(self, name: str | None) -> Any:
        if not name:
            raise ConfigError('the engine "scripted" needs [model] script = "FILE"')
        path = self._home.root / name
        try:
            if path.stat().st_size > SCRIPT_BYTES:
                raise ConfigError(f"the script {path} is larger than {SCRIPT_BYTES >> 20} MB")
            return json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"the script {path} cannot be read: {error}") from error
