"""`clawd approvals list|show|approve|deny`."""

from __future__ import annotations

import sys
from argparse import Namespace

from clawd.cli.clean import clean
from clawd.cli.page import cell, give, say, write_json
from clawd.commands import writing
from clawd.config.home import Home

_FAILED = ("failed", "void", "expired")


def listing(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    columns = ("id", "kind", "state", "what", "group", "made", "expires", "result")
    give(looking.approvals(home), options.json, columns, "nothing was asked", beneath=("what", "result"))
    return 0


def show(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    found = looking.approval(home, options.id)
    if options.json:
        write_json(found)
        return 0
    give({key: value for key, value in found.items() if key not in ("what", "words", "effect")}, False)
    sys.stdout.write(f"\n{clean(found['words'])}\n")
    return 0


def approve(options: Namespace, home: Home) -> int:
    return decide(options, home, "approvals.approve", options.id)


def deny(options: Namespace, home: Home) -> int:
    return decide(options, home, "approvals.deny", options.id)


def decide(options: Namespace, home: Home, operation: str, id: int) -> int:
    """1 when it was too late, or could not be done."""
    found = writing.call(home, operation, id=id)
    if options.json:
        write_json(found)
    else:
        sys.stdout.write(cell(f"{found['id']} is {found['state']}: {found['result'] or found['what']}") + "\n")
        if found["state"] == "approved":
            say("it is carried out when a daemon runs: clawd run")
    return 1 if found["state"] in _FAILED else 0
