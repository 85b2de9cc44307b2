"""A group's memory in a home of its own, and the voices that use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clawd.clock import TurnedClock
from clawd.memory.protocol import Heard, Voice
from clawd.memory.store import GroupMemory
from clawd.trust import Origin, Role

AGENT = Voice(Origin.AGENT, source="terminal:a#7", turn=7)
TAINTED = replace(AGENT, taint=0.2)
MEMBER = Voice(Origin.MEMBER, Role.MEMBER, source="telegram:9#8", turn=8, others=True)
PRIVATE = replace(AGENT, private=True)
OTHERS = replace(AGENT, others=True)


# Where nothing waits for a disk, for tests of many writes.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


def heard(text: str, voice: Voice = TAINTED) -> Voice:
    """The same voice, which may cite this."""
    return replace(voice, heard=(Heard(12, text),))


def memory_at(path: Path, group: str = "main", **more: Any) -> GroupMemory:
    root = path / "groups" / group / "memory"
    root.mkdir(parents=True, exist_ok=True)
    (path / "state").mkdir(exist_ok=True)
    return GroupMemory(root, path / "state", group, TurnedClock(datetime(2026, 12, 1, 9, tzinfo=UTC)), **more)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., GroupMemory]:
    return lambda group="main", **more: memory_at(tmp_path, group, **more)


@pytest.fixture
def memory(make: Callable[..., GroupMemory]) -> GroupMemory:
    return make()


def found(memory: GroupMemory, query: str, voice: Voice = AGENT, **more: Any) -> list[str]:
    """The ids of what a search finds."""
    return [hit.record.id for hit in memory.find(query, voice, **more)[0]]
