"""The commands that change groups and messages, through the daemon or under the home's lock."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from clawd.cli.page import cell, give, say
from clawd.commands import writing
from clawd.config.home import Home
from clawd.errors import UsageError


def _done(options: Namespace, result: Any, sentence: str) -> int:
    if options.json or (isinstance(result, dict) and result):
        give(result if result is not None else {}, options.json)
    else:
        print(cell(sentence))  # noqa: T201
    return 0


def add(options: Namespace, home: Home) -> int:
    result = writing.call(home, "groups.add", name=options.group)
    return _done(options, result, f"group {options.group} is made")


def set_key(options: Namespace, home: Home) -> int:
    result = writing.call(home, "groups.set", name=options.group, key=options.key, value=options.value)
    return _done(options, result, f"{options.key} of {options.group} is set")


def clean(options: Namespace, home: Home) -> int:
    result = writing.call(home, "groups.clean", name=options.group)
    return _done(options, result, f"{options.group} has a fresh work/")


def trust(options: Namespace, home: Home) -> int:
    result = writing.call(home, "groups.trust", name=options.group)
    return _done(options, result, f"work/ of {options.group} is trusted as it is")


def resume(options: Namespace, home: Home) -> int:
    id = options.id or options.session
    if not id:
        raise UsageError("which session? clawd session list shows them")
    result = writing.call(home, "session.resume", session=id)
    return _done(options, result, f"{id} goes on")


def retry(options: Namespace, home: Home) -> int:
    result = writing.call(home, "messages.retry", id=options.id)
    if not options.json:
        say("it is tried again when a daemon runs; clawd chat shows the reply")
    return _done(options, result, f"message {options.id} is tried again")
