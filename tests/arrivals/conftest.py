"""A home, and what a PythonClaw-like home would bring to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clawd import faults
from clawd.arrivals.items import Brought, Item, Left
from clawd.commands.operations import offline
from clawd.config.home import Home
from clawd.config.load import init_home
from clawd.ledger.db import Ledger
from clawd.model import Block
from clawd.sessions.format import write_file

AT = datetime(2026, 3, 7, 10, tzinfo=UTC)
FACTS = b"""\
# Long-Term Memory

## town
> Updated: 2026-03-07 10:00:00

Porto

## pet
> Updated: 2026-03-07 10:00:01

a cat
"""
DAY = """\
# Daily Memory — 2026-03-07

### 10:00:00 — town

Porto

- [2026-03-07T11:00:00Z] saw a heron #general
""".encode()
SKILL = b"---\nname: tides\ndescription: Tells the tides. Use it when somebody asks for them.\n---\nLook them up.\n"
SCHEDULE = b'schema = 1\ncron = "0 9 * * *"\nprompt = "say good morning"\n'
CALL = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


def blocks(*said: str) -> list[Block]:
    return [Block("user" if n % 2 == 0 else "assistant", each, AT) for n, each in enumerate(said)]


def session(id: str, *said: str) -> bytes:
    return write_file(id, blocks(*said))


def item(
    kind: str, to: str, data: bytes | dict[str, bytes], group: str = "main", source: str = "", **more: Any
) -> Item:
    files = data if isinstance(data, dict) else {"": data}
    return Item(kind, source or f"context/{to}", to, files, group, **more)  # type: ignore[arg-type]


def everything(group: str = "main") -> list[Item]:
    return [
        item("session", "sessions/mmkr_a.md", session("mmkr:a", "hello", "good day"), group),
        item("facts", "memory/MEMORY.md", FACTS, group),
        item("index", "memory/INDEX.md", b"# What is where\n\nBoats are in boats.md\n", group),
        item("day", "memory/2026-03-07.md", DAY, group),
        item("note", "memory/notes/2026-03-01-heron.md", b"The heron of the old mill eats frogs.\n", group),
        item("skill", "skills/tides", {"SKILL.md": SKILL, "scripts/x.sh": b"#!/bin/sh\necho 1\n"}, group,
             changed=("its name is tides now",)),
        item("schedule", "schedules/morning.toml", SCHEDULE, group),
        item("instructions", "CLAUDE.md", b"# Instructions\n\nAnswer in Portuguese.\n", group),
    ]  # fmt: skip


def brought(*items: Item, **more: Any) -> Brought:
    return Brought("pythonclaw", Path("/old/.pythonclaw"), list(items), **more)


def whole() -> Brought:
    return brought(
        *everything(), left=[Left("context/soul/SOUL.md", "clawd has no such thing")], keys=["llm.openai.apiKey"],
        allowed=["telegram: everybody"], chats=["telegram:7 was main"],
    )  # fmt: skip


def accept(home: Home, **params: Any) -> dict[str, Any]:
    result: dict[str, Any] = asyncio.run(_done(home, {"source": "pythonclaw", **params}))
    return result


async def _done(home: Home, params: dict[str, Any]) -> Any:
    return await offline(home)["bridge.accept"](params)


def place(home: Home, group: str = "main") -> Path:
    return home.group(group).arrivals / "pythonclaw"


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    init_home(made, user="Ada")
    Ledger.open(made.ledger_file).close()  # to make one takes a while
    return made


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.load(None)
