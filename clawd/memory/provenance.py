"""The trust ledger, `state/trust.jsonl`: who wrote what, and how far it is trusted. Hashes, never content. It lies
outside of every group's folder; what a file's frontmatter says is a copy for people.

Append-only, a line of JSON each; the last line of an id holds. A line is durable before its file is, so that nothing
can be found that it does not know. One writer, who holds the home's lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from clawd.errors import StorageError, UnsafePath
from clawd.files import append_whole, open_beneath
from clawd.memory.record import Status
from clawd.scopes import is_namespace
from clawd.trust import Origin

Op = Literal["write", "update", "approve", "reject", "quarantine", "trust", "supersede", "delete", "carry"]


@dataclass(frozen=True, slots=True)
class Stamp:
    """One line. `sha256` is that of the text, normalised (`text.digest`), `quote` that of a citation, `lines` those of
    its lines, of what is to be known again wherever it is moved: quarantined, rejected and forgotten text; `spared`
    those of its marks that stood in what is trusted more, and say nothing of it."""

    ts: str
    group: str
    id: str
    op: Op
    sha256: str
    origin: Origin
    trust: float
    taint: float
    status: Status
    private: bool = False
    source: str = ""
    turn: int | None = None
    quote: str | None = None
    lines: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    namespace: str = ""


class TrustLedger:
    """The file. Calls block, and raise StorageError where it is a link, or no file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> BinaryIO:
        """To be read. Raises OSError, FileNotFoundError among them."""
        return os.fdopen(self._opened(os.O_RDONLY), "rb")

    def _opened(self, flags: int) -> int:
        try:
            return open_beneath(self.path.parent, self.path.name, flags)
        except UnsafePath:
            raise StorageError(
                f"{self.path} is a link, or no file: nobody knows what is to be trusted", hint="put the file back there"
            ) from None

    def append(self, *stamps: Stamp) -> None:
        """Durably and whole, or not at all. Raises OSError."""
        line = b"".join(map(_line, stamps))
        descriptor = self._opened(os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # groups write at the same time: none cuts off another's line
            end = os.fstat(descriptor).st_size
            torn = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"
            append_whole(descriptor, (b"\n" if torn else b"") + line, end)
        finally:
            os.close(descriptor)

    def read(self) -> Iterator[Stamp]:
        """Every stamp. Raises OSError."""
        return (stamp for _, stamp in self.lines() if stamp is not None)

    def lines(self, start: int = 0) -> Iterator[tuple[int, Stamp | None]]:
        """The lines from a byte on, each with where the next one begins; None for what is no stamp. Raises OSError."""
        try:
            file = self.open()
        except FileNotFoundError:
            return
        with file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                start += len(line)
                yield start, stamp_of(line)


def _line(stamp: Stamp) -> bytes:
    fields = {name: value for name, value in fields_of(stamp).items() if value not in (None, (), "")}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


_OPS, _STATUSES = get_args(Op), get_args(Status)


def fields_of(stamp: Stamp) -> dict[str, Any]:
    return {name: getattr(stamp, name) for name in Stamp.__slots__}


def stamp_of(line: bytes) -> Stamp | None:
    """None for what is none."""
    try:
        fields: Mapping[str, Any] = json.loads(line)
        known = {name: value for name, value in fields.items() if name in Stamp.__slots__}
        marks = {name: tuple(fields.get(name, ())) for name in ("lines", "spared")}
        stamp = Stamp(**{**known, "origin": Origin(fields["origin"]), **marks})
        said = "".join((stamp.ts, stamp.group, stamp.id, stamp.sha256, stamp.quote or "", *stamp.lines, *stamp.spared))
        named = stamp.namespace == "" or is_namespace(stamp.namespace)
        said.encode(), stamp.source.encode("utf-8", "surrogatepass")
        aware = datetime.fromisoformat(stamp.ts).tzinfo is not None and isinstance(stamp.private, bool)
        sound = stamp.op in _OPS and stamp.status in _STATUSES and 0 <= stamp.trust <= 1 and 0 <= stamp.taint <= 1
        return stamp if aware and sound and named else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
