"""An agent's memories as mmkr writes them into a day's log, one bullet each:

    - [time] text #category #mmkr (source=mmkr:category, importance=0.80)

Further lines of a text are indented, so that they are of the bullet and none begins an entry. A bullet is known by all
but its time: what is said n times of a day stands there n times, however often its writer was begun anew that day.
"""

from __future__ import annotations

import os
import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from clawd.bridges.mmkr.events import GENERAL
from clawd.bridges.mmkr.messages import Kept, digest
from clawd.bridges.mmkr.targets import Written
from clawd.files import append_whole, open_beneath, sync_directory
from clawd.memory.keyed import alone
from clawd.memory.record import settled

_DAYS = 3  # that are held in memory: what is written comes in their order
_BULLET = re.compile(rb"^- \[[^\]\n]*\] ((?:.*\n)(?:(?:  .*)?\n)*)", re.MULTILINE)


def bullet(content: str, ts: str, category: str, importance: float) -> str:
    """One memory as mmkr writes it, with the newline that ends it."""
    tag = re.sub(r"[\s\[\]()#]+", "_", settled(category)).strip("_") or GENERAL
    first, *further = settled(content).split("\n")
    text = "\n".join([first, *(f"  {line}" if line else "" for line in further)])
    return f"- [{ts}] {text} #{tag} #mmkr (source=mmkr:{tag}, importance={importance:.2f})\n"


def stamp(moment: datetime) -> str:
    """A time as mmkr writes it."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


@dataclass(slots=True)
class _Day:
    """How often a bullet was said here, and how often it stands in the file, as the file was then."""

    said: Counter[str] = field(default_factory=Counter)
    there: Counter[str] = field(default_factory=Counter)
    seen: tuple[int, int] = (0, 0)  # inode and size
    tail: bytes = b""


class DayLogs:
    """The logs of a memory directory, one agent's bullets in them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._days: OrderedDict[date, _Day] = OrderedDict()

    def add(self, memories: Sequence[Kept], now: datetime, day: date | None = None) -> Written:
        """Append those that are not there. Raises StorageError, UnsafePath, OSError."""
        days = dict[date, list[bytes]]()
        for each in memories:
            at = each.at or now
            line = bullet(each.content, stamp(at), each.category, each.importance)
            days.setdefault(day or at.astimezone().date(), []).append(line.encode("utf-8", "replace"))
        written = Written()
        for each_day, lines in days.items():
            added = self._append(each_day, lines)
            written.added += added
            written.known += len(lines) - added
        return written

    def _append(self, day: date, lines: list[bytes]) -> int:
        known = self._days.setdefault(day, _Day())
        self._days.move_to_end(day)
        if len(self._days) > _DAYS:
            self._days.popitem(last=False)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with (
            alone(self._root),
            os.fdopen(open_beneath(self._root, f"{day.isoformat()}.md", flags), "r+b", 0) as file,
        ):
            status = os.fstat(file.fileno())
            if known.seen != (status.st_ino, status.st_size):
                data = file.read()
                known.there = Counter(_words(match[0]) for match in _BULLET.finditer(data))
                known.tail = data[data.rfind(b"\n- [") + 1 :]
            said, new = known.said.copy(), list[bytes]()
            for line in lines:
                said[_words(line)] += 1
                if said[_words(line)] > known.there[_words(line)]:
                    new.append(line)
            if new:
                header = f"# Daily Memory — {day.isoformat()}\n\n".encode()
                append_whole(file.fileno(), _following(known.tail, header, new), status.st_size)
                known.there.update(map(_words, new))
                known.tail = new[-1]
            known.said, known.seen = said, (status.st_ino, os.fstat(file.fileno()).st_size)
        if not status.st_size:
            sync_directory(self._root)
        return len(new)


def _words(line: bytes) -> str:
    """A bullet without its time."""
    return digest(line.partition(b"] ")[2].decode("utf-8", "replace").rstrip())


def _following(tail: bytes, header: bytes, new: list[bytes]) -> bytes:
    """What is to be written behind a log that ends with `tail`: a piece that was torn when its writer was killed is
    completed."""
    text = b"".join(new)
    if header.startswith(tail):  # none yet, or the torn beginning of one
        return (header + text)[len(tail) :]
    for torn in (tail, tail[tail.rfind(b"\n") + 1 :]):
        if torn and torn != new[0] and new[0].startswith(torn):
            return text[len(torn) :]
    return text if tail.endswith(b"\n") else b"\n" + text
