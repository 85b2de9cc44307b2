"""Facts, the index, daily logs and notes from elsewhere become memories of the group: as if the owner had written them
by hand, each with where it comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, time
from itertools import pairwise

from clawd import faults
from clawd.arrivals.account import Entry
from clawd.arrivals.rooms import Done, Rooms, several
from clawd.clock import moment_of, rfc3339
from clawd.errors import ClawdError, NotFound, StorageError
from clawd.memory import keyed, record, text
from clawd.memory.offer import LARGEST
from clawd.memory.protocol import Voice
from clawd.memory.record import settled
from clawd.memory.store import GroupMemory
from clawd.text import split
from clawd.trust import Origin, Role

_LONG = 4000  # characters of a note that is one memory
_HEADING = re.compile(r"^#{1,3} [^\n]*", re.MULTILINE)
_DATE = re.compile(r"(?<![0-9])([0-9]{4}-[0-9]{2}-[0-9]{2})(?![0-9])")
_TITLE = 80

Parts = Mapping[str, str]


async def memory(rooms: Rooms, group: str, source: str, entry: Entry, files: Mapping[str, bytes]) -> Done:
    """Raises StorageError, Refused, UsageError."""
    voice = Voice(Origin.HAND, Role.OWNER, 1.0, f"{source}:{entry.source}")
    how: Callable[[GroupMemory], Done] = lambda memory: _HOW[entry.kind](memory, voice, source, entry, files[""])  # noqa: E731
    return await rooms.memories.do(group, how)


def _facts(memory: GroupMemory, voice: Voice, source: str, entry: Entry, data: bytes) -> Done:
    preamble, facts = keyed.parsed(data)
    new, left, parts = False, list[str](), dict(entry.parts)
    with memory.bringing(voice) as bringing:
        every = bringing.facts(facts.values(), parts)
    faults.passing("arriving")
    for key, taken in every.items():
        new = new or taken.new
        if taken.why:
            left.append(taken.why if taken.why.startswith(f"{key} ") else f"{key[:_TITLE]!a}: {taken.why}")
        else:
            parts[key] = taken.digest
    if 0 < len(left) < len(every):
        left[0] = f"{len(left):,} of its {len(every):,} facts, the others are in use: {left[0]}"
    if said := settled(preamble.removeprefix(keyed.PREAMBLE.strip())):
        done = _remembered(memory, voice, source, entry, {"": said}, None, parts)
        new, parts, left = new or done.new, dict(done.parts), [*left, *filter(None, [done.why])]
    return Done(f"memory/{keyed.FACTS}", new, several(left), parts)


def _index(memory: GroupMemory, voice: Voice, source: str, entry: Entry, data: bytes) -> Done:
    with memory.bringing(voice) as bringing:
        taken = bringing.index(data, entry.parts.get(keyed.INDEX, ""))
    parts = dict(entry.parts) if taken.why else {keyed.INDEX: taken.digest}
    return Done(f"memory/{keyed.INDEX}", taken.new, taken.why, parts)


def _day(memory: GroupMemory, voice: Voice, source: str, entry: Entry, data: bytes) -> Done:
    name = entry.to.rpartition("/")[2]
    with memory.bringing(voice) as bringing:
        taken = bringing.day(name, data)
    return Done(f"memory/{name}", taken.new, taken.why)


def _note(memory: GroupMemory, voice: Voice, source: str, entry: Entry, data: bytes) -> Done:
    page = record.read(data, entry.to)
    happened = page.fields.get("event_time") or page.fields.get("created") or _dated(entry)
    return _remembered(memory, voice, source, entry, dict(_pieces(page.text)), happened, entry.parts)


def _remembered(memory: GroupMemory, voice: Voice, source: str, entry: Entry, pieces: Mapping[str, str],
                happened: datetime | None, before: Parts) -> Done:  # fmt: skip
    """Each piece an episode of its own; one that changed takes the place of what it was, if that stands unchanged."""
    new, left, parts = False, list[str](), dict(before)
    for title, said in pieces.items():
        digest, name = text.digest(said), f"{title} "  # no key of a fact ends so
        id, _, was = parts.get(name, "").partition(" ")
        about = {"tags": [source], "event_time": rfc3339(happened) if happened else None}
        if id and was != digest and _stands(memory, id, was):
            about["supersedes"] = id
        try:
            written = memory.put(said, "episode", about, voice, key=f"{voice.source} {digest}")
        except StorageError:
            raise
        except ClawdError as error:
            left.append(f"{title}: {error.message}" if title else error.message)
            continue
        new = new or was != digest
        parts[name] = f"{written.id} {digest}"
        faults.passing("arriving")
    return Done("memory/episodes", new, several(left), parts)


def _stands(memory: GroupMemory, id: str, digest: str) -> bool:
    try:
        return text.digest(memory.get(id).text) == digest
    except NotFound:
        return False


def _pieces(said: str) -> Iterator[tuple[str, str]]:
    """A long text by its headings, each piece with one, and what is longer than a memory may be cut; (title, text), no
    title twice."""
    starts = [match.start() for match in _HEADING.finditer(said)] if len(said) > _LONG else []
    cuts, seen = sorted({0, *starts, len(said)}), dict[str, int]()
    for start, end in pairwise(cuts):
        whole = said[start:end].strip()
        short = len(whole.encode("utf-8", "replace")) <= LARGEST
        for piece in [whole] if short else split(whole, LARGEST // 4):
            heading = _HEADING.match(piece)
            if piece.strip() and piece.strip() != (heading[0] if heading and len(starts) > 1 else ""):
                title = (heading[0].strip("# ") if heading else "")[:_TITLE]
                n = seen[title] = seen.get(title, 0) + 1
                yield f"{title} ({n})" if n > 1 else title, piece


def _dated(entry: Entry) -> datetime | None:
    """When a note is from, by its name."""
    for name in (entry.source.rpartition("/")[2], entry.to.rpartition("/")[2], entry.source):
        if (match := _DATE.search(name)) and (day := moment_of(f"{match[1]}T{time(12).isoformat()}")) is not None:
            return day
    return None


_HOW = {"facts": _facts, "index": _index, "day": _day, "note": _note}
