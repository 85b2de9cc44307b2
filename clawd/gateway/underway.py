"""The requests that are under way, in a file beside the audit: what a crash cuts off is known at the next start, and
what the audit cannot take just now is kept until it can.

Slots of one size, used again and again: a full disk takes none that was there before.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

SLOT = 8 << 10
_FREE = b"-"


class UnderWay:
    """Lines by slot. Raises OSError when the file cannot be written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.left = _lines(os.pread(self._file, os.fstat(self._file).st_size, 0))
        """What an earlier life left, by slot."""
        self._free: list[int] = []
        self._slots = max(self.left, default=-1) + 1

    def begin(self, line: dict[str, Any]) -> int:
        """Keep a line; gives its slot."""
        slot = self._free.pop() if self._free else self._slots
        try:
            self.renew(slot, line)
        except OSError:
            if slot != self._slots:
                self._free.append(slot)
            raise
        self._slots = max(self._slots, slot + 1)
        return slot

    def renew(self, slot: int, line: dict[str, Any]) -> None:
        data = _packed(line)
        if len(data) > SLOT:
            data = _packed(line | {"path": None, "host": None})
        if os.pwrite(self._file, data.ljust(SLOT), slot * SLOT) != SLOT:
            os.pwrite(self._file, _FREE, slot * SLOT)
            raise OSError("the disk took a part of a line alone")

    def end(self, slot: int) -> None:
        os.pwrite(self._file, _FREE, slot * SLOT)
        self._free.append(slot)


def read(path: Path) -> list[dict[str, Any]]:
    """What is under way, or was when its daemon ended."""
    try:
        return list(_lines(path.read_bytes()).values())
    except FileNotFoundError:
        return []


def _lines(data: bytes) -> dict[int, dict[str, Any]]:
    found = {}
    for slot in range(len(data) // SLOT):
        part = data[slot * SLOT : (slot + 1) * SLOT]
        if part.startswith(b"{"):
            with suppress(ValueError):
                found[slot] = json.loads(part)
    return found


def _packed(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode()
