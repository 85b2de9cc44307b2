"""What the doctor looks at in money: a limit in dollars that nobody can keep, for the price is not known."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from clawd.config.home import Home
from clawd.config.load import load_config
from clawd.config.models import THINKING, candidates
from clawd.config.presets import services
from clawd.health.findings import Finding, finding, settings_of_groups
from clawd.usage.books import Rules
from clawd.usage.prices import dated, price_of


def budgets(home: Home) -> Iterator[Finding]:
    """Every model of every group that has a limit in dollars."""
    config, known = load_config(home, dict(os.environ)), True
    for group, settings in settings_of_groups(home, config):
        if settings.model.engine not in THINKING:
            continue
        for service, model in candidates(settings.model, services(config)):
            table = services(config).get(service or "")
            rules = Rules(group, settings.budget, service, table.limits if table is not None else None)
            if model and rules.in_dollars and price_of(model, config.prices) is None:
                known = False
                message = f"group {group} has a limit in dollars, and the price of {model} is not known: it is refused"
                write = f'[prices."{model}"] input = N, output = N (dollars a million tokens)'
                yield finding("budgets", "warn", message, f"{write} in {shlex.quote(str(home.config_file))}")
    if known:
        yield finding("budgets", "ok", f"prices are as of {dated()}, where [prices] says nothing else")
