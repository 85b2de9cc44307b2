"""The daemon with a clock that a test sets: `clock` in the home says by how many seconds it differs from the machine's.
It is looked at every 0.3 s, as the audit of the real one would after 30 s."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from clawd import daemon
from clawd.cli.main import run
from clawd.clock import SystemClock
from clawd.files import write_atomic
from tests.system.watched import watch

FILE = "clock"


def turn(root: Path, to: datetime) -> None:
    """Set the clock of a home's daemon, also of one that runs."""
    write_atomic(root / FILE, str((to - datetime.now(UTC)).total_seconds()).encode())


class Turned(SystemClock):
    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=float(self._file.read_text()))


class Daemon(daemon.Daemon):
    def build(self, *arguments: Any) -> None:
        self.clock = Turned(self.home.root / FILE)
        super().build(*arguments)
        self.clockwork.audit_s = self.tending.audit_s = 0.3


if __name__ == "__main__":
    daemon.Daemon = Daemon  # type: ignore[misc]
    watch()
    sys.exit(run(sys.argv[1:]))
