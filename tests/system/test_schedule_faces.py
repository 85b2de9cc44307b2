"""Schedules through the whole daemon, by each face: the command line, the chat, the offline engine, an agent's tool.
The command line is run in this process: a process for each command would cost too much."""

from __future__ import annotations

import json
import tomllib
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from clawd.cli.main import run
from clawd.commands import looking
from clawd.ledger.db import Ledger
from tests.system.conftest import Home, call, until

HOUR = (datetime.now(ZoneInfo("Europe/Berlin")).hour + 6) % 24  # not while this runs
DAILY = ("schedule", "add", f"every weekday at {HOUR}:00", "say good morning", "--id", "good-morning")
OPTIONS = ("--tz", "Europe/Berlin", "--jitter", "5m", "--session", "own", "--budget", "0.5")


class Line:
    """The command line of a home."""

    def __init__(self, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self._capsys = home, capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = run(["--home", str(self.home.root), *words])
        return code, *self._capsys.readouterr()

    def json(self, *words: str) -> Any:
        code, out, err = self(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    def chat(self, text: str, *words: str) -> str:
        code, out, err = self("chat", "-m", text, *words)
        assert code == 0, err
        return out.strip()

    def ran(self, id: str) -> dict[str, Any]:
        """The newest run of a schedule once it is over."""
        return until(lambda: next(iter(self.json("schedule", "history", id)), {}))

    def file(self, id: str) -> dict[str, Any]:
        return tomllib.loads((self.home.layout.group("main").schedules / f"{id}.toml").read_text())


@pytest.fixture
def line(home: Home, capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(home, capsys)


@pytest.mark.parametrize("daemon", [True, False])
def test_a_schedule_is_added_looked_at_paused_and_removed(home: Home, line: Line, daemon: bool) -> None:
    if daemon:
        home.start()
    else:
        Ledger.open(home.layout.ledger_file).close()  # to make one takes a while
    made = line.json(*DAILY, *OPTIONS)
    assert (made["id"], made["expr"], made["understood"], len(made["next"])) == (
        "main/good-morning", f"0 {HOUR} * * mon-fri", f"every weekday at {HOUR:02}:00 (Europe/Berlin)", 3
    )  # fmt: skip
    assert line.file("good-morning") == {
        "schema": 1, "cron": f"0 {HOUR} * * mon-fri", "tz": "Europe/Berlin", "prompt": "say good morning",
        "session": "own", "jitter": "5m", "budget": 0.5,
    }  # fmt: skip
    assert line.json(*DAILY, *OPTIONS) == made  # the same again is the same
    line.json("groups", "add", "family")
    line.json("schedule", "add", "every 1h", "say hi", "--group", "family", "--id", "good-morning")
    rows = line.json("schedule", "list")
    assert [(row["id"], row["group"], row["enabled"], row["proposed"], row["error"]) for row in rows] == [
        ("family/good-morning", "family", True, False, None),
        ("main/good-morning", "main", True, False, None),
    ]
    assert line.json("schedule", "list", "--group", "main") == rows[1:] and rows[1]["next"] == made["next"][0]
    assert line("schedule", "list", "--group", "nobody")[0] == 5
    code, _, err = line("schedule", "show", "good-morning")
    assert code == 2 and "say family/good-morning and main/good-morning" in err
    shown = line.json("schedule", "show", "good-morning", "--group", "main")
    assert (shown["times"], shown["acts_for"], shown["history"]) == (made["next"], "owner", [])
    assert 'prompt = "say good morning"' in line("schedule", "show", "main/good-morning")[1]
    paused = {"id": "main/good-morning", "group": "main", "enabled": False}
    assert line.json("schedule", "pause", "main/good-morning") == paused
    row = line.json("schedule", "list", "--group", "main")[0]
    assert (row["enabled"], row["next"]) == (False, None) and line.file("good-morning")["enabled"] is False
    line.json("schedule", "resume", "main/good-morning")
    assert line.json("schedule", "list", "--group", "main")[0]["next"] == made["next"][0]
    code, _, err = line("schedule", "run", "main/good-morning")
    assert code == (0 if daemon else 1) and ("none runs" in err) is not daemon
    if daemon:
        assert line.ran("main/good-morning")["outcome"] == "ran"
        until(lambda: home.said(session="cron:main:good-morning")[-1:] == [("assistant", "good morning")])
        assert line.json("schedule", "list", "--group", "main")[0]["last"] is not None
    kept = line.json("schedule", "remove", "main/good-morning")["kept"]
    assert kept == str(home.layout.group("main").schedules / "done/good-morning.toml")
    assert [row["id"] for row in line.json("schedule", "list")] == ["family/good-morning"]
    assert line.json("schedule", "show", "good-morning")["group"] == "family"  # now it is the only one
    for verb in ("show", "run", "pause", "resume", "remove", "history"):
        code, _, err = line("schedule", verb, "nothing")
        assert (code, "there is no schedule 'nothing'" in err) == (5, True), verb
    code, _, err = line("schedule", "add", "every purple day", "x")
    assert code == 2 and "surely understood" in err
    code, _, err = line(*DAILY, "--group", "family")
    assert code == 2 and "already" in err
    assert "deliver_to" in line(*DAILY, "--deliver-to", "telegram:7")[2]
    (home.layout.group("main").schedules / "broken.toml").write_text('schema = 1\nevery = "20m"\n')
    broken = line.json("schedule", "list", "--group", "main")[0]
    assert (broken["id"], broken["enabled"]) == ("main/broken", False) and "a prompt or a skill" in broken["error"]


def test_reminders_in_plain_words(home: Home, line: Line) -> None:
    home.start()
    assert line.chat("schedules").startswith("There are no schedules.")
    said = line.chat("remind me in 30 minutes to stretch")
    assert said.startswith("stretch: once, ") and ". Next: " in said
    until(lambda: line.file("stretch")["prompt"] == "Remind me: stretch")
    assert line.chat("schedules").startswith("stretch: at ")
    line.json("schedule", "run", "stretch")
    assert line.ran("stretch")["outcome"] == "ran"
    until(lambda: home.said()[-1:] == [("assistant", "Reminder: stretch")])
    assert line.chat("cancel reminder stretch") == "stretch is cancelled."
    until(lambda: not line.json("schedule", "list"))
    assert line.chat("/schedule every 29 February at 9: say hello").startswith(
        "main/say-hello: every year on 29 February at 09:00"
    )
    assert "say-hello: 0 9 29 2 * (next " in line.chat("/schedule")
    line.json("schedule", "run", "say-hello")
    assert line.ran("say-hello")["outcome"] == "ran"
    until(lambda: home.said()[-1:] == [("assistant", "hello")])
    assert "surely understood" in line.chat("/schedule whenever you like: x")
    assert line.chat("/schedule in 5 minutes: x", "--as", "member:bob").startswith("Only the owner makes schedules")
    assert "say-hello: 0 9" in line.chat("/schedule", "--as", "member:bob")
    assert "It waits: schedule tea: not done yet: " in line.chat("remind me in 2 hours to tea", "--as", "member:bob")
    [row] = [row for row in line.json("schedule", "list") if row["proposed"]]
    assert row["id"] == "main/tea" and row["expr"].startswith("at ")
    code, _, err = line("schedule", "pause", "tea")
    assert code == 5 and "is only proposed" in err


def test_what_a_member_s_turn_made_acts_for_them_for_ever(home: Home, line: Line) -> None:
    """It is proposed; once approved each run is that turn's: the owner is asked about another chat, and a service that
    is for them is refused."""
    folder = home.layout.group("main")
    folder.root.mkdir(parents=True)
    folder.config_file.write_text(
        'schema = 1\nbindings = ["terminal:main", "terminal:elsewhere"]\n'
        'grants = [{service = "notes", for = "owner"}]\n'
    )
    asks = 'curl -s -o answer -w "%{http_code} " -H "Authorization: Bearer $CLAWD_TOKEN"'
    home.script(
        call("schedule", when="every 20m", prompt="look", id="spy", deliver_to="terminal:elsewhere"),
        {"text": "asked"},
        {"text": "heard"},  # what became of it
        call("send_message", text="psst", to="terminal:main"),
        call("bash", command=f"{asks} http://127.0.0.1:8080/svc/notes/x; cat answer"),
        call("schedule", when="every 30m", prompt="more"),
        {"text": "seen"},
        more='[services.notes]\nbase_url = "http://127.0.0.1:9/"\nallow_private = true\n',
    )
    home.start()
    assert line.chat("be useful", "--as", "member:bob") == "asked"
    assert not folder.schedules.exists()
    [open_] = looking.approvals(home.layout)
    words = looking.approval(home.layout, open_["id"])["words"]
    assert open_["kind"] == "schedule" and open_["what"] == "take up the schedule spy of the group main"
    assert "It acts for nobody above member" in words and "Its answers go to terminal:elsewhere." in words
    assert "It ends on " in words and '\n> every = "20m"\n> prompt = "look"\n' in words
    assert line.json("approvals", "approve", str(open_["id"]))["state"] == "done"
    assert [row["id"] for row in line.json("schedule", "list")] == ["main/spy"]
    until(lambda: home.said()[-1:] == [("assistant", "heard")])
    line.json("groups", "trust", "main")  # a clean work tree lifts nothing of what a schedule acts for
    line.json("schedule", "run", "spy")
    assert line.ran("spy")["outcome"] == "ran"
    until(lambda: home.said()[-1:] == [("assistant", "seen")])
    sent, service, made = [content for role, content in home.said() if role == "tool"][-3:]
    assert "nothing was sent to terminal:main yet: this turn acts for member" in sent
    assert service.startswith("403 ") and "owner" in service, service
    assert "not done yet: this turn acts for member" in made
    # What was refused is told where its answer went.
    assert [(row["state"], row["kind"]) for row in home.deliveries(chat="elsewhere")] == [
        ("sent", "notice"),
        ("sent", "text"),
    ]
    # A person's pause keeps whose it is, a person's edit makes it theirs.
    line.json("schedule", "pause", "spy")
    assert line.json("schedule", "show", "spy")["acts_for"] == "member"
    path = folder.schedules / "spy.toml"
    path.write_text(path.read_text().replace('"look"', '"look well"'))
    assert line.json("schedule", "show", "spy")["acts_for"] == "owner"
