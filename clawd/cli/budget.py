"""`clawd budget show|raise` and `clawd usage`."""

from __future__ import annotations

from argparse import Namespace

from clawd.cli.page import give, settled
from clawd.commands import writing
from clawd.config.home import Home


def show(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    columns = ("group", "service", "period", "unit", "limit", "spent", "reserved", "opens")
    give(settled(looking.budgets(home)), options.json, columns, "no limits: [budget] in config.toml or group.toml")
    return 0


def raise_(options: Namespace, home: Home) -> int:
    amounts = {"usd": options.usd, "tokens": options.tokens}
    give(writing.call(home, "budget.raise", name=options.group, span=options.span, **amounts), options.json)
    return 0


def usage(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    columns = ("key", "turns", "input", "output", "cached", "usd", "known_usd")
    give(settled(looking.usage(home, options.by)), options.json, columns, "no model was called yet")
    return 0
