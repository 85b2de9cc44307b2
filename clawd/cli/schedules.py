"""`clawd schedule next`."""

from __future__ import annotations

import sys
from argparse import Namespace

from clawd.cli.page import cell, say, write_json
from clawd.config.home import Home


def next_times(options: Namespace, home: Home) -> int:
    """1 when the rule is not understood, or is never due; why is printed either way."""
    from clawd.commands import schedules

    found = schedules.next_times(home, options.expr, options.zone, options.after, options.count)
    if options.json:
        write_json(found)
    for time in [] if options.json else found["times"]:
        sys.stdout.write(cell(time) + "\n")
    say(found["error"] or found["said"])
    return 1 if found["error"] else 0
