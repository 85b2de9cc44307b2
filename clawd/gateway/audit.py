"""What every request was, and what became of it: one JSON line each in `state/audit/audit.jsonl`, 0600.

A line is handed to the system before the next request, so that it outlives `kill -9`; what a request is about to do
stands in `under-way` first, so that one which a crash cuts off has its line, too. Paths pass the redactor. Refusals
of one group and rule beyond 100 a minute are counted in one line; what was allowed always has its own. Files are kept
for `days`, and so many bytes of them that no agent soon writes over what it did.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clawd.clock import moment_of, rfc3339
from clawd.errors import StorageError
from clawd.gateway import underway
from clawd.gateway.caller import TOKEN
from clawd.gateway.underway import UnderWay
from clawd.log import HIDDEN, redactor

FILE_BYTES = 16 << 20
KEPT_BYTES = 512 << 20  # of all files
REFUSALS, REFUSALS_S = 100, 60.0  # of one group and rule, and how long they are counted
_LONGEST = 500  # characters of a path, and of a host

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Entry:
    """One request, under the contract's names; filled in as it goes on. `bytes_in` came from the sandbox, `bytes_out`
    went to it. `path` has no query; `credential` is the reference, never the value."""

    group: str
    run: str
    turn: int | None = None
    service: str | None = None
    method: str = ""
    host: str = ""
    path: str = ""
    verdict: str = "deny"
    rule: str = ""
    status: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    ms: float = 0.0
    credential: str | None = None
    tokens: int | None = None
    usd: float | None = None


_FIELDS = tuple(field.name for field in fields(Entry))
_UNDER_WAY, _RULE = "under-way", "under_way"


class Audit:
    """Writes entries. `write` never raises: what the disk does not take is told to the log once, and is owed."""

    def __init__(self, directory: Path, days: int) -> None:
        self._directory, self._days = directory, days
        self._path = directory / "audit.jsonl"
        self._file: int | None = None
        self._day = 0  # of the open file's beginning
        self._torn = False  # the last line is not whole
        self._failing = False
        self._refused: dict[tuple[str, str], _Refusals] = {}  # the oldest first
        self._under_way: UnderWay | None = None
        self._owed: dict[int, dict[str, Any]] = {}  # lines that the disk did not take, by their slots

    def begin(self, entry: Entry) -> int:
        """A request is about to be sent. Gives what `write` is to be told of. Raises StorageError: what cannot be
        written down is not done."""
        if self._failing:
            raise StorageError("the gateway's audit cannot be written", hint="free some space, or mend state/audit")
        try:
            return self._opened().begin(_line(entry, time.time()) | {"rule": _RULE})
        except OSError as error:
            raise StorageError(f"the gateway's audit cannot be written: {error.strerror}") from error

    def write(self, entry: Entry, begun: int | None = None) -> None:
        now = time.time()
        self._settle(now)
        line, folded = _line(entry, now), False
        if entry.verdict == "deny":
            counted = self._refused.setdefault((entry.group, entry.rule), _Refusals(now))
            counted.count += 1
            folded = counted.count > REFUSALS + 1
            if counted.count == REFUSALS + 1:
                line["folded"] = 0  # from here on they are counted
        written = folded or self._append(line, now)
        if begun is not None:
            self._over(begun, line, written)

    def _over(self, slot: int, line: dict[str, Any], written: bool) -> None:
        try:
            if written:
                self._opened().end(slot)
            else:
                self._owed[slot] = line
                self._opened().renew(slot, line)
        except OSError as error:
            log.error("what is under way at the gateway cannot be noted: %s", error)

    def _opened(self) -> UnderWay:
        """What is under way; what an earlier life left of it gets its lines first."""
        if self._under_way is None:
            self._under_way = UnderWay(self._directory / _UNDER_WAY)
            for slot, line in self._under_way.left.items():
                self._owed[slot] = line | {"rule": "interrupted"} if line["rule"] == _RULE else line
            self._pay(time.time())
        return self._under_way

    def _pay(self, now: float) -> None:
        owed, self._owed = self._owed, {}
        for slot, line in owed.items():
            self._over(slot, line, self._append(line, now))

    def close(self) -> None:
        """What is under way stays open: it may end after this."""
        self._settle(None)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _settle(self, now: float | None) -> None:
        """Write down what was counted in minutes that are over, all of it when there is no `now`."""
        while self._refused:
            (group, rule), oldest = next(iter(self._refused.items()))
            if now is not None and abs(now - oldest.begun) < REFUSALS_S:
                return
            del self._refused[group, rule]
            if oldest.count > REFUSALS + 1:
                moment = time.time() if now is None else now
                line = {"ts": _moment(moment)} | dict.fromkeys(_FIELDS) | {"group": group, "verdict": "deny"}
                self._append(line | {"rule": rule, "folded": oldest.count - REFUSALS - 1}, moment)

    def _append(self, line: dict[str, Any], now: float) -> bool:
        """Whether the disk took it."""
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            file = self._open(now)
            if self._torn:
                data = b"\n" + data
            written = os.write(file, data)
            self._torn = written < len(data)
            if self._torn:
                raise OSError("the disk took a part of a line alone")
        except OSError as error:
            if not self._failing:
                self._failing = True
                log.error("the gateway's audit cannot be written, nothing is let through until it can: %s", error)
            return False
        self._failing = False
        if self._owed:
            self._pay(now)
        return True

    def _open(self, now: float) -> int:
        """The file to write to: a new one each day, and when one is full, or gone."""
        if self._file is not None:
            state = os.fstat(self._file)
            if state.st_nlink and state.st_size < FILE_BYTES and self._day == now // 86400:
                return self._file
            os.close(self._file)
            self._file = None
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._rotate(now)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o600)
        size = os.fstat(self._file).st_size
        self._torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        self._day = int(now // 86400)
        return self._file

    def _rotate(self, now: float) -> None:
        try:
            state = self._path.stat()
        except FileNotFoundError:
            return
        if state.st_size >= FILE_BYTES or state.st_mtime // 86400 != now // 86400:
            moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S%fZ")
            self._path.rename(self._path.with_name(f"audit-{moment}.jsonl"))
        self._drop_old(now)

    def _drop_old(self, now: float) -> None:
        kept = 0
        for path in reversed(files(self._directory)):
            state = path.stat()
            kept += state.st_size
            if path != self._path and (state.st_mtime < now - self._days * 86400 or kept > KEPT_BYTES):
                path.unlink()


@dataclass(slots=True)
class _Refusals:
    """Of one group and rule, since `begun`."""

    begun: float
    count: int = 0


def _line(entry: Entry, now: float) -> dict[str, Any]:
    line = {"ts": _moment(now)} | {name: getattr(entry, name) for name in _FIELDS}
    line["host"], line["path"] = _clean(entry.host), _clean(entry.path)
    return line


def _moment(now: float) -> str:
    return rfc3339(datetime.fromtimestamp(now, UTC))


def _clean(text: str | None) -> str | None:
    if not text:
        return text
    return redactor.clean(TOKEN.sub(HIDDEN, text[:_LONGEST].encode("utf-8", "replace").decode()))


def files(directory: Path) -> list[Path]:
    """The audit's files, the oldest first."""
    current = directory / "audit.jsonl"
    rotated = sorted(directory.glob("audit-*.jsonl"))
    return [*rotated, current] if current.exists() else rotated


def read(directory: Path, group: str | None = None, since: datetime | None = None) -> Iterator[dict[str, Any]]:
    """Entries in the order in which they were written, then what is under way; one with `folded` stands for so many
    more refusals. A line that is not whole is left out."""
    for line in _written(directory, since):
        if group is None or line.get("group") == group:
            moment = moment_of(str(line.get("ts")))
            if since is None or (moment is not None and moment >= since):
                yield line


def _written(directory: Path, since: datetime | None) -> Iterator[dict[str, Any]]:
    for path in files(directory):
        if since is not None and path.stat().st_mtime < since.timestamp():
            continue
        with path.open(encoding="utf-8", errors="replace") as file:
            for text in file:
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                if isinstance(line, dict):
                    yield line
    yield from underway.read(directory / _UNDER_WAY)


def since(text: str, now: datetime) -> datetime | None:
    """The moment that RFC 3339, or a time ago like `90s`, `30m`, `2h`, `1d`, names; None when it names none."""
    if ago := re.fullmatch(r"(\d{1,9})([smhd])", text):
        seconds = int(ago[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[ago[2]]
        return datetime.fromtimestamp(max(0.0, now.timestamp() - seconds), UTC)
    return moment_of(text)
