"""The memory of one group: its files, what the trust ledger says of them, and the index over both.

The files are the truth, and a person's: they are read anew before anything is decided or written. What is written goes
in this order: the trust ledger, the file, the index; a crash leaves a line too many, or an index that the next look
mends. Calls block; any thread may make them, one at a time works.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from clawd import faults
from clawd.clock import Clock, moment_of, rfc3339
from clawd.errors import NotFound, Refused, UsageError
from clawd.files import read_beneath, walk_beneath, write_atomic
from clawd.memory import admission, citations, text
from clawd.memory.protocol import MemoryHit, Voice
from clawd.memory.provenance import Op, Stamp, TrustLedger
from clawd.memory.record import FOLDERS, PREFIXES, QUARANTINE, MemoryRecord, Said, Status, parsed, written
from clawd.trust import TRUST, Origin

OWNER = Voice()


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a write: `why` says what it waits for; `conflicts` names a memory that it contradicts."""

    id: str
    status: Status
    trust: float
    why: str = ""
    conflicts: str | None = None


class GroupMemory:
    """`root` is the group's `memory/`, `state` the home's."""

    def __init__(
        self, root: Path, state: Path, group: str, clock: Clock, *, backend: str = "file", floor: float = 0.5
    ) -> None:
        self.root, self.group, self.backend, self.floor = root, group, backend, floor
        self._clock, self._ledger = clock, TrustLedger(state / "trust.jsonl")
        self._lock = threading.RLock()

    # ── looking ──

    def look(self, paths: Sequence[str] | None = None) -> list[str]:
        """Bring the index to what the files say: all of them, or these paths beneath `root`. Gives what was amiss, like
        "rebuilt: it was missing", and sentences on files that cannot be read."""
        return []

    def reindex(self) -> int:
        """From nothing; gives how many documents there are."""
        return len(self.every())

    def get(self, id: str, voice: Voice = OWNER) -> MemoryRecord:
        """Raises NotFound, also for what this voice may not see."""
        for record in self._records():
            if record.id == id and not (voice.others and record.private):
                return record
        raise NotFound(f"there is no memory {id!a}", hint="clawd memory list")

    def every(self, *, kind: str | None = None, statuses: frozenset[str] = frozenset({"active"})) -> list[MemoryRecord]:
        """All records, the newest last; facts and days too."""
        found = [each for each in self._records() if each.status in statuses and kind in (None, each.kind)]
        return sorted(found, key=lambda each: (each.event_time, each.id))

    def pending(self) -> list[MemoryRecord]:
        """What waits for the owner's word, the oldest first."""
        return self.every(statuses=frozenset({"proposed"}))

    def find(self, query: str, voice: Voice, *, k: int = 10, kinds: frozenset[str] = frozenset(),
             since: float | None = None, until: float | None = None, untrusted: bool = False,
             lowering: bool = True) -> tuple[list[MemoryHit], list[str]]:  # fmt: skip
        """The hits and the lanes. Without `lowering` nothing is found that would lower the voice's taint."""
        words = set(text.normal(query).split())
        hits = []
        for record in self._records():
            shown, trust = self._shown(record)
            statuses = {"active", "proposed"} if untrusted else {"active"}
            if record.status not in statuses or (voice.others and record.private):
                continue
            if (trust < self.floor and not untrusted) or (kinds and record.kind not in kinds):
                continue
            if not lowering and record.taint < voice.taint:
                continue
            if not (since or 0) <= record.event_time.timestamp() < (until or float("inf")):
                continue
            if score := len(words & set(text.normal(f"{record.key} {shown}").split())):
                hits.append(MemoryHit(record, shown, float(score), trust, {"lexical": float(score)}))
        return sorted(hits, key=lambda hit: -hit.score)[:k], ["lexical"]

    def _shown(self, record: MemoryRecord) -> tuple[str, float]:
        """What is shown of a record, and how far that is trusted."""
        if record.said is not None and record.trust < self.floor:
            return record.said.quote, TRUST[Origin.OWNER]
        return record.text, admission.seen_trust(record)

    def why(self, id: str) -> dict[str, Any]:
        """{id, source, origin, trust, status, lineage[], history[{ts, op, trust, status, turn}]}."""
        record = self.get(id)
        history = [stamp for _, stamp in self._ledger.read() if (stamp.group, stamp.id) == (self.group, id)]
        return {
            "id": id,
            "source": record.source,
            "origin": record.origin.value,
            "trust": record.trust,
            "status": record.status,
            "lineage": list(record.derived_from),
            "history": [{name: getattr(each, name) for name in ("ts", "op", "trust", "status", "turn")}
                        for each in history],
        }  # fmt: skip

    # ── writing ──

    def put(self, content: str, kind: str, metadata: Mapping[str, Any], voice: Voice, *, key: str = "",
            wait: bool = False) -> Written:  # fmt: skip
        """Keep something. The same `key` (what makes this write the same one, like a turn and its arguments) is the
        same memory, however often; with `wait` not before the owner says yes. Raises UsageError, Refused,
        StorageError."""
        if kind not in PREFIXES:
            raise UsageError(f"{kind!a} is no kind of memory; there are {', '.join(sorted(PREFIXES))}")
        now = self._clock.now().astimezone()
        quote = citations.checked(metadata["said"], voice.heard) if metadata.get("said") else None
        lineage = [self.get(each, voice) for each in metadata.get("derived_from", ())]
        replaced = self.get(metadata["supersedes"], voice) if metadata.get("supersedes") else None
        verdict = admission.admitted(kind, voice, lineage, cited=quote is not None, replaced=replaced, floor=self.floor)
        if wait and verdict.status == "active":
            verdict = replace(verdict, status="proposed", why="it was proposed to the owner")
        seed = key or f"{now.isoformat()} {os.urandom(8).hex()}"
        id = f"{PREFIXES[kind]}_{_code(f'{self.group} {kind} {seed}')}"
        at = moment_of(metadata["event_time"]) if metadata.get("event_time") else None
        record = MemoryRecord(
            id, kind, content.strip(), now, now, at or now, voice.source, voice.origin, verdict.trust, verdict.status,  # type: ignore[arg-type]
            verdict.taint, tuple(each.id for each in lineage), replaced.id if replaced else None,
            tuple(metadata.get("tags", ())), quote, voice.private, str(metadata.get("key") or ""),
        )  # fmt: skip
        self._keep(record, "write", voice.turn)
        conflicts = replaced.id if replaced is not None and verdict.status == "proposed" else None
        if replaced is not None and verdict.status == "active":
            self._keep(replace(replaced, status="superseded"), "supersede", voice.turn)
        return Written(id, verdict.status, admission.seen_trust(record), verdict.why, conflicts)

    def change(
        self, id: str, content: str, voice: Voice, *, key: str = "", said: Mapping[str, Any] | None = None
    ) -> Written:
        """Replace a memory's text: in place, or beside it as a proposal where the voice has less trust."""
        record = self.get(id, voice)
        quote = citations.checked(said, voice.heard) if said else None
        verdict = admission.admitted(record.kind, voice, cited=quote is not None, replaced=record, floor=self.floor)
        if verdict.status != "active":
            return self.put(
                content, record.kind, {"supersedes": id, **({"said": said} if said else {})}, voice, key=key
            )
        now = self._clock.now().astimezone()
        changed = replace(record, text=content.strip(), updated=now, origin=voice.origin, trust=verdict.trust,
                          taint=verdict.taint, said=quote)  # fmt: skip
        self._keep(changed, "update", voice.turn)
        return Written(id, "active", admission.seen_trust(changed))

    def forget(self, id: str, voice: Voice, *, first: Callable[[list[str]], None] = lambda texts: None) -> list[str]:
        """Remove a memory, and what was derived from it alone. Gives the texts that are gone, for whoever forgets them
        elsewhere; `first` is called with them before anything is removed. Raises NotFound, Refused."""
        record = self.get(id, voice)
        if refusal := admission.may_change(voice, record):
            raise Refused(refusal)
        first([record.text, *([record.said.quote] if record.said else [])])
        self._stamp(record, "delete", voice.turn, lines=text.lines(record.text))
        (self.root / record.file).unlink(missing_ok=True)
        return [record.text, *([record.said.quote] if record.said else [])]

    def now(self) -> datetime:
        """By the clock that its records are written by."""
        return self._clock.now()

    def settle(
        self,
        seen: Sequence[MemoryRecord],
        gone: Collection[str],
        kept: MemoryRecord | None = None,
        *,
        moved: bool = False,
    ) -> bool:
        """Memories give way to one that has their place: `kept`, if it is to be written, then those in `gone` are
        superseded; with `moved` their text stands in it, and their files go. `seen` are the memories as whoever decided
        this saw them: False, and nothing is done, where one is another now. Ended half way, the next plan ends it.
        Raises OSError, StorageError."""
        with self._lock:
            here = {each.id: each for each in self._records()}
            if any(not _same(here.get(each.id), each) for each in seen):
                return False
            if kept is not None:
                self._keep(kept, "update" if kept.file else "write", None)
            faults.passing("settling")
            for id in gone:
                record = replace(here[id], status="superseded")
                if moved:
                    self._stamp(record, "supersede", None)
                    (self.root / record.file).unlink(missing_ok=True)
                else:
                    self._keep(record, "supersede", None)
                faults.passing("settled")
        return True

    # ── the owner's word ──

    def approve(self, id: str, *, sha256: str | None = None) -> MemoryRecord:
        """The owner says yes to this text: it is active, and trusted as theirs. A profile's text is appended to
        user_profile.md, a fact's goes to MEMORY.md. With `sha256` only if it is still that text."""
        record = replace(self.get(id), status="active", trust=1.0, taint=1.0)
        self._keep(record, "approve", None)
        return record

    def reject(self, id: str) -> None:
        """No: its file is gone, its text is known."""
        record = self.get(id)
        self._stamp(record, "reject", None, lines=text.lines(record.text))
        (self.root / record.file).unlink(missing_ok=True)

    def quarantine(self, id: str) -> MemoryRecord:
        """Nobody finds it any more; its text stays so wherever it is moved."""
        record = replace(self.get(id), status="quarantined")
        self._keep(record, "quarantine", None)
        return record

    def trust(self, path: Path) -> MemoryRecord:
        """A file of this memory is the owner's own word as it stands. Raises NotFound, UsageError."""
        raise NotImplementedError

    def close(self) -> None:
        pass

    # ── files ──

    def _records(self) -> Iterator[MemoryRecord]:
        stamps = {stamp.id: stamp for _, stamp in self._ledger.read() if stamp.group == self.group}
        for file, status in walk_beneath(self.root):
            folder, _, name = file.partition("/")
            if not name.endswith(".md") or folder not in (*FOLDERS.values(), QUARANTINE):
                continue
            fields, body = parsed(read_beneath(self.root, file, 10 << 20))
            kind = next((kind for kind, each in FOLDERS.items() if each == folder), str(fields.get("kind", "episode")))
            id = str(fields.get("id") or f"file:{file}")
            changed = datetime.fromtimestamp(status.st_mtime).astimezone()
            stamp = stamps.get(id)
            known = stamp or Stamp("", self.group, id, "write", "", Origin.HAND, TRUST[Origin.HAND], 1.0, "active")
            said = fields.get("said") if stamp is not None and stamp.quote else None
            yield MemoryRecord(
                id, kind, body, _moment(fields, "created", changed), _moment(fields, "updated", changed),  # type: ignore[arg-type]
                _moment(fields, "event_time", changed), known.source, known.origin, known.trust,
                "quarantined" if folder == QUARANTINE and kind in FOLDERS else known.status, known.taint,
                tuple(fields.get("derived_from") or ()), fields.get("supersedes"), tuple(fields.get("tags") or ()),
                Said(said["quote"], said.get("inbound")) if said else None, known.private, str(fields.get("key") or ""),
                file,
            )  # fmt: skip

    def _keep(self, record: MemoryRecord, op: Op, turn: int | None) -> None:
        """The line, then the file."""
        with self._lock:
            self._stamp(record, op, turn, lines=text.lines(record.text) if record.status == "quarantined" else ())
            folder = FOLDERS.get(record.kind, QUARANTINE)
            name = f"{record.created:%Y-%m-%dT%H%M%z}-{record.id[3:]}.md".replace("+0000", "Z")
            path = self.root / (record.file or f"{folder}/{name}")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, written(record))

    def _stamp(self, record: MemoryRecord, op: Op, turn: int | None, lines: tuple[str, ...] = ()) -> None:
        self._ledger.append(
            Stamp(
                rfc3339(self._clock.now()), self.group, record.id, op, text.digest(record.text), record.origin,
                record.trust, record.taint, record.status, record.private, record.source, turn,
                text.digest(record.said.quote) if record.said else None, lines,
            )
        )  # fmt: skip


def _same(now: MemoryRecord | None, seen: MemoryRecord) -> bool:
    """Whether a memory is still what somebody saw: its text, and what is thought of it."""
    if now is None or text.digest(now.text) != text.digest(seen.text):
        return False
    return (now.status, now.trust, now.taint, now.private) == (seen.status, seen.trust, seen.taint, seen.private)


def _code(seed: str) -> str:
    """Ten letters and digits of a hash."""
    number = int.from_bytes(hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    return "".join("0123456789abcdefghijklmnopqrstuvwxyz"[number // 36**place % 36] for place in range(10))


def _moment(fields: Mapping[str, Any], name: str, otherwise: datetime) -> datetime:
    value = fields.get(name)
    if isinstance(value, datetime):
        return value.astimezone()
    return (moment_of(value) if isinstance(value, str) else None) or otherwise
