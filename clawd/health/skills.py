"""What the doctor says of skills: which are refused and why, what was left out of them, and what in their folders holds
secrets that every agent would be shown, or would be run by a person's own tools."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from clawd.commands.skills import listed
from clawd.config.home import Home
from clawd.errors import UnsafePath
from clawd.files import walk_beneath
from clawd.health.findings import Finding, finding
from clawd.health.groups import named, would_run
from clawd.sandbox import forbidden
from clawd.skills.manifest import MOST_FILES


def skills(home: Home) -> Iterator[Finding]:
    found, used = list[Finding](), 0
    for row in listed(home):
        path = Path(row["path"])
        where = shlex.quote(row["path"])
        used += not row["errors"] and not row["proposed"]
        if row["errors"]:
            said = f"{path} is not used: {'; '.join(row['errors'])}"
            found.append(finding("skills", "warn", said, f"clawd skills check {where}"))
        found += [finding("skills", "warn", f"{path}: {each}", f"ls -la {where}") for each in row["warnings"]]
        found += _inside(path, where)
    yield from found
    if not found:
        yield finding("skills", "ok", "every skill is sound" if used else "there are none")


def _inside(folder: Path, where: str) -> Iterator[Finding]:
    """What lies in a folder that somebody else may have made."""
    paths = list[str]()
    with suppress(UnsafePath):  # too deep: it is refused for that
        paths += [path for path, _ in islice(walk_beneath(folder), MOST_FILES)]
    if runs := [path for path in paths if would_run(folder, path)]:
        message = f"tools of your own would run {named(runs)} in {folder}: look before you use them there"
        yield finding("skills", "warn", message, f"ls -la {where}")
    if secrets := [path for path in paths if forbidden.secret(Path(path)) and not path.startswith(".git/")]:
        message = f"agents are shown what may be secrets in {folder}: {named(secrets)}"
        yield finding("skills", "warn", message, f"move them out of {where}")
