"""Taking into a memory what a person had elsewhere and vouches for: like a file put there by hand, never more.

Nothing that is there is replaced, but what came this way itself (`before`: its digest) and stands unchanged. What is
quarantined or was forgotten is not brought back. Doing it again adds nothing, also after a crash at any point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, time
from pathlib import Path

from clawd.clock import Clock
from clawd.errors import UsageError
from clawd.files import read_beneath
from clawd.memory import admission, daily, keyed, text
from clawd.memory.catalogue import Catalogue
from clawd.memory.daily import Piece
from clawd.memory.judgement import HEADING
from clawd.memory.keyed import Fact
from clawd.memory.offer import Offer, offered
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

    def facts(self, facts: Iterable[Fact], before: Mapping[str, str]) -> dict[str, Taken]:
        """Of each key what became of it: it is taken where it has no value here. `before` is by key."""
        held = {each.record.key: each.record for each in self._catalogue.of_file(keyed.FACTS) if not each.gone}
        taken, records = dict[str, Taken](), list[MemoryRecord]()
        for fact in facts:
            try:
                offer = offered(fact.value, "fact", {"key": fact.key}, self._voice)
            except UsageError as error:
                taken[fact.key] = Taken(why=error.message)
                continue
            there, digest = held.get(offer.key), text.digest(offer.text)
            same = there is not None and text.digest(there.text) == digest
            if same or (why := self._left(offer, there, before.get(fact.key, ""))):
                taken[fact.key] = Taken(digest=digest) if same else Taken(why=why)
                continue
            trust = self._trusted(offer.text)
            records.append(
                self._record(f"fact:{offer.key}", "fact", offer.text, fact.updated, trust, keyed.FACTS, key=offer.key)
            )
            taken[fact.key] = Taken(new=True, digest=digest)
        if records:
            self._pen.set_facts(records)
        return taken

    def _left(self, offer: Offer, there: MemoryRecord | None, before: str) -> str:
        """Why a fact is not taken."""
        if there is not None and (not before or text.digest(there.text) != before):
            return "it has another value here, which stays"
        if why := self._unwanted(offer.text, self._stamps(f"fact:{offer.key}")):
            return why
        trust = self._trusted(offer.text)
        return f"its text is trusted at {trust:g} only" if trust < self._floor else ""

    def _trusted(self, said: str) -> float:
        return admission.admitted("fact", self._voice, floor=self._floor, most=self._marked(said).trust).trust

    def index(self, data: bytes, before: str = "") -> Taken:
        """INDEX.md, where there is none."""
        said = settled(data.decode("utf-8-sig", "replace"))
        digest = text.digest(said)
        with told(self._root):
            old = self._read(keyed.INDEX)
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
        it is stamped for itself. What is no entry would become a part of the one before it: it comes as one of its
        own, where there is a log already."""
        day = daily.day_of(name)
        if day is None:
            raise UsageError(f"{name!a} is no day")
        noon, source = datetime.combine(day, time(12)).astimezone(), self._voice.source.partition(":")[0]
        wanted, why = list[Piece](), ""
        for piece in daily.parsed(data, day):
            unwanted = self._unwanted(piece.text) if piece.text else ""
            why = why or (f"an entry of it: {unwanted}" if unwanted else "")
            wanted += [] if unwanted else [piece]
        added = list[Piece]()

        def with_them(old: bytes) -> bytes:
            there = {_known(piece) for piece in daily.parsed(old, day)}
            found = [(each, _whole(data[each.start : each.end])) for each in wanted]
            if old:
                new = [(each, raw) for each, raw in found if _says(each) and _known(each) not in there]
                own = [(each, raw) if each.at is not None else _entry(each, source, noon) for each, raw in new]
                found = [(each, raw) for each, raw in own if _known(each) not in there]
            added[:] = [each for each, _ in found]
            raw = b"".join(raw for _, raw in found)
            gap = b"" if not old or old.endswith(b"\n\n") else b"\n" if old.endswith(b"\n") else b"\n\n"
            return old + gap + raw if raw else old

        with told(self._root), keyed.alone(self._root):
            with_them(self._read(name))
        with self._catalogue.writing(name), told(self._root):
            self._stamp(added, noon)
            with keyed.alone(self._root):
                new = keyed.change(self._root, name, with_them)
        return Taken(new=new, why=why)

    def _read(self, name: str) -> bytes:
        try:
            return read_beneath(self._root, name, keyed.LIMIT)
        except FileNotFoundError:
            return b""

    def _stamp(self, pieces: Iterable[Piece], noon: datetime) -> None:
        """So that each is a person's by hand and no more, whatever its key has or will have."""
        held = {each.record.id: each.record for each in self._catalogue.of_file(keyed.FACTS) if not each.gone}
        records, last, own = list[MemoryRecord](), dict[str, Stamp](), dict[str, MemoryRecord]()
        for piece in pieces:
            id, digest = f"fact:{piece.key}", text.digest(piece.text)
            stamps = self._stamps(id) if piece.key else []
            if piece.key and all(each.sha256 != digest for each in stamps):
                at = piece.at or noon
                records.append(self._record(id, "fact", piece.text, at, self._trust(), keyed.FACTS, key=piece.key))
                if stamps:  # what is known of the fact itself stays the last word on it
                    last[id] = stamps[-1]
                elif id in held:
                    own[id] = held[id]
        self._pen.carry([*records, *own.values()], list(last.values()))

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


def _entry(piece: Piece, key: str, at: datetime) -> tuple[Piece, bytes]:
    """Of what was none."""
    written = f"### {at:%H:%M:%S} — {key}\n\n{piece.text}\n\n".encode("utf-8", "replace")
    return replace(piece, key=key, at=at), written


def _whole(raw: bytes) -> bytes:
    return raw if re.search(rb"[\r\n]\Z", raw) else raw + b"\n\n"
