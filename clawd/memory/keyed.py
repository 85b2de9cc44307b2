"""MEMORY.md, facts by key, in PythonClaw's format; and INDEX.md, which is free text.

    FILE  = preamble ("\\n" ENTRY)*        the preamble of a new file is "# Long-Term Memory\\n"
    ENTRY = "## " key "\\n" "> Updated: " local time "\\n" "\\n" value "\\n"

A line of a value that would be structure gets a backslash; files without (older ones) are read alike. The last entry of
a key holds. A change touches the entries of its key alone: what else stands in the file stays byte for byte. It is read
again before each write, under a lock on the directory that every process of ours takes.

What the format cannot keep: white space around a value, line ends that are not line feeds, and the backslash of a line
that is written `\\## ` or `\\> Updated:` literally.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from clawd.clock import moment_of
from clawd.errors import Refused, StorageError, UnsafePath, UsageError
from clawd.files import open_beneath, write_atomic
from clawd.memory.record import settled

FACTS, INDEX = "MEMORY.md", "INDEX.md"
PREAMBLE = "# Long-Term Memory\n"
LIMIT = 10 << 20  # bytes of a file that are read
LONGEST_KEY = 200  # characters
_PATIENCE_S, _AGAIN_S = 10.0, 0.005
_ENTRY = re.compile(r"## ([^\r\n]*)")  # at the beginning of a line
_GAP = re.compile(r"(?:(?<=\n)\r?\n|(?<=\r)\r)\Z")  # the empty line before an entry, which is of it
_UPDATED = "> Updated:"
_STRUCTURE = ("## ", _UPDATED)
_ESCAPED = tuple("\\" + each for each in _STRUCTURE)


@dataclass(frozen=True, slots=True)
class Fact:
    """`updated` is aware; None where the file does not say."""

    key: str
    value: str
    updated: datetime | None = None


def key_of(text: str) -> str:
    """A key as it can stand in the file. Raises UsageError."""
    key = text.strip()
    if not key:
        raise UsageError("a fact needs a key, like home_town")
    if len(key) > LONGEST_KEY:
        raise UsageError(f"a key has at most {LONGEST_KEY} characters: put the rest into the value")
    if any(unicodedata.category(each) in ("Cc", "Zl", "Zp", "Cs") for each in key):
        raise UsageError("a key is one line, without control characters")
    return key


def entry(key: str, value: str, now: datetime) -> str:
    """One as PythonClaw writes it: its time is local and naive."""
    lines = settled(value).split("\n")
    escaped = "\n".join("\\" + line if line.startswith(_STRUCTURE) else line for line in lines)
    return f"## {key}\n{_UPDATED} {now.astimezone():%Y-%m-%d %H:%M:%S}\n\n{escaped}\n"


def parsed(data: bytes) -> tuple[str, dict[str, Fact]]:
    """What stands before the first entry, and the facts."""
    (_, preamble), *pieces = _pieces(data.decode("utf-8", "replace"))
    return settled(preamble.removeprefix("\ufeff")), {key: _fact(key, piece) for key, piece in pieces if key}


def with_fact(data: bytes, key: str, value: str, now: datetime) -> bytes:
    """The file in which a key has a value."""
    return _with(data, key, entry(key, value, now))


def with_facts(data: bytes, facts: Sequence[tuple[str, str, datetime]]) -> bytes:
    """The file in which keys have values of several times; new ones in their order at the end."""
    there = {key for key, _ in _pieces(data.decode("utf-8", "surrogateescape"))}
    new = [entry(key, value, at).encode("utf-8", "surrogateescape") for key, value, at in facts if key not in there]
    for key, value, at in facts:
        data = with_fact(data, key, value, at) if key in there else data
    if new:
        data = data or PREAMBLE.encode()
        data += b"" if data.endswith((b"\n", b"\r")) else b"\n"
        data += b"".join(b"\n" + each for each in new)
    return data


def without(data: bytes, key: str) -> bytes:
    """The file in which a key has none."""
    return _with(data, key, "")


def without_preamble(data: bytes) -> bytes:
    """The file with the facts alone."""
    _, *pieces = _pieces(data.decode("utf-8", "surrogateescape"))
    text = "".join(piece for _, piece in pieces)
    gap = "" if text[:1] in ("\r", "\n", "") else "\n"
    return f"{PREAMBLE}{gap}{text}".encode("utf-8", "surrogateescape")


class KeyedMemory:
    """MEMORY.md of a group's `memory/`. Calls block. Raises UnsafePath for a link in the place of the file, Refused for
    one that is larger than what is read, StorageError, OSError."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def set(self, key: str, value: str, now: datetime) -> None:
        """The last one who writes wins. Raises UsageError for what is no key."""
        key = key_of(key)
        self._change(lambda data: with_fact(data, key, value, now))

    def set_all(self, facts: Sequence[tuple[str, str, datetime]]) -> None:
        """The same of several at once, each once: key, value, and when it was so."""
        self._change(lambda data: with_facts(data, facts))

    def delete(self, key: str) -> None:
        self._change(lambda data: without(data, key.strip()) if data else data)

    def clear_preamble(self) -> None:
        """What stands before the first fact goes."""
        self._change(without_preamble)

    def _change(self, how: Callable[[bytes], bytes]) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with alone(self.root):
            change(self.root, FACTS, how)


