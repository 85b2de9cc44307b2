"""`clawd sandbox list|stop|exec`."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace

from clawd.cli.companion import companion
from clawd.cli.page import give, say
from clawd.commands import writing
from clawd.config.home import Home
from clawd.errors import ClawdError, UsageError

_PASSED = ("TERM", "COLORTERM", "LANG")


def listing(options: Namespace, home: Home) -> int:
    columns = ("group", "run", "backend", "state", "id", "limits", "since")
    give(writing.call(home, "sandbox.list"), options.json, columns, "no sandbox lives", beneath=("id",))
    return 0


def stop(options: Namespace, home: Home) -> int:
    result = writing.call(home, "sandbox.stop", group=options.group)
    if options.json:
        give(result if result is not None else {}, True)
    else:
        say(f"the sandbox of {options.group} is ended")
    return 0


def execute(options: Namespace, home: Home) -> int:
    """Run a command on our own standard streams; gives its exit code."""
    from clawd.control import descriptors

    argv = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not argv:
        raise UsageError("say what to run", hint="clawd sandbox exec -- ls -l")
    environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
    with companion(home, say) as beside:
        asyncio.run(beside.ensure())
        try:
            params = {"group": options.group, "argv": argv, "environment": environment}
            return descriptors.execute(home.state, params)
        except OSError as error:
            raise ClawdError("the daemon went away", hint="clawd status") from error
