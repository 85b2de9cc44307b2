"""`clawd run`: the daemon, in this process."""

from __future__ import annotations

from argparse import Namespace

from clawd.cli.page import settled
from clawd.config.home import Home


def run(options: Namespace, home: Home) -> int:
    """Until it is ended; gives its exit code."""
    from clawd import daemon

    return int(settled(daemon.run(home, until_closed=options.until_closed)))
