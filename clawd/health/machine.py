"""What the doctor looks at on the machine: disk, clock, locale, limits. What was read is judged by pure functions."""

from __future__ import annotations

import ctypes
import os
import resource
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import clawd
from clawd.clock import SystemClock, moment_of
from clawd.config.home import Home
from clawd.health.findings import Finding, finding, read_ledger

FREE_BYTES = 500 << 20
FREE_INODES = 10_000
OPEN_FILES = 1024  # a few sockets for each of the live sandboxes, conversations and platforms
_SKEW = timedelta(minutes=5)
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of adjtimex(2)


def disk(home: Home) -> Iterator[Finding]:
    status = os.statvfs(home.root)
    yield from judge_disk(
        status.f_bavail * status.f_frsize, status.f_favail if status.f_files else None, shlex.quote(str(home.root))
    )
    if home.state.exists() and not os.access(home.state, os.W_OK):
        yield finding("disk", "error", f"{home.state} cannot be written", f"chmod u+w {shlex.quote(str(home.state))}")


def judge_disk(free: int, inodes: int | None, where: str) -> Iterator[Finding]:
    """`inodes` is None on a file system that has no fixed number of them."""
    enough = free > FREE_BYTES
    yield finding(
        "disk", "ok" if enough else "error", f"{free >> 20} MB free", None if enough else f"du -xh {where} | sort -h"
    )
    if inodes is not None and inodes < FREE_INODES:
        yield finding("disk", "error", f"only {inodes} more files fit on the disk", f"du -x --inodes {where} | sort -n")


def clock(home: Home) -> Iterator[Finding]:
    row = read_ledger(home, lambda tx: tx.one("SELECT received FROM inbound ORDER BY seq DESC LIMIT 1"))
    last = moment_of(row["received"]) if row else None
    built = datetime.fromtimestamp(Path(clawd.__file__).stat().st_mtime, UTC)
    yield from judge_clock(SystemClock().now(), built, last, synchronised())


def judge_clock(now: datetime, built: datetime, last: datetime | None, in_step: bool | None) -> Iterator[Finding]:
    """`built`: no clock can be right that is before it. `last`: the newest message. `in_step`: whether something keeps
    the clock right, None when that cannot be known."""
    if now.year < built.year:
        message = f"the clock says {now:%Y-%m-%d}, and this program was made in {built.year}"
        yield finding("clock", "error", message, "sudo timedatectl set-ntp true")
    elif last is not None and last > now + _SKEW:
        message = f"the clock says {now.astimezone():%Y-%m-%d %H:%M}, and the last message came {last:%Y-%m-%d %H:%M}"
        yield finding("clock", "warn", message, "timedatectl status")
    elif in_step is False:
        yield finding("clock", "warn", "nothing keeps this machine's clock right", "sudo timedatectl set-ntp true")
    else:
        yield finding("clock", "ok", f"{now.astimezone():%Y-%m-%d %H:%M %Z}")


def synchronised() -> bool | None:
    """What the kernel says; None where it says nothing."""
    if sys.platform != "linux":
        return None
    timex = (ctypes.c_byte * 512)()  # more than struct timex; modes = 0 only reads
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
            return None
    except (OSError, AttributeError):
        return None
    # modes is an int, offset, freq, maxerror and esterror are longs, then comes status
    at = 5 * ctypes.sizeof(ctypes.c_long)
    return not int.from_bytes(bytes(timex[at : at + 4]), sys.byteorder) & _UNSYNCHRONISED


def locale(home: Home) -> Iterator[Finding]:
    yield from judge_locale(sys.getfilesystemencoding())


def judge_locale(encoding: str) -> Iterator[Finding]:
    """`encoding`: what names of files and what a terminal says are written in."""
    if encoding.lower().replace("-", "") == "utf8":
        yield finding("locale", "ok", "UTF-8")
    else:
        yield finding("locale", "warn", f"names and texts are {encoding} here, not UTF-8", "export LC_ALL=C.UTF-8")


def file_limit(home: Home) -> Iterator[Finding]:
    yield from judge_file_limit(*resource.getrlimit(resource.RLIMIT_NOFILE))


def judge_file_limit(soft: int, hard: int) -> Iterator[Finding]:
    infinite = resource.RLIM_INFINITY
    if soft == infinite or soft >= OPEN_FILES:
        yield finding("file limits", "ok", f"{'any number of' if soft == infinite else soft} open files")
    elif hard == infinite or hard >= OPEN_FILES:
        yield finding("file limits", "warn", f"only {soft} files may be open at one time", f"ulimit -n {OPEN_FILES}")
    else:
        yield finding(
            "file limits", "warn", f"only {hard} files may be open at one time", "sudo clawd service install --system"
        )
