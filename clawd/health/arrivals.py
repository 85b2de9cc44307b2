"""What the doctor says of what was brought in: what waits for the owner's word, and accounts that are broken."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from clawd.arrivals import account
from clawd.config.home import Home
from clawd.errors import ClawdError
from clawd.health.findings import Finding, finding


def arrivals(home: Home) -> Iterator[Finding]:
    for group, source in account.places(home):
        place = home.group(group).arrivals / source
        try:
            found = account.read(place)
        except (ClawdError, OSError) as error:
            said = error.message if isinstance(error, ClawdError) else f"{place} cannot be read ({error.strerror})"
            yield finding("import", "warn", said, f"ls -la {shlex.quote(str(place))}")
            continue
        waits = sum(each.state == "waits" for each in found.items) if found is not None else 0
        if waits:
            said = "one thing waits" if waits == 1 else f"{waits} things wait"
            message = f"{said} for your word, and not used before: {place}"
            yield finding("import", "ok", message, f"clawd bridge accept {source} --group {group}")
