"""The daemon under the guard of the event loop (tests/blocking.py), from the moment that it is ready: with CLAWD_GUARD
set, to the limit in milliseconds, what blocks its loop is an error in its log. A home's fixture looks for it. With
CLAWD_TEST_WORLD set it lives in the world of a test (tests/system/world.py)."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from clawd import ending
from clawd.cli.main import run
from tests.blocking import Guard
from tests.system import world

BLOCKED = "the event loop was blocked"


def watch() -> None:
    """Have every daemon of this process watched."""
    limit = os.environ.get("CLAWD_GUARD")
    if not limit:
        return
    ready = ending.until_ended

    async def watched(*arguments: Any) -> None:
        Guard(logging.getLogger(__name__).error, lenient=False, limit=float(limit) / 1000).install()
        await ready(*arguments)

    ending.until_ended = watched


if __name__ == "__main__":
    watch()
    world.install()
    sys.exit(run(sys.argv[1:]))
