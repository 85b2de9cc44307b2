"""A daemon that is killed between any two commits of what follows a turn: each turn is decided about once, each line is
in its file once, and what is pinned is never lost."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from typing import Any

from clawd.sessions import reading
from tests.system.conftest import Home, until

POINTS = ("appended", "settled", "decisions_written", "projected")
PROFILE = "[profiles.tiny]\nsoft = 5000\nhard = 9000\n"


def step(n: int, window: int, **notes: Any) -> dict[str, Any]:
    return {"text": f"re {n}", "usage": {"input": window - 10, "output": 10}, "notes": notes}


def lines(home: Home, kind: str) -> list[dict[str, Any]]:
    """Of all segments of the conversation, in their order."""
    found = home.layout.group("main").sessions.glob(f"terminal_main*.{kind}.jsonl")
    files = sorted(found, key=lambda each: len(each.name))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def unfinished(home: Home) -> list[Any]:
    open_ = "SELECT session FROM context WHERE dirty > 0 OR seed IS NOT NULL UNION SELECT session FROM compaction"
    with closing(sqlite3.connect(f"{home.layout.ledger_file.as_uri()}?mode=ro", uri=True)) as ledger:
        return ledger.execute(f"{open_} WHERE state IN ('begun', 'asked', 'ready')").fetchall()


def test_what_follows_a_turn_happens_once(home: Home) -> None:
    first = step(1, 100, goal="build it", constraints=["Never push to main"])
    home.script(first, step(2, 6000, verified=["v1.2.3 works"]), step(3, 9500), step(4, 400), more=PROFILE)
    home.layout.create()
    home.cli("groups", "add", "main")
    group = home.layout.group("main")
    group.config_file.write_text('profile = "tiny"\n')
    for n, point in enumerate(POINTS, 1):
        home.start(f"kill@{point}")
        home.say(f"for {point}")
        assert home.wait() == -signal.SIGKILL
        home.start()  # what was left open is done with nothing else to do
        home.settled(n)
        until(lambda: not unfinished(home))
        if n < len(POINTS):
            assert home.stop() == 0

    turns = [line["window_tokens"] for line in lines(home, "metrics") if line["event"] == "turn"]
    assert turns == [100, 6000, 9500, 400]
    decisions = lines(home, "decisions")
    assert [(line["action"], line["trigger"]) for line in decisions] == [
        *(("continue", "none"), ("compact", "soft_compact"), ("handoff", "hard_handoff"), ("continue", "none"))
    ]
    assert len({(line["session_id"], line["seq"]) for line in decisions}) == len(POINTS)
    blocks = reading.load(group.sessions / "terminal_main.md").blocks
    assert [block.content for block in blocks if block.role == "assistant"] == ["re 1", "re 2", "re 3"]
    state = json.loads((group.sessions / "terminal_main_2.state.json").read_text())
    assert (state["goal"], state["parent"], state["status"]) == ("build it", "terminal:main", "running")
    assert [pin["text"] for pin in state["ledger"]["constraints"]] == ["Never push to main"]
    assert [pin["text"] for pin in state["ledger"]["verified"]] == ["v1.2.3 works"]
    assert sum(each["kind"] == "text" for each in home.deliveries()) == len(POINTS)
