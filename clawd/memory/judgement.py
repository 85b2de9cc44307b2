"""What a text in a file is worth: its record, by the stamps of its id and the marks of its text. Pure.

The trust ledger decides. A text that stands exactly as it was stamped has that stamp; one that a person changed has the
last stamp of its id; one that is in no stamp was made by hand. What is quarantined stays so, wherever it lies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from clawd.memory import text
from clawd.memory.admission import FLOOR
from clawd.memory.daily import Piece
from clawd.memory.provenance import Stamp
from clawd.memory.record import ID, QUARANTINE, MemoryRecord, Said, Status
from clawd.memory.standing import Marked
from clawd.memory.tree import RawMemory
from clawd.scopes import is_shared
from clawd.trust import TRUST, Origin

EXTERNAL = ":external"  # ends the id of what other programs wrote into a day's log
_GONE = ("delete", "reject")
HEADING = re.compile(r"# [^\n]*[0-9]{4}-[0-9]{2}-[0-9]{2}")  # of a day's log


@dataclass(frozen=True, slots=True)
class Worth:
    """`gone`: it is a text that was forgotten or rejected and that a crash, or a copy from before, left there."""

    stamp: Stamp | None
    trust: float
    taint: float
    status: Status
    gone: bool = False


def worth(digest: str, stamps: Sequence[Stamp], marked: Marked) -> Worth:
    """`stamps` are those of its id, the last one last."""
    last = stamps[-1] if stamps else None
    exact = next((each for each in reversed(stamps) if each.sha256 == digest), None)
    if last is not None and exact is last and last.op in _GONE:
        return Worth(last, last.trust, last.taint, "quarantined", gone=True)
    # What crashed between its line and its file, or was undone by hand, is what it was before.
    stamp = last if last is not None and last.status in ("quarantined", "superseded") else exact or last
    if stamp is None or last is None or last.op in _GONE:
        known = _by_hand(stamps, marked)
    elif exact is None:
        known = Worth(stamp, min(stamp.trust, marked.trust), min(stamp.taint, marked.trust), stamp.status)
    else:
        known = Worth(stamp, min(stamp.trust, exact.trust), min(stamp.taint, exact.taint), stamp.status)
    return replace(known, status="quarantined") if marked.quarantined else known


def _by_hand(stamps: Sequence[Stamp], marked: Marked) -> Worth:
    """Never more than its id, or its text, had before."""
    trust = min(TRUST[Origin.HAND], marked.trust, *(each.trust for each in stamps))
    return Worth(None, trust, min(1.0, marked.trust, *(each.taint for each in stamps)), "active")


def of_page(raw: RawMemory, id: str, known: Worth, stamps: Sequence[Stamp]) -> MemoryRecord:
    """Of a file with one memory, which has this id."""
    kind, status, stamp, said = raw.kind, known.status, known.stamp, raw.fields.get("said")
    if id.startswith(("up_", "fp_")):  # wherever it was moved to
        kind = "profile" if id.startswith("up_") else "fact"
    if raw.path.startswith(f"{QUARANTINE}/") and status != "proposed":
        status = "quarantined"
    if not stamps and ID.fullmatch(raw.id):
        known, status = _as_it_says(raw, known, status)
    cited = stamp is not None and said is not None and stamp.quote == text.digest(said["quote"])
    created = raw.fields.get("created", raw.at)
    return MemoryRecord(
        id, kind, raw.text, created, raw.fields.get("updated", created), raw.at,
        stamp.source if stamp else "a file made by hand", stamp.origin if stamp else Origin.HAND, known.trust, status,
        known.taint, raw.fields.get("derived_from", ()), raw.fields.get("supersedes"), raw.fields.get("tags", ()),
        Said(**said) if cited and said else None, _private(stamps), raw.fields.get("key", ""), raw.path, raw.head,
        raw.whole, _namespace(stamps, raw),
    )  # fmt: skip


def _as_it_says(raw: RawMemory, known: Worth, status: Status) -> tuple[Worth, Status]:
    """Of a file that clawd once wrote and nobody has a stamp of: it comes from elsewhere, or the trust ledger was lost.
    What it says of itself can only lower it."""
    said = raw.fields.get("trust")
    trust = min(known.trust, said) if isinstance(said, int | float) and 0 <= said <= 1 else known.trust
    taint = trust if trust < FLOOR else known.taint
    holds = raw.fields.get("status")
    status = holds if status == "active" and holds in ("proposed", "quarantined", "superseded") else status
    return replace(known, trust=trust, taint=min(known.taint, taint)), status


def of_fact(raw: RawMemory, known: Worth, stamps: Sequence[Stamp]) -> MemoryRecord:
    stamp = known.stamp
    return MemoryRecord(
        raw.id, "fact", raw.text, raw.at, raw.at, raw.at, stamp.source if stamp else raw.path,
        stamp.origin if stamp else Origin.HAND, known.trust, known.status, known.taint, private=_private(stamps),
        key=raw.fields["key"], file=raw.path, namespace=_namespace(stamps),
    )  # fmt: skip


def _private(stamps: Sequence[Stamp]) -> bool:
    return any(each.private for each in stamps[-1:])


def _namespace(stamps: Sequence[Stamp], raw: RawMemory | None = None) -> str:
    """What nobody has a stamp of can say so itself, as long as that takes it to no other group."""
    said: str = raw.fields.get("memory_namespace", "") if raw is not None else ""
    return stamps[-1].namespace if stamps else "" if is_shared(said) else said


def of_typed_again(raw: RawMemory, known: Worth, stamps: Sequence[Stamp], marked: Marked) -> Worth:
    """A forgotten fact that stands there has been left by a crash, or somebody typed it again since: then by hand."""
    if not known.gone or known.stamp is None or raw.at <= datetime.fromisoformat(known.stamp.ts):
        return known
    return _by_hand(stamps, marked)


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of a day's log that may be shown, to whoever may see it. `external`: another program wrote it."""

    text: str
    key: str
    at: datetime
    trust: float
    taint: float
    private: bool
    external: bool = False
    namespace: str = ""


