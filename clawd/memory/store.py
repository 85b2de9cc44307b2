"""The memory of one group: its files, what the trust ledger says of them, and the index over both.

The files are the truth, and a person's: they are read anew before anything is decided or written. What is written goes
in this order: the trust ledger, the file, the index; a crash leaves a line too many, or an index that the next look
mends. Calls block; any thread may make them, one at a time works. They raise StorageError.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clawd import faults
from clawd.clock import Clock
from clawd.errors import NotFound, Refused, StorageError, UsageError
from clawd.memory import admission, judgement, keyed, text
from clawd.memory.catalogue import Catalogue, Held
from clawd.memory.forgetting import Plan, planned
from clawd.memory.offer import Offer, offered
from clawd.memory.pen import Changed, Pen
from clawd.memory.protocol import MemoryHit, Voice
from clawd.memory.provenance import Op, Stamp, TrustLedger
from clawd.memory.record import PREFIXES, QUARANTINE, MemoryRecord, Status
from clawd.memory.standing import Marked, Standing
from clawd.search import embedders
from clawd.search.document import Where
from clawd.trust import Origin

OWNER = Voice()
_TRIES = 5


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
        self._file = state / "index" / f"{group}.db"
        self._lock = threading.RLock()
        self._opened: Catalogue | None = None

    @property
    def _catalogue(self) -> Catalogue:
        if self._opened is None:
            embedder = embedders.embedder() if self.backend != "file" else None
            self._opened = Catalogue(self.root, self._file, self.group, self._ledger, self.floor, embedder)
        return self._opened

    @property
    def _pen(self) -> Pen:
        return Pen(self.root, self.group, self._clock, self._ledger, self._catalogue)

    # ── looking ──

    def look(self, paths: Sequence[str] | None = None) -> list[str]:
        """Bring the index to what the files say: all of them, or these paths beneath `root`. Gives what was amiss, like
        "rebuilt: it was missing", and sentences on files that cannot be read."""
        with self._lock:
            return self._catalogue.look(paths)

    def reindex(self) -> int:
        """From nothing; gives how many documents there are."""
        with self._lock:
            return self._catalogue.reindex()

    def get(self, id: str, voice: Voice = OWNER) -> MemoryRecord:
        """Raises NotFound, also for what this voice may not see; Refused for what only the owner may."""
        with self._lock:
            self._catalogue.freshen()
            record = self._seen(self._catalogue.one(id), voice)
        if record is None:
            raise NotFound(f"there is no memory {id!a}", hint="clawd memory list")
        if record.status == "quarantined" and voice.origin is not Origin.OWNER:
            raise Refused(f"{id} is quarantined: only the owner reads or changes it")
        return record

    def every(self, *, kind: str | None = None, statuses: frozenset[str] = frozenset({"active"})) -> list[MemoryRecord]:
        """All records, the newest last; facts and days too."""
        with self._lock:
            self._catalogue.look()
            held = (each.record for each in self._catalogue.all(statuses) if not each.gone)
            found = [each for each in held if each.status in statuses and kind in (None, each.kind)]
        return sorted(found, key=lambda each: (each.event_time, each.id))

    def pending(self) -> list[MemoryRecord]:
        """What waits for the owner's word, the oldest first."""
        with self._lock:
            self._catalogue.freshen()
            found = [each.record for each in self._catalogue.all(frozenset({"proposed"}))]
        return sorted((each for each in found if each.status == "proposed"), key=lambda each: (each.created, each.id))

    def find(self, query: str, voice: Voice, *, k: int = 10, kinds: frozenset[str] = frozenset(),
             since: float | None = None, until: float | None = None, untrusted: bool = False,
             lowering: bool = True) -> tuple[list[MemoryHit], list[str]]:  # fmt: skip
        """The hits and the lanes. Without `lowering` nothing is found that would lower the voice's taint."""
        where = Where(
            kinds, frozenset({"active", "proposed"} if untrusted else {"active"}), 0.0 if untrusted else self.floor,
            0.0 if lowering else voice.taint, not voice.others, since, until,
        )  # fmt: skip
        now = self._clock.now().timestamp()
        with self._lock:
            self._catalogue.freshen()
            for _ in range(_TRIES):
                index = self._catalogue.index
                found = index.search(query, k, where, method=self.backend, now=now)  # type: ignore[arg-type]
                held, changed = self._catalogue.some(hit.document.id for hit in found.hits)
                if not changed:
                    break
        hits = dict[str, MemoryHit]()  # a fact stands in a day's log, too
        for hit in found.hits:
            document = hit.document
            if (record := self._seen(held.get(document.id), voice)) is not None:
                hits.setdefault(document.text, MemoryHit(record, document.text, hit.score, document.trust, hit.parts))
        return list(hits.values()), found.lanes

    def why(self, id: str) -> dict[str, Any]:
        """{id, source, origin, trust, status, lineage[], history[{ts, op, trust, status, turn}], notes[]}; notes say
        what of the file does not count, and why."""
        with self._lock:
            record = self.get(id)
            stamps = self._catalogue.index.read(lambda db: Standing(db, self.group).of(id))
            held = self._catalogue.one(id)
        return {
            "id": id,
            "source": record.source,
            "origin": record.origin.value,
            "trust": record.trust,
            "status": record.status,
            "lineage": list(record.derived_from),
            "history": [{name: getattr(each, name) for name in ("ts", "op", "trust", "status", "turn")}
                        for each in stamps],
            "notes": judgement.notes(held.raw, record, stamps) if held is not None else [],
        }  # fmt: skip

    def _seen(self, held: Held | None, voice: Voice) -> MemoryRecord | None:
        """What this voice sees of it."""
        if held is None or held.gone:
            return None
        return held.shared() if voice.others else held.record

    # ── writing ──

    def put(self, content: str, kind: str, metadata: Mapping[str, Any], voice: Voice, *, key: str = "",
            wait: bool = False) -> Written:  # fmt: skip
        """Keep something. The same `key` (what makes this write the same one, like a turn and its arguments) is the
        same memory, however often; with `wait` not before the owner says yes. Raises UsageError, NotFound, Refused."""
        offer = offered(content, kind, metadata, voice)
        with self._lock:
            self._catalogue.freshen()
            return self._put_fact(offer, voice, key, wait) if kind == "fact" else self._put(offer, voice, key, wait)

    def _put(self, offer: Offer, voice: Voice, key: str, wait: bool) -> Written:
        id = self._id(offer.kind, key)
        if key and (before := self._catalogue.one(id)) is not None and not before.gone:
            return self._again(before.record)
        lineage = [self.get(each, voice) for each in offer.derived_from]
        replaced = self.get(offer.supersedes, voice) if offer.supersedes else None
        if replaced is not None and replaced.status != "active" and not admission.by_owner(voice):
            raise Refused(f"{replaced.id} is {replaced.status}: the owner decides about it")
        verdict = self._verdict(offer, voice, lineage, replaced, wait)
        record = self._record(id, offer, voice, lineage, verdict)
        self._pen.keep(record, "write", voice.turn, known=self._lifts(record.text, voice))
        return self._again(record, verdict)

    def _put_fact(self, offer: Offer, voice: Voice, key: str, wait: bool) -> Written:
        """A value takes the place of another where it is trusted as much; else it lies in quarantine/ and waits."""
        fact, proposal = f"fact:{offer.key}", self._id("fact", key)
        if key and (before := self._catalogue.one(proposal)) is not None and not before.gone:
            return self._again(before.record)
        held = self._catalogue.one(fact)
        old = held.record if held is not None and not held.gone else None
        stamps = self._stamps(fact)
        same = bool(stamps) and stamps[-1].sha256 == text.digest(offer.text)
        if key and same and old is not None and old.text == offer.text and stamps[-1].turn == voice.turn is not None:
            return Written(fact, old.status, old.trust)
        if same and stamps[-1].op in ("delete", "reject") and not admission.by_owner(voice):
            raise Refused(_FORGOTTEN)
        lineage = [self.get(each, voice) for each in offer.derived_from]
        hidden = old is not None and old.private and voice.others
        verdict = self._verdict(offer, voice, lineage, old, wait or hidden)
        if verdict.status == "active":
            record = replace(self._record(fact, offer, voice, lineage, verdict), file=keyed.FACTS)
            op: Op = "write" if old is None else "update"
            self._pen.set_fact(record, op, voice.turn, known=self._lifts(record.text, voice))
            return Written(fact, "active", record.trust)
        if old is not None and not hidden:
            offer = replace(offer, supersedes=fact)
        record = self._record(proposal, offer, voice, lineage, verdict)
        self._pen.keep(record, "write", voice.turn)
        return Written(proposal, record.status, record.trust, verdict.why, offer.supersedes)

    def _verdict(self, offer: Offer, voice: Voice, lineage: Iterable[MemoryRecord], replaced: MemoryRecord | None,
                 wait: bool) -> admission.Admission:  # fmt: skip
        """Raises Refused for a text that is known, and that only the owner may keep again."""
        marked = self._marked(offer.text)
        quoted = offer.said is not None and text.digest(offer.said.quote) == text.digest(offer.text)
        owners = admission.by_owner(voice) or quoted
        if marked.quarantined and not owners:
            raise Refused("this is quarantined, or was rejected: only the owner can keep it")
        if marked.forgotten and not owners:
            raise Refused(_FORGOTTEN)
        verdict = admission.admitted(
            offer.kind, voice, lineage, cited=offer.said is not None, replaced=replaced, floor=self.floor,
            most=1.0 if owners else marked.trust,
        )  # fmt: skip
        if wait and verdict.status == "active":
            return replace(verdict, status="proposed", why="it was proposed to the owner")
        return verdict

    def _record(self, id: str, offer: Offer, voice: Voice, lineage: Iterable[MemoryRecord],
                verdict: admission.Admission) -> MemoryRecord:  # fmt: skip
        now = self._clock.now().astimezone()
        return MemoryRecord(
            id, offer.kind, offer.text, now, now, offer.event_time or now, voice.source, voice.origin, verdict.trust,  # type: ignore[arg-type]
            verdict.status, verdict.taint, offer.derived_from, offer.supersedes, offer.tags, offer.said,
            voice.private or any(each.private for each in lineage), offer.key,
        )  # fmt: skip

    def _again(self, record: MemoryRecord, verdict: admission.Admission | None = None) -> Written:
        """What became of a write that is done, and what is left of it."""
        conflicts = None
        if record.supersedes and (held := self._catalogue.one(record.supersedes)) is not None:
            if verdict is None:
                quoted = record.said is not None and record.trust < admission.CLEAN
                outranked = (record.trust if quoted else admission.seen_trust(record)) < admission.seen_trust(
                    held.record
                )
                verdict = admission.Admission(record.trust, record.taint, record.status, replaces=not outranked)
            if record.status != "active" or not verdict.replaces:
                conflicts = record.supersedes
            else:
                self._supersede(held)
        why = verdict.why if verdict is not None else ""
        return Written(record.id, record.status, admission.seen_trust(record), why, conflicts)

    def _supersede(self, held: Held, turn: int | None = None) -> None:
        old = held.record
        if old.status == "active" and not held.gone:
            self._rewrite(replace(old, status="superseded"), "supersede", held.stat, turn)

    def change(
        self, id: str, content: str, voice: Voice, *, key: str = "", said: Mapping[str, Any] | None = None
    ) -> Written:
        """Replace a memory's text: in place, or beside it as a proposal where the voice has less trust. Raises
        UsageError, NotFound, Refused."""
        with self._lock:
            record = self.get(id, voice)
            if record.kind == "day" or id in _FREE:
                raise UsageError(f"{record.file} is changed with an editor")
            more = {"said": said} if said else {}
            if id == f"fact:{record.key}":
                return self.put(content, "fact", {"key": record.key, **more}, voice, key=key)
            own = admission.by_owner(voice)
            if record.status != "active" and not (own and record.status == "proposed"):
                raise Refused(f"{id} is {record.status}: the owner decides about it", hint=f"clawd memory approve {id}")
            about = {"key": record.key} if record.kind == "fact" else {}
            offer = offered(content, record.kind, {**about, **more}, voice)
            verdict = self._verdict(offer, voice, (), record, False)
            if not (verdict.status == "active" and verdict.replaces) and not (own and record.status == "proposed"):
                return self.put(content, record.kind, {"supersedes": id, **more}, voice, key=key and f"{id} {key}")
            for _ in range(_TRIES):
                held = self._catalogue.one(id)
                if held is None:
                    raise NotFound(f"there is no memory {id!a}", hint="clawd memory list")
                changed = replace(
                    held.record, text=offer.text, updated=self._clock.now().astimezone(), origin=voice.origin,
                    source=voice.source, trust=verdict.trust, taint=verdict.taint, said=offer.said,
                    status=verdict.status, private=record.private or voice.private,
                )  # fmt: skip
                with suppress(Changed):
                    self._rewrite(changed, "update", held.stat, voice.turn, known=self._lifts(offer.text, voice))
                    return Written(id, changed.status, admission.seen_trust(changed), verdict.why)
        raise StorageError(f"{record.file} is being changed all the time; try again")

    def _rewrite(
        self, record: MemoryRecord, op: Op, seen: str, turn: int | None = None, *, known: bool = False
    ) -> None:
        if record.file == keyed.FACTS:
            self._pen.note(record, op, turn, known=known)
        else:
            self._pen.keep(record, op, turn, seen=seen, known=known)

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
        this saw them: False, and nothing is done, where one is another now. Ended half way, the next plan ends it."""
        with self._lock:
            self._catalogue.freshen()
            here = {each.id: self._catalogue.one(each.id) for each in seen}
            here |= {id: self._catalogue.one(id) for id in gone if id not in here}
            if any(not _same(here[each.id], each) for each in seen) or None in here.values():
                return False
            if kept is not None:
                self._pen.keep(kept, "update" if kept.file else "write")
            faults.passing("settling")
            for id in gone:
                held = here[id]
                assert held is not None
                if moved:
                    self._pen.remove([replace(held.record, status="superseded")], "supersede")
                else:
                    self._supersede(held)
                faults.passing("settled")
        return True

    # ── forgetting ──

    def forget(self, id: str, voice: Voice, *, first: Callable[[list[str]], None] = lambda texts: None) -> list[str]:
        """Remove a memory, and what was derived from it. Gives the texts that are gone, for whoever forgets them
        elsewhere; `first` is called with them before anything is removed. Raises NotFound, Refused."""
        with self._lock:
            self._catalogue.freshen()
            left = self._catalogue.one(id)
            if left is not None and left.gone and admission.by_owner(voice):
                record = left.record  # a crash left its file
            else:
                record = self.get(id, voice)
            if refusal := admission.may_change(voice, record):
                raise Refused(refusal)
            plan = self._oblivion(record, voice)
            for each in plan.gone:
                plan.texts += self._catalogue.logged(each.key) if each.kind == "fact" else []
            plan.texts = list(dict.fromkeys(plan.texts))
            first(plan.texts)
            self._pen.unlog(plan.gone)
            for changed, stat in plan.cut:
                with suppress(Changed):
                    self._pen.keep(changed, "update", voice.turn, seen=stat)
            self._pen.remove(plan.gone, "delete", voice.turn)
            for again, stat in plan.again:
                with suppress(Changed):
                    self._pen.keep(again, "carry", voice.turn, seen=stat)
            self._catalogue.index.forget([each.id for each in plan.gone])
            return plan.texts

    def _oblivion(self, record: MemoryRecord, voice: Voice) -> Plan:
        alike = self._catalogue.alike(text.digest(record.text)) if text.lines(record.text) else []
        same = [each.record for each in alike if not admission.may_change(voice, each.record)]
        return planned([record, *(each for each in same if each.id != record.id)], self._catalogue, voice)

    # ── the owner's word ──

    def approve(self, id: str, *, sha256: str | None = None) -> MemoryRecord:
        """The owner says yes to this text: it is active, and trusted as theirs. A profile's text is appended to
        user_profile.md, a fact's goes to MEMORY.md. With `sha256` (`text.digest`) only if it is still that text."""
        with self._lock:
            self._catalogue.freshen()
            held = self._catalogue.one(id)
            if held is None or held.gone:
                raise NotFound(f"there is no memory {id!a}", hint="clawd memory pending")
            record, digest = held.record, text.digest(held.record.text)
            if record.kind == "day":
                raise UsageError(f"{id} is a day's log, not one memory: approve what it is about")
            if sha256 is not None and digest != sha256:
                raise Refused(f"{id} has another text by now", hint=f"clawd memory read {id}, then approve it again")
            approved = replace(record, status="active", trust=1.0, taint=1.0)
            if record.kind == "profile":
                self._pen.promote(approved, lambda: self._pen.profile(approved.text))
            elif record.id.startswith("fp_"):
                approved = self._approve_fact(approved)
            elif record.file == keyed.FACTS or (id.startswith("file:") and not record.file.startswith(QUARANTINE)):
                self._pen.note(approved, "approve", known=True)
            else:
                if id.startswith("file:"):
                    approved = replace(approved, id=self._id(record.kind, f"{id} {digest}"))
                approved = self._pen.keep(approved, "approve", seen=held.stat, known=True)
            old = self._catalogue.one(record.supersedes) if record.supersedes and record.kind != "fact" else None
            if old is not None:
                self._supersede(old)
            return approved

    def _approve_fact(self, proposal: MemoryRecord) -> MemoryRecord:
        now = self._clock.now().astimezone()
        fact = replace(proposal, id=f"fact:{proposal.key}", updated=now, file=keyed.FACTS, supersedes=None)
        old = self._catalogue.one(fact.id)
        done = old is not None and not old.gone and old.record.text == fact.text and old.record.trust == 1.0

        def move() -> None:
            if not done:
                self._pen.set_fact(fact, "approve", known=True)

        self._pen.promote(proposal, move)
        return fact

    def reject(self, id: str) -> None:
        """No: its file is gone, its text is known. Raises NotFound, UsageError."""
        with self._lock:
            self._catalogue.freshen()
            held = self._catalogue.one(id)
            if held is None:
                raise NotFound(f"there is no memory {id!a}", hint="clawd memory pending")
            if not held.gone and held.record.status not in ("proposed", "quarantined"):
                raise UsageError(f"{id} does not wait for anything", hint=f"clawd memory delete {id}")
            self._pen.remove([held.record], "reject")

    def quarantine(self, id: str) -> MemoryRecord:
        """Nobody finds it any more; its text stays so wherever it is moved. Raises NotFound, UsageError."""
        with self._lock:
            record = replace(self.get(id), status="quarantined")
            if record.kind == "day":
                raise UsageError(f"{id} is a day's log, not one memory: quarantine what it is about")
            held = self._catalogue.one(id)
            assert held is not None
            if record.file == keyed.FACTS or id.startswith("file:"):
                self._pen.note(record, "quarantine", known=True)
                return record
            return self._pen.keep(record, "quarantine", seen=held.stat, known=True)

    def trust(self, path: Path) -> MemoryRecord:
        """A file of this memory is the owner's own word as it stands. Raises NotFound, UsageError."""
        with self._lock:
            self._catalogue.look()
            try:
                file = (path.parent.resolve() / path.name).relative_to(self.root.resolve()).as_posix()
            except ValueError:
                raise UsageError(f"{path} is no file of {self.root}") from None
            found = [each.record.id for each in self._catalogue.of_file(file)]
            if not found:
                raise NotFound(f"{path} has no memory", hint="clawd memory list")
            if len(found) > 1 or found[0].startswith("day:"):
                raise UsageError(f"{path} has more than one memory", hint="clawd memory approve fact:KEY")
            return self.approve(found[0])

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    # ── what is known ──

    def _id(self, kind: str, key: str) -> str:
        seed = key or f"{self._clock.now().isoformat()} {os.urandom(8).hex()}"
        return f"{PREFIXES[kind]}_{_code(f'{self.group} {kind} {seed}')}"

    def _stamps(self, id: str) -> list[Stamp]:
        return self._catalogue.index.read(lambda db: Standing(db, self.group).of(id))

    def _marked(self, said: str) -> Marked:
        digest = text.digest(said)
        return self._catalogue.index.read(lambda db: Standing(db, self.group).marked(digest, lambda: text.lines(said)))

    def _lifts(self, said: str, voice: Voice) -> bool:
        """Whether this write must say by which marks its text was known, for they hold no more."""
        return admission.by_owner(voice) and self._marked(said) != Marked()


_FREE = ("file:MEMORY.md", "file:INDEX.md")
_FORGOTTEN = "this was forgotten: only the owner can keep it again"


def _same(held: Held | None, seen: MemoryRecord) -> bool:
    """Whether a memory is still what somebody saw: its text, and what is thought of it."""
    if held is None or held.gone or text.digest(held.record.text) != text.digest(seen.text):
        return False
    now = held.record
    return (now.status, now.trust, now.taint, now.private) == (seen.status, seen.trust, seen.taint, seen.private)


def _code(seed: str) -> str:
    """Ten letters and digits of a hash."""
    number = int.from_bytes(hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    return "".join("0123456789abcdefghijklmnopqrstuvwxyz"[number // 36**place % 36] for place in range(10))
