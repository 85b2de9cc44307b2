"""What the doctor looks at in the channels: whether each can be opened, and how those are that a daemon has open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

from clawd.config.channels import adapter
from clawd.config.home import Home
from clawd.config.load import load_config
from clawd.control.client import ControlClient, NoDaemon
from clawd.errors import ClawdError
from clawd.health.findings import Finding, finding

_LEVELS = {"live": "ok", "starting": "warn", "degraded": "warn", "dead": "error"}


def channels(home: Home) -> Iterator[Finding]:
    """Every channel that the config asks for."""
    tables = load_config(home, dict(os.environ)).channels
    known = {row["channel"]: row for row in asyncio.run(_of_daemon(home))}
    for name in tables.enabled():
        try:
            adapter(tables, name)
        except ClawdError as error:
            yield finding("channels", "error", f"{name} cannot be opened: {error.message}", error.hint)
            continue
        row = known.get(name)
        if row is None:
            yield finding("channels", "ok", f"{name} can be opened", f"clawd channels test {name}")
            continue
        why = f": {row['error']}" if row["error"] else ""
        command = None if row["state"] == "live" else f"clawd channels test {name}"
        yield finding("channels", _LEVELS[row["state"]], f"{name} is {row['state']}{why}", command)


async def _of_daemon(home: Home) -> list[dict[str, Any]]:
    try:
        async with ControlClient(home.state) as client:
            return list(await client.call("channels.list"))
    except (NoDaemon, ClawdError, OSError):  # another finding says how the daemon is
        return []
