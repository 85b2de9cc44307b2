"""The skills of a home on the owner's word: they are the person's own files, so nothing here asks a daemon, which looks
at them at each turn. What an agent proposes is an approval (`kind` skill), and is decided as one.

Functions that give JSON-ready data under the contract's names. A name without a group is that of the shared skill, or
else of the only group that has one.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawd.commands.looking import check_group
from clawd.config.home import Home, group_folders
from clawd.errors import NotFound, UnsafePath, UsageError
from clawd.ledger.approvals import listed as approvals_listed
from clawd.ledger.approvals import shown_as
from clawd.ledger.db import Row, Transaction, peek
from clawd.skills import archive
from clawd.skills.catalogue import Catalogue
from clawd.skills.manifest import manifest
from clawd.skills.skill import FILE, Skill, load, name_refused

Shown = dict[str, Any]
_SAID, _LINE = 40, 160  # skills in a chat, and characters of each
_TEMPLATE = """\
---
name: {name}
# What it does, and when to use it, in one or two sentences: by them alone the agent decides whether to read on.
description: >-
  Say here what this skill does. Use it when somebody asks for that, or says so in other words.
# metadata:
#   triggers: "{name}, words that have it used, * for any others"
---

# {title}

Write here what the agent is to do, step by step, as you would tell a capable newcomer.

1. What to look at first.
2. What to do with it. A script of this skill is run by its path, like `python3 scripts/example.py`: `clawd skills show`
   says what there is. It runs in the agent's sandbox, which has no network but what the group was granted.
3. What the answer should look like, with an example.

