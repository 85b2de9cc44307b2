"""`clawd run`: the daemon, in this process."""

from __future__ import annotations

import logging
import os
import sys
import threading
from argparse import Namespace

from clawd.cli.page import say, settled
from clawd.config.home import Home


def run(options: Namespace, home: Home) -> int:
    """Until it is ended; gives its exit code."""
    from clawd import daemon

    if sys.stderr.isatty():
        say(f"the daemon of {home.root} · clawd chat talks to it · Ctrl-C ends it")
    code = int(settled(daemon.run(home, until_closed=options.until_closed)))
    if any(not one.daemon for one in threading.enumerate()[1:]):  # in calls to an Engine that hangs
        logging.shutdown()
        os._exit(code)
    return code
