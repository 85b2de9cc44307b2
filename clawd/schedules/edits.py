"""Edits of schedules' files on somebody's word. What is there is never overwritten but by its own change, with the
person's comments kept; what is removed is kept in `done/`."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from clawd.errors import ClawdError, ConfigError, NotFound, UsageError
from clawd.files import read_beneath, sync_directory, write_atomic
from clawd.schedules import store
from clawd.schedules.file import ID, ScheduleFile, parse_schedule

_LIMIT = 1 << 20  # bytes of a file


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def check_id(id: str) -> str:
    """The same id. Raises UsageError."""
    if not is_id(id):
        raise UsageError(
            f"{id!a} cannot be a schedule's id",
            hint="1 to 64 letters, digits, - and _, beginning with a letter or digit",
        )
    return id


def is_id(stem: str) -> bool:
    """Whether a schedule's file may be called so."""
    return re.fullmatch(ID, stem) is not None


def read(directory: Path, id: str) -> str | None:
    """The text of a schedule's file; None where there is none. Raises UnsafePath, ConfigError for what is no text."""
    try:
        return read_beneath(directory, f"{check_id(id)}.toml", _LIMIT).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"schedules/{id}.toml is not UTF-8") from error


def put(directory: Path, id: str, text: str) -> None:
    """A new file, whole or not at all; the same one again is no error. Raises UsageError where another is there."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    target, whole = directory / f"{check_id(id)}.toml", directory / f".{secrets.token_hex(8)}.new"
    write_atomic(whole, text.encode())
    try:
        os.link(whole, target)
    except FileExistsError:
        if read(directory, id) != text:
            raise UsageError(f"there is a schedule {id} already, and it says something else") from None
    finally:
        whole.unlink()
    sync_directory(directory)


def unheard(file: ScheduleFile, group: str, bindings: Sequence[str]) -> str | None:
    """Why its answers cannot go where it says."""
    if file.deliver_to in (None, f"terminal:{group}", *bindings):
        return None
    return f"deliver_to: {file.deliver_to} is no binding of the group {group}; it has {', '.join(bindings) or 'none'}"


def switched(text: str, on: bool, name: str = "the schedule") -> str:
    """The same file, in force or not. Raises ConfigError for one that is not valid."""
    import tomlkit

    if parse_schedule(text, name).enabled == on:
        return text
    document = tomlkit.parse(text)
    document["enabled"] = on
    changed = tomlkit.dumps(document)
    parse_schedule(changed, name)
    return changed


def switch(directory: Path, id: str, before: str, on: bool) -> None:
    """Put it in force or not, if the file still says `before`, or this was done already. Raises ClawdError."""
    after, there = switched(before, on, f"schedules/{id}.toml"), read(directory, id)
    if there == before != after:
        file = directory / f"{id}.toml"
        write_atomic(file, after.encode(), file.stat().st_mode & 0o777)
    elif there not in (before, after):
        raise _gone(id) if there is None else ClawdError(f"schedules/{id}.toml was changed meanwhile")


def retire(directory: Path, id: str) -> Path:
    """Keep the file in `done/`, under the first number that is free, and take it away; gives where it is. Raises
    NotFound."""
    if (name := store.finish(directory, check_id(id))) is None:
        raise _gone(id)
    return directory / store.DONE / f"{name}{store.SUFFIX}"


def _gone(id: str) -> NotFound:
    return NotFound(f"there is no schedule {id!r}", hint="clawd schedule list")
