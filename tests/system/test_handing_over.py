"""Handovers through the whole daemon: a successor that begins with its manifest alone, an agent that goes on by itself,
messages that are answered once, the owner's word where the group wants it, whoever is killed on the way."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from clawd.ledger.db import Ledger
from clawd.lifecycle import manifest
from clawd.sessions.reading import load
from tests.system.conftest import DEADLINE, Home, until

OLD, NEW = "terminal:main", "terminal:main.2"
FULL = {"input": 2_000, "output": 10, "cached": 0}
SMALL = {"input": 20, "output": 10, "cached": 0}
NOTES = {"goal": "Ship the report", "verified": ["the build passes"], "next_safe_action": "Run the tests"}
TINY = "[profiles.tiny]\nsoft = 500\nhard = 1000\n"


def group(home: Home, more: str = "") -> None:
    folder = home.layout.group("main")
    folder.root.mkdir(parents=True, exist_ok=True)
    folder.config_file.write_text(f'schema = 1\nprofile = "tiny"\n{more}\n')
    folder.config_file.chmod(0o600)


def steps(*more: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return ({"text": "SECRET-OLD-ANSWER", "notes": NOTES, "usage": FULL}, *more)


def rows(home: Home, sql: str, *values: Any) -> list[dict[str, Any]]:
    ledger = Ledger.read_only(home.layout.ledger_file)
    try:
        return [dict(row) for row in ledger.tx(lambda tx: tx.all(sql, *values))]
    finally:
        ledger.close()


def context(home: Home, session: str) -> dict[str, Any]:
    return next(iter(rows(home, "SELECT * FROM context WHERE session = ?", session)), {})


def texts(home: Home, kind: str) -> list[str]:
    return [row["text"] for row in rows(home, "SELECT text FROM delivery WHERE kind = ? ORDER BY id", kind)]


def said(home: Home, session: str) -> list[tuple[str, str]]:
    """As it is now; nothing where there is no file."""
    path = home.layout.group("main").sessions / f"{session.replace(':', '_').replace('.', '_')}.md"
    return [(block.role, block.content) for block in load(path).blocks] if path.is_file() else []


@pytest.mark.parametrize("fault", ["", "handed", "seeded"])  # the points between: tests/turns, test_lifecycle_kills
def test_a_full_session_goes_on_in_a_fresh_one_by_itself(home: Home, fault: str) -> None:
    group(home)
    home.script(*steps({"text": "went on", "usage": SMALL}, {"text": "and more", "usage": SMALL}), more=TINY)
    daemon = home.start(f"kill@{fault}" if fault else None)
    home.say("Ship it. Never mail bob@example.org.")
    if fault:
        assert daemon.wait(DEADLINE) == -signal.SIGKILL
        home.start()
    until(lambda: ("assistant", "went on") in said(home, NEW))
    blocks = said(home, NEW)
    assert [role for role, _ in blocks] == ["system", "user", "assistant"]
    assert all(each in blocks[0][1] for each in ("Ship the report", "the build passes", "Never mail bob"))
    assert "SECRET-OLD-ANSWER" not in json.dumps(blocks) and "Ship it." not in blocks[1][1]
    [path] = home.layout.group("main").manifests.glob("*.json")
    made = manifest.read(path)
    assert (made.session_id, made.goal, made.next_safe_action) == (OLD, "Ship the report", "Run the tests")
    assert made.constraints == ["Never mail bob@example.org."] and made.token_snapshot.window == 2_010
    old = [text for role, text in said(home, OLD) if role == "assistant"]
    assert old == ["SECRET-OLD-ANSWER"]
    assert sum("goes on in a fresh session" in text for text in texts(home, "notice")) == 1
    assert texts(home, "text") == ["SECRET-OLD-ANSWER", "went on"]
    assert context(home, OLD)["status"] == "handoff" and context(home, NEW)["gate"] is None
    done = home.cli("session", "resume", OLD)
    assert done.returncode == 1 and f"goes on as {NEW}" in done.stderr
    assert home.cli("session", "resume", "nobody").returncode == 5


def test_what_waits_is_answered_once_in_the_successor(home: Home) -> None:
    group(home)
    slow = {"tool_calls": [{"name": "sleep", "arguments": {"seconds": 0.5}}]}
    first = {"text": "first", "notes": {"goal": "Talk"}, "usage": FULL, "delay_s": 0.2}
    group(home, 'followups = "queue"')
    home.script(slow, first, {"text": "{message}!", "usage": SMALL}, {"text": "{message}!", "usage": SMALL}, more=TINY)
    home.start()
    for text in ("one", "two", "three"):
        home.say(text)
    home.settled(3)
    until(lambda: len(texts(home, "text")) == 3)
    assert texts(home, "text") == ["first", "two!", "three!"]
    assert [text for role, text in said(home, NEW) if role == "user"] == ["two", "three"]
    assert "one" not in [text for _, text in said(home, NEW)]


def test_a_no_at_the_limit_pauses_it_and_resume_lets_it_go_on(home: Home) -> None:
    group(home, 'require_confirm = ["handoff"]')
    home.script(*steps({"text": "again", "usage": SMALL}, {"text": "and again", "usage": SMALL}), more=TINY)
    home.start()
    home.say("Ship it")
    [asked] = until(lambda: home.json("approvals", "list"))
    assert (asked["kind"], asked["state"]) == ("context", "open") and "fresh session" in asked["what"]
    assert f"my owner is asked (approval {asked['id']})" in home.say("are you there?")["told"]
    assert home.cli("approvals", "deny", str(asked["id"])).returncode == 0
    until(lambda: context(home, OLD)["gate"] == "paused")
    assert context(home, OLD)["stopped_reason"] == "confirm_denied_at_hard"
    assert f"clawd session resume {OLD}" in home.say("and now?")["told"]
    late = home.cli("chat", "-m", "hello?", "--timeout", "1")
    assert late.returncode == 1 and f"clawd session resume {OLD}" in late.stderr
    assert len(texts(home, "text")) == 1
    resumed = home.json("session", "resume", OLD)
    assert (resumed["session"], resumed["status"]) == (OLD, "running")
    home.settled(4)
    assert not list(home.layout.group("main").root.glob("manifests/*"))
    lines = (home.layout.group("main").sessions / "terminal_main.decisions.jsonl").read_text().splitlines()
    assert {"required": True, "granted": False, "by": "owner"} in [json.loads(line).get("confirm") for line in lines]


def test_a_yes_hands_it_over_with_the_name_of_who_said_so(home: Home) -> None:
    group(home, 'require_confirm = ["handoff"]')
    home.script(*steps({"text": "went on", "usage": SMALL}), more=TINY)
    home.start()
    home.say("Ship it")
    [asked] = until(lambda: home.json("approvals", "list"))
    home.cli("approvals", "approve", str(asked["id"]))
    until(lambda: ("assistant", "went on") in said(home, NEW))
    [path] = home.layout.group("main").manifests.glob("*.json")
    assert manifest.read(path).confirmed_by == "owner"
