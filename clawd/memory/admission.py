"""What becomes of what somebody wants to keep, change or forget: pure decisions over origin, trust and taint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clawd.memory.protocol import Voice
from clawd.memory.record import MemoryRecord, Status
from clawd.trust import TRUST, Origin, Role

CLEAN = 0.7  # a whole lineage at this or above may act by itself
FLOOR = 0.5
QUOTED: Final = "episode"  # the kind of what the owner said, whatever a lesser turn made of it


@dataclass(frozen=True, slots=True)
class Admission:
    """`why` is a sentence on what it waits for, empty where it holds at once. What does not take the place of what it
    was to replace stands beside that."""

    trust: float
    taint: float
    status: Status
    why: str = ""
    replaces: bool = True


def admitted(
    kind: str,
    voice: Voice,
    lineage: Iterable[MemoryRecord] = (),
    *,
    cited: bool = False,
    replaced: MemoryRecord | None = None,
    floor: float = FLOOR,
    most: float = 1.0,
) -> Admission:
    """Of something new. `cited`: it has a quote of the owner's own words, which is trusted as such. `most`: how far the
    same text was trusted before; saying it again raises nothing."""
    lineage = list(lineage)
    taint = min([voice.taint, most, *(each.taint for each in lineage)])
    trust = min([TRUST[voice.origin], voice.taint, most, *(each.trust for each in lineage)])
    # A quote proves that the owner said something, not that it is about a key, or what it would take the place of.
    shown = TRUST[Origin.OWNER] if cited and kind != "fact" else trust
    weight = TRUST[Origin.OWNER] if cited and trust >= CLEAN and wholly_owners(voice) and taint >= 1 else trust
    owner = by_owner(voice)
    if kind == "profile":
        return Admission(trust, taint, "proposed", "it would be in every prompt")
    if kind == "procedure" and not owner:
        return Admission(trust, taint, "proposed", "it is a procedure, and not the owner's own")
    if kind == "reflection" and trust < CLEAN:
        return Admission(trust, taint, "proposed", f"it is a lesson, and trusted at {trust:g} only")
    if replaced is not None and weight < seen_trust(replaced):
        why = f"it contradicts {replaced.id}, which is trusted at {seen_trust(replaced):g}: the owner decides"
        return Admission(trust, taint, "active" if shown > trust else "proposed", why, replaces=False)
    if shown < floor:
        return Admission(trust, taint, "proposed", f"it is trusted at {shown:g} only")
    return Admission(trust, taint, "active")


def by_owner(voice: Voice) -> bool:
    """Whether it is the owner's own hand, not an agent's that acts for them."""
    return voice.origin is Origin.OWNER and voice.taint >= 1


def wholly_owners(voice: Voice) -> bool:
    """Whether it acts for the owner alone, and nothing from outside has reached it."""
    return voice.authority is Role.OWNER and voice.taint >= 1


def seen_trust(record: MemoryRecord) -> float:
    """How far a record is trusted with its quote: what would replace it needs as much."""
    return max(record.trust, TRUST[Origin.OWNER]) if record.said is not None else record.trust


def shown(record: MemoryRecord, floor: float) -> tuple[str, float, float]:
    """What is shown of a record, how far that is trusted, and what reading it lowers a turn to: where the text is below
    the floor, the owner's words alone."""
    if record.said is not None and record.trust < floor:
        return record.said.quote, TRUST[Origin.OWNER], 1.0
    return record.text, record.trust, record.taint


def may_change(voice: Voice, record: MemoryRecord) -> str:
    """Why this voice may not change or forget a record; empty where it may. An owner's turn that nothing from outside
    has reached may; any other only what was written with no more than it has itself, and nothing that the owner is
    being asked about."""
    if wholly_owners(voice):
        return ""
    if record.status != "active":
        return f"{record.id} is {record.status}: the owner decides about it"
    if record.origin is Origin.AGENT and voice.taint >= record.taint and seen_trust(record) <= voice.taint:
        return ""
    return f"this turn is trusted at {voice.taint:g}, and {record.id} is not its to change"
