"""A set of directories that the kernel tells us of, through watchfiles, each for itself: the library would follow links
out of a tree that an agent writes to, so who looks for directories is ours.

It is made and read in threads. Making one holds the interpreter for some 30 µs a directory, and a name that is not
UTF-8 ends it, also where it is only read: the library can say nothing more then.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchfiles import Change

STEP_MS = 400  # without a further change; an idle look costs 0.024 % of a CPU, and an end waits for one
LONGEST_MS = 1600  # until changes are told that do not end
_GONE_AGAIN = 5  # directories that vanish while they are named
_ESCAPED = re.compile(r"\\(?:x([0-9A-F]{2})|u\{([0-9a-f]+)\}|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}

Changes = Collection[tuple["Change | int", str]]


class Unwatchable(Exception):
    """The system gives no more watches; what it said."""


class Lost(Exception):
    """The sight is over, and what it still had to tell is lost. `undecodable` is the directory that has a name that is
    not UTF-8; empty when it was something else."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.undecodable = _named(why).rpartition("/")[0]


class End(Enum):
    STOPPED = "stopped"


class Sight:
    def __init__(self, directories: set[str]) -> None:
        """Raises Unwatchable. A directory that is not there any more is left out."""
        from watchfiles._rust_notify import RustNotify

        self.directories = directories
        self._stop, self.lost = threading.Event(), False
        for attempt in range(_GONE_AGAIN + 1):
            try:
                self._notify = RustNotify(list(self.directories), False, False, 300, False, False)
                return
            except (OSError, RuntimeError) as error:
                gone = isinstance(error, FileNotFoundError | PermissionError) and "limit" not in str(error)
                if not gone or attempt == _GONE_AGAIN:
                    raise Unwatchable(str(error).partition(" about [")[0]) from error
            self.directories = {each for each in self.directories if os.access(each, os.R_OK | os.X_OK)}

    def read(self) -> Changes | End:
        """What changed since it was last asked, once something has; waits for it. Raises Lost."""
        try:
            # No timeout: at one the library forgets what comes in the same moment.
            changes = self._notify.watch(LONGEST_MS, STEP_MS, 0, self._stop)
        except RuntimeError as error:
            raise Lost(str(error)) from error
        return End.STOPPED if isinstance(changes, str) else changes

    def stop(self) -> None:
        """Whoever reads is told within `STEP_MS`."""
        self._stop.set()

    def close(self) -> None:
        self._notify.close()


def _named(error: str) -> str:
    """The path in `Unable to decode path "…" to string`, as Rust writes one."""
    _, _, quoted = error.partition('"')
    quoted = quoted.rpartition('"')[0]

    def plain(match: re.Match[str]) -> bytes:
        byte, point, sign = match.groups()
        if byte:
            return bytes([int(byte, 16)])
        return (chr(int(point, 16)) if point else _PLAIN.get(sign, sign)).encode()

    path, end = b"", 0
    for match in _ESCAPED.finditer(quoted):
        path += quoted[end : match.start()].encode() + plain(match)
        end = match.end()
    return os.fsdecode(path + quoted[end:].encode())
