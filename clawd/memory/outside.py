"""What other programs on this machine keep in a group's memory: facts under keys of their own, which wait for the
owner, and lines of the days' logs. All of it is `external`, at .2.

Who writes is its session's id, and that is all that is known of it. A writer cannot raise what it is trusted: not by a
key, a tag, a time, or a text that looks like an entry; and it replaces nothing but what it wrote itself. What has a
`key` is there once, whenever its writer or this process was killed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from clawd.clock import moment_of
from clawd.errors import Refused, StorageError, UsageError
from clawd.ids import safe_name
from clawd.memory import daily, keyed, offer, standing, text
from clawd.memory.offer import offered
from clawd.memory.pen import Changed
from clawd.memory.protocol import Voice
from clawd.memory.provenance import Stamp
from clawd.memory.record import MemoryRecord, Status
from clawd.memory.standing import LINE, LOG
from clawd.memory.store import GroupMemory
from clawd.trust import TRUST, Origin, Role

MOST = 100  # at once: what a turn may write, too
MOST_WAIT = 100  # facts of one session that the owner has not decided about
LARGEST_LOG = 5 << 20  # bytes: half of what is read of a file, so that they never hide what is written after them
CATEGORY = "log"
_LONGEST_ID, _LONGEST_KEY = 120, 200  # characters of a session's id, and of what names a write
_AHEAD = timedelta(minutes=5)  # clocks differ
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
_AROUND = 32  # bytes of an entry beside its key and its text
_GONE = "this was forgotten or rejected: only the owner keeps it"
_NAMES = ("text", "fact", "at", "tags", "key")


@dataclass(frozen=True, slots=True)
class Note:
    """Something to be kept: under `fact` in MEMORY.md, else in the log of the day of `at`. The first of its tags is the
    category of a line, and ends its key. `key` is what its writer calls it, "" if it does not."""

    text: str
    fact: str = ""
    at: datetime | None = None
    tags: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of it: `known` was said before, and nothing was added; `refused`, for its text was forgotten or
    rejected. `why` says what it waits for, or why it is refused."""

    id: str
    status: Status
    trust: float
    state: Literal["kept", "known", "refused"] = "kept"
    why: str = ""


def namespace(session: str) -> str:
    """With what every key of a session begins: `mmkr_agent-1_` for `mmkr:agent-1`. Raises UsageError."""
    if not session.strip() or not session.isprintable() or len(session) > _LONGEST_ID:
        raise UsageError(
            f"a session's id is one line of at most {_LONGEST_ID} characters, like mmkr:agent-1, not {session[:64]!a}"
        )
    return f"{safe_name(session)}_"


def noted(session: str, said: Mapping[str, Any], now: datetime) -> Note:
    """What was asked for, checked. Raises UsageError."""
    space, voice = namespace(session), voice_of(session)
    if unknown := sorted(set(said) - set(_NAMES)):
        raise UsageError(f"{str(unknown[0])[:64]!a} cannot be said of it; there are {', '.join(_NAMES)}")
    at, fact, key = _moment(said.get("at"), now), said.get("fact"), said.get("key")
    if key is not None and (not isinstance(key, str) or not key or len(key) > _LONGEST_KEY):
        raise UsageError(f"key is a text of at most {_LONGEST_KEY} characters that names this write for ever")
    content = said.get("text")
    if not isinstance(content, str):
        raise UsageError("text is missing: what is to be kept")
    if fact is None:
        made = offered(content, "episode", {"tags": said.get("tags")}, voice)
        log_key(session, made.tags)
        return Note(made.text, "", at, made.tags, key or "")
    if not isinstance(fact, str) or not fact.startswith(space) or not fact[len(space) :].strip("_ "):
        raise UsageError(
            f"{str(fact)[:64]!a} is no key of {session}: its facts are called {space}TOPIC",
            hint=f"say fact: {space}goal, or no fact for a line of the day's log",
        )
    made = offered(content, "fact", {"key": fact, "tags": said.get("tags")}, voice)
    return Note(made.text, made.key, at, made.tags, key or "")


def log_key(session: str, tags: Sequence[str]) -> str:
    """What a line of a log is called. Raises UsageError."""
    return offer.key_of(f"{namespace(session)}{safe_name(tags[0] if tags else CATEGORY)}", "fact", voice_of(session))


def voice_of(session: str, source: str = "") -> Voice:
    return Voice(Origin.EXTERNAL, Role.NONE, TRUST[Origin.EXTERNAL], source or session)


def _moment(said: Any, now: datetime) -> datetime | None:
    if said is None:
        return None
    if not isinstance(said, str) or (moment := moment_of(said)) is None:
        raise UsageError(f"at is a time like 2026-12-01T09:00:00+01:00, not {str(said)[:64]!a}")
    if moment > now + _AHEAD:
        raise UsageError(f"at is when it happened, and {said[:64]!a} has not come yet")
    if moment < _EARLIEST:
        raise UsageError(f"at is when it happened, and nothing wrote logs at {said[:64]!a}")
    return moment


