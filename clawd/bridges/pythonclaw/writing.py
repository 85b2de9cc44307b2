"""Writing a group's sessions, memories, skills and schedules into a PythonClaw home, as PythonClaw itself writes them.

Nothing there is overwritten that we did not write, or that was changed since; what is left says why. The clawd home is
only read. While PythonClaw runs on that home nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from clawd.bridges.foreign.place import Place
from clawd.bridges.pythonclaw import jobs, ours, skills, target
from clawd.bridges.pythonclaw.align import aligned
from clawd.bridges.pythonclaw.forms import (
    CAP,
    index_bytes,
    log_bytes,
    memory_bytes,
    restorable,
    session_bytes,
    session_name,
)
from clawd.bridges.pythonclaw.sessions import SOURCE
from clawd.bridges.pythonclaw.target import Target, of_value
from clawd.config.home import Home
from clawd.config.load import machine_zone
from clawd.errors import UnsafePath, UsageError
from clawd.ids import folder_name
from clawd.memory.keyed import FACTS, INDEX
from clawd.model import Block
from clawd.sessions.format import parse, shown_id
from clawd.skills.skill import FILE

__all__ = ["export", "index_bytes", "log_bytes", "memory_bytes", "session_bytes"]

MEMORY, SESSIONS, SKILLS, CRON = "context/memory", "context/sessions", "context/skills", "context/cron"
JOBS, DYNAMIC = f"{CRON}/jobs.yaml", f"{CRON}/dynamic_jobs.json"
_OWN = f"{SKILLS}/clawd"  # our category of its skills
_NAME_BYTES = 248  # PythonClaw adds .md.tmp, and a name has 255
# Skills that PythonClaw brings along: of two with one name it takes its own (templates/skills, 0.7.2).
_BUILT_IN = frozenset(
    ("email", "finance", "github", "news", "notion", "obsidian", "onboarding", "slack", "spotify", "summarize",
     "translator", "trello", "tts", "weather", "youtube")
)  # fmt: skip


def export(home: Home, group: str, to: Path, dry_run: bool) -> dict[str, Any]:
    """{group, home, dry_run, wrote[{kind, from, to, state: new|changed|same, changed[]}], left[{from, why}]}. Raises
    NotFound, ConfigError, UsageError, Refused while PythonClaw runs, StorageError, UnsafePath."""
    ours.check(home, folder_name(group))
    into = target.opened(to, dry_run)
    with into.alone():
        _sessions(home, group, into)
        kept = ours.memory(home, group)
        _memory(kept, into)
        others(home, group, into)
        into.write()
    return report(group, into)


def report(group: str, into: Target) -> dict[str, Any]:
    return {
        "group": group,
        "home": str(into.root),
        "dry_run": into.dry_run,
        "wrote": into.account.wrote,
        "left": into.account.left,
    }


# ── sessions ──


def _sessions(home: Home, group: str, into: Target) -> None:
    found = ours.sessions(home, group)
    for id in reachable(found, into):
        session(id, found[id], into)


def reachable(ids: Collection[str], into: Target) -> list[str]:
    """The ids that PythonClaw can have a file for, one for each file; the others are left."""
    names, good = dict[str, str](), list[str]()
    for id in sorted(ids, key=lambda id: (not _is_named(id, into), id)):
        name = session_name(id)
        if len(name.encode()) > _NAME_BYTES:
            into.account.leave(id, "its id is too long for PythonClaw, which could neither load nor save it")
        elif name in names:
            into.account.leave(id, f"PythonClaw would keep it in the file of {names[name]!a}, and one would go lost")
        else:
            names[name] = id
            good.append(id)
    return sorted(good)


def _is_named(id: str, into: Target) -> bool:
    """Whether the file there says that it is this session's."""
    try:
        return parse((into.there(f"{SESSIONS}/{session_name(id)}") or b"")[:8192]).session == shown_id(id)
    except (UnsafePath, OSError):
        return False


def session(id: str, blocks: Sequence[Block], into: Target) -> None:
    path = f"{SESSIONS}/{session_name(id)}"
    if not into.ours(path) and (known := said_there(into, path)) is not None:
        found = aligned(blocks, known)
        if found is not None and not found.new_here and not found.new_there:
            into.force("session", id, {path: into.there(path) or b""}, ours=False)
            return
    into.put("session", id, {path: session_bytes(id, blocks)}, noted(id, blocks))


def said_there(into: Target, path: str) -> list[Block] | None:
    """The messages of a session's file there; None where there is no such file."""
    try:
        data = into.there(path)
    except UnsafePath:
        return None
    return None if data is None else parse(data).blocks


def noted(id: str, blocks: Sequence[Block]) -> list[str]:
    """What is not there as it is here."""
    sound, said = restorable(blocks), list[str]()
    if len(sound) > CAP:
        said.append(
            f"PythonClaw loads the last {CAP} of its {len(sound):,} messages, and keeps no more at its next save"
        )
    if sound != list(blocks):
        said.append("calls without a result have one that says so, and results follow their calls or are text")
    if shown_id(id) != id:
        said.append("its id has characters that its file cannot show")
    return said


