"""What the doctor looks at in contexts: limits and policies that cannot hold as the config says them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from clawd.commands.limits import problems
from clawd.config.home import Home
from clawd.health.findings import Finding, finding


def limits(home: Home) -> Iterator[Finding]:
    """Of every group."""
    sound = True
    for group, sentence, hint in problems(home):
        sound = False
        said = f"{sentence} ({hint})" if hint else sentence
        yield finding("contexts", "error", f"group {group}: {said}", f"edit {shlex.quote(str(home.config_file))}")
    if sound:
        yield finding("contexts", "ok", "every group's profile and policies can hold")
