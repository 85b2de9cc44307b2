"""`memory.external`, over a real ledger and real files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clawd.commands import operations
from clawd.config.begin import ensure_group, init_home
from clawd.config.home import Home
from clawd.errors import ClawdError, Refused, UsageError

SESSION = "mmkr:agent-1"


class Line:
    """The operation as a command under the home's lock has it."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def __call__(self, **params: Any) -> Any:
        async def done() -> Any:
            return await operations.offline(self.home)["memory.external"](params)

        return asyncio.run(done())

    def allow(self, group: str, *patterns: str) -> None:
        ensure_group(self.home, group)
        self.home.group(group).config_file.write_text(f"schema = 1\nexternal = {json.dumps(patterns)}\n")


@pytest.fixture
def external(tmp_path: Path) -> Line:
    home = Home(tmp_path / "home")
    init_home(home)
    return Line(home)


def test_it_goes_to_the_group_that_takes_the_session(external: Line) -> None:
    with pytest.raises(Refused):
        external(session=SESSION, text="x")
    external.allow("work", "mmkr:*")
    assert external(session=SESSION, text="x")["group"] == "work"
    assert list(external.home.group("work").memory.glob("20*.md")) != []
    with pytest.raises(Refused):
        external(session=SESSION, text="x", group="main")
    external.allow("main", "mmkr:agent-1")
    with pytest.raises(UsageError):
        external(session=SESSION, text="x")
    assert external(session=SESSION, text="x", group="main")["group"] == "main"
    external.allow("main")
    with pytest.raises(Refused):
        external(session=SESSION, text="x", group="main")


def test_one_and_many(external: Line) -> None:
    external.allow("main", "mmkr:*")
    one = external(session=SESSION, text="x", tags=["a"], key="k", fact=None, at=None)
    assert one.keys() == {"group", "id", "status", "trust", "state"}
    many = external(session=SESSION, entries=[{"text": "x", "key": "k", "tags": ["a"]}, {"text": "y"}])
    assert many["group"] == "main" and [each["state"] for each in many["entries"]] == ["known", "kept"]
    assert external(session=SESSION, entries=[]) == {"group": "main", "entries": []}
    fact = external(session=SESSION, text="v", fact="mmkr_agent-1_x", key="f")
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
def test_what_is_not_taken_is_said(external: Line, params: dict[str, Any], why: str) -> None:
    external.allow("main", "*")
    with pytest.raises(UsageError, match=why):
        external(**params)
    assert not list(external.home.group("main").memory.glob("20*.md"))


def test_what_the_owner_rejected_is_refused(external: Line) -> None:
    external.allow("main", "mmkr:*")
    said: dict[str, Any] = {"session": SESSION, "fact": "mmkr_agent-1_x", "text": "yes"}
    id = external(**said)["id"]

    async def reject() -> None:
        await operations.offline(external.home)["memory.reject"]({"id": id})

    asyncio.run(reject())
    with pytest.raises(ClawdError, match="only the owner keeps it"):
        external(**said)
    assert external(session=SESSION, entries=[{"fact": "mmkr_agent-1_x", "text": "yes"}])["entries"][0] == {
        "id": id, "status": "quarantined", "trust": 0.2, "state": "refused",
        "why": "this was forgotten or rejected: only the owner keeps it",
    }  # fmt: skip
