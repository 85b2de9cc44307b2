"""`clawd gateway services|audit|check`."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from clawd.cli.page import cell, give, settled, write_json
from clawd.config.home import Home


def services(options: Namespace, home: Home) -> int:
    from clawd.commands import gateway

    columns = ("service", "granted_to", "credential", "base_url", "hosts")
    found = settled(gateway.services(home))
    if not options.json:
        found = [{**each, "granted_to": [_grant(grant) for grant in each["granted_to"]]} for each in found]
    give(found, options.json, columns, beneath=("granted_to", "hosts"))
    return 0


def _grant(grant: dict[str, Any]) -> str:
    missing = ", no key" if grant["credential"] == "missing" else ""
    return f"{grant['group']} (for {grant['for']}{missing})"


def check(options: Namespace, home: Home) -> int:
    """1 when the request would be refused; why is printed either way."""
    from clawd.commands import gateway
    from clawd.trust import Role

    found = settled(gateway.check(home, options.group, options.method.upper(), options.url, Role(options.role)))
    if options.json:
        write_json(found)
    else:
        sys.stdout.write(f"{'allowed' if found['allow'] else 'refused'} ({found['rule']}): {cell(found['reason'])}\n")
        if found["hint"]:
            sys.stdout.write(f"→ {cell(found['hint'])}\n")
    return 0 if found["allow"] else 1


def audit(options: Namespace, home: Home) -> int:
    from clawd.commands import gateway

    columns = ("ts", "group", "turn", "service", "method", "host", "path", "verdict", "rule", "status", "ms", "folded")
    found = settled(gateway.audit(home, options.group, options.since))
    give(found, options.json, columns, "nothing was asked of the gateway")
    return 0
