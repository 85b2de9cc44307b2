"""`clawd skills list|show|check|add|remove|new|pending|approve|reject`."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from clawd.cli import approvals
from clawd.cli.clean import clean
from clawd.cli.page import cell, give, say, write_json
from clawd.config.home import Home


def listing(options: Namespace, home: Home) -> int:
    from clawd.commands import skills

    rows = skills.listed(home, options.group)
    if options.json:
        write_json(rows)
        return 0
    columns = ("name", "scope", "group", "state", "fitness", "description", "warnings", "path")
    empty = "no skills yet: clawd skills add takes a folder or an archive, clawd skills new makes one"
    give([{**row, **_state(row)} for row in rows], False, columns, empty, beneath=("description", "warnings", "path"))
    return 0


def _state(row: dict[str, Any]) -> dict[str, Any]:
    """How one says what becomes of it; with what is wrong with it."""
    used = "instead of the shared one" if row["shadows"] else "used"
    state = "refused" if row["errors"] else "proposed" if row["proposed"] else used
    return {"state": state, "warnings": row["errors"] + row["warnings"]}


def show(options: Namespace, home: Home) -> int:
    from clawd.commands import skills

    found = skills.shown(home, options.name, options.group)
    if options.json:
        write_json(found)
        return 0
    give({key: value for key, value in found.items() if key != "body"}, False)
    sys.stdout.write(f"\n{clean(found['body'])}\n")
    return 0


def check(options: Namespace, home: Home) -> int:
    """1 when it would not be used; what is wrong is printed either way."""
    from clawd.commands import skills

    found = skills.checked(Path(options.directory))
    if options.json:
        write_json(found)
    else:
        sys.stdout.write(cell(f"{found['name']}: {'valid' if found['ok'] else 'it would not be used'}") + "\n")
        for level in ("errors", "warnings"):
            sys.stdout.writelines(cell(f"  {level[:-1]}: {each}") + "\n" for each in found[level])
    return 0 if found["ok"] else 1


def add(options: Namespace, home: Home) -> int:
    from clawd.commands import skills

    found = skills.added(home, Path(options.source), options.group, force=options.force)
    give(found, options.json)
    if not options.json:
        scripts = (
            f", {len(found['scripts'])} of them programs, which run in sandboxes alone" if found["scripts"] else ""
        )
        whose = "every group" if options.group is None else f"group {options.group}"
        say(f"From the next turn on {whose} has {found['name']}: {found['files']} files{scripts}.")
    return 0


def remove(options: Namespace, home: Home) -> int:
    from clawd.commands import skills

    give(skills.removed(home, options.name, options.group), options.json)
    return 0


def new(options: Namespace, home: Home) -> int:
    from clawd.commands import skills

    found = skills.made(home, options.name, options.group)
    give(found, options.json)
    if not options.json:
        path = found["path"]
        say(f"Fill in {path}/SKILL.md; whether it is right says: clawd skills check {shlex.quote(path)}")
    return 0


def pending(options: Namespace, home: Home) -> int:
    from clawd.commands import skills

    columns = ("name", "group", "id", "what", "made", "expires", "path")
    give(skills.pending(home), options.json, columns, "no skill is proposed", beneath=("what", "path"))
    return 0


def approve(options: Namespace, home: Home) -> int:
    return _decide(options, home, "approvals.approve")


def reject(options: Namespace, home: Home) -> int:
    return _decide(options, home, "approvals.deny")


def _decide(options: Namespace, home: Home, operation: str) -> int:
    from clawd.commands import skills

    return approvals.decide(options, home, operation, skills.proposal(home, options.name, options.group))
