"""What the doctor says: one finding a line, each with the command that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from clawd.config.group import Effective
from clawd.config.home import Home, group_folders
from clawd.config.load import load_group, merged
from clawd.config.schema import Config
from clawd.errors import ClawdError
from clawd.ledger.db import Ledger, Transaction

T = TypeVar("T")

Finding = dict[str, Any]
"""{check, level: ok|warn|error, message, command|null}"""


def finding(check: str, level: str, message: str, command: str | None = None) -> Finding:
    return {"check": check, "level": level, "message": message, "command": command}


def settings_of_groups(home: Home, config: Config) -> Iterator[tuple[str, Effective]]:
    """What holds for each group. One whose file cannot be understood is left out: that is a finding of its own."""
    for folder in group_folders(home):
        try:
            settings = merged(config, load_group(home, folder))
        except ClawdError:
            continue
        yield folder, settings


def read_ledger(home: Home, work: Callable[[Transaction], T]) -> T | None:
    """What `work` reads, None for a home that has no ledger yet."""
    if not home.ledger_file.exists():
        return None
    ledger = Ledger.read_only(home.ledger_file)
    try:
        return ledger.tx(work)
    finally:
        ledger.close()
