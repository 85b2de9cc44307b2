"""`clawd backup`."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from clawd import faults
from clawd.cli.clean import clean
from clawd.cli.page import cell, console, give, say
from clawd.cli.patience import AGAIN_S, FIRST_S
from clawd.commands import backups
from clawd.config.home import Home
from clawd.errors import UsageError

_MOST = 20  # skipped files on a screen; --json has all


def create(options: Namespace, home: Home) -> int:
    faults.load(os.environ.get("CLAWD_FAULT"))
    with _progress("written") as tell:
        made = backups.create(home, options.group, options.label, options.to, tell)
    if options.json:
        give(made, True)
        return 0
    give({name: made[name] for name in ("archive", "kind", "group", "label", "files", "bytes")}, False)
    for each in made["skipped"][:_MOST]:
        say(f"left out: {each['path']}: {each['why']}")
    if (more := len(made["skipped"]) - _MOST) > 0:
        say(f"… and {more:,} more (--json has all)")
    say("It holds all that the home holds, secrets and conversations among it: keep it as you keep the home.")
    return 0


def verify(options: Namespace, home: Home) -> int:
    with _progress("looked at") as tell:
        found = backups.verify(home, options.archive, tell)
    give(found, options.json)
    return 0 if found["ok"] else 1


def restore(options: Namespace, home: Home) -> int:
    faults.load(os.environ.get("CLAWD_FAULT"))
    what = backups.what_of(home, options.archive, options.group)
    if not options.yes and not _asked(f"Put back {what}? What is there now is kept aside."):
        raise UsageError("nothing was restored", hint="--yes restores without asking")
    with _progress("put back") as tell:
        done = backups.restore(home, options.archive, options.group, tell)
    give(done if options.json else {name: value for name, value in done.items() if name != "notes"}, options.json)
    if not options.json:
        for note in done["notes"]:
            say(note)
    return 0


def listing(options: Namespace, home: Home) -> int:
    rows = backups.listed(home)
    give(rows, options.json, ("name", "kind", "group", "label", "created", "files", "bytes", "error"), "no backups")
    return 0


def _asked(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(clean(f"{question} [y/N] "))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@contextmanager
def _progress(verb: str) -> Iterator[Callable[[int, int], Any]]:
    """Where progress goes: a terminal shows it after a second, anything else a line by and by."""
    due, status = time.monotonic() + FIRST_S, None

    def tell(done: int, total: int) -> None:
        nonlocal due, status
        if done >= total or time.monotonic() < due:
            return
        line = f"{done >> 20:,} of {total >> 20:,} MB {verb}"
        if not sys.stderr.isatty():
            say(line)
            due = time.monotonic() + AGAIN_S
        elif status is None:
            status = console(stderr=True).status(cell(line))
            status.start()
        else:
            status.update(cell(line))

    try:
        yield tell
    finally:
        if status is not None:
            status.stop()
