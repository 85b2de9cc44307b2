"""`clawd inject`, `clawd bridge …`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from clawd.cli.page import give, say, write_json
from clawd.config.home import Home


def inject(options: Namespace, home: Home) -> int:
    raise _later()


def mmkr_convert(options: Namespace, home: Home) -> int:
    raise _later()


def pythonclaw_import(options: Namespace, home: Home) -> int:
    from clawd.bridges.pythonclaw import reading

    return _staged(options, home, reading.read(Path(options.source_home).expanduser(), options.group))


def pythonclaw_export(options: Namespace, home: Home) -> int:
    raise _later()


def pythonclaw_sync(options: Namespace, home: Home) -> int:
    raise _later()


def claude_code_export(options: Namespace, home: Home) -> int:
    raise _later()


def import_(options: Namespace, home: Home) -> int:
    from importlib import import_module

    read = import_module(f"clawd.bridges.{options.source}").read
    return _staged(options, home, read(Path(options.source_home).expanduser(), options.group))


def _staged(options: Namespace, home: Home, brought: Any) -> int:
    from clawd.cli.arrivals import show_staged
    from clawd.commands.arrivals import staged

    found = staged(home, brought, dry_run=options.dry_run)
    if options.json:
        write_json(found)
        return 0
    show_staged(found)
    if found["came"] and not options.dry_run:
        say(f"Nothing of it is used yet. Look at it, then: clawd bridge accept {brought.source}")
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
    from clawd.commands import writing

    given = {"group": options.group} if options.group else {}
    found = writing.call(home, "bridge.accept", source=options.source, only=options.only or [], **given)
    write_json(found) if options.json else show_accepted(found)
    return 0


def _later() -> Exception:
    from clawd.errors import NotBuilt

    return NotBuilt("this is not built yet")
