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
    """What nobody is to find has none. Of a citation in a lesser turn the quote is one, the rest are as far below the
    floor as they are."""
    if record.status not in ("active", "proposed"):
        return
    shown, trust, taint = admission.shown(record, floor)
    texts = [(shown, trust, taint)]
    if shown is not record.text:
        texts.append((record.text, record.trust, record.taint))
    title = " ".join(filter(None, (title, *record.tags)))
    thread = record.source.rpartition("#")[0] if record.kind == "episode" and record.status == "active" else ""
    piece = 0
    for text, trust, taint in texts:
        for part in pieces(text):
            yield Document(
                record.id, record.kind, part, record.event_time.timestamp(), trust, taint, record.status,
                not record.private, thread if trust >= floor else "", piece, title,
            )  # fmt: skip
            piece += 1


def of_entries(id: str, entries: Iterable[Entry]) -> Iterator[Document]:
    """Of a day's log."""
    piece = 0
    for each in entries:
        for part in pieces(each.text):
            yield Document(id, "day", part, each.at.timestamp(), each.trust, each.taint, "active", not each.private,
                           "days", piece, each.key)  # fmt: skip
            piece += 1


def pieces(text: str) -> list[str]:
    return [text] if len(text) <= LONGEST else [part for part in split(text, _PIECE) if part.strip()]
