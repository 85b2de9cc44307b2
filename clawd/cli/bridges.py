"""`clawd inject`, `clawd bridge …`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from clawd.cli.page import give, say
from clawd.config.home import Home


def inject(options: Namespace, home: Home) -> int:
    raise _later()


def mmkr_convert(options: Namespace, home: Home) -> int:
    raise _later()


def pythonclaw_import(options: Namespace, home: Home) -> int:
    from clawd.bridges.pythonclaw import reading

    return _staged(options, home, reading.read(Path(options.source_home).expanduser(), options.group))


def pythonclaw_export(options: Namespace, home: Home) -> int:
    from clawd.bridges.pythonclaw import writing

    give(writing.export(home, options.group, Path(options.source_home).expanduser(), options.dry_run), options.json)
    return 0


def pythonclaw_sync(options: Namespace, home: Home) -> int:
    from clawd.bridges.pythonclaw import sync

    done = sync.sync(home, options.group, Path(options.source_home).expanduser(), options.dry_run)
    give(done, options.json)
    if done["came"] and not options.json:
        say("What came is not used yet. Look at it, then: clawd bridge accept pythonclaw")
    return 0


def claude_code_export(options: Namespace, home: Home) -> int:
    raise _later()


def import_(options: Namespace, home: Home) -> int:
    from importlib import import_module

    read = import_module(f"clawd.bridges.{options.source}").read
    return _staged(options, home, read(Path(options.source_home).expanduser(), options.group))


def _staged(options: Namespace, home: Home, brought: Any) -> int:
    from clawd.arrivals.staging import stage

    give(stage(home, brought, dry_run=options.dry_run), options.json)
    if not options.json:
        say(f"Nothing of it is used yet. Look at it, then: clawd bridge accept {brought.source}")
    return 0


def listing(options: Namespace, home: Home) -> int:
    from clawd.commands import arrivals

    columns = ("source", "group", "kinds", "brought", "path")
    give(arrivals.listed(home, options.group), options.json, columns, "nothing was brought in", beneath=("path",))
    return 0


def accept(options: Namespace, home: Home) -> int:
    from clawd.commands import writing

    given = {"group": options.group} if options.group else {}
    give(writing.call(home, "bridge.accept", source=options.source, only=options.only, **given), options.json)
    return 0


def _later() -> Exception:
    from clawd.errors import NotBuilt

    return NotBuilt("this is not built yet")
