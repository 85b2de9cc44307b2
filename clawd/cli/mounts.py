"""`clawd mounts check`."""

from __future__ import annotations

from argparse import Namespace

from clawd.cli.page import give, settled
from clawd.config.home import Home


def check(options: Namespace, home: Home) -> int:
    """1 when it is not allowed; why is printed either way."""
    from clawd.commands import mounts

    verdict = settled(mounts.check(home, options.path, options.rw, options.group))
    give(verdict, options.json)
    return 0 if verdict["allow"] else 1