class Outside:
    """One session at the memory of its group. Calls block. Raises Refused, UsageError, StorageError."""

    def __init__(self, memory: GroupMemory, session: str) -> None:
        self._of, self._session = memory, session
        self._catalogue = memory._catalogue

    def keep(self, notes: Sequence[Note]) -> list[Kept]:
        """What became of each, in their order. Lines are written together, after the facts. Raises UsageError,
        StorageError: all of it may be said again then."""
        if len(notes) > MOST:
            raise UsageError(f"at most {MOST} at once: say the rest in another call")
        with self._of._lock:
            self._catalogue.freshen()
            kept = {at: self._decided(note) for at, note in enumerate(notes) if note.fact}
            lines = [(at, note) for at, note in enumerate(notes) if not note.fact]
            kept |= zip((at for at, _ in lines), self._log([note for _, note in lines]), strict=True)
        return [kept[at] for at in range(len(notes))]

    # ── lines of the days' logs ──

    def _log(self, notes: Sequence[Note]) -> list[Kept]:
        found, lines, silent, sizes = list[Kept](), dict[str, MemoryRecord](), set[str](), dict[str, int]()
        there = dict[str, Counter[tuple[str, str, str]]]()
        for note in notes:
            record = self._line(note)
            kept = Kept(record.id, "active", record.trust)
            marked = self._of._marked(record.text)
            if record.id in lines or (note.key and self._has(record, there)):
                kept = replace(kept, state="known")
            elif marked.quarantined or marked.forgotten:
                kept = replace(kept, state="refused", why=_GONE)
            elif why := self._is_a_fact(record.key) or self._no_room(record, sizes):
                kept = replace(kept, state="refused", why=why)
            else:
                lines[record.id] = record
                if marked.trust <= record.trust:
                    silent.add(record.id)
            found.append(kept)
        if lines:
            keys = {each.key for each in lines.values()}
            known = {key for key in keys if self._of._stamps(f"{LOG}{key}")}
            self._of._pen.log(list(lines.values()), keys - known, silent)
        return found

    def _line(self, note: Note) -> MemoryRecord:
        """The same for the same key, at the time that was said first."""
        now = self._of.now().astimezone()
        code = self._of._id("episode", f"line {self._session}\n{note.key}" if note.key else "")
        id, at = f"{LINE}{code[3:]}", note.at or now
        for stamp in self._of._stamps(id)[-1:] if note.key else ():
            at = moment_of(stamp.source.rpartition("#")[2]) or at
        tags = " ".join(f"#{safe_name(each)}" for each in note.tags[1:])
        said = f"{note.text}{chr(10) if chr(10) in note.text else ' '}{tags}" if tags else note.text
        key, trust = log_key(self._session, note.tags), TRUST[Origin.EXTERNAL]
        at = at.astimezone().replace(microsecond=0)
        return MemoryRecord(
            id, "day", daily.as_read(said), now, now, at, f"{self._session} {key}#{at.isoformat()}", Origin.EXTERNAL,
            trust, "active", trust, key=key, file=daily.name_of(at),
        )  # fmt: skip

    def _has(self, record: MemoryRecord, there: dict[str, Counter[tuple[str, str, str]]]) -> bool:
        """Whether a line that was said before is in its file, where it may be missing after a crash: of those that are
        the same but for their keys there must be as many as the ledger has. What was forgotten since is not to come
        back."""
        stamps = self._of._stamps(record.id)
        if not stamps:
            return False
        if record.file not in there:
            loaded = self._catalogue.load(record.file)
            pieces = [piece for raw in loaded.memories for piece in raw.pieces] if loaded is not None else []
            there[record.file] = Counter(
                (piece.key, f"{piece.at:%H:%M:%S}", text.digest(piece.text)) for piece in pieces if piece.at
            )
        here, last = there[record.file], stamps[-1]
        line = record.key, f"{record.event_time:%H:%M:%S}", last.sha256
        if here[line] >= self._catalogue.index.read(lambda db: standing.lines_of(db, last.source, last.sha256)):
            return True
        marked = self._of._marked(record.text)
        if marked.quarantined or marked.forgotten:
            return True
        here[(*line[:2], text.digest(record.text))] += 1
        return False

    def _is_a_fact(self, key: str) -> str:
        """Why a key is none for lines; empty where it is. What the log has of somebody's fact must not come to count
        as another program's."""
        others = any(each.origin is not Origin.EXTERNAL for each in self._of._stamps(f"fact:{key}"))
        if others and not self._of._stamps(f"{LOG}{key}"):
            return f"{key} is the key of a fact that somebody else keeps: say another tag"
        return ""

    def _no_room(self, record: MemoryRecord, sizes: dict[str, int]) -> str:
        """Why a file takes no more lines, by their `sizes`; empty where it takes this one."""
        if record.file not in sizes:
            file = self._of.root / record.file
            sizes[record.file] = file.lstat().st_size if os.path.lexists(file) else 0
        size = sizes[record.file] + len(f"{record.key}{record.text}".encode("utf-8", "replace")) + _AROUND
        if size > LARGEST_LOG:
            day = record.file.removesuffix(".md")
            return f"the log of {day} has {LARGEST_LOG >> 20} MB: no more lines of other programs go into it"
        sizes[record.file] = size
        return ""

    # ── facts ──

    def _decided(self, note: Note) -> Kept:
        try:
            return self._fact(note)
        except Refused as refusal:
            id = self._of._id("fact", f"external {self._session}\n{note.fact}")
            return Kept(id, "quarantined", TRUST[Origin.EXTERNAL], "refused", refusal.message)

    def _fact(self, note: Note) -> Kept:
        """It waits as a proposal, one for each key of a session: a newer value takes the place of what waits."""
        source = self._session
        if note.key:  # what names it is in each of its stamps
            source = f"{self._session}#{self._of._id('fact', f'said {note.key}')[3:]}"
        of, voice = self._of, voice_of(self._session, source)
        given = {"key": note.fact, "tags": list(note.tags), "event_time": note.at.isoformat() if note.at else None}
        made = offered(note.text, "fact", given, voice)
        fact, proposal = f"fact:{made.key}", of._id("fact", f"external {self._session}\n{made.key}")
        held, waits = self._catalogue.one(fact), self._catalogue.one(proposal)
        old = held.record if held is not None and not held.gone else None
        before = waits.record if waits is not None and not waits.gone else None
        stamps, proposed = of._stamps(fact), of._stamps(proposal)
        digest = text.digest(made.text)
        for stood, record in ((proposed, before), (stamps, old)):
            if note.key and _was_said(stood, source, record):
                return _known(record or old, proposal)
        for record in (old, before):
            if record is not None and record.text == made.text and (record is old or not note.key):
                return _known(record, proposal)
        if (why := _no(digest, proposed, stamps)) or (before is not None and (why := _others(before, proposed))):
            raise Refused(why)
        verdict = of._verdict(made, voice, [], old, False)
        if verdict.status == "active" and (old is None or _is_ours(old, stamps, self._session)):
            record = replace(of._record(fact, made, voice, [], verdict), file=keyed.FACTS)
            of._pen.set_fact(record, "write" if old is None else "update")
            return Kept(fact, "active", record.trust)
        why = verdict.why or f"it would stand in the place of {fact}"
        if old is not None:
            made = replace(made, supersedes=fact)
        record = replace(of._record(proposal, made, voice, [], verdict), status="proposed")
        self._propose(record, before, waits.stat if waits is not None else None)
        return Kept(proposal, "proposed", record.trust, why=why)

    def _propose(self, record: MemoryRecord, before: MemoryRecord | None, seen: str | None) -> None:
        if before is None:
            waiting = [each.record for each in self._catalogue.all(frozenset({"proposed"}))]
            if sum(_session(each.source) == self._session for each in waiting) >= MOST_WAIT:
                raise Refused(
                    f"{MOST_WAIT} facts of {self._session} wait for the owner's word: no other is taken until then"
                )
            self._of._pen.keep(record, "write")
            return
        try:
            again = replace(record, created=before.created, file=before.file, head=before.head, whole=before.whole)
            self._of._pen.keep(again, "update", seen=seen)
        except Changed:
            raise StorageError(f"{before.file} is being changed just now", hint="say it again") from None


