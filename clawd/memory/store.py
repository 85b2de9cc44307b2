"""The memory of one group: its files, what the trust ledger says of them, and the index over both.

The files are the truth, and a person's: they are read anew before anything is decided or written. What is written goes
in this order: the trust ledger, the file, the index; a crash leaves a line too many, or an index that the next look
mends. Calls block; any thread may make them, one at a time works. They raise StorageError.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from clawd import faults
from clawd.errors import NotFound, Refused, StorageError, UsageError
from clawd.memory import admission, keyed, text
from clawd.memory.bringing import Bringing
from clawd.memory.forgetting import Plan, planned
from clawd.memory.offer import RESERVED, Offer, offered
from clawd.memory.pen import Changed, Pen
from clawd.memory.protocol import Heard, Voice
from clawd.memory.provenance import Op, Stamp
from clawd.memory.reading import OWNER, ReadMemory
from clawd.memory.record import PREFIXES, QUARANTINE, MemoryRecord, Status
from clawd.memory.rows import Held
from clawd.memory.standing import Marked, Standing
from clawd.memory.text import normal
from clawd.trust import Origin

__all__ = ["OWNER", "GroupMemory", "Written"]
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a write: `why` says what it waits for; `conflicts` names a memory that it contradicts."""

    id: str
    status: Status
    trust: float
    why: str = ""
    conflicts: str | None = None


