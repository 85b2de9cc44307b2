"""`memory.external`, over a real ledger and real files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clawd.clock import SystemClock
from clawd.commands.external import ExternalOperations
from clawd.commands.operations import Operations
from clawd.config.begin import ensure_group, init_home
from clawd.config.home import Home
from clawd.config.schema import MemoryTable
from clawd.errors import ClawdError, Refused, UsageError
from clawd.ledger.db import Ledger
from clawd.turns.injecting import Injector
from clawd.turns.memory import Memories

pytestmark = pytest.mark.anyio
SESSION = "mmkr:agent-1"


class Line:
    """The operation over an open ledger."""

    def __init__(self, home: Home, ledger: Ledger) -> None:
        clock, self.home, self.waiting = SystemClock(), home, list[str]()
        self.memories = Memories(home, ledger, clock, lambda group: MemoryTable(), waits=self.waiting.append)
        own, injector = Operations(home, ledger, clock), Injector(home, ledger, clock)
        allowed = lambda group: own.own_config(group).external  # noqa: E731
        self._table = ExternalOperations(home, ledger, own, injector, self.memories, allowed).table()

    async def __call__(self, **params: Any) -> Any:
        return await self._table["memory.external"](params)

    def allow(self, group: str, *patterns: str) -> None:
        ensure_group(self.home, group)
        self.home.group(group).config_file.write_text(f"schema = 1\nexternal = {json.dumps(patterns)}\n")


@pytest.fixture
async def external(tmp_path: Path) -> AsyncIterator[Line]:
    home = Home(tmp_path / "home")
    init_home(home)
    ledger = Ledger.open(home.ledger_file)
    line = Line(home, ledger)
    yield line
    await line.memories.close()
    ledger.close()


async def test_it_goes_to_the_group_that_takes_the_session(external: Line) -> None:
    with pytest.raises(Refused):
        await external(session=SESSION, text="x")
    external.allow("work", "mmkr:*")
    assert (await external(session=SESSION, text="x"))["group"] == "work"
    assert list(external.home.group("work").memory.glob("20*.md")) != []
    with pytest.raises(Refused):
        await external(session=SESSION, text="x", group="main")
    external.allow("main", "mmkr:agent-1")
    with pytest.raises(Refused):
        await external(session=SESSION, text="x")
    assert (await external(session=SESSION, text="x", group="main"))["group"] == "main"
    external.allow("main")
    with pytest.raises(Refused):
        await external(session=SESSION, text="x", group="main")


async def test_one_and_many(external: Line) -> None:
    external.allow("main", "mmkr:*")
    one = await external(session=SESSION, text="x", tags=["a"], key="k", fact=None, at=None)
    assert one.keys() == {"group", "id", "status", "trust", "state"}
    many = await external(session=SESSION, entries=[{"text": "x", "key": "k", "tags": ["a"]}, {"text": "y"}])
    assert many["group"] == "main" and [each["state"] for each in many["entries"]] == ["known", "kept"]
    assert await external(session=SESSION, entries=[]) == {"group": "main", "entries": []}
    fact = await external(session=SESSION, text="v", fact="mmkr_agent-1_x", key="f")
    assert fact["why"] == "it is trusted at 0.2 only" and fact["status"] == "proposed"


@pytest.mark.parametrize(("params", "why"), [
    ({"text": "x"}, "session"),
    ({"session": 5, "text": "x"}, "session"),
    ({"session": "", "text": "x"}, "session"),
    ({"session": SESSION}, "text is missing"),
    ({"session": SESSION, "text": ["x"]}, "text is missing"),
    ({"session": SESSION, "text": "x", "entries": []}, "entries says all of it"),
    ({"session": SESSION, "entries": {}}, "entries is a list"),
    ({"session": SESSION, "entries": ["x"]}, "entries is a list"),
    ({"session": SESSION, "entries": [{"text": "x", "trust": 1.0}]}, "'trust' cannot be said"),
    ({"session": SESSION, "entries": [{"text": "x"}] * 101}, "at most 100 at once"),
    ({"session": f"mmkr:{'x' * 200}", "text": "x"}, "at most 120 characters"),
])  # fmt: skip
async def test_what_is_not_taken_is_said(external: Line, params: dict[str, Any], why: str) -> None:
    external.allow("main", "*")
    with pytest.raises(UsageError, match=why):
        await external(**params)
    assert not list(external.home.group("main").memory.glob("20*.md"))


async def test_what_the_owner_rejected_is_refused(external: Line) -> None:
    external.allow("main", "mmkr:*")
    said: dict[str, Any] = {"session": SESSION, "fact": "mmkr_agent-1_x", "text": "yes"}
    id = (await external(**said))["id"]
    assert external.waiting == ["main"]
    await external.memories.do("main", lambda memory: memory.reject(id))
    with pytest.raises(ClawdError, match="only the owner keeps it"):
        await external(**said)
    many = await external(session=SESSION, entries=[{"fact": "mmkr_agent-1_x", "text": "yes"}])
    assert many["entries"][0] == {
        "id": id, "status": "quarantined", "trust": 0.2, "state": "refused",
        "why": "this was forgotten or rejected: only the owner keeps it",
    }  # fmt: skip
