"""What holds for a session's context now: its thresholds, the policies in force, what asks first."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawd.config.group import Effective, GroupConfig
from clawd.config.schema import Config
from clawd.errors import ClawdError
from clawd.ledger.contexts import Standing
from clawd.lifecycle import policies, profiles
from clawd.lifecycle.deciding import Policy, Thresholds
from clawd.lifecycle.pinned import Columns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rules:
    """`confirm` names the actions that ask first; `usd` is what a session may cost, for policies. Not `bound`: no model
    reads its window, and nobody chose a profile for it: then no limit asks for anything."""

    limits: Thresholds
    policies: Sequence[Policy] = ()
    confirm: Sequence[str] = ()
    usd: float | None = None
    tag: str | None = None
    agent_id: str | None = None
    memory_namespace: str | None = None
    bound: bool = True


DEFAULT = Rules(Thresholds(profiles.DEFAULT, profiles.BUILT_IN[profiles.DEFAULT].soft or 0,
                           profiles.BUILT_IN[profiles.DEFAULT].hard or 0))  # fmt: skip


class Ruling:
    """Reads the rules of a session's row. `settings` is what holds for a group; it may raise ConfigError, and so may a
    profile that is gone: what held before holds on then, and the log says why, once."""

    def __init__(
        self,
        config: Callable[[], Config],
        settings: Callable[[str], Effective],
        *,
        window: Callable[[str], int | None] = lambda model: None,
        root: Path | None = None,
    ) -> None:
        self._config, self._settings, self._window, self._root = config, settings, window, root
        self._held: dict[tuple[Any, ...], Rules] = {}
        self._told: set[str] = set()

    def __call__(self, row: Columns) -> Rules:
        own = (row["grp"], row["profile"], row["soft"], row["hard"], row["require_confirm"])
        try:
            rules = self._held[own] = self._rules(row)
            return rules
        except ClawdError as error:
            self._tell(str(error))
            return self._held.get(own, DEFAULT)

    def limits(self, group: str, standing: Standing) -> Thresholds:
        """At how many tokens a session of the group is compacted, and handed over."""
        own = {"profile": standing.profile, "soft": standing.soft, "hard": standing.hard}
        return self({"grp": group, **own, "require_confirm": None}).limits

    def _rules(self, row: Columns) -> Rules:
        config, settings = self._config(), self._settings(row["grp"])
        model = settings.model.model
        limits = profiles.thresholds(
            config,
            settings,
            row["profile"],
            row["soft"],
            row["hard"],
            window=self._window(model) if model else None,
            root=self._root,
        )
        found, wrong = policies.in_force(settings.context.policies)
        for sentence in wrong:
            self._tell(sentence)
        asks = json.loads(row["require_confirm"]) if row["require_confirm"] else settings.group.require_confirm
        group = settings.group
        return Rules(
            *(limits, found, asks, settings.context.usd, group.default_session_tag, group.agent_id),
            *(group.memory_namespace, settings.model.engine != "offline" or _chosen(row, group)),
        )

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            log.warning("%s", sentence)


def _chosen(row: Columns, group: GroupConfig) -> bool:
    return any(each is not None for each in (group.profile, row["profile"], row["soft"], row["hard"]))
