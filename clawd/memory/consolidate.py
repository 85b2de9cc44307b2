"""Consolidate: what a group remembers twice, what was corrected, and what is long past.

`plan` is pure and gives the same for the same records; `apply` carries it out, step by step, each whole. Records are
told apart by trust, taint, scope and kind before any two of them are joined: nothing gets into what is trusted more
than itself. What is proposed or quarantined is never looked at, a file that a person made never touched. What gives way
keeps its file, with the status superseded, but for past episodes, which become lines of a summary of their month.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from clawd.memory.admission import CLEAN, FLOOR, seen_trust
from clawd.memory.likeness import Shape, contradictions, duplicates, shape
from clawd.memory.record import FOLDERS, PREFIXES, MemoryRecord
from clawd.memory.text import normal
from clawd.trust import TRUST, Origin

if TYPE_CHECKING:
    from clawd.memory.store import GroupMemory

Action = Literal["merge", "supersede", "summarise", "conflict"]
STALE = timedelta(days=60)
RECALLED = timedelta(days=30)  # what was shown in this time is not past
SOURCE = "consolidation"  # of summaries; nobody else's records have it
OWNER_LEVEL = 0.9
_LINES = 100  # of one summary
_LINE = 240  # characters of a text in it
_LASTING = frozenset(("entity", "fact", "procedure"))  # say what is so; an episode, what once was
_SERIES = 3  # contradictions of one record: what has more is one of a series, like measurements
_SENTENCES = re.compile(rf".{{,{_LINE // 2}}}?[.!?。！？](?:\s.{{,{_LINE // 2}}}?[.!?。！？])?(?=\s|$)")
_LINED = re.compile(r"<!-- (\S+) -->$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """`ids` give way to `into`, of a conflict neither does. `kept` is `into` as it is to be, None where it stays as it
    is. `seen`: all that this rests on, as it was."""

    action: Action
    ids: tuple[str, ...]
    into: str | None
    why: str
    seen: tuple[MemoryRecord, ...] = ()
    kept: MemoryRecord | None = None

    def shown(self) -> dict[str, Any]:
        return {"action": self.action, "ids": list(self.ids), "into": self.into, "why": self.why}


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...] = ()

    @property
    def changes(self) -> list[Step]:
        return [step for step in self.steps if step.action != "conflict"]

    @property
    def conflicts(self) -> list[Step]:
        return [step for step in self.steps if step.action == "conflict"]


@dataclass(frozen=True, slots=True)
class Partition:
    """What may be joined at all has one of these in common. `trust` and `taint` are classes, not figures."""

    trust: int
    taint: int
    private: bool
    kind: str
    quote: str
    hand: bool
    namespace: str


def partition(record: MemoryRecord, floor: float = FLOOR) -> Partition:
    quote = normal(record.said.quote) if record.said else ""
    return Partition(
        level(record.trust, floor), level(record.taint, floor), record.private, record.kind, quote, _by_hand(record),
        record.namespace,
    )  # fmt: skip


def level(trust: float, floor: float = FLOOR) -> int:
    """The class of a trust: the owner's, clean, above the floor, below it."""
    return sum(trust >= least for least in sorted({OWNER_LEVEL, CLEAN, floor}))


def plan(
    records: Iterable[MemoryRecord], now: datetime, *, recalled: Collection[str] = (), floor: float = FLOOR
) -> Plan:
    """What is to be done with a group's memories. `recalled`: ids of those that were shown of late."""
    known = sorted(
        (each for each in records if each.status == "active" and each.kind in (*FOLDERS, "fact")),
        key=lambda each: (each.event_time, each.created, each.id),
    )
    steps = _left_over(known)
    plain = _without(steps, (each for each in known if each.source != SOURCE))
    shapes = Shapes()
    steps += _corrected(plain, shapes, floor)
    # What is in question is not joined with anything: its trust is to stay what the question was about.
    files = _without(steps, (each for each in plain if each.kind in FOLDERS))
    steps += _past(files, now, frozenset(recalled), floor)
    steps += _doubled(_without(steps, files), shapes, floor)
    return Plan(tuple(steps))


def apply(store: GroupMemory, plan: Plan) -> list[Step]:
    """Carry it out; gives the steps that were done. One whose memories changed meanwhile is dropped: the next plan sees
    them as they are. Blocks. Raises OSError, StorageError."""
    return [step for step in plan.changes if done(store, step)]


def done(store: GroupMemory, step: Step) -> bool:
    return store.settle(step.seen, step.ids, step.kept, moved=step.action == "summarise")


def changed(steps: Iterable[Step]) -> int:
    """How many memories gave way."""
    return sum(len(step.ids) for step in steps if step.action != "conflict")


# ── the steps of a plan ──


def _left_over(known: Sequence[MemoryRecord]) -> list[Step]:
    """Episodes that stand in a summary already: it was written, and then everything ended."""
    here = {each.id: each for each in known}
    steps = []
    for summary in known:
        if summary.source != SOURCE:
            continue
        lined = set(_LINED.findall(summary.text))
        if left := [here[id] for id in summary.derived_from if id in lined and id in here]:
            why = "they stand in this summary"
            steps.append(Step("summarise", _ids(left), summary.id, why, (summary, *left)))
    return steps


