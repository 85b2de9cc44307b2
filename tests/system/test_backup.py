"""Backups from outside: beside a daemon at work, put back, and a daemon that begins then answers nothing twice."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.conftest import until
from tests.system.ground import Ground, ground
from tests.system.test_contract import CONTRACT, check, shape

DOCS = Path(__file__).parents[2] / "docs" / "backup.md"


@pytest.fixture
def home() -> Iterator[Ground]:
    with ground() as made:
        yield made


def asked(home: Ground) -> list[str]:
    return [text for role, text in home.said() if role == "user"]


def answered(home: Ground) -> list[str]:
    """But for calls of tools."""
    return [text for role, text in home.said() if role == "assistant" and text]


def test_a_daemon_that_begins_after_a_restore_answers_nothing_twice(home: Ground) -> None:
    home.start()
    assert home.reply("say one") == "one"
    until(lambda: not home.rows("SELECT 1 FROM inbound WHERE state <> 'recorded'"))
    home.say("sh:touch ran; sleep 60")  # is at work while the backup is made
    until(lambda: home.messages(state="claimed") and (home.layout.group("main").work / "ran").exists())
    home.say("say later")
    made = home.json("backup", "create", "--label", "busy")
    check(made, shape(CONTRACT["backup create"]))
    refused = home.done("backup", "restore", made["archive"], "--yes", code=3)
    assert "holds" in refused.stderr and "clawd status" in refused.stderr
    assert home.stop() == 0

    home.start()  # it goes on: what was waiting is answered, in this life
    home.done("chat", "-m", "/stop", code=None)
    until(lambda: "later" in answered(home))
    assert home.reply("say since") == "since"
    until(lambda: not home.rows("SELECT 1 FROM inbound WHERE state NOT IN ('recorded', 'stopped')"))
    assert home.stop() == 0
    most = home.rows("SELECT MAX(id) AS id FROM turn")[0]["id"]

    done = home.json("backup", "restore", made["archive"], "--yes")
    check(done, shape(CONTRACT["backup restore"]))
    assert asked(home) == ["say one"] and answered(home) == ["one"]
    assert "2 messages had no answer yet" in " ".join(done["notes"])
    home.start()
    until(lambda: len([text for role, text in home.said() if role == "system" and "backup" in text]) == 2)
    assert answered(home) == ["one"] and home.deliveries(state="pending") == []
    assert {row["state"] for row in home.messages()} <= {"recorded", "failed"}
    assert home.reply("say after") == "after"
    assert answered(home) == ["one", "after"]
    assert home.rows("SELECT MAX(id) AS id FROM turn")[0]["id"] > most, "a turn's number is never given again"
    [later] = [
        row
        for row in home.messages(state="failed")
        if "later" in json.dumps(home.json("messages", "show", str(row["id"])))
    ]
    home.json("messages", "retry", str(later["id"]))  # the owner's own word
    until(lambda: "later" in answered(home))
    assert home.json("doctor") and home.json("session", "check", "terminal:main")["ok"]


def test_a_group_comes_back_and_goes_on(home: Ground) -> None:
    home.done("groups", "add", "side")
    home.start()
    assert home.reply("say one", "--group", "side") == "one"
    assert home.sh("echo kept > file; cat file", "side").startswith("kept")
    until(lambda: not home.rows("SELECT 1 FROM inbound WHERE state <> 'recorded'"))
    made = home.json("backup", "create", "--group", "side")
    home.sh("rm file; echo new > other", "side")
    assert home.reply("say gone", "--group", "side") == "gone"
    assert home.stop() == 0
    # It is killed once it was decided: whoever begins next finishes it.
    home.done("backup", "restore", Path(made["archive"]).name, "--yes", code=-9, CLAWD_FAULT="kill@restore-ledger")
    assert (home.layout.group("side").work / "other").exists()
    home.start()
    assert [path.name for path in home.layout.backups.glob("replaced-*-side/groups/side/work/other")] == ["other"]
    assert home.sh("cat file; ls", "side").split() == ["kept", "file"]
    assert [text for role, text in home.said("side") if role == "user"] == [
        "say one", "sh:echo kept > file; cat file", "sh:cat file; ls"
    ]  # fmt: skip
    check(home.json("backup", "verify", made["archive"]), shape(CONTRACT["backup verify"]))
    check(home.json("backup", "list"), shape(CONTRACT["backup list"]))


def test_a_restore_is_asked_for(home: Ground) -> None:
    made = home.json("backup", "create")
    for text in ("", "y\n"):  # no terminal says yes
        done = home.done("backup", "restore", made["archive"], text=text, code=2)
        assert "--yes" in done.stderr
    assert home.done("backup", "restore", "nowhere.tar.gz", "--yes", code=5).stderr
    (home.root / "bad.tar.gz").write_bytes(b"x")
    assert "not sound" in home.done("backup", "restore", str(home.root / "bad.tar.gz"), "--yes", code=4).stderr
    assert home.done("backup", "verify", str(home.root / "bad.tar.gz"), code=1)


def test_the_commands_of_the_page_work(home: Ground) -> None:
    home.done("groups", "add", "family")
    home.done("backup", "create", "--label", "before-the-move")
    archive = home.json("backup", "list")[0]["name"]
    lines = [
        line for block in re.findall(r"```sh\n(.*?)```", DOCS.read_text(), re.DOTALL) for line in block.splitlines()
    ]
    assert len(lines) > 6
    for line in lines:
        said = line.partition("#")[0].replace("ARCHIVE", archive).replace("/media/stick", str(home.root.parent))
        words = shlex.split(said)
        if words[:2] == ["clawd", "--home"]:
            continue  # another home
        assert words[0] == "clawd", line
        home.done(*words[1:])
