"""A PythonClaw home on the disk, looked at from outside: hostile input, so that no link is followed, nothing but plain
files is opened, and no file is read beyond a limit. What is passed over is named, with why.

    pythonclaw.json · pythonclaw.pid · daemon.meta.json · context/{sessions, memory, groups/<id>/memory, skills, cron,
    persona, soul, tools, knowledge, files, compaction, logs}/

Source: pythonclaw 0.7.2, config.py, init.py, daemon.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from clawd.arrivals.items import Left
from clawd.errors import NotFound, UnsafePath, UsageError
from clawd.files import directory_beneath, open_beneath, read_beneath, walk_beneath

CONTEXT, CONFIG, PID, META = "context", "pythonclaw.json", "pythonclaw.pid", "daemon.meta.json"
LIMIT = 64 << 20  # bytes of one file
ROOM = 1 << 30  # of all that is read
_SHOWN = 200  # characters of a name


class Source:
    """`left` grows by what cannot be read."""

    def __init__(self, root: Path, left: list[Left]) -> None:
        self.root, self.left, self._room = root, left, ROOM

    def leave(self, path: str, why: str) -> None:
        self.left.append(Left(shown(path), why))

    def files(self, folder: str) -> list[str]:
        """The plain files anywhere beneath a folder, as paths relative to it, sorted."""
        if not self._is_folder(folder):
            return []
        names = list[str]()
        for name, _ in walk_beneath(self.root / folder, left_out=lambda path, why: self.leave(f"{folder}/{path}", why)):
            if shown(name) == name:
                names.append(name)
            else:
                self.leave(f"{folder}/{name}", "its name cannot be shown")
        return sorted(names)

    def entries(self, folder: str) -> list[str]:
        """The names of what lies in a folder, whatever it is, sorted."""
        if not self._is_folder(folder):
            return []
        return sorted(each.name for each in (self.root / folder).iterdir())

    def folders(self, folder: str) -> list[str]:
        """The folders that lie in a folder, sorted; links to such are named."""
        found = list[str]()
        for name in self.entries(folder):
            path = self.root / folder / name
            if path.is_symlink():
                self.leave(f"{folder}/{name}", "it is a link")
            elif path.is_dir():
                found.append(name)
        return found

    def read(self, path: str, limit: int = LIMIT) -> bytes | None:
        """The bytes of a file; None where there is none, or it was left out."""
        try:
            at = open_beneath(self.root, path)
            with os.fdopen(at, "rb") as file:
                data = file.read(min(limit, self._room) + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UnsafePath:
            self.leave(path, "it is a link, or no plain file")
            return None
        except OSError as error:
            self.leave(path, f"it cannot be read ({error.strerror})")
            return None
        if len(data) > limit:
            self.leave(path, f"it is larger than {limit >> 20} MB")
            return None
        if len(data) > self._room:
            self.leave(path, f"more than {ROOM >> 30} GB would be brought in at once")
            return None
        self._room -= len(data)
        return data

    def _is_folder(self, folder: str) -> bool:
        try:
            os.close(directory_beneath(self.root, folder))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except UnsafePath:
            self.leave(folder, "it is a link, or no folder")
            return False
        except OSError as error:
            self.leave(folder, f"it cannot be opened ({error.strerror})")
            return False
        return True


def found(home: Path) -> Path:
    """The home that a person means: this folder, or `.pythonclaw` in it. Raises NotFound, UsageError."""
    for place in (home, home / ".pythonclaw"):
        with suppress(OSError):
            if (place / CONFIG).is_file() or (place / CONTEXT).is_dir():
                return place.absolute()
    with suppress(OSError, ValueError):
        if not home.exists():
            raise NotFound(f"there is no folder {home}")
    raise UsageError(
        f"{home} is no home of PythonClaw: it has neither {CONFIG} nor {CONTEXT}/",
        hint="name the folder that they lie in, like ~/.pythonclaw",
    )


def daemon(root: Path) -> int | None:
    """The process id of the PythonClaw that runs on this home, None where none does.

    PythonClaw keeps that file in ~/.pythonclaw, whatever its home is; what its home is, it says beside it."""
    for place in dict.fromkeys((root, Path.home() / ".pythonclaw")):
        with suppress(OSError, ValueError, UnsafePath, RecursionError):
            pid = int(read_beneath(place, PID, 32))
            if pid > 1 and _lives(pid) and (place == root or _same(root, place)):
                return pid
    return None


def _same(root: Path, place: Path) -> bool:
    said = json.loads(read_beneath(place, META, 1 << 16))
    return isinstance(said, dict) and isinstance(said.get("cwd"), str) and Path(said["cwd"]).resolve() == root.resolve()


def _lives(pid: int) -> bool:
    """Whether it is a PythonClaw: the number may be another program's since, or ours."""
    if pid == os.getpid():
        return False
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(word.rpartition(b"/")[2] == b"pythonclaw" for word in words)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def shown(name: str) -> str:
    """A path as it can be said: of a name that is no UTF-8, or hides something, its escapes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        name = os.fsencode(name).decode("utf-8", "backslashreplace")
    safe = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in name)
    return safe if len(safe) <= _SHOWN else f"{safe[:_SHOWN]}…"


def lines(problems: list[str], most: int = 3) -> Iterator[str]:
    """The first of many sentences, and how many more there are."""
    yield from problems[:most]
    if len(problems) > most:
        yield f"and {len(problems) - most} more of the kind"
