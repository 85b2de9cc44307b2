"""What the doctor looks at in what wakes a group: schedules that are not in force, folders that are not watched, and a
heartbeat without a list."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from functools import partial

from clawd.commands.mounts import mounts_of
from clawd.commands.schedules import listed
from clawd.config.home import Home
from clawd.config.load import load_config
from clawd.health.findings import Finding, finding, settings_of_groups
from clawd.wakes.folders import roots


def schedules(home: Home) -> Iterator[Finding]:
    rows = [row for row in listed(home, None) if not row["proposed"]]
    wrong = [row for row in rows if row["error"]]
    for row in wrong:
        of_file, id = row["error"].startswith("groups/"), shlex.quote(row["id"])
        message = f"{row['id']} is {'not taken up' if of_file else 'paused'}: {row['error']}"
        yield finding("schedules", "warn", message, f"clawd schedule {'show' if of_file else 'resume'} {id}")
    if rows and not wrong:
        yield finding("schedules", "ok", "every schedule is understood")


def watches(home: Home) -> Iterator[Finding]:
    """Of each group's `[[watch]]` and `[heartbeat]`."""
    judge, some, wrong = mounts_of(home).check, False, False
    for group, settings in settings_of_groups(home, load_config(home, dict(os.environ))):
        folder, says = home.group(group), settings.group
        for watch in says.watch:
            some = True
            for root in roots(group, folder, watch.paths, partial(list, says.mounts), judge):
                if root.problem:
                    wrong = True
                    message = f"{root.key} is not watched for group {group}: {root.problem}"
                    yield finding("watches", "warn", message, f"edit {shlex.quote(str(folder.config_file))}")
        beat = says.heartbeat
        if beat.hours and not (file := folder.root / beat.file).exists():
            message = f"the heartbeat of group {group} has no list, so nothing is looked at"
            yield finding("heartbeat", "warn", message, f"edit {shlex.quote(str(file))}")
    if some and not wrong:
        yield finding("watches", "ok", "every folder that is to be watched may be")
