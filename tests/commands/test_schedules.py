"""What the ledger knows of schedules, as a command without a daemon shows and changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clawd.clock import rfc3339
from clawd.commands import schedules
from clawd.commands.operations import offline
from clawd.config.home import Home
from clawd.config.load import init_home
from clawd.errors import NotFound
from clawd.ledger import authored, firings, groups
from clawd.ledger.db import Ledger
from clawd.ledger.firings import Taken, utc
from clawd.model import Authority
from clawd.schedules import edits, store
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk

TEXT = 'schema = 1\nevery = "2h"\nprompt = "x"\n'
SINCE = datetime.now(UTC) - timedelta(hours=1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    init_home(made)
    edits.put(made.group("main").schedules, "a", TEXT)
    return made


@pytest.fixture
def ledger(home: Home) -> Iterator[Ledger]:
    """It knows of the schedule."""
    ledger, sha256 = Ledger.open(home.ledger_file), edits.digest(TEXT)
    read = store.read(home.group("main").schedules, "a", schedules._zone(home, None), "a")
    ledger.tx(lambda tx: groups.add(tx, "main", NOW))
    ledger.tx(lambda tx: firings.take(tx, "main", Taken("a", "", sha256, read.facts, None, utc(SINCE)), utc(SINCE)))
    yield ledger
    ledger.close()


def do(home: Home, operation: str, **params: Any) -> Any:
    return asyncio.run(offline(home)[f"schedule.{operation}"](params))  # type: ignore[arg-type]


def test_what_is_known_of_it_says_when_it_is_due_and_what_became_of_it(home: Home, ledger: Ledger) -> None:
    [row] = schedules.listed(home, None)
    assert row["next"] == rfc3339(SINCE + timedelta(hours=2)) and row["last"] is None
    states = (("skip", "skipped"), ("miss", "missed"), ("fail", "failed"))
    for n, (event, _) in enumerate(states):
        of = ledger.tx(lambda tx: firings.get(tx, ("main", "a")))
        at = SINCE + timedelta(minutes=n)
        ledger.tx(lambda tx, of=of, at=at, event=event: firings.pass_over(tx, of, at, event, "why"))
    of = ledger.tx(lambda tx: firings.get(tx, ("main", "a")))
    ledger.tx(lambda tx: firings.begin(tx, of, SINCE + timedelta(minutes=9)))  # it is not over
    rows = schedules.history(home, "a", None)
    assert [(row["id"], row["outcome"]) for row in rows] == [("main/a", state) for _, state in reversed(states)]
    assert schedules.history(home, None, "main") == rows and schedules.history(home, None, "other") == []
    edits.retire(home.group("main").schedules, "a")
    assert schedules.history(home, "main/a", None) == rows  # also of what is gone
    with pytest.raises(NotFound):
        schedules.show(home, "a", None)
    with pytest.raises(NotFound):
        schedules.history(home, "b", None)


def test_one_that_paused_itself_says_why_and_is_resumed(home: Home, ledger: Ledger) -> None:
    ledger.tx(lambda tx: tx.execute("UPDATE schedule SET paused = 'it failed 5 times in a row', failures = 5"))
    [row] = schedules.listed(home, "main")
    assert (row["enabled"], row["next"], row["error"]) == (False, None, "it failed 5 times in a row")
    assert do(home, "resume", id="a") == {"id": "main/a", "group": "main", "enabled": True}
    [row] = schedules.listed(home, "main")
    assert row["enabled"] and row["error"] is None and row["next"] > rfc3339(SINCE + timedelta(hours=2))
    assert edits.read(home.group("main").schedules, "a") == TEXT  # what it says needed no edit


def test_a_persons_pause_of_what_an_agent_made_leaves_it_that_turns(home: Home, ledger: Ledger) -> None:
    desk = Desk(ledger)
    turn = desk.accept(role=Role.MEMBER).turn
    assert turn is not None
    ledger.tx(lambda tx: authored.note(tx, "schedule", "main", "a", edits.digest(TEXT), turn, NOW))
    do(home, "pause", id="a", group="main")
    text = edits.read(home.group("main").schedules, "a") or ""
    assert text != TEXT
    acts = ledger.tx(lambda tx: authored.of_agent(tx, "schedule", "main", edits.digest(text)))
    assert acts is not None and isinstance(acts, Authority) and acts.role is Role.MEMBER
    assert schedules.show(home, "a", None)["acts_for"] == "member"


def test_lines_for_a_chat() -> None:
    row = {"id": "main/a", "expr": "every 2h", "next": None, "enabled": True, "proposed": False, "error": None}
    for change, said in (
        ({"next": "2026-12-01T09:00:00+01:00"}, "a: every 2h (next 2026-12-01 09:00)"),
        ({"enabled": False}, "a: every 2h (paused)"),
        ({"enabled": False, "error": "line 2: no"}, "a: every 2h (line 2: no)"),
        ({"proposed": True}, "a: every 2h (proposed)"),
        ({"expr": "", "enabled": False, "error": "no"}, "a: not understood (no)"),
    ):
        assert schedules.lines([row | change]) == said  # type: ignore[operator]
    assert schedules.lines([]).startswith("There are no schedules here.")