Keep this page short. What is needed only now and then belongs into `references/`, named here with when to read it;
programs into `scripts/`, templates and pictures into `assets/`.
"""


def listed(home: Home, group: str | None = None) -> list[Shown]:
    """[{name, scope, group, description, fitness, shadows, proposed, warnings[], errors[], path}]: all that lies there,
    what is refused (`errors`) too. Of one group: what lies there for it. Raises NotFound."""
    return [row for row, _ in _everything(home, group)]


def _everything(home: Home, group: str | None) -> Iterator[tuple[Shown, Skill]]:
    check_group(home, group)
    catalogue = Catalogue(home)
    shared = catalogue.shared()
    names = {each.name for each in shared if not each.errors}
    for skill in shared:
        yield _row(skill, None), skill
    for folder in group_folders(home) if group is None else [group]:
        for skill in catalogue.own(folder):
            yield _row(skill, folder, shadows=skill.name in names), skill
        for skill in catalogue.proposed(folder):
            yield _row(skill, folder, proposed=True), skill


def _row(skill: Skill, group: str | None, *, shadows: bool = False, proposed: bool = False) -> Shown:
    return {
        "name": skill.name,
        "scope": "shared" if group is None else "group",
        "group": group,
        "description": skill.description,
        "fitness": skill.fitness,
        "shadows": shadows,
        "proposed": proposed,
        "warnings": list(skill.warnings),
        "errors": list(skill.errors),
        "path": str(skill.path),
    }


def shown(home: Home, name: str, group: str | None) -> Shown:
    """One skill, whole. Raises NotFound, UsageError."""
    row, skill = _one(home, name, group)
    return {
        **row,
        "triggers": list(skill.triggers),
        "allowed_tools": None if skill.allowed_tools is None else list(skill.allowed_tools),
        "compatibility": skill.compatibility,
        "license": skill.license,
        "metadata": dict(skill.metadata),
        **_files(skill.path),
        "body": skill.body,
    }


def _files(folder: Path) -> Shown:
    try:
        made = manifest(folder)
    except (UnsafePath, OSError):  # the skill's own errors say why
        return {"sha256": None, "files": []}
    return {"sha256": made.sha256, "files": [{"path": each.path, "bytes": each.size} for each in made.files]}


def checked(folder: Path) -> Shown:
    """{ok, name, errors[], warnings[]} of any folder."""
    skill = load(folder.absolute(), shared=True)
    return {
        "ok": not skill.errors,
        "name": skill.name,
        "errors": list(skill.errors),
        "warnings": list(skill.warnings),
    }


def added(home: Home, source: Path, group: str | None, *, force: bool) -> Shown:
    """{name, scope, group, path, files, bytes, scripts[], kept, shadows, warnings[]}: whoever reaches the home says
    what is used, so it is, from the next turn on. Raises ClawdError."""
    check_group(home, group)
    real, groups = source.resolve(), home.groups.resolve()
    inside = real.relative_to(groups).parts if real.is_relative_to(groups) else ()
    if len(inside) > 1 and inside[1].partition(".")[0] == "work":
        hint = "read it, and copy it to a place of your own first"
        raise UsageError(f"{source} lies where the agent of {inside[0]} can write", hint=hint)
    made = archive.add(source, _root(home, group), shared=group is None, force=force)
    files = manifest(made.skill.path).files
    shared = group is not None and any(each.name == made.skill.name for each in Catalogue(home).shared())
    return {
        **_place(made.skill.name, group),
        "path": str(made.skill.path),
        "files": len(files),
        "bytes": sum(each.size for each in files),
        "scripts": [each.path for each in files if each.mode & 0o100 or each.path.startswith("scripts/")],
        "kept": None if made.kept is None else str(made.kept),
        "shadows": shared,
        "warnings": [*made.notes, *made.skill.warnings],
    }


def made(home: Home, name: str, group: str | None) -> Shown:
    """{name, scope, group, path} of a new skill, to be filled in. Raises ClawdError."""
    check_group(home, group)
    if refusal := name_refused(name):
        raise UsageError(refusal)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, name)
        folder.mkdir()
        text = _TEMPLATE.format(name=name, title=name.replace("-", " ").capitalize())
        (folder / FILE).write_text(text, encoding="utf-8")
        skill = archive.add(folder, _root(home, group), shared=group is None).skill
    return {**_place(skill.name, group), "path": str(skill.path)}


def removed(home: Home, name: str, group: str | None) -> Shown:
    """{name, scope, group, kept}: it is kept aside. A turn that uses it has it to its end. Raises NotFound,
    UsageError."""
    row, skill = _one(home, name, group)
    if row["proposed"] and any((each["name"], each["group"]) == (name, row["group"]) for each in pending(home)):
        raise UsageError(f"{name} is only proposed", hint=f"clawd skills reject {name}")
    if group is not None and row["group"] is None:
        raise UsageError(f"{name} is a skill of all groups", hint=f"clawd skills remove {name}")
    return {**_place(row["name"], row["group"]), "kept": str(archive.set_aside(skill.path))}


def pending(home: Home) -> list[Shown]:
    """[{id, name, group, what, made, expires, path}]: what agents propose and the owner has not decided."""
    return [_proposal(home, row) for row in peek(home.ledger_file, _open) or []]


def proposal(home: Home, name: str, group: str | None) -> int:
    """The number of the open approval of a proposed skill. Raises NotFound, UsageError."""
    check_group(home, group)
    found = [each for each in pending(home) if each["name"] == name and group in (None, each["group"])]
    if not found:
        raise NotFound(f"the owner is asked about no skill {name!a}", hint="clawd skills pending")
    if len(found) > 1:
        named = ", ".join(each["group"] for each in found)
        raise UsageError(f"{name} is proposed in {named}: say which, with --group")
    return int(found[0]["id"])


def said(home: Home, group: str) -> str:
    """What `/skills` says: what the group can use, what waits, what is refused."""
    catalogue = Catalogue(home)
    usable = catalogue.of(group)
    lines = [_short(f"{each.name}: {each.description}") for each in usable[:_SAID]]
    if len(usable) > _SAID:
        lines.append(f"and {len(usable) - _SAID} more: clawd skills list")
    waiting = [each.name for each in catalogue.proposed(group)]
    if waiting:
        lines.append(f"Proposed, and not used until the owner says yes: {', '.join(waiting)}.")
    lines += [_short(f"{each.name} is not used: {'; '.join(each.errors)}") for each in catalogue.refused(group)[:_SAID]]
    return "\n".join(lines) or "There are no skills here. A folder with a SKILL.md in skills/ is one."


def _short(line: str) -> str:
    return line if len(line) <= _LINE else line[: _LINE - 1].rstrip() + "…"


def _open(tx: Transaction) -> list[Row]:
    return [row for row in approvals_listed(tx) if row["kind"] == "skill" and row["state"] == "open"]


def _proposal(home: Home, row: Row) -> Shown:
    known, effect = shown_as(row), json.loads(row["effect"])
    folder = next((each for each in Catalogue(home).proposed(row["grp"]) if each.name == effect["name"]), None)
    return {
        **{name: known[name] for name in ("id", "group", "what", "made", "expires")},
        "name": effect["name"],
        "path": None if folder is None else str(folder.path),
    }


def _root(home: Home, group: str | None) -> Path:
    return home.skills if group is None else home.group(group).skills


def _place(name: str, group: str | None) -> Shown:
    return {"name": name, "scope": "shared" if group is None else "group", "group": group}


def _one(home: Home, name: str, group: str | None) -> tuple[Shown, Skill]:
    """The skill of this name that counts: of the group if one is named, else of all; used ones before proposed ones."""
    found = [each for each in _everything(home, group) if name in (each[1].name, each[1].path.name)]
    if not found:
        raise NotFound(f"there is no skill {name!a}", hint="clawd skills list")
    scope = [each for each in found if (each[0]["group"] is None) is (group is None)] or found
    first = [each for each in scope if not each[0]["proposed"]] or scope
    if len(first) > 1 and group is None and first[0][0]["group"] is not None:
        named = ", ".join(each[0]["group"] for each in first)
        raise UsageError(f"there is a skill {name} in {named}: say which, with --group")
    return first[0]
