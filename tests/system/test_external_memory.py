"""Memory from other programs through a running daemon, that is killed beside them; and the page that tells how."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from clawd.bridges.client import MOST, Client
from clawd.errors import ClawdError, Refused, UsageError
from clawd.memory import outside
from tests.system.conftest import ROOT, Home

PAGE = ROOT / "docs/external-agents.md"
SESSION = "mmkr:agent-1"
SPACE = "mmkr_agent-1_"


@pytest.fixture
def opened(home: Home) -> Home:
    assert home.cli("groups", "set", "main", "external", '["mmkr:*"]').returncode == 0
    return home


def logs(home: Home) -> str:
    return "".join(path.read_text() for path in home.layout.group("main").memory.glob("20*.md"))


def facts(home: Home) -> list[tuple[str, str, float, str]]:
    return [(row["key"], row["text"], row["trust"], row["origin"]) for row in home.json("memory", "pending")]


def test_what_another_program_keeps_waits_and_is_there_once(opened: Home) -> None:
    home, client = opened, Client(opened.root)
    assert MOST == outside.MOST
    home.start()
    kept = client.remember(SESSION, "Answered issue 12 about the bridge.", tags=["social"], key="1")
    assert (kept["group"], kept["trust"], kept["status"], kept["state"]) == ("main", 0.2, "active", "kept")
    fact = client.remember(SESSION, "ship the bridge", fact=f"{SPACE}goal", key="2")
    assert (fact["status"], fact["state"]) == ("proposed", "kept") and facts(home) == [
        (f"{SPACE}goal", "ship the bridge", 0.2, "external")
    ]
    with pytest.raises(UsageError, match="is no key of mmkr:agent-1"):
        client.remember(SESSION, "mallory", fact="user_name")
    with pytest.raises(Refused, match="from outside") as refusal:
        client.remember("other:1", "x")
    assert "clawd groups set" in (refusal.value.hint or "")
    # many, in one call and in more; what is wrong in one place leaves none of its hundred
    many = [{"text": f"Line {number} of the tick.", "key": f"m{number}"} for number in range(MOST + 20)]
    states = [each["state"] for each in client.remember_many(SESSION, many)]
    assert states == ["kept"] * len(many) and client.remember_many(SESSION, []) == []
    assert {each["state"] for each in client.remember_many(SESSION, many)} == {"known"}
    with pytest.raises(UsageError, match="nothing in it"):
        client.remember_many(SESSION, [{"text": "Never kept."}, {"text": ""}])
    assert len(re.findall(r"^Line [0-9]+ of the tick\.$", logs(home), re.MULTILINE)) == len(many)
    assert "Never kept" not in logs(home)
    # 6 MB of entries do not fit into a line of the socket
    big = [{"text": f"{number} {'x' * 60_000}", "fact": f"{SPACE}{number}", "key": str(number)} for number in range(40)]
    assert {each["state"] for each in client.remember_many(SESSION, big)} == {"kept"}

    # without a daemon it is the same
    home.stop()
    assert client.remember(SESSION, "Answered issue 12 about the bridge.", tags=["social"], key="1")["state"] == "known"
    assert client.remember(SESSION, "Slept.", key="3")["state"] == "kept" and logs(home).count("\nSlept.\n") == 1

    # nobody finds it unasked, and the owner vouches for it
    assert home.json("memory", "search", "bridge")["hits"] == []
    [hit, *_] = home.json("memory", "search", "bridge issue", "--include-untrusted")["hits"]
    assert (hit["origin"], hit["trust"]) == ("external", 0.2) and hit["id"].endswith(":external")
    assert home.cli("memory", "approve", fact["id"], "--yes").returncode == 0
    assert home.json("memory", "search", "bridge")["hits"][0]["trust"] == 1.0
    again = client.remember(SESSION, "burn the bridge", fact=f"{SPACE}goal", key="4")
    assert again["status"] == "proposed" and "it contradicts" in again["why"]


@pytest.mark.parametrize("point", ["remembering-stamped", "remembering-written", "remembering-logged"])
def test_a_daemon_that_is_killed_beside_a_writer(opened: Home, point: str) -> None:
    """The client says it again, to the next daemon or under the lock: all of it is there, and once."""
    home, client = opened, Client(opened.root)
    said: list[dict[str, Any]] = [{"text": f"Line {number}.", "key": f"l{number}"} for number in range(3)]
    said.append({"text": "v1", "fact": f"{SPACE}x", "key": "f"})
    home.start(f"kill@{point}")
    if point == "remembering-logged":
        said.pop()  # a fact that waits is in no log
    assert {each["state"] for each in client.remember_many(SESSION, said)} <= {"kept", "known"}
    home.wait()
    home.start()
    assert {each["state"] for each in client.remember_many(SESSION, said)} == {"known"}
    assert [logs(home).count(f"\nLine {number}.\n") for number in range(3)] == [1, 1, 1]
    assert [each[1] for each in facts(home)] == ([] if point == "remembering-logged" else ["v1"])


def test_without_a_key_nobody_says_it_twice(opened: Home) -> None:
    home, client = opened, Client(opened.root)
    home.start("kill@remembering-logged")
    with pytest.raises(ClawdError):
        client.remember(SESSION, "Once.")
    assert logs(home).count("\nOnce.\n") == 1


# ── the page ──


def examples() -> list[tuple[str, str]]:
    return re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page_work_as_they_stand(home: Home) -> None:
    person = home.root.parent
    (person / "clawd").symlink_to(home.root)
    program = person / "bin/clawd"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m clawd "$@"\n')
    program.chmod(0o755)
    (person / "elsewhere").mkdir()
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = home.environment(HOME=str(person), CLAWD_HOME=str(home.root), PATH=path)
    home.start()
    printed = []
    assert [language for language, _ in examples()] == ["sh", "sh", "python", "python"]
    for language, text in examples():
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment,
                              cwd=person / "elsewhere")  # fmt: skip
        assert done.returncode == 0, (text, done.stdout, done.stderr)
        printed.append(done.stdout)
    assert printed[2:] == ["kept\nkept\n", "True kept\n"]
    roles = [(block.role, block.content) for block in home.blocks(session=SESSION)]
    assert roles == [
        ("user", "Tick 64 - observe, think, act."), ("assistant", "I look around."), ("tool", "a.txt"),
        ("user", "Tick 65 - observe, think, act."), ("assistant", "I read the issue."),
        ("tool", "It is about the bridge."), ("assistant", "Tick 65 is done."),
    ]  # fmt: skip
    assert re.search(r"^### [0-9:]{8} — mmkr_agent-1_social\n\nAnswered issue 12\. #github\n\n", logs(home), re.M)
    assert [each[:2] for each in facts(home)] == [("mmkr_agent-1_goal", "ship the bridge")]
    # what it says that is printed is printed
    shown = json.loads(re.findall(r"^```json\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0])
    done = home.cli("inject", "--session", SESSION, "--role", "user", "--key", "tick-64", "--json", text="Tick 64")
    assert json.loads(done.stdout) == {**shown, "state": "known"}
    done = home.cli("inject", "--session", SESSION, "--role", "user", "--key", "tick-67", "--json", text="Tick 67")
    assert json.loads(done.stdout) == {**shown, "key": "tick-67"}
    words = ("inject", "--role", "tool", "--tool-call-id", "none", "--session")
    assert home.cli(*words, SESSION, text="x").returncode == 2
    assert home.cli(*words, "other:1", text="x").returncode == 4
    assert home.cli(*words, SESSION, "--group", "nowhere", text="x").returncode == 4  # it has another group's session
    assert home.cli(*words, "mmkr:new", "--group", "nowhere", text="x").returncode == 5


def test_the_page_says_the_limits_that_hold() -> None:
    page = PAGE.read_text("utf-8")
    for limit in (
        f"| a text | {outside.offer.LARGEST >> 10} KB |", f"| entries of one call | {outside.MOST} |",
        f"wait for the owner | {outside.MOST_WAIT};", f"| a day's log | {outside.LARGEST_LOG >> 20} MB,",
        f"At most {outside._LONGEST_ID}\n", f"texts of at most {outside._LONGEST_KEY} characters",
    ):  # fmt: skip
        assert limit in page, limit
