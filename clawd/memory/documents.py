"""What of a memory is searched: its documents for the index. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clawd.memory import admission
from clawd.memory.judgement import Entry
from clawd.memory.record import MemoryRecord
from clawd.search.document import Document
from clawd.text import split

LONGEST = 4000  # characters of a text that is one document
_PIECE = 2000  # UTF-16 units of each where it is longer


def of_record(record: MemoryRecord, title: str, floor: float) -> Iterator[Document]:
    """What nobody is to find has none. Where of a citation the quote alone is shown, it is one by itself, whatever the
    rest waits for: those are the owner's words."""
    if record.status not in ("active", "proposed"):
        return
    at, shown, piece = record.event_time.timestamp(), not record.private, 0
    quote, trust, taint = admission.shown(record, floor)
    if quote is not record.text:
        yield Document(record.id, admission.QUOTED, quote, at, trust, taint, "active", shown, space=record.namespace)
        piece = 1
    title = " ".join(dict.fromkeys(filter(None, (title, record.key, *record.tags))))
    beside = record.kind == "episode" and record.status == "active" and record.trust >= floor
    thread = record.source.rpartition("#")[0] if beside else ""
    for piece, part in enumerate(pieces(record.text), piece):  # noqa: B020
        yield Document(record.id, record.kind, part, at, record.trust, record.taint, record.status, shown, thread,
                       piece, title, record.namespace)  # fmt: skip


def of_entries(id: str, entries: Iterable[Entry]) -> Iterator[Document]:
    """Of a day's log."""
    piece = 0
    for each in entries:
        for part in pieces(each.text):
            yield Document(id, "day", part, each.at.timestamp(), each.trust, each.taint, "active", not each.private,
                           "days", piece, each.key, each.namespace)  # fmt: skip
            piece += 1


def pieces(text: str) -> list[str]:
    return [text] if len(text) <= LONGEST else [part for part in split(text, _PIECE) if part.strip()]
