"""Schedules in the running daemon, with a clock that is turned, and killed wherever it matters."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clawd.commands import memory
from clawd.ledger import firings
from clawd.ledger.db import Ledger
from tests.system import turned
from tests.system.conftest import Home, until

SOON = 5.0  # seconds: five times what is promised


def rows(home: Home, id: str) -> list[dict[str, Any]]:
    """The firings of a schedule of `main`, the oldest first."""
    ledger = Ledger.read_only(home.layout.ledger_file)
    try:
        return ledger.tx(lambda tx: firings.history(tx, "main", id))[::-1]
    finally:
        ledger.close()


def known(home: Home, id: str) -> dict[str, Any]:
    """Its line of `schedule list`; empty texts where there is none."""
    ledger = Ledger.read_only(home.layout.ledger_file)
    try:
        found = {row["id"]: row for row in ledger.tx(firings.listed)}
    finally:
        ledger.close()
    return {name: value or "" for name, value in found.get(f"main/{id}", {"next": "", "error": ""}).items()}


def outcomes(home: Home, id: str) -> list[tuple[str, str]]:
    return [(row["due"][11:16], row["outcome"]) for row in rows(home, id)]


def folder_of(home: Home) -> Path:
    return home.layout.group("main").schedules


def write(home: Home, id: str, text: str) -> None:
    folder = folder_of(home)
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{id}.new"
    new.write_text(f"schema = 1\n{text}\n")
    new.replace(folder / f"{id}.toml")


def turn(home: Home, text: str) -> None:
    turned.turn(home.root, datetime.fromisoformat(text).replace(tzinfo=UTC))


def start(home: Home, fault: str | None = None) -> None:
    home.start(fault, module="tests.system.turned", TZ="UTC")


def test_a_day_of_the_daemon(home: Home) -> None:
    turn(home, "2026-12-01T08:00")
    start(home)
    write(home, "mail", 'cron = "0 9 * * *"\nprompt = "sh: echo mail $((40 + 2))"')
    until(lambda: known(home, "mail")["next"][:16] == "2026-12-01T09:00", SOON)
    turn(home, "2026-12-01T08:59:59")
    until(lambda: outcomes(home, "mail") == [("09:00", "ran")])
    until(lambda: ("assistant", "mail 42") in home.said())
    turn(home, "2026-12-01T07:00")  # set back: not again
    write(home, "often", 'cron = "*/10 9-10 * * *"\nprompt = "sh: echo often"')
    until(lambda: known(home, "often")["next"][:16] == "2026-12-01T09:00", SOON)
    turn(home, "2026-12-01T09:30:30")  # asleep
    until(lambda: [each for each in outcomes(home, "often") if each[1] != "missed"] == [("09:30", "ran")])
    assert outcomes(home, "mail") == [("09:00", "ran")]
    # a broken edit keeps what worked, and says where
    write(home, "mail", 'cron = "0 9 * * *"\npromt = "x"')
    until(lambda: known(home, "mail")["error"], SOON)
    assert "mail.toml:3 promt" in known(home, "mail")["error"] and known(home, "mail")["next"]
    write(home, "tea", "at = 2026-12-01T09:45:00\nprompt = 'sh: echo tea'")
    until(lambda: known(home, "tea")["next"], SOON)
    for text in ("The weekly report goes to all of the team", "The weekly report goes to all of the team!"):
        home.ask("memory.write", text=text, kind="entity")
    assert home.stop() == 0
    turn(home, "2026-12-01T11:42")  # it was down
    start(home)
    until(lambda: outcomes(home, "tea") == [("09:45", "late")] and outcomes(home, "often")[-1] == ("10:50", "late"))
    assert sum(outcome != "missed" for _, outcome in outcomes(home, "often")) == 2
    until(lambda: "due 09:45, ran 11:42, late" in [text for _, text in home.said()])
    folder = folder_of(home)
    assert not (folder / "tea.toml").exists() and (folder / "done" / "tea.toml").exists()
    # a group's own zone
    home.layout.group("main").config_file.write_text('schema = 1\ntimezone = "Europe/Berlin"\n')
    until(lambda: known(home, "often")["next"][:16] == "2026-12-02T08:00", SOON)
    replies = [each for each in home.deliveries() if each["turn"] is not None]
    assert sorted(each["turn"] for each in replies) == [1, 2, 3, 4]
    turn(home, "2026-12-02T02:31")  # asleep until after its night, in its zone
    until(lambda: len(memory.listed(memory.opened(home.layout, "main"), "entity", ["active"])) == 1)
    until(lambda: any(line["msg"] == "the memory of group main: merge 1" for line in home.log()))
    assert home.stop() == 0


def replies(home: Home, session: str) -> list[str]:
    return [text for role, text in home.said(session=session) if role == "assistant" and text]


def test_killed_anywhere_it_is_one_firing_one_turn_one_reply(home: Home) -> None:
    """What a killed turn comes to is in test_kills, and a file that was not moved in tests/wakes."""
    turn(home, "2026-12-01T09:00:01")
    write(home, "plain", 'at = 2026-12-01T09:00:00\nprompt = "sh: echo plain"\nsession = "own"')
    check = "echo '{\"wake\": true}'"
    for point in ("fired", "due", "checked", "woken"):
        start(home, f"kill@{point}")
        assert home.wait() == -signal.SIGKILL, point
        if point == "fired":
            write(home, "once", f'at = 2026-12-01T09:00:00\nprompt = "sh: echo once"\ncheck = """{check}"""')
    start(home)
    for id, session in (("once", "terminal:main"), ("plain", "cron:main:plain")):
        # late where the restarts took longer than a minute
        until(lambda id=id: outcomes(home, id) in ([("09:00", "ran")], [("09:00", "late")]))
        until(lambda id=id, session=session: replies(home, session) == [id])
    until(lambda: [each["state"] for each in home.deliveries() if each["turn"]] == ["sent", "sent"])
    assert [row["turn"] for id in ("plain", "once") for row in rows(home, id)] == [1, 2]
    names = sorted(str(each.relative_to(each.parents[1])) for each in folder_of(home).rglob("*.toml"))
    assert names == ["done/once.toml", "done/plain.toml"]
    assert home.stop() == 0