def _corrected(known: Sequence[MemoryRecord], shapes: Shapes, floor: float) -> list[Step]:
    """What a newer record contradicts: superseded where that one says so and may, else reported."""
    here = {each.id: each for each in known}
    said = [(here[each.supersedes], each) for each in known if each.supersedes in here]
    found = [(old, new, "says that it takes its place", True) for old, new in said if old is not new]
    # The newer one is the one that was written later, or of the same second the one that says so.
    heard = sorted(
        (each for each in known if each.kind != "reflection"),
        key=lambda each: (each.created, shapes[_heard(each, floor)].corrects, each.event_time, each.id),
    )
    often: dict[str, int] = {}
    for first, second, what in contradictions([shapes[_heard(each, floor)] for each in heard]):
        old, new = heard[first], heard[second]
        says = shapes[_heard(new, floor)].corrects
        found.append((old, new, f"says otherwise ({what})", says))
        often[old.id], often[new.id] = often.get(old.id, 0) + 1, often.get(new.id, 0) + 1
    steps: list[Step] = []
    gone: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    told: dict[str, int] = {}
    for old, new, how, says in sorted(found, key=lambda each: (each[1].created, each[1].id)):
        if old.id in gone or new.id in gone or (old.id, new.id) in pairs:
            continue
        if says and _may_supersede(old, new):
            gone.add(old.id)
            steps.append(Step("supersede", (old.id,), new.id, f"the newer one {how}", (new, old)))
            continue
        series = max(often.get(old.id, 0), often.get(new.id, 0)) > _SERIES
        few = told.get(old.id, 0) < _SERIES
        if says or (_is_owners(old, new, floor) and few) or (_last(old, new) and not series):
            told[old.id] = told.get(old.id, 0) + 1
            pairs.add((old.id, new.id))
            steps.append(Step("conflict", (old.id, new.id), None, f"the newer one {how}", (old, new)))
    return steps


def _may_supersede(old: MemoryRecord, new: MemoryRecord) -> bool:
    """What is shown of a citation may be the owner's, but what the agent wrote beside it is not: its own trust counts
    against what is seen of the other."""
    return (
        (new.kind, new.private, new.namespace) == (old.kind, old.private, old.namespace)
        and new.kind in FOLDERS
        and not _by_hand(old)
        and new.created >= old.created
        and new.trust >= seen_trust(old)
    )


def _is_owners(old: MemoryRecord, new: MemoryRecord, floor: float) -> bool:
    """Whether one is the owner's own word, and the other somebody else's."""
    levels = {level(seen_trust(each), floor) for each in (old, new)}
    return len(levels) > 1 and level(1.0, floor) in levels


def _last(old: MemoryRecord, new: MemoryRecord) -> bool:
    return {old.kind, new.kind} <= _LASTING


def _doubled(known: Sequence[MemoryRecord], shapes: Shapes, floor: float) -> list[Step]:
    steps = []
    for of, records in _partitions(known, floor).items():
        best = sorted(records, key=lambda each: (-each.trust, -len(each.text), each.created, each.id))
        for group in duplicates([shapes[each.text] for each in best]):
            first, *others = (best[number] for number in group)
            if of.hand:
                why = "they say the same, and a person made both: they are theirs to merge"
                steps.append(Step("conflict", _ids([first, *others]), None, why, (first, *others)))
            else:
                steps.append(_merge(first, others, "they say the same"))
    return steps


def _merge(kept: MemoryRecord, others: Sequence[MemoryRecord], why: str) -> Step:
    all = (kept, *others)
    lineage = dict.fromkeys([*kept.derived_from, *(id for each in others for id in (each.id, *each.derived_from))])
    lineage.pop(kept.id, None)
    merged = replace(
        kept,
        trust=min(each.trust for each in all),
        taint=min(each.taint for each in all),
        derived_from=tuple(lineage),
    )
    return Step("merge", _ids(others), kept.id, why, all, merged)


def _past(known: Sequence[MemoryRecord], now: datetime, recalled: Collection[str], floor: float) -> list[Step]:
    past = [each for each in known if each.kind == "episode" and each.event_time < now - STALE
            and each.origin is not Origin.OWNER and each.said is None and not _by_hand(each)
            and each.id not in recalled]  # fmt: skip
    steps = []
    for records in _partitions(past, floor).values():
        months: dict[str, list[MemoryRecord]] = {}
        for each in records:
            months.setdefault(f"{each.event_time:%Y-%m}", []).append(each)
        for month, of_it in sorted(months.items()):
            starts = range(0, len(of_it), _LINES)
            steps += [_summary(month, of_it[at : at + _LINES], now) for at in starts]
    return steps


