"""Exporting a group: PythonClaw's own bytes, and nothing there that is not ours is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clawd import faults
from clawd.bridges.pythonclaw import reading, target
from clawd.bridges.pythonclaw.forms import session_bytes
from clawd.bridges.pythonclaw.writing import export
from clawd.commands.memory import opened
from clawd.config.home import Home
from clawd.errors import NotFound, Refused, StorageError, UsageError
from clawd.memory.keyed import KeyedMemory, parsed
from clawd.memory.outside import Outside, noted
from clawd.memory.protocol import Voice
from clawd.model import Block
from clawd.schedules import edits
from clawd.sessions.format import parse, write_file
from clawd.trust import Origin
from tests.bridges.pythonclaw.conftest import lay, tree
from tests.sessions import pythonclaw as its_sessions

AT = datetime(2026, 3, 7, 10, tzinfo=UTC)
SAID = [Block("user", "hello", AT), Block("assistant", "### good\n---\nday", AT, meta={"turn": 1, "n": "1/1"})]
CALL = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
SKILL = "---\nname: tides\ndescription: Tells the tides.\n---\nRun /group/skills/tides/x.py.\n"


def keep(home: Home, id: str, blocks: list[Block], stem: str | None = None, group: str = "main") -> None:
    sessions = home.group(group).sessions
    sessions.mkdir(exist_ok=True)
    (sessions / f"{stem or id.replace(':', '_')}.md").write_bytes(write_file(id, blocks))


def fact(home: Home, key: str, value: str, at: datetime = AT) -> None:
    KeyedMemory(home.group("main").memory).set(key, value, at)


@pytest.fixture
def full(home: Home) -> Home:
    keep(home, "telegram:7", SAID)
    fact(home, "city", "Wien")
    lay(home.group("main").memory, {
        "INDEX.md": "Boats are in boats.md\n",
        "2026-03-07.md": "# Daily Memory — 2026-03-07\n\n### 10:00:00 — city\n\nWien\n\n",
        "entities/x.md": "A boat.\n",
    })  # fmt: skip
    lay(home.group("main").skills, {"tides/SKILL.md": SKILL, "tides/x.py": "print(1)\n"})
    edits.put(home.group("main").schedules, "morning", 'schema = 1\ncron = "0 9 * * mon"\nprompt = "wake me"\n')
    edits.put(home.group("main").schedules, "often", 'schema = 1\nevery = "20m"\nprompt = "look"\n')
    return home


def states(report: dict[str, Any]) -> dict[str, str]:
    return {row["to"]: row["state"] for row in report["wrote"]}


def test_all_that_it_can_have_is_written_as_it_writes_it(full: Home, tmp_path: Path) -> None:
    to = tmp_path / "new"
    report = export(full, "main", to, False)
    found = tree(to)
    assert found.pop(target.NAME)
    local = AT.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert {path: data.decode() for path, data in found.items()} == {
        "context/sessions/telegram_7.md": session_bytes("telegram:7", SAID).decode(),
        "context/memory/MEMORY.md": f"# Long-Term Memory\n\n## city\n> Updated: {local}\n\nWien\n",
        "context/memory/INDEX.md": "Boats are in boats.md\n",
        "context/memory/2026-03-07.md": "# Daily Memory — 2026-03-07\n\n### 10:00:00 — city\n\nWien\n\n",
        "context/skills/clawd/tides/SKILL.md": (
            "---\nname: tides\ndescription: Tells the tides.\n---\nRun {skill_path}/x.py.\n"
        ),
        "context/skills/clawd/tides/x.py": "print(1)\n",
        "context/cron/jobs.yaml": (
            'jobs:\n  - id: "morning"\n    cron: "0 9 * * mon"\n    prompt: "wake me"\n    enabled: true\n'
        ),
    }
    assert set(states(report).values()) == {"new"}
    left = {row["from"]: row["why"] for row in report["left"]}
    assert "spans" in left["schedules/often.toml"] and "no place" in left["memory (entity)"]


def test_again_changes_nothing_and_a_dry_run_writes_nothing(full: Home, tmp_path: Path) -> None:
    to = tmp_path / "new"
    dry = export(full, "main", to, True)
    assert not to.exists() and dry["dry_run"]
    first = export(full, "main", to, False)
    assert dry["wrote"] == first["wrote"]
    before = {path: path.stat().st_mtime_ns for path in to.rglob("*")}
    assert set(states(export(full, "main", to, False)).values()) == {"same"}
    assert before == {path: path.stat().st_mtime_ns for path in to.rglob("*")}


def test_what_is_new_here_is_renewed_there(full: Home, tmp_path: Path) -> None:
    to = tmp_path / "new"
    export(full, "main", to, False)
    more = [*SAID, Block("user", "and now?", AT)]
    keep(full, "telegram:7", more)
    fact(full, "city", "Linz")
    report = export(full, "main", to, False)
    changed = {path for path, state in states(report).items() if state == "changed"}
    assert changed == {"context/sessions/telegram_7.md", "context/memory/MEMORY.md"}
    assert (to / "context/sessions/telegram_7.md").read_bytes() == session_bytes("telegram:7", more)


@pytest.mark.parametrize(
    "path",
    ["context/sessions/telegram_7.md", "context/memory/MEMORY.md", "context/memory/INDEX.md", "context/cron/jobs.yaml",
     "context/skills/clawd/tides/x.py", "context/memory/2026-03-07.md"],
)  # fmt: skip
def test_what_is_not_ours_or_was_changed_or_taken_away_stays_so(full: Home, tmp_path: Path, path: str) -> None:
    theirs = lay(tmp_path / "theirs", {path: "somebody's\n"})
    export(full, "main", theirs, False)
    assert (theirs / path).read_text() == "somebody's\n"

    changed = tmp_path / "changed"
    export(full, "main", changed, False)
    (changed / path).write_text("changed\n")
    fact(full, "city", "Linz")
    report = export(full, "main", changed, False)
    assert (changed / path).read_text() == "changed\n"
    assert path == "context/cron/jobs.yaml" or any(path in row["why"] for row in report["left"])

    gone = tmp_path / "gone"
    export(full, "main", gone, False)
    (gone / path).unlink()
    export(full, "main", gone, False)
    assert not (gone / path).exists() or path == "context/cron/jobs.yaml"


def test_jobs_go_where_its_own_tool_writes_them_when_a_person_has_the_file(full: Home, tmp_path: Path) -> None:
    edits.put(full.group("main").schedules, "off", 'schema = 1\ncron = "0 8 * * *"\nprompt = "x"\nenabled = false\n')
    edits.put(full.group("main").schedules, "mine", 'schema = 1\ncron = "0 7 * * *"\nprompt = "x"\n')
    jobs = "jobs:\n  - id: mine\n    cron: '0 1 * * *'\n    prompt: x\n"
    to = lay(tmp_path / "claw", {"context/cron/jobs.yaml": jobs})
    report = export(full, "main", to, False)
    assert (to / "context/cron/jobs.yaml").read_text() == jobs
    assert json.loads((to / "context/cron/dynamic_jobs.json").read_bytes()) == {
        "morning": {"cron": "0 9 * * mon", "prompt": "wake me", "deliver_to": None, "chat_id": None}
    }
    left = {row["from"]: row["why"] for row in report["left"]}
    assert "it is off" in left["schedules/off.toml"] and "job of that id" in left["schedules/mine.toml"]


def test_a_skill_whose_name_is_taken_there_is_left(full: Home, tmp_path: Path) -> None:
    to = lay(tmp_path / "claw", {"context/skills/sea/whatever/SKILL.md": "---\nname: tides\n---\nx"})
    report = export(full, "main", to, False)
    assert not (to / "context/skills/clawd").exists()
    assert {
        "from": "skills/tides",
        "why": "PythonClaw has a skill of that name there, context/skills/sea/whatever",
    } in (report["left"])


def test_only_what_is_trusted_goes(full: Home, tmp_path: Path) -> None:
    memory = opened(full, "main")
    memory.put("the secret is 7", "fact", {"key": "whispered"}, Voice(Origin.AGENT, taint=0.2, turn=1), key="k")
    memory.put("an owner's word", "fact", {"key": "said"}, Voice(Origin.OWNER), key="l")
    memory.close()
    to = tmp_path / "new"
    export(full, "main", to, False)
    assert set(parsed((to / "context/memory/MEMORY.md").read_bytes())[1]) == {"city", "said"}
    assert b"the secret" not in b"".join(tree(to).values())


def test_of_a_day_what_other_programs_said_stays_here(full: Home, tmp_path: Path) -> None:
    memory = opened(full, "main")
    said = {"text": "believe me", "at": AT.isoformat(), "key": "k"}
    Outside(memory, "mmkr:a").keep([noted("mmkr:a", said, memory.now())])
    memory.close()
    assert b"believe me" in (full.group("main").memory / "2026-03-07.md").read_bytes()
    report = export(full, "main", tmp_path / "new", False)
    assert (tmp_path / "new/context/memory/2026-03-07.md").read_text() == (
        "# Daily Memory — 2026-03-07\n\n### 10:00:00 — city\n\nWien\n\n"
    )
    left = {row["from"]: row["why"] for row in report["left"]}
    assert left["memory/2026-03-07.md"] == "1 of its entries are not trusted enough"


def test_two_ids_of_one_file_and_ids_too_long_are_told(full: Home, tmp_path: Path) -> None:
    keep(full, "telegram 7", SAID, "telegram_7~1")
    keep(full, "x" * 250, SAID, "long")
    report = export(full, "main", tmp_path / "new", False)
    left = {row["from"]: row["why"] for row in report["left"]}
    assert "in the file of 'telegram 7'" in left["telegram:7"] or "in the file of 'telegram:7'" in left["telegram 7"]
    assert any("too long" in why for why in left.values())


def test_a_session_stays_that_of_the_id_that_has_its_file(full: Home, tmp_path: Path) -> None:
    to = tmp_path / "new"
    export(full, "main", to, False)
    keep(full, "telegram 7", SAID, "telegram_7~1")
    report = export(full, "main", to, False)
    assert "in the file of 'telegram:7'" in {row["from"]: row["why"] for row in report["left"]}["telegram 7"]
    assert parse((to / "context/sessions/telegram_7.md").read_bytes()).session == "telegram:7"


def test_what_its_cap_would_drop_and_what_was_mended_is_told(full: Home, tmp_path: Path) -> None:
    keep(full, "long", [Block("user", str(n), AT) for n in range(60)])
    keep(full, "open", [Block("assistant", "", AT, (CALL,)), Block("user", "x", AT)])
    to = tmp_path / "new"
    told = {row["from"]: " ".join(row["changed"]) for row in export(full, "main", to, False)["wrote"]}
    assert "last 50 of its 60 messages" in told["long"] and "result" in told["open"] and told["telegram:7"] == ""
    read = its_sessions.read((to / "context/sessions/open.md").read_bytes())
    assert [each["role"] for each in read] == ["assistant", "tool", "user"]


def test_export_then_import_gives_the_same(full: Home, tmp_path: Path) -> None:
    to = tmp_path / "new"
    export(full, "main", to, False)
    found = {item.to: item for item in reading.read(to, None).items}
    blocks = parse(found["sessions/telegram_7.md"].files[""]).blocks
    assert [(each.role, each.content, each.at) for each in blocks] == [
        (each.role, each.content, each.at and each.at.astimezone()) for each in SAID
    ]
    assert parsed(found["memory/MEMORY.md"].files[""])[1]["city"].value == "Wien"
    assert found["memory/2026-03-07.md"].files[""] == (full.group("main").memory / "2026-03-07.md").read_bytes()
    assert found["memory/INDEX.md"].files[""] == b"Boats are in boats.md\n"
    assert found["skills/tides"].files["x.py"] == b"print(1)\n"
    assert b'prompt = "wake me"' in found["schedules/morning.toml"].files[""]


# ── where to ──


@contextmanager
def its_daemon() -> Iterator[int]:
    program = [sys.executable, "-c", "print(1, flush=True); input()", "pythonclaw"]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout and process.stdout.readline()
        yield process.pid
    finally:
        process.communicate(b"\n", timeout=30)


def test_while_it_runs_on_that_home_nothing_is_written(full: Home, tmp_path: Path, monkeypatch: Any) -> None:
    to = lay(tmp_path / "claw", {"pythonclaw.json": "{}"})
    user = tmp_path / "user"
    monkeypatch.setenv("HOME", str(user))
    with its_daemon() as pid:
        lay(to, {"pythonclaw.pid": f"{pid}\n"})
        with pytest.raises(Refused, match=str(pid)):
            export(full, "main", to, False)
        assert export(full, "main", to, True)["wrote"]  # looking is free
        (to / "pythonclaw.pid").unlink()
        # PythonClaw keeps it in ~/.pythonclaw, whatever its home is.
        lay(user / ".pythonclaw", {"pythonclaw.pid": f"{pid}", "daemon.meta.json": json.dumps({"cwd": str(to)})})
        with pytest.raises(Refused):
            export(full, "main", to, False)
        lay(user / ".pythonclaw", {"daemon.meta.json": json.dumps({"cwd": str(tmp_path)})})
        assert export(full, "main", to, False)["wrote"]


@pytest.mark.parametrize("pid", ["", "x", "0", "-1", "999999999", pytest.param(str(os.getpid()), id="ours")])
def test_a_number_that_is_no_pythonclaw_keeps_nobody_waiting(full: Home, tmp_path: Path, pid: str) -> None:
    to = lay(tmp_path / "claw", {"pythonclaw.json": "{}", "pythonclaw.pid": pid})
    assert export(full, "main", to, False)["wrote"]


def test_only_a_home_of_its_own_or_an_empty_folder_is_written_to(full: Home, tmp_path: Path) -> None:
    other = lay(tmp_path / "other", {"letter.txt": "x"})
    seen = full.group("family").work / "claw"  # what an agent may change meanwhile
    seen.mkdir(parents=True)
    (tmp_path / "link").symlink_to(seen)
    for place in (other, full.root, other / "letter.txt", seen, tmp_path / "link", seen / "new"):
        with pytest.raises(UsageError):
            export(full, "main", place, False)
    with pytest.raises(NotFound):
        export(full, "nobody", tmp_path / "new", False)
    assert tree(other) == {"letter.txt": b"x"}


def test_no_link_is_written_through(full: Home, tmp_path: Path) -> None:
    outside = lay(tmp_path / "outside", {"MEMORY.md": "x"})
    to = lay(tmp_path / "claw", {"pythonclaw.json": "{}", "context/memory/x.md": "x"})
    (to / "context/memory/MEMORY.md").symlink_to(outside / "MEMORY.md")
    (to / "context/sessions").symlink_to(outside)
    report = export(full, "main", to, False)
    assert tree(outside) == {"MEMORY.md": b"x"}
    assert len([row for row in report["left"] if "is a link" in row["why"]]) == 2
    assert (to / "context/memory/INDEX.md").is_file()


@pytest.mark.parametrize("manifest", ["{", "[]", '{"schema": 2}', '{"schema": 1, "files": {"a": 7}}'])
def test_what_we_wrote_about_it_is_believed_only_whole(full: Home, tmp_path: Path, manifest: str) -> None:
    to = lay(tmp_path / "claw", {"pythonclaw.json": "{}", target.NAME: manifest})
    with pytest.raises(Refused, match="cannot be understood"):
        export(full, "main", to, False)
    assert (to / target.NAME).read_text() == manifest


@pytest.mark.parametrize("after", range(4))
def test_a_run_that_was_killed_is_ended_by_the_next(
    full: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    to, passed = tmp_path / "new", list[str]()
    export(full, "main", to, False)
    keep(full, "telegram:7", [*SAID, Block("user", "more", AT)])
    fact(full, "city", "Linz", AT + timedelta(days=1))

    class Killed(BaseException):
        pass

    def passing(where: str) -> None:
        if where in ("exporting", "exported"):
            passed.append(where)
            if len(passed) > after:
                raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(faults, "passing", passing)
        if after < 3:
            with pytest.raises(Killed):
                export(full, "main", to, False)
            torn = [to / f".{target.NAME}.01234567.tmp", to / "context/memory/.MEMORY.md.89abcdef.tmp"]
            theirs = to / "context/memory/.else.md.89abcdef.tmp"
            for path in (*torn, theirs):
                path.write_text("half")
    report = export(full, "main", to, False)
    if after < 3:
        assert list(to.rglob(".*.tmp")) == [theirs]
    assert not [row for row in report["left"] if "changed" in row["why"] or "another file" in row["why"]]
    assert parsed((to / "context/memory/MEMORY.md").read_bytes())[1]["city"].value == "Linz"
    assert set(states(export(full, "main", to, False)).values()) == {"same"}


def test_a_folder_that_cannot_be_written_is_a_sentence(full: Home, tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(target, "write_atomic", refuse)
    with pytest.raises(StorageError, match="No space"):
        export(full, "main", tmp_path / "new", False)
