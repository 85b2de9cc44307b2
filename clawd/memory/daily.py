"""Daily logs, `YYYY-MM-DD.md`, as PythonClaw appends to them: by the local date, free Markdown, of which entries are

    "### " HH:MM:SS " — " key "\\n" "\\n" value "\\n" "\\n"

and mmkr's bullets, `- [time] text`. What is neither is a piece of its own. Bytes are never rewritten but where somebody
is forgotten. A line of a value that would be an entry gets a backslash, which Markdown does not show.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from clawd.clock import moment_of
from clawd.files import append_whole, open_beneath, sync_directory
from clawd.memory.keyed import alone, change, key_of
from clawd.memory.record import settled

NAME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})\.md")
_HEAD = (
    r"(?:### ([0-2][0-9]:[0-5][0-9](?::[0-5][0-9])?) (?:—|–|-) ([^\r\n]*)"
    r"|- \[([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.+Z-]{4,30})\] )"
)
_ENTRY = re.compile(rf"(?<![^\r\n]){_HEAD}".encode())
_STRUCTURE, _ESCAPED = (re.compile(rf"^{mark}(?={_HEAD})", re.MULTILINE) for mark in ("", r"\\"))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a day's log, bytes `start` to `end`. `key` is "" for a bullet, and `at` None for what is no entry."""

    start: int
    end: int
    text: str
    key: str = ""
    at: datetime | None = None


def day_of(name: str) -> date | None:
    """The day of a log, by the name of its file; None for any other file."""
    match = NAME.fullmatch(name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def name_of(moment: datetime) -> str:
    """The file of its day, which is the local one."""
    return f"{moment.astimezone():%Y-%m-%d}.md"


def append(root: Path, key: str, value: str, now: datetime) -> str:
    """An entry at the end of the day's log, durably; gives the file's name. Raises UsageError for what is no key,
    UnsafePath, StorageError, OSError."""
    append_all(root, [(key, value, now)])
    return name_of(now)


def append_all(root: Path, entries: Iterable[tuple[str, str, datetime]]) -> None:
    """The same of several: their keys, values and times. Those of a day come in one piece."""
    days = dict[str, list[bytes]]()
    for key, value, moment in entries:
        text = f"### {moment.astimezone():%H:%M:%S} — {key_of(key)}\n\n{_escaped(value)}\n\n"
        days.setdefault(name_of(moment), []).append(text.encode("utf-8", "replace"))
    for name, texts in days.items():
        _append(root, name, b"".join(texts))


def as_read(value: str) -> str:
    """What is read of a value that was appended."""
    return _ESCAPED.sub("", settled(_escaped(value)))


def _escaped(value: str) -> str:
    return _STRUCTURE.sub(r"\\", settled(value))


def _append(root: Path, name: str, text: bytes) -> None:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone(root), os.fdopen(open_beneath(root, name, os.O_RDWR | os.O_APPEND | os.O_CREAT), "rb", 0) as file:
        at = file.fileno()
        size = os.fstat(at).st_size
        if not size:
            text = f"# Daily Memory — {name.removesuffix('.md')}\n\n".encode() + text
        elif os.pread(at, 1, size - 1) != b"\n":
            text = b"\n" + text
        append_whole(at, text, size)
    if not size:
        sync_directory(root)


def parsed(data: bytes, day: date) -> list[Piece]:
    """The pieces of a log, which are all of it."""
    matches = list(_ENTRY.finditer(data))
    ends = [*(match.start() for match in matches), len(data)]
    found = [_free(data, 0, ends[0])] if ends[0] else []
    for match, end in zip(matches, ends[1:], strict=True):
        clock, key, moment = (each.decode("utf-8", "replace") if each is not None else "" for each in match.groups())
        if at := moment_of(f"{day.isoformat()}T{clock}" if clock else moment):
            text = _ESCAPED.sub("", settled(data[match.end() : end].decode("utf-8", "replace")))
            found.append(Piece(match.start(), end, text, key.strip(), at))
        else:
            found.append(_free(data, match.start(), end))
    return found


def without(data: bytes, *, key: str = "", texts: Collection[str] = ()) -> bytes:
    """The log without the entries of a key, those whose text is one of these, and such a text where it stands in others
    on lines of its own."""
    gone = {settled(text) for text in texts} - {""}
    lines = [re.compile(_on_lines(text)) for text in gone]
    kept = list[bytes]()
    for piece in parsed(data, date(2000, 1, 1)):
        raw = data[piece.start : piece.end]
        if piece.at is not None and ((key and piece.key == key) or _bare(piece) in gone or piece.text in gone):
            continue
        for pattern in lines:
            raw = pattern.sub(b"", raw)
        kept.append(raw)
    return b"".join(kept)


def forget(root: Path, *, key: str = "", texts: Collection[str] = ()) -> list[str]:
    """The same in all logs of a memory; gives the names of the files that were changed. Raises as `append`, and Refused
    for a log that is larger than what is read."""
    with alone(root):
        names = sorted(each.name for each in root.iterdir() if day_of(each.name))
        return [name for name in names if change(root, name, lambda data: without(data, key=key, texts=texts))]


def drop(root: Path, name: str, keys: Collection[str]) -> None:
    """One log without the entries of these keys. Raises as `forget`."""

    def dropped(data: bytes) -> bytes:
        gone = [each for each in parsed(data, date(2000, 1, 1)) if each.at is not None and each.key in keys]
        for piece in reversed(gone):
            data = data[: piece.start] + data[piece.end :]
        return data

    with alone(root):
        change(root, name, dropped)


def _free(data: bytes, start: int, end: int) -> Piece:
    return Piece(start, end, settled(data[start:end].decode("utf-8-sig", "replace")))


def _bare(piece: Piece) -> str:
    """The text of a bullet without the tags and the brackets that mmkr ends it with."""
    return piece.text if piece.key else re.split(r" #\w+(?: #\w+)*(?: \([^)]*\))?$", piece.text, maxsplit=1)[0]


def _on_lines(text: str) -> bytes:
    """A pattern for a text on lines of its own, as the text or the only words of a bullet or a quotation."""
    escaped = _STRUCTURE.sub(r"\\", text)
    lines = rb"[ \t]*(?:\r\n|\n|\r)".join(re.escape(line.encode("utf-8", "replace")) for line in escaped.split("\n"))
    return rb"(?<![^\r\n])(?:[ \t>*+-]*)" + lines + rb"[ \t]*(?:\r\n|\n|\r|\Z)"
