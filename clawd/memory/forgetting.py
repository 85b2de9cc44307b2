"""What goes with a memory that is forgotten.

What was derived from it goes too, but for what says line by line where it comes from (`<!-- ep_… -->` at a line's end):
that loses those lines. Where other memories gave way to something that goes, they hold again. What the voice may not
change stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clawd.memory import admission
from clawd.memory.protocol import Voice
from clawd.memory.record import MemoryRecord

if TYPE_CHECKING:
    from clawd.memory.catalogue import Catalogue

_LINED = re.compile(r"<!-- (\S+) -->[ \t]*$")
_DATED = re.compile(r"- [0-9]{4}-[0-9]{2}-[0-9]{2}: ")


@dataclass(slots=True)
class Plan:
    """What goes; what is left of others (`cut`) and what holds `again`, each with the stat of its file; the texts."""

    gone: list[MemoryRecord] = field(default_factory=list)
    cut: list[tuple[MemoryRecord, str]] = field(default_factory=list)
    again: list[tuple[MemoryRecord, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def planned(first: Sequence[MemoryRecord], kept: Catalogue, voice: Voice) -> Plan:
    """Of these memories, which the voice may forget."""
    gone = {each.id: each for each in first}
    cut = dict[str, tuple[MemoryRecord, str]]()
    todo = list(first)
    for record in todo:  # it grows
        for held in kept.derived(record.id):
            derived = held.record
            if derived.id in gone or admission.may_change(voice, derived):
                continue
            lines, _ = lined(derived.text, gone)
            if lines is None:
                gone[derived.id] = derived
                cut.pop(derived.id, None)
                todo.append(derived)
            elif lines != derived.text:
                sources = tuple(each for each in derived.derived_from if each not in gone)
                cut[derived.id] = replace(derived, text=lines, derived_from=sources), held.stat
    again = dict[str, tuple[MemoryRecord, str]]()
    for record in gone.values():
        for id in record.derived_from if record.status == "active" else ():  # else nothing gave way to it
            source = kept.one(id)
            if source is None or id in gone or source.record.status != "superseded":
                continue
            if admission.may_change(voice, source.record) or {*kept.superseding(id)} - {*gone}:
                continue
            merged = (each.record for each in kept.derived(id) if each.record.kind == source.record.kind)
            if all(each.id in gone or each.status != "active" for each in merged):
                again[id] = replace(source.record, status="active"), source.stat
    texts = [text for each in gone.values() for text in (each.text, each.said.quote if each.said else "") if text]
    for changed, _ in cut.values():
        held_now = kept.one(changed.id)
        texts += lined(held_now.record.text, gone)[1] if held_now is not None else []
    return Plan(list(gone.values()), list(cut.values()), list(again.values()), list(dict.fromkeys(texts)))


def line_of(summary: MemoryRecord, id: str) -> MemoryRecord | None:
    """What a summary has of a memory whose place it took; of that file it is not the whole."""
    for line in lined(summary.text, {id})[1]:
        said = _DATED.sub("", line, count=1)
        return replace(summary, id=id, text=said, derived_from=(), supersedes=None, tags=(), said=None, whole=False)
    return None


def lined(text: str, gone: Collection[str]) -> tuple[str | None, list[str]]:
    """What is left of a text without the lines that come from these, and those lines. None where nothing that comes
    from another is left, or where it does not say what comes from where."""
    left, out, others = list[str](), list[str](), False
    for line in text.split("\n"):
        match = _LINED.search(line)
        if match and match[1] in gone:
            out.append(line[: match.start()].strip())
        else:
            left.append(line)
            others = others or match is not None
    return ("\n".join(left) if others else None), out
