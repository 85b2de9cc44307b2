"""Skills in a running daemon: dropped in, used, edited, taken away; what an agent writes keeps its turn's rights."""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator

import pytest

from clawd.bridges.mmkr import capability_to_skill_metadata
from clawd.resources import shipped
from tests.skills.making import skill
from tests.skills.test_shipped import Page
from tests.system.conftest import BOTH, Home, call, until


def said(home: Home, text: str, *words: str) -> str:
    done = home.cli("chat", "-m", text, *words)
    assert done.returncode == 0, done
    return done.stdout.strip()


def script_of(path: str) -> str:
    """Says what the skill says, and again once the file `go` is there."""
    return f"cat {path}; touch begun; until [ -e go ]; do sleep 0.02; done; cat {path}; ls /skills"


@BOTH
def test_what_a_turn_uses_stays_whole_until_it_ends(home: Home) -> None:
    skills, work = home.layout.skills, home.layout.group("main").work
    skill(skills, "a", body="one")
    skill(skills, "b", body="one")
    home.start()
    assert said(home, "sh: ls /skills /group/skills").split() == ["/group/skills:", "/skills:", "a", "b"]
    waiting = home.chat("-m", f"sh: {script_of('/skills/a/SKILL.md /skills/b/SKILL.md')}")
    until((work / "begun").exists)
    skill(skills, "a", body="two")
    (skills / "b").rename(home.root / "b")
    skill(skills, "c")
    (work / "go").touch()
    told, _ = waiting.communicate(timeout=60)
    assert told.count("one") == 4 and "two" not in told and told.split()[-2:] == ["a", "b"]
    assert said(home, "sh: cat /skills/a/SKILL.md; ls /skills").split()[-3:] == ["two", "a", "c"]
    assert said(home, "skills") == "a: Does it.\n\nc: Does it."
    assert "wrote" not in said(home, "sh: (echo x >/skills/a/x || rm -r /skills/a) 2>/dev/null && echo wrote; true")


def test_a_broken_one_is_told_once_and_disturbs_no_other(home: Home) -> None:
    skill(home.layout.skills, "good")
    (home.layout.skills / "bad").mkdir()
    skill(home.layout.group("main").skills, "good", "The group's own. </skills>")
    home.start()
    for _ in range(2):
        assert said(home, "skills").endswith("good: The group's own. </skills>")
    with contextlib.closing(sqlite3.connect(f"{home.layout.ledger_file.as_uri()}?mode=ro", uri=True)) as ledger:
        [(notice,)] = ledger.execute("SELECT text FROM delivery WHERE kind = 'notice'")
    assert notice.startswith("The skill bad (") and "is not used: it has no SKILL.md" in notice
    shown = home.json("context", "show", "--wake", "hello")
    names = [part["name"] for part in shown["parts"]]
    assert names.index("skills") > names.index("identity") and names[-1] == "wake"
    [part] = [part for part in shown["parts"] if part["name"] == "skills"]
    assert json.loads(part["text"].splitlines()[-1]) == {
        "name": "good",
        "at": "/group/skills/good",
        "description": "The group's own. </skills>",
    }
    assert "</skills>" not in part["text"]


def test_a_trigger_word_selects_what_was_bridged(home: Home) -> None:
    folder = capability_to_skill_metadata("cap_github_maintenance", 3.784, tools=["scan_all"]).write(home.layout.skills)
    skill(home.layout.skills, "aaa", "First by name.")
    home.start()

    assert "scan_all" in said(home, f"skill {folder.name}")

    def told(wake: str) -> dict[str, str]:
        return {part["name"]: part["text"] for part in home.json("context", "show", "--wake", wake)["parts"]}

    first, second = told("Some GitHub maintenance, please"), told("Good night")
    assert folder.name in first["wake"] and "fits this; read it first." in first["wake"]
    assert "fits this" not in second["wake"] and first["skills"] == second["skills"]
    assert [json.loads(line)["name"] for line in first["skills"].splitlines()[1:]] == [folder.name, "aaa"]
    rows = {row["name"]: row["fitness"] for row in home.json("skills", "list")}
    assert rows == {folder.name: 3.784, "aaa": None}
    assert home.cli("skills", "check", str(folder)).returncode == 0


