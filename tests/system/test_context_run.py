"""`clawd context run` from outside: the scenarios of the seed by command line, what is refused, and a run that is
killed and goes on."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.lifecycle.manifest import HandoffManifest
from tests.system.conftest import ROOT, Home, homes, until

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


@pytest.fixture(scope="module")
def served() -> Iterator[Home]:
    """One daemon for all that need none of their own; sandboxes are bubblewrap's."""
    with homes(None) as make:
        home = make()
        home.start()
        yield home


COMMANDS = re.findall(r"^clawd (.+)$", (ROOT / "docs" / "context-run.md").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def page(served: Home) -> dict[str, Any]:
    """What each command of docs/context-run.md gives: a run by its session, any other by its words."""
    found = {}
    for line in COMMANDS:
        words = shlex.split(line)
        if words != ["init"]:  # there is a home
            given = served.json(*words)
            found[given["session"] if words[:2] == ["context", "run"] else line] = given
    return found


def test_the_page_s_quick_start(page: dict[str, Any]) -> None:
    assert len(COMMANDS) > 12
    for tokens, action, trigger in ((260_000, "compact", "soft_compact"), (360_000, "handoff", "hard_handoff")):
        decided = page[f"context decide --tokens {tokens} --profile coding"]
        assert (decided["action"], decided["trigger"]) == (action, trigger)
    assert page["context status --session demo-a"]["status"] == "completed"
    assert (page["demo-d"]["stopped_reason"], page["demo-d"]["steps"]) == ("completed", 4)
    assert page["demo-e"]["stopped_reason"] == "handoff" and page["demo-f"]["stopped_reason"] == "completed"


def test_the_scenarios_of_the_seed(served: Home, page: dict[str, Any]) -> None:
    """As the page has them: its commands are the seed's, with our names."""
    home = served

    # A: nothing but continue
    a = page["demo-a"]
    assert (a["session"], a["stopped_reason"], a["steps"], a["compact_count"]) == ("demo-a", "completed", 4, 0)
    assert a["tokens"] == {"window": 106_000, "cumulative": 245_000} and a["handoff_manifest"] is None
    assert [(each["action"], each["trigger"]) for each in decisions(home, "demo-a")] == [("continue", "none")] * 4

    # B: compacted
    b = page["demo-b"]
    assert b["stopped_reason"] == "completed" and b["steps"] == 4 and b["compact_count"] >= 1
    assert {"action": "compact", "trigger": "soft_compact"}.items() <= decisions(home, "demo-b")[0].items()
    assert len(said(home, "demo-b")) == 4  # nothing is cut

    # C: handed over, and the successor begins with the manifest alone
    c = page["demo-c"]
    assert c["stopped_reason"] == "handoff" and c["steps"] == 2
    file = Path(c["handoff_manifest"])
    assert file.parent == home.layout.group("main").root / "manifests" and file.name.endswith("_demo-c.json")
    manifest = HandoffManifest.model_validate_json(file.read_text())
    assert (manifest.schema_version, manifest.trigger) == ("1.1", "hard_handoff") and manifest.next_safe_action
    assert manifest.goal == "demo-C forced handoff"
    first, *rest = home.blocks(session="demo-c.2")
    assert not rest and "handoff" in first.meta
    for line in said(home, "demo-c"):
        assert line not in first.content

    # what ended does not go on; what is not there is said
    for ended in ("demo-a", "demo-c"):
        done = home.cli("context", "run", "--resume", ended)
        assert done.returncode == 1 and "ended as" in done.stderr
    assert home.cli("context", "run", "--resume", "nobody").returncode == 5
    again = home.cli("context", "run", "--goal", "x", "--script", "demo", "--session-id", "demo-a")
    assert again.returncode == 2 and "already" in again.stderr


def test_short_texts_and_large_figures(served: Home) -> None:
    """A stranger's script: compactions find next to nothing to leave out, and the run completes all the same."""
    home = served
    tiny = script(home, *TINY)
    for soft, hard, reason in (("1000", "500000", "completed"), ("5000", "20000", "handoff")):
        name = f"tiny-{reason}"
        words = ("--goal", "short", "--soft-compact", soft, "--hard-handoff", hard, "--session-id", name)
        found = play(home, *words, play=tiny)
        assert found["stopped_reason"] == reason
        assert (found["compact_count"] >= 1) == (reason == "completed")


def test_a_run_has_a_daemon_of_its_own_and_stops_after_as_many_steps_as_it_may_take(home: Home) -> None:
    found = play(home, "--goal", "two at a time", "--session-id", "two", "--profile", "coding", "--max-steps", "2")
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


def test_a_run_that_is_killed_alone_goes_on_while_its_daemon_still_ends(home: Home) -> None:
    slow = [{"text": f"step {n}", "delay_s": 1.5 if n == 2 else 0} for n in range(1, 4)]
    plan = script(home, *slow)
    run = home.spawn("context", "run", "--goal", "three", "--script", plan, "--session-id", "alone")
    until(lambda: home.messages(session="alone", state="claimed") and len(home.messages(session="alone")) == 2)
    run.send_signal(signal.SIGKILL)
    run.wait()
    found = play(home, "--resume", "alone", play="")
    assert (found["stopped_reason"], found["steps"]) == ("completed", 3)
    assert said(home, "alone") == ["step 1", "step 2", "step 3"]
    assert not home.left_over()


def test_whoever_leaves_comes_back(served: Home) -> None:
    home = served
    slow = [{"text": f"step {n}", "delay_s": 2 if n == 2 else 0, "usage": {"input": 100, "output": 10}} for n in (1, 2)]
    plan = script(home, *slow)
    run = home.spawn("context", "run", "--goal", "leave", "--script", plan, "--session-id", "left", "--json")
    until(lambda: home.messages(session="left", state="claimed") and len(home.messages(session="left")) == 2)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130 and json.loads(out)["stopped_reason"] == "stopped"
    assert "clawd context run --resume left" in err
    found = play(home, "--resume", "left", play="")
    assert (found["stopped_reason"], found["steps"]) == ("completed", 2)
    assert said(home, "left") == ["step 1", "step 2"]


def test_another_engine_goes_on_until_it_may_not(served: Home) -> None:
    home = served
    words = ("--goal", "say hello", "--agent", "offline", "--max-steps", "2", "--session-id", "offline")
    found = play(home, *words, play="")
    assert (found["stopped_reason"], found["steps"]) == ("max_steps", 2)
    typed = [content for role, content in home.said(session="offline") if role == "user"]
    assert typed[0] == "say hello" and typed[1].startswith("Go on.")


def test_a_step_that_fails_ends_the_run(served: Home) -> None:
    home = served
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


def test_an_experiment_with_memory_backends(home: Home) -> None:
    out = home.root / "out"
    words = ("--backends", "file,mem0", "--soft-compact", "1000", "--hard-handoff", "500000", "--out", str(out))
    found = home.json("experiment", "memory", *words)
    assert len(found["script_sha256"]) == 64 and list(found["backends"]) == ["file", "mem0"]
    for row in found["backends"].values():
        assert row["completed"] and row["steps"] == 4 and row["interventions"] == 0 and row["compactions"] >= 1
        assert row["tokens"] == {"peak": 115_000, "cumulative": 245_000} and row["wall_s"] > 0
        assert row["recall"] >= 0.75
    assert found["backends"]["mem0"]["note"] == "mem0 (in-memory client)"
    files = {file.suffix: file for file in out.iterdir()}
    assert json.loads(files[".json"].read_text()) == found and "<table" in files[".html"].read_text()
    assert not home.left_over()


def test_where_no_sandbox_can_be_an_experiment_says_so(home: Home) -> None:
    nowhere = 'schema = 1\n[sandbox]\nbackend = "docker"\ndocker_host = "unix:///nowhere/docker.sock"\n'
    home.layout.config_file.write_text(nowhere)
    done = home.cli("experiment", "memory", "--backends", "file,mem0")
    assert done.returncode == 1 and "docker" in done.stderr.lower() and "clawd doctor" in done.stderr
    assert not (home.root / "exports").exists()


def test_what_asks_first(served: Home) -> None:
    home = served
    limits = ("--goal", "ask first", "--soft-compact", "5000", "--hard-handoff", "20000")
    yes = play(home, *limits, "--require-confirm", "compact,handoff", "--yes", "--session-id", "yes")
    assert (yes["stopped_reason"], yes["compact_count"]) == ("handoff", 1)
    asked = [each["confirm"]["granted"] for each in decisions(home, "yes") if each.get("confirm")]
    assert asked == [None, True, None, True]
    shown = home.cli(
        "context", "run", *limits, "--script", "demo", "--require-confirm", "handoff", "--yes", "--session-id", "as"
    )
    assert [line for line in shown.stderr.splitlines() if line.startswith("asked first")] == [
        "asked first: handoff of session as at 47,000 tokens: yes"
    ]

    # a no: it goes on as it is, and the command says so at its end
    far = ("--goal", "ask first", "--soft-compact", "5000", "--hard-handoff", "500000", "--require-confirm", "compact")
    done = home.cli("context", "run", *far, "--session-id", "no", "--script", "demo", "--json")
    no = json.loads(done.stdout)
    asked = [line for line in done.stderr.splitlines() if line.startswith("asked first: ")]
    assert done.returncode == 2 and asked
    assert all(line.startswith("asked first: compact of session no") for line in asked)
    assert (no["stopped_reason"], no["steps"], no["compact_count"]) == ("completed", 4, 0)

    # a no at the hard limit: it waits, and a run that goes on asks again
    hard = play(home, *limits, "--require-confirm", "handoff", "--session-id", "hard", code=2)
    assert hard["stopped_reason"] == "confirm_denied_at_hard" and hard["handoff_manifest"] is None
    again = play(home, "--resume", "hard", "--yes", play="")
    assert again["stopped_reason"] == "handoff" and again["handoff_manifest"] is not None
