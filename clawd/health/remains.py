"""What a daemon that was killed may have left: sockets, run directories, containers."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from clawd.config.home import Home
from clawd.errors import HomeBusy
from clawd.health.findings import Finding, finding, read_ledger
from clawd.locks import HomeLock


def daemon(home: Home) -> Iterator[Finding]:
    """Whether one runs; and what lies about that belongs to none."""
    if not home.state.is_dir():
        return
    lock = HomeLock(home.lock_file)
    try:
        lock.acquire()
    except HomeBusy as busy:
        yield finding("daemon", "ok", busy.message.removeprefix("another "))
        yield from _left(home, runs="SELECT directory FROM run WHERE state = 'gone'")
        return
    lock.release()
    yield finding("daemon", "ok", "no daemon runs now; clawd chat starts one for the time of a conversation")
    socket = home.state / "control.sock"
    if os.path.lexists(socket):
        yield finding("remains", "warn", f"{socket} is a socket that nobody serves", f"rm {shlex.quote(str(socket))}")
    # containers may wait to be gone on with; bubblewrap's sandboxes end with their daemon
    yield from _left(home, runs="SELECT directory FROM run WHERE state = 'gone' OR backend <> 'docker'")


def _left(home: Home, runs: str) -> Iterator[Finding]:
    """Directories of runs that should have none."""
    directories = read_ledger(home, lambda tx: [Path(row["directory"]) for row in tx.all(runs)]) or []
    if left := [it for it in directories if it.is_dir()]:
        message = f"{len(left)} directories of runs that ended: {', '.join(str(it) for it in left[:3])}"
        yield finding("remains", "warn", message, f"clawd --home {shlex.quote(str(home.root))} run")
