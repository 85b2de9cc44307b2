"""The trust ledger, `state/trust.jsonl`: who wrote what, and how far it is trusted. Hashes, never content. It lies
outside of every group's folder; what a file's frontmatter says is a copy for people.

Append-only, a line of JSON each; the last line of an id holds. A line is durable before its file is, so that nothing
can be found that it does not know. One writer, who holds the home's lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clawd.memory.record import Status
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


class TrustLedger:
    """The file. Calls block."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, stamp: Stamp) -> None:
        """Durably and whole, or not at all. Raises OSError."""
        fields = {name: value for name, value in fields_of(stamp).items() if value not in (None, (), "")}
        line = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            end = os.fstat(descriptor).st_size
            torn = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"
            left = memoryview((b"\n" if torn else b"") + line)
            try:
                while left:
                    left = left[os.write(descriptor, left) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, end)
                raise
        finally:
            os.close(descriptor)

    def read(self, start: int = 0) -> Iterator[tuple[int, Stamp]]:
        """The stamps from a byte on, each with where the next one begins. What is no stamp is left out. Raises
        OSError."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                start += len(line)
                if (stamp := stamp_of(line)) is not None:
                    yield start, stamp


def fields_of(stamp: Stamp) -> dict[str, Any]:
    return {name: getattr(stamp, name) for name in Stamp.__slots__}


def stamp_of(line: bytes) -> Stamp | None:
    """None for what is none."""
    try:
        fields: Mapping[str, Any] = json.loads(line)
        known = {name: value for name, value in fields.items() if name in Stamp.__slots__}
        marks = {name: tuple(fields.get(name, ())) for name in ("lines", "spared")}
        return Stamp(**{**known, "origin": Origin(fields["origin"]), **marks})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
