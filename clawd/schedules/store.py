"""The files of schedules: which there are, what they say, and where one goes that is done. Nothing is followed, and a
file that may be anybody else's word than the owner's is refused."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from clawd.config.places import line_of
from clawd.errors import ClawdError, ConfigError, UnsafePath
from clawd.files import read_owned, sync_directory
from clawd.ids import folded
from clawd.schedules import times
from clawd.schedules.file import ID, ScheduleFile, parse_schedule

SUFFIX = ".toml"
DONE = "done"
MOST = 10_000  # schedules of one group
_FRESH_NS = 50_000_000  # a file that was changed so lately may be changed again without another stamp


@dataclass(frozen=True, slots=True)
class Read:
    """A file as it was read: what it says, JSON-ready as {file, zone, said}, or what is wrong with it."""

    sha256: str
    facts: Mapping[str, Any] | None
    error: str | None


def stamps(folder: Path) -> dict[str, str]:
    """Each schedule of a group's `schedules/` by its name, with what is another whenever its file is: one `stat` each.
    None of a folder that is not there, or is a link."""
    found: dict[str, str] = {}
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        if folder.is_symlink():
            return {}
        for entry in entries:
            name = entry.name
            if not name.endswith(SUFFIX) or name.startswith("."):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    continue
                fresh = time.time_ns() - status.st_ctime_ns < _FRESH_NS
                seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
                found[os.fsencode(name).decode("utf-8", "backslashreplace")[: -len(SUFFIX)]] = (
                    "" if fresh else json.dumps(seen)
                )
    return found


def read(folder: Path, id: str, zone: str, shown: str) -> Read:
    """What the schedule `id` says, for a group in this zone; `shown` is what its file is called for people. Raises
    FileNotFoundError."""
    if not re.fullmatch(ID, id):
        return Read("", None, f"{shown}: its name may have letters, digits, - and _, and up to 64 of them")
    try:
        data = read_owned(folder, f"{id}{SUFFIX}")
    except UnsafePath as error:
        return Read("", None, f"{shown}: {error.message}")
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        return Read("", None, f"{shown}: it cannot be read: {error.strerror}")
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        text = data.decode()
        return Read(sha256, facts_of(parse_schedule(text, shown), zone), None)
    except UnicodeDecodeError as error:
        return Read(sha256, None, f"{shown}: byte {error.start} is not UTF-8")
    except ConfigError as error:
        return Read(sha256, None, str(error))
    except ClawdError as error:  # it begins with the field
        line = line_of(text, (str(error).partition(":")[0],))
        return Read(sha256, None, f"{shown}:{line} {error}" if line else f"{shown}: {error}")


def facts_of(file: ScheduleFile, zone: str) -> dict[str, Any]:
    """What is kept of a file. Raises UsageError for a rule that is none."""
    rule = times.rule_of(file, zone)
    return {"file": file.model_dump(mode="json", exclude_defaults=True), "zone": zone, "said": times.said(rule)}


def file_of(facts: Mapping[str, Any]) -> ScheduleFile:
    return ScheduleFile.model_validate(facts["file"])


def twins(ids: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Of names that some file system takes for one, each but the first with the one that holds: one that is `known`
    before a new one."""
    first: dict[str, str] = {}
    there = set(known)
    for id in sorted(ids, key=lambda id: (id not in there, id)):
        first.setdefault(folded(id), id)
    return {id: first[folded(id)] for id in ids if first[folded(id)] != id}


def finish(folder: Path, id: str) -> str | None:
    """Move a schedule that is done to `done/`, under its name or that with a number: nothing there is replaced. Gives
    the name there; None where the file is gone already. Raises OSError."""
    (folder / DONE).mkdir(mode=0o700, exist_ok=True)
    done = os.open(folder / DONE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in chain([id], (f"{id}-{n}" for n in count(2))):
            try:
                os.stat(f"{name}{SUFFIX}", dir_fd=done, follow_symlinks=False)
            except FileNotFoundError:
                try:
                    os.rename(folder / f"{id}{SUFFIX}", f"{name}{SUFFIX}", dst_dir_fd=done)
                except FileNotFoundError:
                    return None
                os.fsync(done)
                sync_directory(folder)
                return name
        raise AssertionError("numbers do not end")
    finally:
        os.close(done)
