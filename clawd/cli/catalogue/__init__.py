"""Every command of the contract as data: words, arguments, and the function that does it.

A command without a function belongs to a room that is not built yet; it says so and exits 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from clawd.cli.catalogue import backups, bridges, contexts, conversations, home, knowledge, outside, runs
from clawd.cli.catalogue.arguments import Command

__all__ = ["COMMANDS", "Command"]

_LATER = {
    "skills": "history revert",
    "session": "seal",
    "erase": "",
    "migrate": "",
    "dashboard": "",
    "update": "",
    "evals": "",
}


def _later() -> Iterator[Command]:
    for noun, verbs in _LATER.items():
        for verb in verbs.split() or [""]:
            yield Command((noun, verb) if verb else (noun,), "not built yet")


_TABLES = (home, conversations, contexts, runs, backups, knowledge, bridges, outside)
COMMANDS: dict[tuple[str, ...], Command] = {
    command.words: command for table in _TABLES for command in table.COMMANDS
} | {command.words: command for command in _later()}