def change(root: Path, name: str, how: Callable[[bytes], bytes]) -> bool:
    """Read a file, and replace it where `how` makes another of it; whether it did. The caller is `alone`."""
    try:
        with os.fdopen(open_beneath(root, name), "rb") as file:
            old, mode = file.read(LIMIT + 1), os.fstat(file.fileno()).st_mode & 0o777
    except FileNotFoundError:
        old, mode = b"", 0o600
    if len(old) > LIMIT:
        raise Refused(f"{name} is larger than {LIMIT >> 20} MB", hint="move parts of it to files of their own")
    new = how(old)
    if new != old:
        write_atomic(root / name, new, mode)
    return new != old


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """No other process of ours writes to the files of `root` that many write to. Raises StorageError where somebody
    keeps them for more than 10 s."""
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise UnsafePath(f"{root} is a link, or not a directory") from None
    try:
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StorageError(f"another process keeps {root} locked", hint="fuser shows which one") from None
                time.sleep(_AGAIN_S)
        yield
    finally:
        os.close(directory)


def _pieces(text: str) -> list[tuple[str, str]]:
    """The file in pieces, each with the key that it is of: "" is the preamble, which comes first, and a heading without
    one."""
    mark = text[: text.startswith("\ufeff")]
    text = text[len(mark) :]
    starts = list[tuple[str, int]]()
    for match in _ENTRY.finditer(text):
        if text[match.start() - 1 : match.start()] in ("", "\r", "\n"):
            gap = _GAP.search(text, max(match.start() - 4, 0), match.start())
            starts.append((match[1].strip(), gap.start() if gap else match.start()))
    starts.append(("", len(text)))
    each = [(key, text[start:end]) for (key, start), (_, end) in pairwise(starts)]
    return [("", mark + text[: starts[0][1]]), *each]


def _with(data: bytes, key: str, new: str) -> bytes:
    """The file in which `new`, or with "" nothing, is the entry of a key: where its first one is, else at the end."""
    kept, found = list[str](), False
    for each, piece in _pieces(data.decode("utf-8", "surrogateescape")):
        if each != key:
            kept.append(piece)
        elif new and not found:
            kept.append(piece[: piece.index("## ")] + new)
        found = found or each == key
    text = "".join(kept)
    if new and not found:
        text = text or PREAMBLE
        text += ("" if text.endswith(("\n", "\r")) else "\n") + "\n" + new
    return text.encode("utf-8", "surrogateescape")


def _fact(key: str, piece: str) -> Fact:
    lines = settled(piece).split("\n")[1:]
    said = next((line[len(_UPDATED) :].strip() for line in lines if line.startswith(f"{_UPDATED} ")), "")
    while lines and (not lines[0].strip() or lines[0].startswith(_UPDATED)):
        del lines[0]
    value = "\n".join(line[1:] if line.startswith(_ESCAPED) else line for line in lines).strip()
    return Fact(key, value, moment_of(said))
