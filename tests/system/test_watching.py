"""Changed files wake their group, through the whole daemon: once, also when it is killed; never for what the group did
itself; and what an agent asks to watch acts for nobody above its turn."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.system.conftest import DEADLINE, Home, call, until
from tests.system.ground import Ground, ground

RULE = 'schema = 1  # by hand\n[[watch]]\npaths = ["work/{name}"]\nsettle = 0.1\ncooldown = 0\nprompt = "{prompt}"\n'
STORM = 20_000


def rows(home: Home, sql: str, *values: Any) -> list[dict[str, Any]]:
    return Ground.rows(home, sql, *values)  # type: ignore[arg-type]


def wakes(home: Home) -> list[dict[str, Any]]:
    return rows(home, "SELECT * FROM wake WHERE kind = 'file' ORDER BY id")


def listed(wake: dict[str, Any]) -> str:
    return str(json.loads(wake["text"])[-1]["text"])


def looked(home: Home, group: str = "main") -> bool:
    state = [json.loads(row["roots"]) for row in rows(home, "SELECT roots FROM watching WHERE grp = ?", group)]
    return bool(state) and all(roots and all("device" in each for each in roots.values()) for roots in state)


def memory(home: Home) -> int:
    """KB that the daemon holds of its own."""
    assert home.daemon is not None
    text = Path(f"/proc/{home.daemon.pid}/status").read_text()
    return int(text.partition("RssAnon:")[2].split()[0])


def test_a_day_of_changed_files() -> None:
    with ground() as home:
        for name in ("old", "note"):
            file = home.write(f"groups/main/work/in/{name}", "before", 0o666)
        for each in (file.parent, file.parent.parent):
            each.chmod(0o777)
        home.write("groups/main/group.toml", RULE.format(name="in", prompt="sh: cat in/note"))
        home.start()
        work = home.layout.group("main").work
        until(lambda: looked(home))

        # What a person saves, the agent is woken for, and answers as the file's prompt says.
        (work / "in" / "note").write_text("by hand")
        until(lambda: any("by hand" in row["text"] for row in home.rows("SELECT text FROM delivery")))
        (first,) = wakes(home)
        assert listed(first) == '{"path": "work/in/note", "event": "modified", "size": 7}'
        assert (first["authority"], first["trust"]) == ("owner", 1.0)

        # What its own turn writes, and a command beside it, wakes nobody.
        home.sh("cd in; echo agent >agent; echo more >>old2; cp note copy; mv copy c")
        home.inside("sh", "-c", "echo command >/group/work/in/command")
        until(lambda: {bytes(row["path"]) for row in home.rows("SELECT path FROM seen")} >= {
            b"work/in/agent", b"work/in/c", b"work/in/command"})  # fmt: skip
        assert len(wakes(home)) == 1

        # What changes while it is down is told once, also when it is killed as soon as that is committed.
        home.kill()
        (work / "in" / "down").write_text("x")
        home.start("kill@watch-told")
        assert home.wait() == -signal.SIGKILL
        home.start()
        until(lambda: {row["state"] for row in home.rows("SELECT state FROM turn")} == {"answered"})
        assert listed(wakes(home)[1]) == '{"path": "work/in/down", "event": "added", "size": 1}'
        assert "Some of it changed while clawd was not running." in wakes(home)[1]["text"]

        # An edit of the rule holds at once, and keeps what was seen; a storm is one wake, and is not held in memory.
        home.write("groups/main/group.toml", RULE.format(name="in", prompt="sh: true").replace("= 0.1", "= 2.5"))
        until(lambda: sum("group.toml" in line["msg"] for line in home.log()) > 1)
        before = memory(home)
        subprocess.run(f"seq -f f%.0f {STORM} | xargs touch", shell=True, cwd=work / "in", check=True, timeout=DEADLINE)
        until(lambda: len(wakes(home)) == 3)
        assert f"… and {STORM - 20:,} more" in listed(wakes(home)[2])
        assert f"{STORM:,} added." in json.loads(wakes(home)[2]["text"])[1]["text"]
        assert home.rows("SELECT COUNT(*) AS n FROM seen")[0]["n"] == STORM + 7
        assert memory(home) - before < 25_000
        shutil.rmtree(work / "in")
        until(lambda: any("work/in is not there" in row["text"] for row in home.rows("SELECT text FROM delivery")))
        assert len(wakes(home)) == 3
        assert home.stop() == 0


def test_what_an_agent_watches(home: Home) -> None:
    """In a turn of the owner's it is done, with what the file said before kept; in a member's it is proposed, and acts
    for that member once the owner said yes."""
    folder = home.layout.group("main")
    (folder.work / "in").mkdir(parents=True)
    folder.config_file.write_text("schema = 1\n# mine\n[model]  # here\neffort = 'low'\n")
    ask = {"paths": ["work/in"], "globs": ["*.md"], "settle": 0.1, "prompt": "sh: id"}
    refused = [
        call("watch", **{**ask, "paths": ["sessions"]}),
        call("watch", **{**ask, "paths": ["../x"]}),
        call("watch", **{**ask, "prompt": " "}),
        call("watch", action="remove", id="0123456789ab"),
    ]
    home.script(*refused, call("watch", **ask), call("watch", **ask), call("watch", action="list"), {"text": "done"})
    home.start()
    home.json("chat", "-m", "watch it")
    results = [block.content for block in home.blocks() if block.role == "tool"]
    whys = ("sessions is clawd's own", "has no ..", "needs paths, and a prompt", "there is no watch '0123456789ab'")
    assert all(why in result for why, result in zip(whys, results, strict=False)), results
    assert json.loads(results[4])["done"] == "add watch"
    text = until(lambda: text if "[[watch]]" in (text := folder.config_file.read_text()) else "")
    assert text.startswith("schema = 1\n# mine\n[model]  # here\neffort = 'low'\n\n[[watch]]\npaths = [\"work/in\"]\n")
    assert text.count("[[watch]]") == 1
    until(lambda: looked(home))
    home.script({"text": "NOTHING"})
    (folder.work / "in" / "a.md").write_text("x")
    until(lambda: wakes(home))
    (wake,) = wakes(home)
    assert (wake["authority"], wake["trust"], wake["origin"]) == ("owner", 1.0, "agent")
    assert json.loads(wake["text"])[0]["origin"] == "agent"

    until(lambda: {row["state"] for row in rows(home, "SELECT state FROM turn")} == {"answered"})
    member = {**ask, "paths": ["work/in2"], "prompt": "send it all"}
    home.script({"text": "1"}, {"text": "2"}, call("watch", **member), {"text": "asked"}, {"text": "4"}, {"text": "5"})
    home.json("chat", "-m", "watch that", "--as", "member:bob")
    (open_,) = [row for row in home.json("approvals", "list") if row["state"] == "open"]
    assert open_["what"] == "wake the group main whenever files change in “work/in2”"
    words = home.json("approvals", "show", str(open_["id"]))["words"]
    assert "It acts for nobody above member" in words and words.endswith("What the agent is told then:\n> send it all")
    assert folder.config_file.read_text() == text
    home.json("approvals", "approve", str(open_["id"]))
    until(lambda: len(rows(home, "SELECT 1 FROM watching")) == 2 and looked(home))
    (folder.work / "in2").mkdir()
    (folder.work / "in2" / "b.md").write_text("x")
    until(lambda: len(wakes(home)) == 2)
    wake = wakes(home)[1]
    assert wake["authority"] == "member" and wake["trust"] <= 0.4
    until(lambda: rows(home, "SELECT t.authority FROM turn t JOIN turn_wake w ON w.turn = t.id WHERE w.wake = ?"
                             " AND t.state = 'answered'", wake["id"]) == [{"authority": "member"}])  # fmt: skip
    assert home.stop() == 0
