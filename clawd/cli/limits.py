"""`clawd context decide|calibrate`."""

from __future__ import annotations

from argparse import Namespace

from clawd.cli.page import give, say
from clawd.config.home import Home


def decide(options: Namespace, home: Home) -> int:
    from clawd.commands import limits

    found = limits.decide(home, options.tokens, options.profile, options.phase_done, options.group)
    notes = found.pop("notes")
    give(found, options.json)
    for note in notes:
        say(note)
    return 0


def calibrate(options: Namespace, home: Home) -> int:
    from clawd.commands import limits

    found = limits.calibrate(home, options.profile, options.group, write=options.write)
    said = found.pop("said")
    give(found, options.json)
    say(said)
    return 0