# ── memory ──


def _memory(kept: ours.Memory, into: Target) -> None:
    for source, why in kept.left:
        into.account.leave(source, why)
    if kept.facts and into.put(
        "facts", f"memory/{FACTS}", {f"{MEMORY}/{FACTS}": memory_bytes(kept.facts.values())}
    ):  # fmt: skip
        into.facts |= {key: of_value(fact.value) for key, fact in kept.facts.items()}
    if kept.index:
        into.put("index", f"memory/{INDEX}", {f"{MEMORY}/{INDEX}": index_bytes(kept.index)})
    for day, data in sorted(kept.days.items()):
        into.put("day", f"memory/{day}.md", {f"{MEMORY}/{day}.md": data})


# ── skills and schedules ──


def others(home: Home, group: str, into: Target) -> None:
    """Skills and schedules, but those that came from this very home."""
    came = ours.came_from(home, group, into.root)
    _skills(home, group, into, came)
    _schedules(home, group, into, came)


def _skills(home: Home, group: str, into: Target, came: dict[str, str]) -> None:
    there = None
    for skill, files in ours.skills(home, group):
        place, folder = f"skills/{skill.name}", f"{_OWN}/{skill.name}"
        there = _skills_there(into) if there is None else there
        if place in came:
            into.account.leave(place, f"it came from there, {came[place]}")
        elif not files:
            into.account.leave(place, "; ".join(skill.errors) or "it cannot be read")
        elif (other := there.get(skill.name, folder)) != folder:
            into.account.leave(place, f"PythonClaw has a skill of that name there, {other}")
        else:
            changed = (
                ["PythonClaw has a skill of its own with that name, and takes that"] if skill.name in _BUILT_IN else []
            )
            data = {f"{folder}/{FILE}": skills.given(skill)}
            data |= {f"{folder}/{path}": each for path, each in sorted(files.items()) if path != FILE}
            into.put("skill", place, data, changed)


def _skills_there(into: Target) -> dict[str, str]:
    """The names of its skills, each with its folder, as PythonClaw finds them: the first one holds."""
    found = dict[str, str]()
    if not into.root.is_dir():
        return found
    place = Place(into.root, SOURCE)
    for entry in place.folders(SKILLS):
        below = [""] if FILE in place.names(f"{SKILLS}/{entry}") else place.folders(f"{SKILLS}/{entry}")
        for each in below:
            folder = "/".join(filter(None, (SKILLS, entry, each)))
            if (data := place.content(f"{folder}/{FILE}")) is not None:
                fields, _ = skills.parted(data.decode("utf-8", "replace"))
                found.setdefault(fields.get("name", each or entry), folder)
    return found


def _schedules(home: Home, group: str, into: Target, came: dict[str, str]) -> None:
    left = ours.Whys()
    made, lost = dict[str, dict[str, Any]](), list[str]()
    zone = ours.zone(home, group)
    for id, file in ours.schedules(home, group, left).items():
        place = f"schedules/{id}.toml"
        if place in came:
            left.append((place, f"it came from there, {came[place]}"))
            continue
        try:
            made[id], less = jobs.job(id, file, zone, machine_zone())
            lost += [f"{id}: {each}" for each in less]
        except UsageError as error:
            left.append((place, error.message))
    for place, why in left:
        into.account.leave(place, why)
    if not made and JOBS not in into.files and DYNAMIC not in into.files:
        return
    # Its jobs.yaml is a person's where there is one: then what its own tool writes is used, if nobody has.
    if _free(into, JOBS):
        _put_jobs(into, JOBS, DYNAMIC, made, lost)
    else:
        for id in [id for id, each in made.items() if not each["enabled"]]:
            into.account.leave(f"schedules/{id}.toml", f"it is off, which {DYNAMIC} cannot say; {JOBS} is not ours")
            del made[id]
        if made:
            _put_jobs(into, DYNAMIC, JOBS, made, lost)


def _free(into: Target, path: str) -> bool:
    try:
        return into.there(path) is None or into.ours(path)
    except UnsafePath:
        return False


def _put_jobs(into: Target, path: str, other: str, made: dict[str, dict[str, Any]], lost: list[str]) -> None:
    taken = _jobs_there(into, other)
    for id in [id for id in made if id in taken]:
        into.account.leave(f"schedules/{id}.toml", f"{other} has a job of that id")
        del made[id]
    data = (jobs.yaml_bytes if path == JOBS else jobs.json_bytes)(made.values())
    source = ", ".join(f"schedules/{id}.toml" for id in made) or "schedules"
    into.put("schedule", source, {path: data}, lost)


def _jobs_there(into: Target, path: str) -> set[str]:
    try:
        data = into.there(path)
        parse = jobs.of_yaml if path == JOBS else jobs.of_json
        return set() if not data else {str(each.fields.get("id", "")) for each in parse(data, path)}
    except (UnsafePath, UsageError):
        return set()