def of_piece(piece: Piece, noon: datetime, known: Worth, stamps: Sequence[Stamp]) -> Entry | None:
    """None for what nobody is to find."""
    heading = piece.at is None and HEADING.fullmatch(piece.text) is not None
    if known.status == "quarantined" or heading or not piece.text.strip():
        return None
    # What a key had before stays private when it has something open now.
    of = [each for each in stamps if each.sha256 == text.digest(piece.text)][-1:] or stamps
    private = any(each.private for each in of)
    external = known.stamp is not None and known.stamp.origin is Origin.EXTERNAL
    namespace = of[-1].namespace if of else ""
    return Entry(piece.text, piece.key, piece.at or noon, known.trust, known.taint, private, external, namespace)


def of_day(raw: RawMemory, entries: Sequence[Entry]) -> MemoryRecord:
    """What of a day these entries are. Those of other programs are a memory of their own, so that nobody who reads of
    that day reads them unasked; its tags are their keys."""
    external = bool(entries) and entries[0].external
    shown = (f"### {each.at:%H:%M:%S} — {each.key}\n\n{each.text}" if each.key else each.text for each in entries)
    latest = max((each.at for each in entries), default=raw.at)
    return MemoryRecord(
        raw.id + EXTERNAL * external, "day", "\n\n".join(shown), raw.at, latest, raw.at, raw.path,
        Origin.EXTERNAL if external else Origin.HAND,
        min((each.trust for each in entries), default=TRUST[Origin.HAND]), "active",
        min((each.taint for each in entries), default=1.0),
        tags=tuple(sorted({each.key for each in entries})) if external else (),
        private=bool(entries) and all(each.private for each in entries), file=raw.path,
    )  # fmt: skip


def notes(raw: RawMemory, record: MemoryRecord, stamps: Sequence[Stamp]) -> list[str]:
    """What of a file does not count, or counts for another reason than it says."""
    found = []
    if record.kind == "day" and record.origin is Origin.EXTERNAL:
        found.append("other programs wrote it, under the keys that are its tags")
    elif not stamps:
        found.append("it was made by hand")
    elif raw.kind != "day" and stamps[-1].sha256 != text.digest(raw.text):
        found.append("its text was changed by hand; what is known of it stays")
    counts = (("origin", record.origin.value), ("trust", record.trust), ("status", record.status))
    for name, value in (*counts, ("memory_namespace", record.namespace)):
        if raw.fields.get(name, value) != value:
            found.append(f"its file says {name}: {raw.fields[name]}, which counts for nothing")
    if raw.fields.get("said") and record.said is None:
        found.append("its quote is not the one that the owner was cited with, and counts for nothing")
    return found
