"""A foreign home while it is read: hostile input, of which nothing is followed, run or believed.

Files are opened beneath the home alone, no link on the way is followed, nothing but a plain file is opened, and each is
read up to a bound; all of them together up to another. What is left is said, once, with why. Names are shown as
somebody can read them, for they too are the stranger's.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from clawd.arrivals.items import Brought, Left
from clawd.bridges import loose
from clawd.errors import UnsafePath, UsageError
from clawd.files import directory_beneath, open_beneath

PAGE = 1 << 20  # bytes of a text
DATA = 32 << 20  # bytes of a JSON file, or of a transcript
ALL = 512 << 20  # bytes that are read of one home
ENTRIES = 10_000  # names of one folder
DEEPEST = 12  # folders in each other
LEFT = 1_000  # lines of what is left
NAME = 200  # characters of a name that are shown
JUNK = frozenset(
    {".git", ".hg", ".svn", ".DS_Store", "__MACOSX", "__pycache__", "node_modules", ".venv", ".pytest_cache"}
)
ANEW = "it holds keys: enter them anew"
_WHY = {"link": "it is a link", "hidden": "it is hidden", "keys": ANEW}
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


class Text(NamedTuple):
    """A text, and whether some of its bytes were no UTF-8 and are now U+FFFD."""

    text: str
    mended: bool


class Place:
    """`brought` is where to say what was left, and what was found."""

    def __init__(self, home: Path, source: str) -> None:
        """Raises UsageError where `home` is no folder that can be read."""
        try:
            self.root = home.resolve()
            os.close(directory_beneath(self.root, ""))
        except (OSError, RuntimeError, ValueError, UnsafePath):
            raise UsageError(f"{shown(str(home))} is no folder that can be read") from None
        self.brought = Brought(source, self.root)
        self._given = home
        self._bytes = 0
        self._said = set[Left]()

    def leave(self, source: str, why: str) -> None:
        """Say that something is not brought in. `why` ends a sentence."""
        left = Left(shown(source), why)
        if left in self._said:
            return
        self._said.add(left)
        if len(self.brought.left) < LEFT:
            self.brought.left.append(left)
        elif len(self.brought.left) == LEFT:
            self.brought.left.append(Left("…", f"more than {LEFT:,} things are left: only the first are told"))

    def kind(self, relative: str) -> str:
        """What lies there: "file", "folder", "link", "other"; "" where there is nothing, or it cannot be reached."""
        folder, _, name = relative.rpartition("/")
        try:
            at = directory_beneath(self.root, folder)
            try:
                mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            finally:
                os.close(at)
        except (OSError, UnsafePath, ValueError):
            return ""
        known = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
        return known.get(stat.S_IFMT(mode), "other")

    def names(self, folder: str) -> list[str]:
        """The names in a folder, in order; none where it is not there. A link to one is left."""
        try:
            at = directory_beneath(self.root, folder)
        except FileNotFoundError:
            return []
        except (OSError, UnsafePath, ValueError):
            if self.kind(folder) not in ("", "file"):
                self.leave(folder, "it is a link, or cannot be opened")
            return []
        try:
            with os.scandir(at) as entries:
                found = [entry.name for entry in islice(entries, ENTRIES + 1)]
        finally:
            os.close(at)
        if len(found) > ENTRIES:
            self.leave(folder, f"it holds more than {ENTRIES:,} names: not all were looked at")
        return sorted(found)[:ENTRIES]

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder. Links are left."""
        found = []
        for name in self.names(folder):
            kind = self.kind(within(folder, name))
            if kind == "folder":
                found.append(name)
            elif kind == "link":
                self.leave(within(folder, name), "it is a link")
        return found

    def files(self, folder: str, *, deepest: int = DEEPEST, most: int = ENTRIES) -> Iterator[str]:
        """Every plain file beneath a folder, its path relative to the home, in order. What is none is left, and what is
        hidden; what version control and caches keep is passed over."""
        waiting, count = [(folder, 0)], 0
        while waiting:
            at, depth = waiting.pop()
            below = []
            for name in self.names(at):
                if name in JUNK:
                    continue
                path = within(at, name)
                hidden = "keys" if name.startswith(".env") else "hidden"
                kind = hidden if name.startswith(".") else self.kind(path)
                count += 1
                if count > most:
                    self.leave(folder, f"it holds more than {most:,} files: not all were looked at")
                    return
                if kind == "file":
                    yield path
                elif kind == "folder" and depth < deepest:
                    below.append((path, depth + 1))
                elif kind:
                    why = _WHY | {"folder": f"it lies more than {deepest} deep"}
                    self.leave(path, why.get(kind, "it is no plain file"))
            waiting += reversed(below)

    def content(self, relative: str, most: int = PAGE) -> bytes | None:
        """A whole file; None where it is not there, and where it is left: a link, no plain file, too large."""
        try:
            with os.fdopen(open_beneath(self.root, relative), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > most:
                    self.leave(relative, f"it is larger than {_size(most)}")
                    return None
                if self._bytes + size > ALL:
                    self.leave(relative, f"more than {_size(ALL)} of this home were read before it")
                    return None
                data = file.read(most + 1)
        except FileNotFoundError:
            return None
        except (OSError, UnsafePath, ValueError) as error:
            unread = isinstance(error, OSError) and bool(self.kind(relative))
            self.leave(relative, "it cannot be read" if unread else "it is a link, or no plain file")
            return None
        if len(data) > most:
            self.leave(relative, "it grew while it was read")
            return None
        self._bytes += len(data)
        return data

    def copy(self, relative: str, to: Path, most: int) -> bool:
        """Copy a file; whether it was there, and not left. As `content`, but not all at once in memory."""
        try:
            with os.fdopen(open_beneath(self.root, relative), "rb") as file, to.open("xb") as copy:
                copied = os.fstat(file.fileno()).st_size
                while copied <= most and (chunk := file.read(1 << 20)):
                    copied = max(copied, copy.tell() + len(chunk))
                    copy.write(chunk)
                if copied > most:
                    self.leave(relative, f"it is larger than {_size(most)}")
                    return False
        except FileNotFoundError:
            return False
        except (OSError, UnsafePath, ValueError):
            self.leave(relative, "it is a link, or cannot be read")
            return False
        return True

    def text(self, relative: str, most: int = PAGE) -> Text | None:
        """A file of text, its lines ended by line feeds; None as `content`, and where it holds NUL: that is no text."""
        data = self.content(relative, most)
        return None if data is None else self.decoded(relative, data)

    def decoded(self, relative: str, data: bytes) -> Text | None:
        """The text of a file's bytes, as `text`."""
        if b"\0" in data:
            self.leave(relative, "it is no text")
            return None
        try:
            text, mended = data.decode("utf-8-sig"), False
        except UnicodeDecodeError:
            text, mended = data.decode("utf-8-sig", "replace"), True
        return Text(text.replace("\r\n", "\n").replace("\r", "\n"), mended)

    def json(self, relative: str, most: int = DATA) -> Any:
        """What a JSON file says, however loosely it is written; None as `text`, and where it cannot be read."""
        if (found := self.text(relative, most)) is None:
            return None
        try:
            return loose.read(found.text)
        except loose.NotJson as error:
            self.leave(relative, f"it cannot be read: {error.message}")
            return None

    def inside(self, path: str, states: Sequence[str]) -> str | None:
        """Where a path that a config names lies, relative to the home; None where it is not in it. `states` are what
        the home is usually called: a copy of it that lies elsewhere is read all the same. Nothing is looked at."""
        parts = PurePosixPath(path).parts
        if ".." in parts:
            return None
        for n in range(len(parts) - 1, -1, -1):
            if parts[n] in states:
                return "/".join(parts[n + 1 :])
        for home in (self.root, self._given):
            if PurePosixPath(path).is_relative_to(home):
                return "/".join(PurePosixPath(path).relative_to(home).parts)
        return None

    def elsewhere(self, path: str, group: str) -> None:
        """Say that something lies outside of the home, and how it is brought."""
        command = f"clawd bridge import {self.brought.source} {shlex.quote(shown(path))} --group {group}"
        self.leave(path, f"it lies outside of this home: {command}")


def within(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def shown(name: object) -> str:
    """A stranger's name or id on one line, nothing of it hidden, at most 200 characters."""
    text = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(name)[: NAME + 1])
    return text if len(text) <= NAME else text[: NAME - 1] + "…"


def table(value: Any) -> dict[str, Any]:
    """The same table; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[dict[str, Any]]:
    """The tables of a list; none for anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """A text or number of somebody else's data as text that can be written; "" for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return _UNWRITABLE.sub("\ufffd", value) if isinstance(value, str) else ""


def _size(count: int) -> str:
    return f"{count >> 20} MB" if count >= 1 << 20 else f"{count >> 10} KB"
