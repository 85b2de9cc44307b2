"""`clawd inject`, `clawd bridge …`."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawd.cli.page import give, say, write_json
from clawd.cli.patience import patiently
from clawd.commands.handed import MOST_BYTES
from clawd.config.home import Home
from clawd.errors import NotFound, UsageError
from clawd.files import plain

_SHAPE = 'a list like [{"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]'


def inject(options: Namespace, home: Home) -> int:
    from clawd.bridges.client import Client, Message

    message: Message = {"role": options.role, "content": ""}
    if options.tool_calls is not None:
        message["tool_calls"] = _calls(options.tool_calls)
    message["content"] = _text()
    if options.tool_call_id is not None:
        message["tool_call_id"] = options.tool_call_id
    if options.at is not None:
        message["at"] = options.at
    result = Client(home.root, options.group).inject(options.session, [message], options.key)
    give(result, options.json)
    if result["waits"] and not options.json:
        say(f"kept until the result of {', '.join(result['waits'])} is put in, too (--role tool --tool-call-id ID)")
    return 0


def _text() -> str:
    """Standard input, the newline at its end left away. Raises UsageError."""
    if sys.stdin is None:
        raise UsageError("standard input is closed: it is the message's text", hint="echo TEXT | clawd inject …")
    if sys.stdin.isatty():
        say("The message's text, then Ctrl-D:")
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UsageError(f"standard input has more than {MOST_BYTES >> 20} MB", hint="put it in in pieces")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        say(f"byte {error.start} of standard input is no UTF-8: what is none is replaced by \ufffd")
        text = data.decode("utf-8", "replace")
    return text.removesuffix("\n")


def _calls(name: str) -> list[dict[str, Any]]:
    """A file with a JSON list of calls."""
    if name == "-":
        raise UsageError("standard input is the message's text; the calls must be in a file", hint="--tool-calls FILE")
    try:
        with open(name, "rb", opener=plain) as file:
            calls = json.loads(file.read(MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from error
    if not isinstance(calls, list):
        raise UsageError(f"{name} is no list", hint=_SHAPE)
    return calls


def mmkr_convert(options: Namespace, home: Home) -> int:
    from clawd.cli.traces import convert

    return convert(options, home)


def pythonclaw_import(options: Namespace, home: Home) -> int:
    from clawd.bridges.pythonclaw import reading

    return _staged(options, home, reading.read)


def pythonclaw_export(options: Namespace, home: Home) -> int:
    from clawd.bridges.pythonclaw import writing
    from clawd.cli.exports import show_exported

    with patiently(lambda: f"writing to {options.source_home}"):
        done = writing.export(home, options.group, _source_home(options, there=False), options.dry_run)
    write_json(done) if options.json else show_exported(done)
    return 0


def pythonclaw_sync(options: Namespace, home: Home) -> int:
    from clawd.bridges.pythonclaw import sync
    from clawd.cli.exports import show_synced

    with patiently(lambda: f"comparing with {options.source_home}"):
        done = sync.sync(home, options.group, _source_home(options), options.dry_run)
    write_json(done) if options.json else show_synced(done)
    if any(row["state"] != "same" for row in done["came"]) and not (options.json or options.dry_run):
        say("What came is not used yet. Look at it, then: clawd bridge accept pythonclaw")
    return 0


def claude_code_export(options: Namespace, home: Home) -> int:
    from clawd.bridges import claude_code
    from clawd.cli.exports import show_for_claude_code

    directory = Path(options.directory) if options.directory else None
    with patiently(lambda: "writing skills and memory"):
        found = claude_code.export(home, options.group, directory, dry_run=options.dry_run)
    if options.json:
        write_json(found)
        return 0
    show_for_claude_code(found)
    for note in found["notes"]:
        say(note)
    return 0


def import_(options: Namespace, home: Home) -> int:
    from importlib import import_module

    return _staged(options, home, import_module(f"clawd.bridges.{options.source}").read)


def _source_home(options: Namespace, *, there: bool = True) -> Path:
    """The other agent's home, which must be `there`. Raises NotFound, UsageError."""
    try:
        path = Path(options.source_home).expanduser()
    except RuntimeError as error:  # ~somebody
        raise NotFound(f"there is no folder {options.source_home}") from error
    if not options.source_home:
        raise UsageError("HOME is empty: which folder is meant?")
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file; a home is a folder")
    if there and not path.exists():
        raise NotFound(f"there is no folder {path}")
    return path


def _staged(options: Namespace, home: Home, read: Callable[[Path, str | None], Any]) -> int:
    from clawd.cli.arrivals import next_step, show_staged
    from clawd.commands.arrivals import staged

    with patiently(lambda: f"reading {options.source_home}"):
        brought = read(_source_home(options), options.group)
    with patiently(lambda: f"bringing in {len(brought.items):,} things"):
        found = staged(home, brought, dry_run=options.dry_run)
    if options.json:
        write_json(found)
        return 0
    show_staged(found)
    if not options.dry_run and (step := next_step(found, home.root)):
        say(step)
    return 0


def listing(options: Namespace, home: Home) -> int:
    from clawd.cli.arrivals import kinds_of
    from clawd.commands import arrivals

    rows = arrivals.listed(home, options.group)
    if options.json:
        write_json(rows)
        return 0
    columns = ("source", "group", "kinds", "brought", "path")
    shown = [{**row, "kinds": kinds_of(row)} for row in rows]
    give(shown, False, columns, "nothing was brought in", beneath=("kinds", "path"))
    return 0


def accept(options: Namespace, home: Home) -> int:
    from clawd.cli.arrivals import show_accepted
    from clawd.commands import arrivals, writing

    given = {"group": options.group} if options.group else {}
    with patiently(lambda: arrivals.said(home, options.source, options.group)):
        found = writing.call(home, "bridge.accept", source=options.source, only=options.only or [], **given)
    write_json(found) if options.json else show_accepted(found)
    return 0
