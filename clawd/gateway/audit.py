"""What every request was, and what became of it: one JSON line each in `state/audit/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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


class Audit:
    """Writes entries. Never raises: a full disk is told to the log once."""

    def __init__(self, directory: Path, days: int) -> None:
        self._directory, self._days = directory, days

    def write(self, entry: Entry) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
