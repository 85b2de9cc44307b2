"""What a text in a file is worth: its record, by the stamps of its id and the marks of its text. Pure.

The trust ledger decides. A text that stands exactly as it was stamped has that stamp; one that a person changed has the
last stamp of its id; one that is in no stamp was made by hand. What is quarantined stays so, wherever it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from clawd.memory import text
from clawd.memory.daily import Piece
from clawd.memory.keyed import FACTS, Fact
from clawd.memory.provenance import Stamp
from clawd.memory.record import FOLDERS, PREFIXES, QUARANTINE, MemoryRecord, Page, Said, Status
from clawd.memory.standing import Marked
from clawd.trust import TRUST, Origin

_KINDS = {folder: kind for kind, folder in FOLDERS.items()}
_OF_PREFIX = {prefix: kind for kind, prefix in PREFIXES.items()}
_GONE = ("delete", "reject")


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


def of_file(path: str, id: str, page: Page, changed: datetime, known: Worth, stamps: Sequence[Stamp]) -> MemoryRecord:
    """`changed` is when the file was, for times that it does not say."""
    folder = path.partition("/")[0]
    kind = _kind(folder, id, str(page.fields.get("kind", "")))
    status = known.status
    if folder == QUARANTINE and status != "proposed":
        status = "quarantined"
    said = page.fields.get("said")
    stamp = known.stamp
    cited = stamp is not None and said is not None and stamp.quote == text.digest(said["quote"])
    created = page.fields.get("created", changed)
    return MemoryRecord(
        id, kind, page.text, created, page.fields.get("updated", created), page.fields.get("event_time", created),  # type: ignore[arg-type]
        stamp.source if stamp else "a file made by hand", stamp.origin if stamp else Origin.HAND, known.trust, status,
        known.taint, tuple(page.fields.get("derived_from", ())), page.fields.get("supersedes"),
        tuple(page.fields.get("tags", ())), Said(**said) if cited and said else None,
        any(each.private for each in stamps[-1:]), str(page.fields.get("key", "")), path, page.head,
    )  # fmt: skip


def _kind(folder: str, id: str, said: str) -> str:
    """The directory says it; in quarantine, and of what never has a file elsewhere, the id."""
    of_id = _OF_PREFIX.get(id[:2], "") if id[2:3] == "_" else ""
    if of_id in ("profile", "fact"):
        return of_id
    return _KINDS.get(folder) or of_id or (said if said in FOLDERS else "episode")


def of_fact(fact: Fact, changed: datetime, known: Worth, stamps: Sequence[Stamp]) -> MemoryRecord:
    at = fact.updated or changed
    stamp = known.stamp
    return MemoryRecord(
        f"fact:{fact.key}", "fact", fact.value, at, at, at, stamp.source if stamp else FACTS,
        stamp.origin if stamp else Origin.HAND, known.trust, known.status, known.taint,
        private=any(each.private for each in stamps[-1:]), key=fact.key, file=FACTS,
    )  # fmt: skip


def of_typed_again(fact: Fact, known: Worth, stamps: Sequence[Stamp], marked: Marked) -> Worth:
    """A forgotten fact that stands there has been left by a crash, or somebody typed it again since: then by hand."""
    if not known.gone or known.stamp is None:
        return known
    again = fact.updated is None or fact.updated > datetime.fromisoformat(known.stamp.ts)
    return _by_hand(stamps, marked) if again else known


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of a day's log that may be shown, to whoever may see it."""

    text: str
    key: str
    at: datetime
    trust: float
    taint: float
    private: bool


def of_piece(piece: Piece, day: date, known: Worth, stamps: Sequence[Stamp]) -> Entry | None:
    """None for what nobody is to find."""
    if known.status == "quarantined" or not piece.text.strip():
        return None
    private = any(each.private for each in stamps[-1:])
    return Entry(piece.text, piece.key, piece.at or noon(day), known.trust, known.taint, private)


def noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12).astimezone()


def of_day(day: date, path: str, entries: Sequence[Entry]) -> MemoryRecord:
    """What of a day these entries are."""
    start = datetime(day.year, day.month, day.day).astimezone()
    shown = (f"### {each.at:%H:%M:%S} — {each.key}\n\n{each.text}" if each.key else each.text for each in entries)
    latest = max((each.at for each in entries), default=start)
    hand = TRUST[Origin.HAND]
    return MemoryRecord(
        f"day:{day.isoformat()}", "day", "\n\n".join(shown), start, latest, start + timedelta(hours=12), path, Origin.HAND,
        min((each.trust for each in entries), default=hand), "active", min((each.taint for each in entries), default=1.0),
        private=bool(entries) and all(each.private for each in entries), file=path,
    )  # fmt: skip
