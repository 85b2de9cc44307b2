"""Skills, schedules and instructions from elsewhere become files of the owner's in the group. Nothing that is there is
replaced but what came this way itself and stands unchanged."""

from __future__ import annotations

import hashlib
import tempfile
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from anyio import to_thread

from clawd import faults
from clawd.arrivals import account
from clawd.arrivals.account import Entry
from clawd.arrivals.rooms import Done, Rooms
from clawd.config.begin import TEMPLATES
from clawd.errors import ConfigError, UnsafePath, UsageError
from clawd.files import OWNED_LIMIT, read_beneath, write_atomic
from clawd.ids import folded
from clawd.schedules import edits, making, times
from clawd.schedules.file import parse_schedule
from clawd.skills import archive
from clawd.skills.manifest import version
from clawd.skills.skill import called, name_refused


async def skill(rooms: Rooms, group: str, source: str, entry: Entry, files: Mapping[str, bytes]) -> Done:
    """Raises ClawdError with why it is none."""
    return await to_thread.run_sync(_skill, rooms, group, entry, files)


def _skill(rooms: Rooms, group: str, entry: Entry, files: Mapping[str, bytes]) -> Done:
    root, name = rooms.home.group(group).skills, entry.to.rpartition("/")[2]
    with tempfile.TemporaryDirectory(prefix="clawd-") as beside:  # these bytes are added, whatever lies there by now
        folder = account.make(Path(beside), f"skills/{name}")
        for path, data in files.items():
            account.put(Path(beside), f"skills/{name}/{path}", data)
        name = called(folder) or unicodedata.normalize("NFKC", name)
        if refusal := name_refused(name):
            raise UsageError(f"the folder {refusal}")
        sha256, there = version(folder), _named(root, name)
        if there is not None and sha256 is not None and version(there) == sha256:
            return Done(f"skills/{there.name}", False, parts={"skill": sha256})
        ours = there is not None and entry.parts.get("skill", "") == version(there)
        if there is not None and not ours:
            raise UsageError(f"there is a skill {there.name} here, which stays")
        if there is None and (other := _named(rooms.home.skills, name)) is not None:
            raise UsageError(f"every group has a skill {other.name}, which stays")
        added = archive.add(folder, root, shared=False, force=ours)
    return Done(f"skills/{added.skill.name}", parts={"skill": version(added.skill.path) or ""})


def _named(root: Path, name: str) -> Path | None:
    """What has this name there, however it is written."""
    each = sorted(root.iterdir()) if root.is_dir() else []
    return next((path for path in each if folded(unicodedata.normalize("NFKC", path.name)) == folded(name)), None)


async def schedule(rooms: Rooms, group: str, source: str, entry: Entry, files: Mapping[str, bytes]) -> Done:
    """In force as it says. Raises ClawdError with why not."""
    done = await to_thread.run_sync(_schedule, rooms, group, entry, files[""])
    await rooms.renew(group)
    return done


def _schedule(rooms: Rooms, group: str, entry: Entry, data: bytes) -> Done:
    name = entry.to.rpartition("/")[2]
    id, directory, settings = name.removesuffix(".toml"), rooms.home.group(group).schedules, rooms.settings(group)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 (byte {error.start})") from None
    file, now = parse_schedule(text, name), rooms.clock.now()
    done = Done(f"schedules/{id}.toml", False, parts={"schedule": edits.digest(text)})
    there = edits.read(directory, id)
    if there == text:
        return done
    if there is not None and edits.digest(there) != entry.parts.get("schedule"):
        raise UsageError(f"there is a schedule {id} here, which stays")
    if why := edits.unheard(file, group, settings.group.bindings):
        raise UsageError(why)
    if not making.coming(times.rule_of(file, settings.timezone), now, now):
        raise UsageError("it is past")
    twins = [each.name for each in directory.glob("*.toml") if folded(each.name) == folded(name) != folded(id)]
    if there is None and twins:
        raise UsageError(f"there is a schedule {twins[0]} here, whose name differs in case alone")
    if there is None:
        edits.put(directory, id, text)
    else:
        write_atomic(directory / f"{id}.toml", text.encode())
    return Done(done.to, parts=done.parts)


async def instructions(rooms: Rooms, group: str, source: str, entry: Entry, files: Mapping[str, bytes]) -> Done:
    """CLAUDE.md or user_profile.md, where the group has none of its own; else a copy beside it, which one line makes
    part of it. What lies in import/ itself is never sent, whatever names it."""
    return await to_thread.run_sync(_instructions, rooms, group, source, entry, files[""])


def _instructions(rooms: Rooms, group: str, source: str, entry: Entry, data: bytes) -> Done:
    root, name = rooms.home.group(group).root, entry.to
    if len(data) > OWNED_LIMIT:
        raise UsageError(f"it is larger than {OWNED_LIMIT >> 20} MB")
    if not data.strip():
        return Done(name, False)
    sha256, there = hashlib.sha256(data).hexdigest(), _owned(root, name)
    if there == data:
        return Done(name, False, parts={name: sha256})
    if there is None or not there.strip() or there in TEMPLATES or _sha(there) == entry.parts.get(name):
        _write(root / name, data)
        return Done(name, parts={name: sha256})
    stem, dot, suffix = name.rpartition(".")
    beside = f"{stem}.{source}{dot}{suffix}"
    copy = _owned(root, beside)
    if copy is not None and copy != data and _sha(copy) != entry.parts.get(beside):
        raise UsageError(f"there is a {beside} here, which was changed by hand and stays")
    if copy != data:
        _write(root / beside, data)
    why = (
        f"the group has a {name} of its own; what came lies beside it, and a line @{beside} in yours would send it, too"
    )
    return Done(beside, False, why, {beside: sha256})


def _write(path: Path, data: bytes) -> None:
    faults.passing("arriving")
    write_atomic(path, data)


def _owned(root: Path, name: str) -> bytes | None:
    """Raises UsageError for what is no plain file."""
    try:
        return read_beneath(root, name, OWNED_LIMIT + 1)
    except FileNotFoundError:
        return None
    except UnsafePath:
        raise UsageError(f"{name} here is a link, or no file, and stays") from None


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