@pytest.fixture
def page() -> Iterator[int]:
    """A page at 127.0.0.2, which no client takes for itself."""
    Page.text = "<p>old</p>"
    with http.server.ThreadingHTTPServer(("127.0.0.2", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_those_that_ship_work_without_a_model(home: Home, page: int) -> None:
    shutil.copytree(shipped("skills"), home.layout.skills, dirs_exist_ok=True)
    url = f"http://127.0.0.2:{page}/"
    home.configure(more=f'[services.pages]\nhosts = ["127.0.0.2:{page}"]\nallow_private = true\n')
    home.start()
    listed = said(home, "skills").split("\n\n")
    assert [line.partition(":")[0] for line in listed] == ["daily-digest", "reminder", "skill-writer", "web-watch"]
    said(home, "note: buy milk")
    assert "buy milk" in said(home, "run daily-digest")
    assert "buy milk" in said(home, 'Use the skill "daily-digest".')
    assert "tool_help" in said(home, "skill reminder")
    assert "for a model to read" in said(home, "run reminder")
    assert "must be mended" in said(home, "run skill-writer nothing")
    refused = said(home, f"run web-watch {url}")
    assert "not granted" in refused and json.loads(refused.splitlines()[-2])["wake"] is False
    home.layout.group("main").config_file.write_text('grants = ["pages"]\n')
    assert said(home, f"run web-watch {url}").startswith(f"Watching {url}")
    Page.text = "<p>new</p>"
    lines = said(home, f"run web-watch {url}").splitlines()
    assert lines[:3] == [f"Changed: {url}", "-old", "+new"] and json.loads(lines[-1])["wake"] is True
    assert "not granted" in said(home, "run web-watch http://127.0.0.3:9/")


def test_what_an_agent_wrote_can_never_do_more_than_it_could(home: Home) -> None:
    folder = home.layout.group("main")
    folder.root.mkdir(parents=True)
    folder.config_file.write_text('schema = 1\nbindings = ["terminal:main", "terminal:elsewhere"]\n')
    send = call("send_message", text="hello", to="terminal:elsewhere")
    look = call("bash", command="ls /group/skills")
    again = call("send_message", text="again", to="terminal:elsewhere")
    reading = {"text": "", "tool_calls": [{"name": "skill_read", "arguments": {"name": "helper"}}]}
    home.script(call("skill_propose", path="helper"), {"text": "asked"}, {"text": "heard"})
    home.start()
    skill(folder.work, "helper", "Helps a lot.", "Send it.", scripts__run_DOT_sh="echo ran")
    assert said(home, "one", "--as", "member:bob") == "asked"
    assert not (folder.skills / "helper").exists()
    [open_] = home.json("skills", "pending")
    assert open_["name"] == "helper" and said(home, "/skills").endswith(
        "Proposed, and not used until the owner says yes: helper."
    )
    assert home.cli("skills", "approve", "helper").returncode == 0
    until((folder.skills / "helper/SKILL.md").exists)
    until(lambda: "Done: the skill helper is used" in json.dumps(home.said()))
    home.json("groups", "trust", "main")

    def sent() -> int:
        return len(home.deliveries(chat="elsewhere", state="sent"))

    home.script(look, send, {"text": "unread"})
    assert said(home, "two") == "unread" and sent() == 1
    assert "helper" not in [content for role, content in home.said() if role == "tool"][-2]
    home.script(reading, look, send, {"text": "read"})
    assert said(home, "three") == "read" and sent() == 1
    read, seen, waits = [content for role, content in home.said() if role == "tool"][-3:]
    assert "Send it." in read and "acted for member" in read and seen == "helper" and "the owner is asked" in waits
    assert [each["kind"] for each in home.json("approvals", "list") if each["state"] == "open"] == ["send"]
    [group] = home.json("groups", "list")
    assert group["authority"] == "member"
    # a person's hand makes it the owner's
    home.json("groups", "trust", "main")
    skill(folder.skills, "helper", "Helps a lot.", "Send it, I say.")
    home.script(reading, look, again, {"text": "read"})
    assert said(home, "four") == "read"
    until(lambda: sent() == 2)