def _known(record: MemoryRecord | None, proposal: str) -> Kept:
    """Of what was rejected nothing is left."""
    if record is None:
        return Kept(proposal, "quarantined", TRUST[Origin.EXTERNAL], "known", _GONE)
    return Kept(record.id, record.status, record.trust, "known")


def _session(source: str) -> str:
    """Whose a record is, by its source."""
    return source.rpartition("#")[0] or source


def _was_said(stamps: Sequence[Stamp], source: str, record: MemoryRecord | None) -> bool:
    """Whether a write is done; the last one may have been killed between its stamp and its file."""
    last = stamps[-1] if stamps else None
    if last is not None and last.source == source and last.op in ("write", "update"):
        return record is not None and text.digest(record.text) == last.sha256
    return any(each.source == source for each in stamps)


def _no(digest: str, *stamps: Sequence[Stamp]) -> str:
    """Why the owner would have to keep this themselves; empty where they would not."""
    last = (next((each for each in reversed(some) if each.sha256 == digest), None) for some in stamps)
    said = any(each.op in ("reject", "delete", "quarantine") for each in last if each is not None)
    return _GONE if said else ""


def _others(record: MemoryRecord, stamps: Sequence[Stamp]) -> str:
    """Why what waits may not be replaced; empty where it is as its session wrote it."""
    if record.status != "proposed":
        return f"{record.id} is {record.status}: the owner decides about it"
    if text.digest(record.text) not in {each.sha256 for each in stamps}:
        return f"{record.id} was changed by hand: the owner decides about it"
    return ""


def _is_ours(record: MemoryRecord, stamps: Sequence[Stamp], session: str) -> bool:
    """Whether a fact stands as this session wrote it."""
    digest = text.digest(record.text)  # the last stamp may be of a text that never came to be
    of = [*stamps[-1:], *[each for each in stamps if each.sha256 == digest][-1:]]
    theirs = all(each.origin is Origin.EXTERNAL and _session(each.source) == session for each in of)
    return theirs and len(of) == 2
