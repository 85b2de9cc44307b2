"""Processes of this host, named so that a recycled pid is never taken for the old one: by pid and start
time."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_DEEPEST = 4096  # more ancestors than any sandbox may have processes


@dataclass(frozen=True, slots=True)
class Process:
    """`start` is in clock ticks since boot, as the kernel gives it."""

    pid: int
    start: int

    def alive(self) -> bool:
        """Whether it still runs; one that waits to be reaped does not."""
        read = _stat(self.pid)
        return read is not None and read[2] == self.start and read[0] not in "ZX"

    def waiting(self) -> bool:
        """Whether it sleeps until something happens, or is gone."""
        read = _stat(self.pid)
        return read is None or read[2] != self.start or read[0] in "SZX"

    def kill(self) -> None:
        """Send SIGKILL to this very process, or to none."""
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                if self.alive():
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)


def process(pid: int) -> Process | None:
    """The process that has this pid now."""
    read = _stat(pid)
    return Process(pid, read[2]) if read else None


def descends(pid: int, roots: Iterable[Process]) -> bool:
    """Whether `pid` is one of `roots` or has one among its ancestors. An orphan in a pid namespace is its
    init's child."""
    known = set(roots)
    for _ in range(_DEEPEST):
        read = _stat(pid)
        if read is None or pid <= 1:
            return False
        if Process(pid, read[2]) in known:
            return True
        pid = read[1]
    return False


def boot() -> str:
    """What tells this boot of the machine from any other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]


def seeing(directory: Path, at: str) -> set[Process]:
    """The processes that see `directory` at the path `at`, which must be no link and not theirs to change. One that
    shares our own mounts is never among them: what is found here is ended."""
    found = set()
    with contextlib.suppress(OSError):
        wanted, ours = directory.stat(), Path("/proc/self/ns/mnt").readlink()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                elsewhere = entry.name.isdigit() and (entry / "ns" / "mnt").readlink() != ours
                if elsewhere and os.path.samestat(Path(f"{entry}/root{at}").lstat(), wanted):
                    found.add(process(int(entry.name)))
    return {one for one in found if one}


def processes() -> dict[int, tuple[str, int, int]]:
    """State, parent and start time of everything that can be seen now, by pid."""
    read = ((pid, _stat(pid)) for pid in [int(it.name) for it in Path("/proc").iterdir() if it.name.isdigit()])
    return {pid: each for pid, each in read if each}


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State, parent and start time of a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[1]), int(fields[19])
