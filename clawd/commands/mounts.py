"""`clawd mounts check`: what a group would be given for a path, by the function that decides it. Touches nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from clawd.commands.looking import check_group
from clawd.config.home import Home, group_folders, runtime_path
from clawd.config.load import load_config, load_group
from clawd.errors import ClawdError, ConfigError, NotFound
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.sandbox.mounts import Mounts
from clawd.trust import Role


def mounts_of(home: Home) -> Mounts:
    """The decision for this home, as its files say now."""
    environment = dict(os.environ)
    docker_host = None
    with suppress(ConfigError, NotFound):  # then nothing runs; the doctor says why
        docker_host = load_config(home, environment).sandbox.docker_host
    return Mounts(
        home,
        environment,
        runtime_path(environment),
        lambda group: load_group(home, group).mounts,
        lambda: group_folders(home),
        docker_host,
    )


def check(home: Home, path: str, writable: bool, group: str | None) -> dict[str, Any]:
    """{allow, mode|null, real, rule, reason}. Raises NotFound for a group that there is not."""
    check_group(home, group)
    verdict = mounts_of(home).check(path, writable, group, _role(home, group))
    reason = f"{verdict.reason} ({verdict.hint})" if verdict.hint else verdict.reason
    return {
        "allow": verdict.allow,
        "mode": verdict.mode,
        "real": verdict.real,
        "rule": verdict.rule,
        "reason": reason,
    }


def _role(home: Home, group: str | None) -> Role:
    """For whom the group's work tree has fallen to act."""
    if group is None or not home.ledger_file.exists():
        return Role.OWNER
    ledger = Ledger.read_only(home.ledger_file)
    try:
        return ledger.tx(lambda tx: groups.get(tx, group)).authority.role
    except ClawdError:  # a folder that the daemon has not met yet
        return Role.OWNER
    finally:
        ledger.close()
