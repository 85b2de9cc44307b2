"""`clawd context run` from outside: the scenarios of the seed by command line, what is refused, and a run that is killed
and goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import Home, until

TINY = [
    {"text": f"word {n}", "usage": {"input": tokens, "output": 500, "cached": 0}}
    for n, tokens in enumerate((20_000, 50_000, 74_000, 99_000), 1)
]


def script(home: Home, *steps: dict[str, Any], name: str = "own.json") -> str:
    file = home.root / name
    file.write_text(json.dumps({"steps": list(steps)}))
    return str(file)


def play(home: Home, *words: str, code: int = 0, play: str = "demo") -> dict[str, Any]:
    done = home.cli("context", "run", *words, *(("--script", play) if play else ()), "--json")
    assert done.returncode == code, f"{done.returncode} {done.stdout} {done.stderr}"
    return dict(json.loads(done.stdout))


def decisions(home: Home, session: str) -> list[dict[str, Any]]:
    file = home.layout.group("main").sessions / f"{session}.decisions.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def said(home: Home, session: str) -> list[str]:
    return [content for role, content in home.said(session=session) if role == "assistant"]


def test_the_scenarios_of_the_seed(home: Home) -> None:
    home.start()  # one daemon for all: what each run makes of its own companion is another test's
    limits = ("--profile", "coding", "--max-steps", "20")

    # A: nothing but continue
    words = ("--goal", "demo-A continue only", *limits, "--soft-compact", "500000", "--hard-handoff", "600000")
    a = play(home, *words, "--session-id", "demo-a")
    assert (a["session"], a["stopped_reason"], a["steps"], a["compact_count"]) == ("demo-a", "completed", 4, 0)
    assert a["tokens"] == {"window": 106_000, "cumulative": 245_000} and a["handoff_manifest"] is None
    assert [(each["action"], each["trigger"]) for each in decisions(home, "demo-a")] == [("continue", "none")] * 4

    # B: compacted
    words = ("--goal", "demo-B forced compact", *limits, "--soft-compact", "1000", "--hard-handoff", "500000")
    b = play(home, *words, "--session-id", "demo-b")
    assert b["stopped_reason"] == "completed" and b["steps"] == 4 and b["compact_count"] >= 1
    assert {"action": "compact", "trigger": "soft_compact"}.items() <= decisions(home, "demo-b")[0].items()
    assert len(said(home, "demo-b")) == 4  # nothing is cut

    # C: handed over, and the successor begins with the manifest alone
    words = ("--goal", "demo-C forced handoff", *limits, "--soft-compact", "5000", "--hard-handoff", "20000")
    c = play(home, *words, "--session-id", "demo-c")
    assert c["stopped_reason"] == "handoff" and c["steps"] == 2
    file = Path(c["handoff_manifest"])
    assert file.parent == home.layout.group("main").root / "manifests" and file.name.endswith("_demo-c.json")
    manifest = json.loads(file.read_text())
    assert (
        manifest["schema_version"] == "1.1" and manifest["trigger"] == "hard_handoff" and manifest["next_safe_action"]
    )
    first, *rest = home.blocks(session="demo-c.2")
    assert not rest and "handoff" in first.meta
    for line in said(home, "demo-c"):
        assert line not in first.content

    # short texts, large figures: a stranger's script
    tiny = script(home, *TINY)
    for soft, hard, reason in (("1000", "500000", "completed"), ("5000", "20000", "handoff")):
        name = f"tiny-{reason}"
        words = ("--goal", "short", "--soft-compact", soft, "--hard-handoff", hard, "--session-id", name)
        found = play(home, *words, play=tiny)
        assert found["stopped_reason"] == reason
        assert (found["compact_count"] >= 1) == (reason == "completed")

    # what ended does not go on; what is not there is said
    for ended in ("demo-a", "demo-c"):
        done = home.cli("context", "run", "--resume", ended)
        assert done.returncode == 1 and "ended as" in done.stderr
    assert home.cli("context", "run", "--resume", "nobody").returncode == 5
    again = home.cli("context", "run", "--goal", "x", "--script", "demo", "--session-id", "demo-a")
    assert again.returncode == 2 and "already" in again.stderr


def test_a_run_has_a_daemon_of_its_own_and_stops_after_as_many_steps_as_it_may_take(home: Home) -> None:
    found = play(home, "--goal", "two at a time", "--session-id", "two", "--max-steps", "2")
    assert (found["stopped_reason"], found["steps"]) == ("max_steps", 2)
    rest = play(home, "--resume", "two", play="")
    assert (rest["stopped_reason"], rest["steps"]) == ("completed", 4)
    assert len(said(home, "two")) == 4
    assert not home.left_over()


def test_a_run_and_its_daemon_that_are_killed_go_on_where_they_were(home: Home) -> None:
    slow = [
        {"text": f"step {n}", "delay_s": 30 if n == 3 else 0, "usage": {"input": 100, "output": 10}}
        for n in range(1, 5)
    ]
    plan = script(home, *slow)
    daemon = home.start()
    run = home.spawn("context", "run", "--goal", "four steps", "--script", plan, "--session-id", "four")
    until(lambda: len(home.messages(session="four", state="recorded")) == 2)
    until(lambda: home.messages(session="four", state="claimed"))
    run.send_signal(signal.SIGKILL)
    os.kill(daemon.pid, signal.SIGKILL)
    run.wait()
    daemon.wait()
    plan = script(home, *({**step, "delay_s": 0} for step in slow))
    found = play(home, "--resume", "four", play=plan)
    assert (found["stopped_reason"], found["steps"]) == ("completed", 4)
    assert said(home, "four") == ["step 1", "step 2", "step 3", "step 4"]
    assert [content for role, content in home.said(session="four") if role == "user"].count("four steps") == 1


def test_a_step_that_fails_ends_the_run(home: Home) -> None:
    plan = script(home, {"text": "fine"}, {"error": "the tests do not pass"}, {"text": "never"})
    found = play(home, "--goal", "fail", "--session-id", "fails", code=1, play=plan)
    assert (found["stopped_reason"], found["steps"]) == ("failed", 2)
    assert home.cli("context", "run", "--resume", "fails").returncode == 1


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--script", "demo"), 2, "--goal is missing"),
        (("--goal", "x", "--script", "nowhere.json"), 2, "there is no script"),
        (("--goal", "x", "--script", "demo", "--agent", "messages"), 2, "leave --script or --agent out"),
        (("--goal", "x", "--agent", "scripted"), 2, "needs --script"),
        (("--goal", "x", "--script", "demo", "--require-confirm", "everything"), 2, "nothing asks before"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_made(
    home: Home, words: tuple[str, ...], code: int, sentence: str
) -> None:
    done = home.cli("context", "run", *words)
    assert done.returncode == code and sentence in done.stderr
    assert not (home.layout.state / "control.sock").exists()
