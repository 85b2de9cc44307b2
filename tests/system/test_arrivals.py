"""A home like PythonClaw's comes to a running daemon: nothing of it acts before the owner's word, all of it after."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta

import pytest

from clawd.commands.arrivals import listed, staged
from tests.arrivals.conftest import brought, everything, item, session
from tests.standin import Standin
from tests.system.conftest import Home, until
from tests.system.test_context import SERVICES, answered

pytestmark = pytest.mark.timeout(120)
GROUP = 'schema = 1\ngrants = ["anthropic"]\n\n[model]\nmodel = "first"\n'
THERE = ("heron", "Porto", "Portuguese", "tides", "boats.md", "good day")


def test_what_is_brought_in_is_used_after_the_owner_s_word_alone(home: Home) -> None:
    with Standin(key="sk-real") as model:
        home.configure("messages", more=SERVICES.format(url=model.url))
        home.start(STANDIN_KEY="sk-real")
        home.ask("groups.add", name="main")
        home.layout.group("main").config_file.write_text(GROUP)
        soon = (datetime.now().astimezone() + timedelta(hours=2)).isoformat()
        once = item("schedule", "schedules/once.toml", f'schema = 1\nat = "{soon}"\nprompt = "say it"\n'.encode())
        result = staged(home.layout, brought(*everything(), once, *everything("second")), dry_run=False)
        assert {row["state"] for row in result["came"]} == {"new"} and home.layout.group("second").work.is_dir()

        answered(home, "what of the heron, the town and the tides?", session="before")
        told = json.dumps(model.requests[-1].body)
        assert not [word for word in THERE if word in told.replace("what of the heron, the town and the tides?", "")]
        assert home.json("schedule", "list") == [] and home.json("skills", "list", "--group", "main") == home.json(
            "skills", "list", "--group", "second"
        )
        assert [row["session"] for row in home.json("session", "list")] == ["before"]

        result = home.json("bridge", "accept", "pythonclaw", "--group", "main")
        assert result["left"] == [] and len(result["accepted"]) == 9
        until(lambda: [row["next"] is not None for row in home.json("schedule", "list")] == [True, True])
        [found] = home.json("memory", "search", "frogs heron mill", "-k", "1")["hits"]
        assert (found["trust"], found["source"]) == (0.6, "pythonclaw:context/memory/notes/2026-03-01-heron.md")
        answered(home, "go on about the heron that eats frogs", session="mmkr:a")
        request = model.requests[-1]
        told = json.dumps(request.body, ensure_ascii=False)
        assert all(word in told for word in ("hello", "good day", "tides", "Answer in Portuguese", "eats frogs"))
        assert [message["role"] for message in request.body["messages"]] == ["user", "assistant", "user"]
        assert home.said(session="mmkr:a")[:2] == [("user", "hello"), ("assistant", "good day")]
        # It grew there, while it goes on here.
        grown = item("session", "sessions/mmkr_a.md", session("mmkr:a", "hello", "good day", "and there"))
        staged(home.layout, brought(grown), dry_run=False)
        [left] = home.json("bridge", "accept", "pythonclaw", "--group", "main")["left"]
        assert "went on here and there" in left["why"]


def test_what_is_forgotten_while_much_is_accepted_is_forgotten_at_once(home: Home) -> None:
    home.start()
    home.ask("groups.add", name="main")
    home.cli("memory", "write", "The heron of the old mill is called Ines.")
    [found] = home.json("memory", "search", "heron", "-k", "1")["hits"]
    notes = [item("note", f"memory/notes/{n}.md", f"Crane {n} of the dock was painted.".encode()) for n in range(300)]
    staged(home.layout, brought(*notes), dry_run=False)
    accepting = home.spawn("bridge", "accept", "pythonclaw", "--json")
    until(lambda: len([*(home.layout.group("main").memory / "episodes").glob("*.md")]) > 10)
    began = time.monotonic()
    home.json("memory", "delete", found["id"], "--yes")
    assert time.monotonic() - began < 8
    assert len(json.loads(accepting.communicate()[0])["accepted"]) == 300


def test_an_agent_sees_nothing_of_it_and_can_write_nothing_there(home: Home) -> None:
    home.start()
    staged(home.layout, brought(*everything()), dry_run=False)
    look = "ls -a /group /group/work; find / -path /proc -prune -o -name 'import.json' -print 2>/dev/null"
    write = "mkdir -p /group/import/pythonclaw && echo wrote; mkdir -p import/evil/skills && echo made"
    told = home.cli("chat", "-m", f"sh: ({look}; {write}) 2>/dev/null; true").stdout
    assert "import.json" not in told and "pythonclaw" not in told and "wrote" not in told and "made" in told
    assert [row["source"] for row in listed(home.layout, None)] == ["pythonclaw"]  # what lies in work/ is none
