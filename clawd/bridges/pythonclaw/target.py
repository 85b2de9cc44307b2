"""Writing into a PythonClaw home: never over a file that we did not write or that was changed since.

`.clawd-bridge.json` in that home says which bytes are ours, by their sha256, and which facts had which value when both
sides agreed on it. It says first what is about to be written: so a run that was killed is not taken for a person's
hand. Files are replaced whole, and no link is followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawd import faults
from clawd.bridges.foreign.place import shown
from clawd.bridges.pythonclaw import home as homes
from clawd.bridges.pythonclaw.home import CONTEXT
from clawd.config.home import is_home
from clawd.errors import Refused, StorageError, UnsafePath, UsageError
from clawd.files import directory_beneath, open_beneath, put_beneath, read_beneath, sweep_beneath, write_atomic
from clawd.memory import keyed

NAME = ".clawd-bridge.json"
_SCHEMA = 1
_LIMIT = 64 << 20
_THERE = "another file is there"
_CHANGED = "it was changed there since clawd wrote it"
_GONE = "it was taken away there since clawd wrote it, and stays away"
_SYNC, _SYNCED = ": clawd bridge pythonclaw sync", ("session", "facts", "day", "index")


@dataclass(slots=True)
class Account:
    """Rows of a report: {kind, from, to, state: new|changed|same, changed[]}, and {from, why}."""

    wrote: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, str]] = field(default_factory=list)

    def leave(self, source: str, why: str) -> None:
        row = {"from": shown(source), "why": why}
        if row not in self.left:
            self.left.append(row)


class Target:
    """`files` are the sha256 of what we wrote, by path; `facts` the digests of the values that both sides had."""

    def __init__(self, root: Path, dry_run: bool) -> None:
        self.root, self.dry_run, self.account = root, dry_run, Account()
        self._planned = dict[str, bytes]()
        said = _read(root)
        self._kept = json.dumps(said, sort_keys=True)
        self._was = said | {"files": said["files"] | self._written(said["coming"])}
        self.files, self.facts = dict(self._was["files"]), dict(self._was["facts"])

    def _written(self, coming: Mapping[str, str]) -> dict[str, str]:
        """What of it a run wrote that was killed."""
        done = dict[str, str]()
        for path, sha256 in coming.items():
            with suppress(UnsafePath, OSError):
                if (data := self.there(path)) is not None and digest(data) == sha256:
                    done[path] = sha256
        return done

    def alone(self) -> AbstractContextManager[None]:
        """No other process of ours writes into this home."""
        if self.dry_run:
            return nullcontext()
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return keyed.alone(self.root)

    def there(self, path: str) -> bytes | None:
        """What a file holds, as it will when what was put is written. Raises UnsafePath."""
        if path in self._planned:
            return self._planned[path]
        try:
            data = read_beneath(self.root, path, _LIMIT + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(data) > _LIMIT:
            raise UnsafePath(f"{path} is larger than {_LIMIT >> 20} MB")
        return data

    def ours(self, path: str) -> bool:
        """Whether a file lies there as we wrote it."""
        try:
            data = self.there(path)
        except (UnsafePath, OSError):
            return False
        return data is not None and digest(data) == self.files.get(path)

    def _why_not(self, path: str, data: bytes) -> str:
        """Why a file cannot be written; empty where it can."""
        try:
            old = self.there(path)
        except UnsafePath as error:
            return error.message
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        if old is None:
            return _GONE if path in self.files else ""
        if old == data or self.ours(path):
            return ""
        return _CHANGED if path in self.files else _THERE

    def put(self, kind: str, source: str, files: Mapping[str, bytes], changed: Iterable[str] = ()) -> bool:
        """Files that are one thing, the first of which names it: all of them, or none, with why. Whether they will be
        there."""
        for path, data in files.items():
            if why := self._why_not(path, data):
                hint = _SYNC if kind in _SYNCED and why in (_THERE, _CHANGED) else ""
                self.account.leave(source, f"{path}: {why}{hint}")
                return False
        self.force(kind, source, files, changed)
        return True

    def force(self, kind: str, source: str, files: Mapping[str, bytes], changed: Iterable[str] = (), *,
              ours: bool = True) -> None:  # fmt: skip
        """The same, whatever is there; with `ours` they are known as ours afterwards."""
        old = [self.there(path) for path in files]
        same = old == list(files.values())
        for path, data in files.items():
            if not same:
                self._planned[path] = data
            if ours:
                self.files[path] = digest(data)
        self.account.wrote.append({
            "kind": kind,
            "from": shown(source),
            "to": next(iter(files)),
            "state": "same" if same else "new" if old == [None] * len(old) else "changed",
            "changed": list(changed),
        })  # fmt: skip

    def write(self) -> None:
        """Everything that was put. Raises StorageError, UnsafePath."""
        if self.dry_run:
            return
        self._sweep()
        try:
            if self._planned:
                coming = {path: digest(data) for path, data in self._planned.items()}
                self._keep(self._was | {"coming": coming})
                faults.passing("exporting")
            for path, data in self._planned.items():
                self._write(path, data)
                faults.passing("exported")
            self._keep({"schema": _SCHEMA, "files": self.files, "facts": self.facts, "coming": {}})
        except OSError as error:
            raise StorageError(
                f"{self.root} could not be written: {error.strerror or error}",
                hint="free some space or mend the rights of that folder, and do it again",
            ) from error

    def _sweep(self) -> None:
        """Take away what a run that was killed had not renamed yet: beside what was coming, as `write_atomic` calls
        it."""
        beside = {"": {NAME}}
        for path in self._was["coming"]:
            folder, _, name = path.rpartition("/")
            beside.setdefault(folder, set()).add(name)
        for folder, names in beside.items():
            named = "|".join(map(re.escape, sorted(names)))
            sweep_beneath(self.root, folder, re.compile(rf"\.(?:{named})\.[0-9a-f]{{8}}\.tmp"))

    def _keep(self, said: dict[str, Any]) -> None:
        if json.dumps(said, sort_keys=True) != self._kept:
            write_atomic(self.root / NAME, (json.dumps(said, indent=1, sort_keys=True) + "\n").encode())
            self._kept = json.dumps(said, sort_keys=True)

    def _write(self, path: str, data: bytes) -> None:
        mode = 0o700 if data.startswith(b"#!") else 0o600
        root = directory_beneath(self.root, "")
        try:
            with suppress(FileNotFoundError):
                at = open_beneath(root, path)
                mode = stat.S_IMODE(os.fstat(at).st_mode)
                os.close(at)
            put_beneath(root, path, data, mode)
        finally:
            os.close(root)


def opened(root: Path, dry_run: bool) -> Target:
    """A PythonClaw home to write into, or where one may be made. Raises UsageError; Refused while PythonClaw runs: it
    would overwrite its sessions and its memory with what it has read before."""
    with suppress(UsageError):
        root = homes.found(root)
    root = root.absolute()
    real = root.resolve()
    if is_home(real):
        raise UsageError(f"{root} is a home of clawd, not of PythonClaw")
    if any(is_home(each) for each in real.parents):
        raise UsageError(f"{root} lies in a home of clawd, where an agent or clawd itself would meet it")
    if root.is_symlink() or (root.exists() and not root.is_dir()):
        raise UsageError(f"{root} is no folder")
    empty = not root.is_dir() or not any(each.name != NAME for each in root.iterdir())
    if not (empty or (root / homes.CONFIG).is_file() or (root / CONTEXT).is_dir()):
        raise UsageError(f"{root} has other things in it, and is no home of PythonClaw", hint="name ~/.pythonclaw")
    if not dry_run and (pid := homes.daemon(root)) is not None:
        raise Refused(
            f"PythonClaw runs on {root} (process {pid}): at its next save it would write over what is put there",
            hint="pythonclaw stop",
        )
    return Target(root, dry_run)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def of_value(value: str) -> str:
    """By which the value of a fact is known."""
    return digest(value.strip().encode("utf-8", "replace"))[:32]


def _read(root: Path) -> dict[str, Any]:
    """Raises Refused for one that cannot be understood."""
    try:
        said = json.loads(read_beneath(root, NAME, _LIMIT))
        tables = [said.get(name, {}) for name in ("files", "facts", "coming")]
        if said["schema"] == _SCHEMA and all(
            isinstance(key, str) and isinstance(each, str) for table in tables for key, each in table.items()
        ):
            return {"schema": _SCHEMA, "files": tables[0], "facts": tables[1], "coming": tables[2]}
    except (FileNotFoundError, NotADirectoryError):
        return {"schema": _SCHEMA, "files": {}, "facts": {}, "coming": {}}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise Refused(
        f"{root / NAME} cannot be understood: nothing was changed",
        hint="move it away: clawd then takes what lies there for PythonClaw's own",
    )