class GroupMemory(ReadMemory):
    """`root` is the group's `memory/`, `state` the home's."""

    @property
    def _pen(self) -> Pen:
        return Pen(self.root, self.group, self._clock, self._ledger, self._catalogue)

    # ── writing ──

    def put(self, content: str, kind: str, metadata: Mapping[str, Any], voice: Voice, *, key: str = "",
            wait: bool = False) -> Written:  # fmt: skip
        """Keep something. The same `key` (what makes this write the same one, like a turn and its arguments) is the
        same memory, however often; with `wait` not before the owner says yes. Raises UsageError, NotFound, Refused."""
        offer = offered(content, kind, metadata, voice)
        if not voice.sees(voice.namespace):  # a shared one that its group does not list
            raise Refused(f"the group {self.group} does not list {voice.namespace}, so nothing is kept there",
                          hint=f'write shared = ["{voice.namespace}"] in its group.toml')  # fmt: skip
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
        if replaced is not None:  # who saw the one sees the other
            voice = replace(voice, namespace=replaced.namespace)
        verdict = self._verdict(offer, voice, lineage, replaced, wait)
        of = lineage if replaced is None else [*lineage, replaced]
        record = self._record(id, offer, voice, of, verdict)
        self._pen.keep(record, "write", voice.turn, known=self._lifts(record.text, voice))
        return self._again(record, verdict)

    def _put_fact(self, offer: Offer, voice: Voice, key: str, wait: bool) -> Written:
        """A value takes the place of another where it is trusted as much; else it lies in quarantine/ and waits."""
        fact, proposal = f"fact:{offer.key}", self._id("fact", key)
        if key and (before := self._catalogue.one(proposal)) is not None and not before.gone:
            return self._again(before.record)
        held = self._catalogue.one(fact)
        old = held.record if held is not None and not held.gone else None
        if old is not None and old.namespace != voice.namespace:
            if voice.origin is not Origin.OWNER:
                raise Refused(f"{offer.key} is kept in another namespace: choose another key")
            voice = replace(voice, namespace=old.namespace)
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
            record = replace(self._record(fact, offer, voice, lineage, verdict), file=keyed.FACTS, said=None)
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
        now, happened = self._clock.now().astimezone(), offer.event_time
        cited = _cited(offer, voice)
        if cited and verdict.trust < self.floor:  # the quote will be shown alone: what a lesser turn says of it is not
            happened = cited[0].at
        private = voice.private or any(each.private for each in lineage) or any(each.private for each in cited)
        return MemoryRecord(
            id, offer.kind, offer.text, now, now, happened or now, voice.source, voice.origin, verdict.trust,  # type: ignore[arg-type]
            verdict.status, verdict.taint, offer.derived_from, offer.supersedes, offer.tags, offer.said,
            private, offer.key, namespace="" if _is_of_all(offer) else voice.namespace,
        )  # fmt: skip

    def _again(self, record: MemoryRecord, verdict: admission.Admission | None = None) -> Written:
        """What became of a write that is done, and what is left of it."""
        conflicts = None
        if record.supersedes and (held := self._catalogue.one(record.supersedes)) is not None:
            if verdict is None:
                quoted = record.said is not None and (record.trust < admission.CLEAN or record.taint < 1)
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
        self, id: str, content: str, voice: Voice, *, key: str = "", said: Mapping[str, Any] | None = None,
        edited: bool = False,
    ) -> Written:  # fmt: skip
        """Replace a memory's text: in place, or beside it as a proposal where the voice has less trust; `edited` has
        some of the old one in it. Raises UsageError, NotFound, Refused."""
        with self._lock:
            record = self.get(id, voice)
            if record.kind == "day" or id in _FREE or not record.whole:
                raise UsageError(f"{record.file} is changed with an editor")
            voice = replace(voice, namespace=record.namespace)
            more: dict[str, Any] = {"said": said} if said else {}
            if id == f"fact:{record.key}":
                return self.put(content, "fact", {"key": record.key, **more}, voice, key=key)
            own = admission.by_owner(voice)
            if record.status != "active" and not (own and record.status == "proposed"):
                raise Refused(f"{id} is {record.status}: the owner decides about it", hint=f"clawd memory approve {id}")
            about = {"key": record.key} if record.kind == "fact" else {}
            offer = offered(content, record.kind, {**about, **more}, voice)
            verdict = self._verdict(offer, voice, [record] if edited else (), record, False)
            if not (verdict.status == "active" and verdict.replaces) and not (own and record.status == "proposed"):
                more |= {"supersedes": id, "derived_from": [id] if edited else []}
                return self.put(content, record.kind, more, voice, key=key and f"{id} {key}")
            for _ in range(_TRIES):
                held = self._catalogue.one(id)
                if held is None:
                    raise NotFound(f"there is no memory {id!a}", hint="clawd memory list")
                changed = replace(
                    held.record, text=offer.text, updated=self._clock.now().astimezone(), origin=voice.origin,
                    source=voice.source, trust=verdict.trust, taint=verdict.taint, said=offer.said,
                    status=verdict.status,
                    private=record.private or voice.private or any(each.private for each in _cited(offer, voice)),
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

    @contextmanager
    def bringing(self, voice: Voice) -> Iterator[Bringing]:
        """To take in what was kept elsewhere, for a voice that vouches for it."""
        with self._lock:
            self._catalogue.freshen()
            yield Bringing(
                self.root, self._clock, self._pen, self._catalogue, voice, self.floor, self._marked, self._stamps
            )

    def hold(self) -> None:
        """Until `release` much is written, each in a call of its own: what others write beside it is seen after that,
        or once it is named to `look`."""
        with self._lock:
            self._catalogue.hold()

    def release(self) -> None:
        with self._lock:
            self._catalogue.release()

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

    def forget(self, id: str, voice: Voice, *, first: Callable[[list[str]], object] = lambda texts: None) -> Plan:
        """Remove a memory, and what was derived from it. Gives what went; `first` is called with its texts before
        anything is removed, to forget them elsewhere. Raises NotFound, Refused."""
        with self._lock:
            self._catalogue.freshen()
            left = self._catalogue.one(id)
            if left is not None and left.gone and admission.by_owner(voice):
                record = left.record  # a crash left its file
            else:
                record = self.get(id, voice)
                record = record if left is not None else replace(record, file="")  # a line of a summary
            if refusal := admission.may_change(voice, record):
                raise Refused(refusal)
            plan = self._oblivion(record, voice)
            for each in plan.gone:
                plan.texts += self._catalogue.logged(each.key) if each.kind == "fact" else []
            plan.texts = list(dict.fromkeys(plan.texts))
            if admission.wholly_owners(voice):  # else who writes what the owner said and deletes it had that deleted
                first(plan.texts)
                self._pen.unlog(plan.gone)
            for changed, stat in plan.cut:
                try:
                    self._pen.keep(changed, "update", voice.turn, seen=stat)
                except Changed:  # what is to be forgotten stands in it, too
                    raise StorageError(f"{changed.file} is being changed just now", hint="forget it again") from None
            self._pen.remove(plan.gone, "delete", voice.turn)
            for again, stat in plan.again:
                with suppress(Changed):
                    self._pen.keep(again, "carry", voice.turn, seen=stat)
            self._catalogue.index.forget([each.id for each in plan.gone])
            if self._outer is not None:
                self._outer.forget(self._catalogue.index)
            return plan

    def _oblivion(self, record: MemoryRecord, voice: Voice) -> Plan:
        alike = self._catalogue.alike(text.digest(record.text)) if text.lines(record.text) else []
        same = [each.record for each in alike if not admission.may_change(voice, each.record)]
        if not admission.wholly_owners(voice):
            same = [each for each in same if voice.sees(each.namespace)]
        if record.status != "active":  # somebody may have copied it from what is believed, which stays
            same = [each for each in same if admission.seen_trust(each) <= admission.seen_trust(record)]
        plan = planned([record, *(each for each in same if each.id != record.id)], self._catalogue, voice)
        gone = {each.id for each in plan.gone}
        if any(each.record.status == "active" and each.record.id not in gone for each in alike):
            plan.texts.remove(record.text)
        return plan

    # ── the owner's word ──

    def approve(self, id: str, *, sha256: str | None = None) -> MemoryRecord:
        """The owner says yes to this text: it is active, and trusted as theirs. A profile's text is appended to
        user_profile.md, a fact's goes to MEMORY.md. With `sha256` (`text.digest`) only if it is still that text."""
        with self._lock:
            self._catalogue.freshen()
            held = self._catalogue.one(id)
            if held is None:
                raise NotFound(f"there is no memory {id!a}", hint="clawd memory pending")
            record, digest = held.record, text.digest(held.record.text)
            if record.kind == "day":
                raise UsageError(f"{id} is a day's log, not one memory: approve what it is about")
            if sha256 is not None and digest != sha256:
                raise Refused(f"{id} has another text by now", hint=f"clawd memory read {id}, then approve it again")
            approved = replace(record, status="active", trust=1.0, taint=1.0)
            if not self._stamps(id):  # it is the owner who says where it is, too
                approved = replace(approved, namespace=held.raw.fields.get("memory_namespace", ""))
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
        if old is not None and not old.gone:
            fact = replace(fact, namespace=old.record.namespace)
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
            if held is None:
                raise UsageError(f"{id} is a line of {record.file}: change that with an editor")
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


def _is_of_all(offer: Offer) -> bool:
    """Whether it is a fact whose key is no namespace's, whoever wrote it."""
    return offer.kind == "fact" and normal(offer.key) in RESERVED


def _cited(offer: Offer, voice: Voice) -> list[Heard]:
    """The message that it cites."""
    return [each for each in voice.heard if offer.said is not None and each.inbound == offer.said.inbound]


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
