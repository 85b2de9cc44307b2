"""What the doctor looks at in the people: whether the list can be used, whether an owner may speak, and whether each
chat belongs to one group."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress

from clawd.config.home import Home
from clawd.config.load import load_config
from clawd.errors import ClawdError
from clawd.health.findings import Finding, finding
from clawd.people.bindings import of_home
from clawd.people.roster import load


def people(home: Home) -> Iterator[Finding]:
    open_channels: list[str] = []
    with suppress(ClawdError):  # another finding says so
        open_channels = load_config(home, dict(os.environ)).channels.enabled()
    roster, sound = load(home), True
    if roster.problem is not None:
        if open_channels or home.people_file.exists() or home.people_file.is_symlink():
            sound = False
            message = f"nobody but you at the terminal may speak: {roster.problem.message}"
            yield finding(
                "people", "error", message, roster.problem.hint or f"edit {shlex.quote(str(home.people_file))}"
            )
    elif open_channels and not any(owner.accounts for owner in roster.owners()):
        sound = False
        message = f"no owner can speak on {', '.join(open_channels)}: no account of one is paired"
        yield finding("people", "warn", message, "clawd pair")
    for sentence in of_home(home).doubled():
        sound = False
        yield finding("bindings", "error", sentence, f"edit {home.groups}/*/group.toml")
    if sound:
        count = sum(bool(person.accounts) for person in roster.people)
        who = "nobody" if not count else "one person" if count == 1 else f"{count} people"
        yield finding("people", "ok", f"{who} may speak on channels, and each chat belongs to one group")