def _summary(month: str, of: Sequence[MemoryRecord], now: datetime) -> Step:
    """The same episodes give the same id: begun again, it is the same summary."""
    code = hashlib.sha256(" ".join([month, *_ids(of)]).encode()).hexdigest()[:10]
    lines = [f"- {each.event_time:%Y-%m-%d}: {_cut(each.text)} <!-- {each.id} -->" for each in of]
    lineage = dict.fromkeys([*_ids(of), *(id for each in of for id in each.derived_from)])
    summary = MemoryRecord(
        f"{PREFIXES['episode']}_{code}", "episode", "\n".join([f"# {month}", "", *lines]), now, now,
        max(each.event_time for each in of), SOURCE, min((each.origin for each in of), key=lambda each: TRUST[each]),
        min(each.trust for each in of), taint=min(each.taint for each in of), derived_from=tuple(lineage),
        tags=("summary",), private=of[0].private, namespace=of[0].namespace,
    )  # fmt: skip
    return Step("summarise", _ids(of), summary.id, f"episodes of {month}, long past", tuple(of), summary)


def _cut(text: str) -> str:
    """A sentence or two, on one line, in which nothing passes for a mark of ours."""
    line = " ".join(text.split()).replace("<!--", "(").replace("-->", ")")
    said = _SENTENCES.match(line)
    if said is not None or len(line) <= _LINE:
        return said[0] if said is not None else line
    return line[:_LINE].rsplit(" ", 1)[0] + " …"


# ── with a model ──


def proposed(
    records: Iterable[MemoryRecord],
    merge: Sequence[Sequence[str]],
    supersede: Sequence[tuple[str, str]],
    floor: float = FLOOR,
) -> Plan:
    """What a model's answer comes to: ids alone, and of these only what may be. The longest text is kept; the others
    are superseded, which can be taken back. `supersede`: (old, new)."""
    here = {each.id: each for each in records if each.status == "active" and each.kind in FOLDERS
            and each.source != SOURCE and not _by_hand(each)}  # fmt: skip
    steps: list[Step] = []
    used: set[str] = set()

    def taken(ids: Iterable[str]) -> list[MemoryRecord]:
        """These records, if there are several, each is one, all are in one partition, and none was used before."""
        named = list(dict.fromkeys(ids))
        found = [here[id] for id in named if id in here and id not in used]
        if len(found) < max(2, len(named)) or len({partition(each, floor) for each in found}) > 1:
            return []
        used.update(named)
        return found

    for old, new in supersede:
        if old in here and new in here and _may_supersede(here[old], here[new]) and (pair := taken((old, new))):
            steps.append(Step("supersede", (old,), new, "a model says that it was corrected", (pair[1], pair[0])))
    for ids in merge:
        best = sorted(taken(ids), key=lambda each: (-len(each.text), -each.trust, each.id))
        steps += [_merge(best[0], best[1:], "a model says that they say the same")] if best else []
    return Plan(tuple(steps))


def near(records: Iterable[MemoryRecord], floor: float = FLOOR, most: int = 60) -> list[MemoryRecord]:
    """Records of one partition that are near another of it, at most so many: what a model may be asked about. Of all
    partitions the one with the most of them."""
    found: list[list[MemoryRecord]] = [[]]
    may = [each for each in records if each.status == "active" and each.kind in FOLDERS and each.source != SOURCE
           and not _by_hand(each)]  # fmt: skip
    for of in _partitions(may, floor).values():
        shapes = [shape(each.text) for each in of]
        by: dict[str, list[int]] = {}
        for number, each in enumerate(shapes):
            for word in each.weight:
                by.setdefault(word, []).append(number)
        shared: dict[tuple[int, int], int] = {}
        for numbers in by.values():
            for at, second in enumerate(numbers[:_FEW]):
                for first in numbers[:at]:
                    shared[first, second] = shared.get((first, second), 0) + 1
        close = {number for pair, count in shared.items() if _close(count, *(shapes[each] for each in pair))
                 for number in pair}  # fmt: skip
        found.append([of[number] for number in sorted(close)])
    return max(found, key=len)[:most]


_FEW = 30  # texts with a word in common that are compared for it


def _close(count: int, one: Shape, other: Shape) -> bool:
    return count >= 2 and count >= 0.5 * min(len(one.weight), len(other.weight))


# ── what all of them ask ──


class Shapes(dict[str, Shape]):
    """The shapes of texts, each made once."""

    def __missing__(self, text: str) -> Shape:
        self[text] = made = shape(text)
        return made


def _by_hand(record: MemoryRecord) -> bool:
    return record.origin is Origin.HAND


def _heard(record: MemoryRecord, floor: float) -> str:
    """What is shown of a record, with a fact's key."""
    text = record.said.quote if record.said is not None and record.trust < floor else record.text
    return f"{record.key} {text}" if record.kind == "fact" else text


def _ids(records: Iterable[MemoryRecord]) -> tuple[str, ...]:
    return tuple(each.id for each in records)


def _without(steps: Iterable[Step], records: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """Those that no step is about."""
    busy = {each.id for step in steps for each in step.seen}
    return [each for each in records if each.id not in busy]


def _partitions(records: Iterable[MemoryRecord], floor: float) -> dict[Partition, list[MemoryRecord]]:
    found: dict[Partition, list[MemoryRecord]] = {}
    for each in records:
        found.setdefault(partition(each, floor), []).append(each)
    return found
