"""The daemon that a test can bring to a stand: while the file `loop` is in its home its event loop is blocked, while
`ledger` is there nothing is committed. `<file>.stands` says that it stands."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import anyio

from clawd import daemon
from clawd.cli.main import run
from clawd.ledger.db import Ledger
from tests.system.watched import watch


def _wait(file: Path) -> None:
    while file.exists():
        file.with_suffix(".stands").touch()
        time.sleep(0.01)


class Stuck(Ledger):
    def _commit(self, works: Any) -> Any:
        _wait(self.path.parents[1] / "ledger")
        return super()._commit(works)


class Daemon(daemon.Daemon):
    def build(self, tasks: Any, asked: Any) -> None:
        super().build(tasks, asked)
        tasks.start_soon(self._stand)

    async def _stand(self) -> None:
        while True:
            await anyio.sleep(0.01)
            _wait(self.home.root / "loop")


if __name__ == "__main__":
    watch()
    daemon.Daemon, daemon.Ledger = Daemon, Stuck  # type: ignore[misc]
    sys.exit(run(sys.argv[1:]))
