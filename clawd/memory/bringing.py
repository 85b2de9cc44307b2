"""Taking into a memory what a person had elsewhere and vouches for: like a file put there by hand, never more.

Nothing that is there is replaced, but what came this way itself (`before`: its digest) and stands unchanged. What is
quarantined or was forgotten is not brought back. Doing it again adds nothing, also after a crash at any point.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path

from clawd.clock import Clock
from clawd.errors import UsageError
from clawd.memory import admission, daily, keyed, text
from clawd.memory.catalogue import Catalogue
from clawd.memory.daily import Piece
from clawd.memory.judgement import HEADING
from clawd.memory.offer import offered
from clawd.memory.pen import Pen, told
from clawd.memory.protocol import Voice
from clawd.memory.provenance import Stamp
from clawd.memory.record import MemoryRecord, settled
from clawd.memory.standing import Marked

_QUARANTINED, _FORGOTTEN = "it is quarantined here, or was rejected", "it was forgotten here"


@dataclass(frozen=True, slots=True)
class Taken:
    """`new`: something was added. `why`: a sentence's end on what was not. `digest`: of the text that stands there."""

    new: bool = False
    why: str = ""
    digest: str = ""


class Bringing:
    """For one voice, while nobody else works with this memory. Calls block; they raise StorageError, Refused."""

    def __init__(self, root: Path, clock: Clock, pen: Pen, catalogue: Catalogue, voice: Voice, floor: float,
                 marked: Callable[[str], Marked], stamps: Callable[[str], list[Stamp]]) -> None:  # fmt: skip
        self._root, self._clock, self._pen, self._catalogue, self._voice = root, clock, pen, catalogue, voice
        self._floor, self._marked, self._stamps = floor, marked, stamps

    def fact(self, key: str, value: str, at: datetime | None, before: str = "") -> Taken:
        """Under a key that has no value here. Raises UsageError for what is no fact."""
        offer = offered(value, "fact", {"key": key}, self._voice)
        id, digest = f"fact:{offer.key}", text.digest(offer.text)
        held = self._catalogue.one(id)
        there = None if held is None or held.gone else held.record
        if there is not None and text.digest(there.text) == digest:
            return Taken(digest=digest)
        if there is not None and (not before or text.digest(there.text) != before):
            return Taken(why="it has another value here, which stays")
        if why := self._unwanted(offer.text, self._stamps(id)):
            return Taken(why=why)
        trust = admission.admitted("fact", self._voice, floor=self._floor, most=self._marked(offer.text).trust).trust
        if trust < self._floor:
            return Taken(why=f"its text is trusted at {trust:g} only")
        record = self._record(id, "fact", offer.text, at, trust, keyed.FACTS, key=offer.key)
        self._pen.set_fact(record, "write" if there is None else "update", of=record.event_time)
        return Taken(new=True, digest=digest)

    def index(self, data: bytes, before: str = "") -> Taken:
        """INDEX.md, where there is none."""
        said = settled(data.decode("utf-8-sig", "replace"))
        digest = text.digest(said)
        file = self._root / keyed.INDEX
        with told(self._root):
            old = file.read_bytes() if file.is_file() else b""
        there = settled(old.decode("utf-8-sig", "replace"))
        if not said or (there and text.digest(there) == digest):
            return Taken(digest=digest)
        if there and (not before or text.digest(there) != before):
            return Taken(why="there is an INDEX.md here, which stays")
        if why := self._unwanted(said):
            return Taken(why=why)
        record = self._record(f"file:{keyed.INDEX}", "entity", said, None, self._trust(), keyed.INDEX)
        with told(self._root), self._catalogue.writing(keyed.INDEX), keyed.alone(self._root):
            self._pen.stamp(record, "write")
            keyed.change(self._root, keyed.INDEX, lambda _: f"{said}\n".encode("utf-8", "replace"))
        return Taken(new=True, digest=digest)

    def day(self, name: str, data: bytes) -> Taken:
        """The entries of a day's log that are not in it yet. One that has the key of a fact would be trusted like that:
        it is stamped for itself."""
        day = daily.day_of(name)
        if day is None:
            raise UsageError(f"{name!a} is no day")
        wanted, why = list[Piece](), ""
        for piece in daily.parsed(data, day):
            unwanted = self._unwanted(piece.text) if piece.text else ""
            why = why or (f"an entry of it: {unwanted}" if unwanted else "")
            wanted += [] if unwanted else [piece]
        added = list[Piece]()

        def with_them(old: bytes) -> bytes:
            there = {_known(piece) for piece in daily.parsed(old, day)}
            added[:] = [each for each in wanted if _known(each) not in there and (not old or _says(each))]
            raw = b"".join(_whole(data[each.start : each.end]) for each in added)
            if not old or not raw:
                return old or raw
            return old + (b"" if old.endswith(b"\n\n") else b"\n" if old.endswith(b"\n") else b"\n\n") + raw

        with told(self._root), keyed.alone(self._root):
            file = self._root / name
            with_them(file.read_bytes() if file.is_file() and not file.is_symlink() else b"")
        with self._catalogue.writing(name), told(self._root):
            for piece in added:
                self._stamped(piece, day)
            with keyed.alone(self._root):
                new = keyed.change(self._root, name, with_them)
        return Taken(new=new, why=why)

    def _stamped(self, piece: Piece, day: date) -> None:
        """So that it is a person's by hand and no more, whatever its key has or will have."""
        if not piece.key:
            return
        id, digest = f"fact:{piece.key}", text.digest(piece.text)
        stamps = self._stamps(id)
        if any(each.sha256 == digest for each in stamps):
            return
        at = piece.at or datetime.combine(day, time(12)).astimezone()
        self._pen.stamp(self._record(id, "fact", piece.text, at, self._trust(), keyed.FACTS, key=piece.key), "carry")
        if stamps:  # what is known of the fact itself stays the last word on it
            self._pen.again(stamps[-1])

    def _unwanted(self, said: str, stamps: list[Stamp] | None = None) -> str:
        marked = self._marked(said)
        last = stamps[-1] if stamps else None
        if marked.quarantined:
            return _QUARANTINED
        gone = last is not None and last.op in ("delete", "reject") and last.sha256 == text.digest(said)
        return _FORGOTTEN if marked.forgotten or gone else ""

    def _trust(self) -> float:
        return admission.admitted("entity", self._voice, floor=self._floor).trust

    def _record(self, id: str, kind: str, said: str, at: datetime | None, trust: float, file: str,
                key: str = "") -> MemoryRecord:  # fmt: skip
        now = self._clock.now().astimezone()
        at = min(at or now, now)
        return MemoryRecord(
            id, kind, said, at, at, at, self._voice.source, self._voice.origin, trust,  # type: ignore[arg-type]
            "active", self._voice.taint, key=key, file=file,
        )  # fmt: skip


def _known(piece: Piece) -> tuple[str, str, str]:
    """What makes an entry of a day's log the same one."""
    return (f"{piece.at:%H:%M:%S}" if piece.at else "", piece.key, piece.text)


def _says(piece: Piece) -> bool:
    return bool(piece.text.strip()) and not (piece.at is None and HEADING.fullmatch(piece.text))


def _whole(raw: bytes) -> bytes:
    return raw if re.search(rb"[\r\n]\Z", raw) else raw + b"\n\n"
