"""What the readers of the other claws give can all be staged, and all be accepted; doing it twice changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from clawd.arrivals.staging import stage
from clawd.commands.operations import offline
from clawd.config.begin import init_home
from clawd.config.home import Home
from tests.bridges.homes import NOW, SECRET
from tests.bridges.test_hostile import HOMES


def accept(home: Home, source: str) -> dict[str, Any]:
    return asyncio.run(offline(home)["bridge.accept"]({"source": source}))  # type: ignore[arg-type]


@pytest.mark.expects_block  # a command that runs alone, and imports what it needs, keeps nobody waiting
@pytest.mark.parametrize("name", HOMES)
def test_a_home_is_brought_and_used(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    make, bridge = HOMES[name]
    made, home = make(tmp_path / "theirs"), Home(tmp_path / "ours")
    init_home(home)
    brought = bridge.read(made, None, now=NOW)

    first = stage(home, brought, dry_run=False)
    again = stage(home, bridge.read(made, None, now=NOW), dry_run=False)
    done = accept(home, brought.source)

    assert {row["state"] for row in first["came"]} == {"new"} and len(first["came"]) == len(brought.items)
    assert first["left"] == again["left"] == [{"from": left.source, "why": left.why} for left in brought.left]
    assert {row["state"] for row in again["came"]} == {"same"}
    used = {each["kind"] for each in done["accepted"]}
    assert used >= {each.kind for each in brought.items} - {"instructions", "profile"}
    assert accept(home, brought.source)["accepted"] == []
    kept = [path.read_bytes() for path in home.root.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in each for each in kept)
