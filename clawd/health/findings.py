"""What the doctor says: one finding a line, each with the command that mends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from clawd.config.home import Home
from clawd.ledger.db import Ledger, Transaction

T = TypeVar("T")

Finding = dict[str, Any]
"""{check, level: ok|warn|error, message, command|null}"""


def finding(check: str, level: str, message: str, command: str | None = None) -> Finding:
    return {"check": check, "level": level, "message": message, "command": command}


def read_ledger(home: Home, work: Callable[[Transaction], T]) -> T | None:
    """What `work` reads, None for a home that has no ledger yet."""
    if not home.ledger_file.exists():
        return None
    ledger = Ledger.read_only(home.ledger_file)
    try:
        return ledger.tx(work)
    finally:
        ledger.close()
