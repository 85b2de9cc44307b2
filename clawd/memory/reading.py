"""The memory of one group as it is read: what is found, shown and listed, and for whom. A person's edits are taken up
before anything is said. Calls block; any thread may make them, one at a time works. They raise StorageError.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from clawd.clock import Clock
from clawd.errors import NotFound, Refused, StorageError
from clawd.memory import across, admission, forgetting, judgement
from clawd.memory.catalogue import Catalogue
from clawd.memory.judgement import Entry
from clawd.memory.protocol import MemoryHit, Voice
from clawd.memory.provenance import TrustLedger
from clawd.memory.record import MemoryRecord
from clawd.memory.rows import Held
from clawd.memory.standing import Standing
from clawd.scopes import narrowed
from clawd.search import embedders, tables
from clawd.search.document import Found, Where
from clawd.search.embedders import Embedder
from clawd.search.index import Index
from clawd.trust import Origin

if TYPE_CHECKING:
    from clawd.memory.mem0 import Mem0

OWNER = Voice()
_TRIES = 5


class ReadMemory:
    """`root` is the group's `memory/`, `state` the home's."""

    def __init__(
        self,
        root: Path,
        state: Path,
        group: str,
        clock: Clock,
        *,
        backend: str = "file",
        floor: float = 0.5,
        mem0: str | None = None,
    ) -> None:
        self.root, self.group, self.backend, self.floor, self.mem0 = root, group, backend, floor, mem0
        self._clock, self._ledger = clock, TrustLedger(state / "trust.jsonl")
        self._file = state / "index" / f"{group}.db"
        self._lock = threading.RLock()
        self._opened: Catalogue | None = None
        self._amiss = ""
        self._home, self._outer = state.parent, cast("Mem0 | None", None)

    @property
    def _catalogue(self) -> Catalogue:
        if self._opened is None:
            embedder, self._amiss = _embedder() if self.backend in ("vector", "hybrid") else (None, "")
            if self.backend == "mem0":
                from clawd.memory import mem0

                self._outer, self._amiss = mem0.opened(self.mem0, self._home, self.group)
            self._opened = Catalogue(self.root, self._file, self.group, self._ledger, self.floor, embedder)
        return self._opened

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None
            if self._outer is not None:
                self._outer.close()
                self._outer = None

    # ── looking ──

    def look(self, paths: Sequence[str] | None = None) -> list[str]:
        """Bring the index to what the files say: all of them, or these paths beneath `root`. Gives
        sentences on files that cannot be read."""
        with self._lock:
            found = self._catalogue.look(paths)
            return [*found, self._amiss] if self._amiss else found

    def reindex(self) -> int:
        """From nothing; gives how many documents there are."""
        with self._lock:
            return self._catalogue.reindex()

    def get(self, id: str, voice: Voice = OWNER) -> MemoryRecord:
        """Raises NotFound, also for what this voice may not see; Refused for what only the owner may."""
        if (theirs := across.parted(id)) is not None:
            raise Refused(f"{id} is the group {theirs[0]}'s: it is read as it is, and changed there alone")
        with self._lock:
            self._catalogue.freshen()
            record = self._seen(self._catalogue.one(id), voice) or self._summarised(id, voice)
        if record is None:
            raise NotFound(f"there is no memory {id!a}", hint="clawd memory list")
        if record.status == "quarantined" and voice.origin is not Origin.OWNER:
            raise Refused(f"{id} is quarantined: only the owner reads or changes it")
        return record

    def entries(self, id: str) -> list[Entry]:
        """What of a day's log is there for the owner, each entry with how far it is trusted; none of what is no day."""
        with self._lock:
            self._catalogue.freshen()
            held = self._catalogue.one(id)
        return [] if held is None or held.gone else list(held.entries)

    def _summarised(self, id: str, voice: Voice) -> MemoryRecord | None:
        summaries = (self._seen(each, voice) for each in self._catalogue.derived(id))
        return next((line for each in summaries if each and (line := forgetting.line_of(each, id))), None)

    def every(
        self, voice: Voice = OWNER, *, kind: str | None = None, statuses: frozenset[str] = frozenset({"active"})
    ) -> list[MemoryRecord]:
        """All records that this voice sees, as it sees them, the newest last; facts and days too."""
        with self._lock:
            self._catalogue.look()
            seen = (self._seen(each, voice) for each in self._catalogue.all(statuses))
            found = [each for each in seen if each is not None and kind in (None, each.kind)]
        return sorted(found, key=lambda each: (each.event_time, each.id))

    def pending(self) -> list[MemoryRecord]:
        """What waits for the owner's word, the oldest first."""
        with self._lock:
            self._catalogue.freshen()
            found = [each.record for each in self._catalogue.all(frozenset({"proposed"}))]
        return sorted(found, key=lambda each: (each.created, each.id))

    def find(self, query: str, voice: Voice, *, k: int = 10, kinds: frozenset[str] = frozenset(),
             since: float | None = None, until: float | None = None, untrusted: bool = False,
             lowering: bool = True, spaces: Collection[str] | None = None
             ) -> tuple[list[MemoryHit], list[str]]:  # fmt: skip
        """The hits and the lanes. Without `lowering` nothing is found that would lower the voice's taint. `spaces`: the
        namespaces that are searched, of those that the voice reads."""
        now = self._clock.now().timestamp()
        with self._lock:
            self._catalogue.freshen()
            where = Where(
                kinds, frozenset({"active", "proposed"} if untrusted else {"active"}), 0.0 if untrusted else self.floor,
                0.0 if lowering else voice.taint, not voice.others, since, until, self._read_by(voice, spaces),
            )  # fmt: skip
            for _ in range(_TRIES):
                index = self._catalogue.index
                found = self._search(index, query, 2 * k, where, now)
                texts = list(dict.fromkeys(hit.document.text for hit in found.hits))[:k]
                best = [hit for hit in found.hits if hit.document.text in texts]
                held, changed = self._catalogue.some(hit.document.id for hit in best)
                if not changed:
                    break
        hits = dict[str, MemoryHit]()
        for hit in best:
            document = hit.document
            if (record := self._seen(held.get(document.id), voice)) is not None:
                known = hits.get(document.text)
                if known is None or (known.record.kind, record.kind) == (
                    "day",
                    "fact",
                ):  # it stands in the day's log, too
                    score = known.score if known else hit.score
                    hits[document.text] = MemoryHit(record, document.text, score, document.trust, hit.parts)
        return list(hits.values())[:k], found.lanes

    def _read_by(self, voice: Voice, asked: Collection[str] | None) -> frozenset[str]:
        of = self._catalogue.index.read(tables.spaces) if voice.origin is Origin.OWNER else voice.spaces
        return of if asked is None else narrowed(of, asked)

    def _search(self, index: Index, query: str, k: int, where: Where, now: float) -> Found:
        if self._outer is not None:
            return self._outer.search(index, query, k, where, now)
        if self.backend != "mem0":
            return index.search(query, k, where, method=self.backend, now=now)  # type: ignore[arg-type]
        found = index.search(query, k, where, now=now)
        return Found(found.hits, [*found.lanes, "mem0: not there"])

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
        record = held.seen(voice)
        alone = record is not None and admission.shown(record, self.floor)[0] is not record.text
        if record is None or not alone or voice.origin is Origin.OWNER:
            return record
        return replace(record, kind=admission.QUOTED, key="", tags=())  # these are an agent's words, too


@lru_cache(maxsize=1)
def _embedder() -> tuple[Embedder | None, str]:
    """One for all groups, and why there is none though there should be."""
    try:
        return embedders.embedder(), ""
    except StorageError as error:
        return None, str(error)
