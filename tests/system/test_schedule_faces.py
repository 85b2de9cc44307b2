"""Schedules through the whole daemon, by each face: the command line, the chat, the offline engine, an agent's tool."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from clawd.commands import looking
from tests.system.conftest import Home, call, until

DAILY = ("schedule", "add", "every weekday at 9", "say good morning", "--id", "good-morning")


def chat(home: Home, text: str, *words: str) -> str:
    done = home.cli("chat", "-m", text, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def file(home: Home, id: str, group: str = "main") -> dict[str, Any]:
    return tomllib.loads((home.layout.group(group).schedules / f"{id}.toml").read_text())


def ran(home: Home, id: str) -> dict[str, Any]:
    """The newest run of a schedule once it is over."""
    return until(lambda: next(iter(home.json("schedule", "history", id)), {}))


@pytest.mark.parametrize("daemon", [True, False])
def test_a_schedule_is_added_looked_at_paused_and_removed(home: Home, daemon: bool) -> None:
    if daemon:
        home.start()
    made = home.json(*DAILY, "--tz", "Europe/Berlin", "--jitter", "5m", "--session", "own", "--budget", "0.5")
    assert (made["id"], made["expr"], made["understood"], len(made["next"])) == (
        "main/good-morning", "0 9 * * mon-fri", "every weekday at 09:00 (Europe/Berlin)", 3
    )  # fmt: skip
    assert file(home, "good-morning") == {
        "schema": 1, "cron": "0 9 * * mon-fri", "tz": "Europe/Berlin", "prompt": "say good morning",
        "session": "own", "jitter": "5m", "budget": 0.5,
    }  # fmt: skip
    home.json("groups", "add", "family")
    home.json("schedule", "add", "every 1h", "say hi", "--group", "family", "--id", "good-morning")
    rows = home.json("schedule", "list")
    assert [(row["id"], row["group"], row["enabled"], row["proposed"], row["error"]) for row in rows] == [
        ("family/good-morning", "family", True, False, None),
        ("main/good-morning", "main", True, False, None),
    ]
    assert home.json("schedule", "list", "--group", "main") == rows[1:] and rows[1]["next"] == made["next"][0]
    assert home.cli("schedule", "list", "--group", "nobody").returncode == 5
    two = home.cli("schedule", "show", "good-morning")
    assert two.returncode == 2 and "say family/good-morning and main/good-morning" in two.stderr
    shown = home.json("schedule", "show", "good-morning", "--group", "main")
    assert (shown["times"], shown["acts_for"], shown["history"]) == (made["next"], "owner", [])
    assert "say good morning" in home.cli("schedule", "show", "main/good-morning").stdout
    assert home.json("schedule", "pause", "main/good-morning") == {
        "id": "main/good-morning", "group": "main", "enabled": False
    }  # fmt: skip
    row = home.json("schedule", "list", "--group", "main")[0]
    assert (row["enabled"], row["next"]) == (False, None) and file(home, "good-morning")["enabled"] is False
    home.json("schedule", "resume", "main/good-morning")
    assert home.json("schedule", "list", "--group", "main")[0]["next"] == made["next"][0]
    run = home.cli("schedule", "run", "main/good-morning", "--json")
    assert run.returncode == (0 if daemon else 1)
    if daemon:
        assert ran(home, "main/good-morning")["outcome"] == "ran"
        assert ("assistant", "good morning") in home.said(session="cron:main:good-morning")
    else:
        assert "none runs" in run.stderr
    assert home.json("schedule", "remove", "main/good-morning")["kept"].endswith("schedules/done/good-morning.toml")
    assert [row["id"] for row in home.json("schedule", "list")] == ["family/good-morning"]
    assert home.json("schedule", "show", "good-morning")["group"] == "family"  # now it is the only one
    for verb in ("show", "run", "pause", "resume", "remove", "history"):
        gone = home.cli("schedule", verb, "nothing")
        assert (gone.returncode == 5 and "there is no schedule 'nothing'" in gone.stderr) or (verb, daemon) == (
            "run",
            False,
        )
    refused = home.cli("schedule", "add", "every purple day", "x")
    assert refused.returncode == 2 and "surely understood" in refused.stderr
    again = home.cli(*DAILY, "--group", "family")
    assert again.returncode == 2 and "already" in again.stderr
    assert "deliver_to" in home.cli(*DAILY, "--deliver-to", "telegram:7").stderr
    (home.layout.group("main").schedules / "broken.toml").write_text('schema = 1\nevery = "20m"\n')
    broken = home.json("schedule", "list", "--group", "main")[0]
    assert (broken["id"], broken["enabled"]) == ("main/broken", False) and "a prompt or a skill" in broken["error"]


def test_reminders_in_plain_words(home: Home) -> None:
    home.start()
    assert chat(home, "schedules").startswith("There are no schedules.")
    said = chat(home, "remind me in 30 minutes to stretch")
    assert said.startswith("stretch: once, ") and ". Next: " in said
    assert file(home, "stretch")["prompt"] == "Remind me: stretch"
    assert chat(home, "schedules").startswith("stretch: at ")
    home.json("schedule", "run", "stretch")
    assert ran(home, "stretch")["outcome"] == "ran"
    assert home.said()[-1] == ("assistant", "Reminder: stretch")
    assert chat(home, "cancel reminder stretch") == "stretch is cancelled."
    until(lambda: not home.json("schedule", "list"))
    assert chat(home, "/schedule every weekday at 9: say hello").startswith("main/hello: every weekday at 09:00")
    assert "hello: 0 9 * * mon-fri (next " in chat(home, "/schedule")
    home.json("schedule", "run", "hello")
    assert ran(home, "hello")["outcome"] == "ran" and home.said()[-1] == ("assistant", "hello")
    assert "surely understood" in chat(home, "/schedule whenever you like: x")
    assert chat(home, "/schedule in 5 minutes: x", "--as", "member:bob").startswith("Only the owner makes schedules")
    assert "hello: 0 9" in chat(home, "/schedule", "--as", "member:bob")
    # From here on the work tree has fallen, and the owner's own turn only proposes, too.
    assert "It waits: schedule tea: not done yet: " in chat(home, "remind me in 2 hours to tea", "--as", "member:bob")
    [row] = [row for row in home.json("schedule", "list") if row["proposed"]]
    assert row["id"] == "main/tea" and row["expr"].startswith("at ")
    waits = home.cli("schedule", "pause", "tea")
    assert waits.returncode == 5 and "is only proposed" in waits.stderr


def test_what_a_member_s_turn_made_acts_for_them_for_ever(home: Home) -> None:
    """It is proposed; once approved each run is that turn's: another chat is asked about, a service for the owner
    refused."""
    folder = home.layout.group("main")
    folder.root.mkdir(parents=True)
    folder.config_file.write_text(
        'schema = 1\nbindings = ["terminal:main", "terminal:elsewhere"]\n'
        'grants = [{service = "notes", for = "owner"}, {service = "open", for = "member"}]\n'
    )
    asks = "import urllib.request as u, os, sys\ntry:\n r = u.Request('http://127.0.0.1:8080/svc/notes/x')\n"
    asks += " r.add_header('X-Clawd-Token', os.environ['CLAWD_TOKEN']); print(u.urlopen(r).status)\n"
    asks += "except u.HTTPError as e: print(e.code, e.read().decode())"
    steps = [
        call("schedule", when="every 20m", prompt="look", id="spy", deliver_to="terminal:elsewhere"),
        {"text": "asked"},
    ]
    services = '[services.notes]\nbase_url = "http://127.0.0.1:9/"\n'
    home.script(*steps, more=services)
    home.start()
    assert chat(home, "be useful", "--as", "member:bob") == "asked"
    assert not folder.schedules.exists()
    [open_] = looking.approvals(home.layout)
    words = looking.approval(home.layout, open_["id"])["words"]
    assert open_["kind"] == "schedule" and open_["what"] == "take up the schedule spy of the group main"
    assert "It acts for nobody above member" in words and "Its answers go to terminal:elsewhere." in words
    said = '> prompt = "look"\n> deliver_to = "terminal:elsewhere"\n> '
    assert "It ends on " in words and words.rpartition("until = ")[0].endswith(said)
    home.json("groups", "trust", "main")  # what a later turn falls to is the schedule's own
    home.script(
        call("send_message", text="psst", to="terminal:main"),
        call("bash", command=f'CLAWD=1 python3 -c "{asks}"'),
        call("schedule", when="every 30m", prompt="more"),
        {"text": "seen"},
        more=services,
    )
    assert home.json("approvals", "approve", str(open_["id"]))["state"] == "done"
    assert [row["id"] for row in home.json("schedule", "list")] == ["main/spy"]
    home.json("groups", "trust", "main")
    home.json("schedule", "run", "spy")
    run = ran(home, "spy")
    assert run["outcome"] == "ran"
    results = [
        block
        for block in json.loads(json.dumps(home.json("session", "show", "terminal:main")))
        if block["role"] == "tool"
    ]
    sent, service, made = (block["content"] for block in results[-3:])
    assert "nothing was sent to terminal:main yet: this turn acts for member" in sent
    assert "403" in service and "owner" in service, service
    assert "not done yet: this turn acts for member" in made
    assert [row["state"] for row in home.deliveries(chat="elsewhere")] == ["sent"]
    # A person's pause keeps whose it is, a person's edit makes it theirs.
    home.json("schedule", "pause", "spy")
    assert home.json("schedule", "show", "spy")["acts_for"] == "member"
    path = folder.schedules / "spy.toml"
    path.write_text(path.read_text().replace('"look"', '"look well"'))
    assert home.json("schedule", "show", "spy")["acts_for"] == "owner"
