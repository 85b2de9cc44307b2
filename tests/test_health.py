"""What the doctor sees of a home that no daemon runs on, and what he makes of a damaged ledger."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clawd.clock import SystemClock
from clawd.commands.looking import config_check
from clawd.config.begin import ensure_group, init_home
from clawd.config.home import Home
from clawd.errors import LedgerNewer, StorageError
from clawd.health import doctor, machine, recover
from clawd.health import groups as group_files
from clawd.health.findings import Finding
from clawd.ledger import groups, runs
from clawd.ledger.db import Ledger, schema_version
from clawd.ledger.groups import UID_BASE
from clawd.locks import HomeLock
from clawd.memory.protocol import Voice
from clawd.memory.store import OWNER, GroupMemory
from clawd.model import Authority, Block
from clawd.sessions.file import SessionFile
from clawd.trust import Origin, Role

NOW = "2026-12-01T09:00:00.000+00:00"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    init_home(made)
    ledger = Ledger.open(made.ledger_file)
    ledger.tx(lambda tx: groups.add(tx, "main", NOW))
    ledger.close()
    return made


def told(home: Home, check: str) -> list[tuple[str, str]]:
    return [(each["level"], each["message"]) for each in doctor(home) if each["check"] == check]


def test_a_sound_home_is_sound(home: Home) -> None:
    assert told(home, "ledger") == [("ok", "sound; 0 turns wait, 0 run")]
    assert told(home, "config") == [("ok", "config.toml and every group.toml are understood")]
    assert told(home, "rights") == [] and {level for level, _ in told(home, "groups")} == {"ok"}


def test_rights_that_let_others_look_in_are_an_error(home: Home) -> None:
    home.groups.chmod(0o755)
    [(level, message)] = told(home, "rights")
    assert level == "error" and "others can look into" in message


def test_a_group_whose_folder_is_gone_is_a_warning(home: Home) -> None:
    home.group("main").root.rename(home.root / "elsewhere")
    [(level, message), _] = told(home, "groups")
    assert level == "warn" and "groups/main is gone" in message


def test_one_check_that_fails_does_not_end_the_others(home: Home) -> None:
    home.ledger_file.write_bytes(b"no database at all" * 300)
    home.config_file.write_text("schema = 1\n[claw]\nnaem = 'x'\n")
    assert told(home, "ledger")[0][0] == told(home, "config")[0][0] == "error"
    assert "did you mean name?" in told(home, "config")[0][1]
    assert told(home, "disk") and told(home, "daemon")


def test_a_sound_memory_is_sound(home: Home) -> None:
    memory = GroupMemory(home.group("main").memory, home.state, "main", SystemClock())
    memory.put("The boat is green.", "entity", {}, OWNER)
    memory.close()
    assert told(home, "memory")[-1] == ("ok", "every memory can be read, and is known")
    (home.state / "trust.jsonl").unlink()
    [(level, _)] = [each for each in told(home, "memory") if "trust.jsonl is gone" in each[1]]
    assert level == "error"


def test_what_is_wrong_with_memory_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    group = home.group("main")
    memory = GroupMemory(group.memory, home.state, "main", SystemClock())
    kept = memory.put("The boat is green and has a sail.", "entity", {}, OWNER)
    memory.put("The boat belongs to us.", "entity", {}, Voice(Origin.AGENT, taint=0.2))
    memory.quarantine(kept.id)
    [file] = (path for path in group.memory.rglob("*.md") if "sail" in path.read_text())
    (group.memory / "episodes").mkdir(exist_ok=True)
    file.rename(group.memory / "episodes" / "moved.md")
    memory.close()
    (group.memory / "entities" / "broken.md").write_text("---\nid: [\n---\nwords\n")
    with (home.state / "trust.jsonl").open("a") as file_:
        file_.write("no stamp\n")
    group.claude_md.write_text("line\n" * 201 + "@../other/CLAUDE.md\n@memory/episodes/moved.md\n")
    home.config_file.write_text('schema = 1\n[claw]\nname = "x"\n[memory]\nbackend = "hybrid"\n')
    monkeypatch.setattr("clawd.health.memory.find_spec", lambda name: None if name == "wordllama" else name)
    found = [each for each in doctor(home) if each["check"] == "memory"]
    for level, words, command in (
        ("warn", "wordllama is not installed", "pip install 'clawd[vector]'"),
        ("warn", "quarantined text lies in episodes/moved.md", "clawd memory list --status quarantined --group main"),
        ("warn", "broken.md", "ls -la"),
        ("ok", "one memory waits for your word in group main", "clawd memory pending --group main"),
        ("warn", "1 lines that are no stamps", "sed -n"),
        ("warn", "lines and 2 KB", "edit"),
        ("warn", "@../other/CLAUDE.md in CLAUDE.md is not imported", "edit"),
        ("warn", "@memory/episodes/moved.md in CLAUDE.md is not imported", "edit"),
    ):
        fits = [each for each in found if each["level"] == level and words in each["message"]]
        assert len(fits) == 1 and fits[0]["command"].startswith(command), (words, found)


def test_what_a_group_shares_with_nobody_is_named(home: Home) -> None:
    home.group("other").root.mkdir()
    files = [home.group(name).config_file for name in ("main", "other")]
    files[0].write_text('shared = ["shared/x", "shared/y"]\n')
    files[1].write_text('shared = ["shared/y"]\n')
    assert told(home, "memory") == [
        ("warn", "group main lists shared/x, and no other group does: nobody reads what is kept there")
    ]
    files[1].write_text('shared = ["shared/y", "shared/x"]\n')
    assert [level for level, _ in told(home, "memory")] == ["ok"]


def test_a_lost_ledger_is_rebuilt_from_the_folders(home: Home) -> None:
    ensure_group(home, "second")
    if os.geteuid() == 0:
        os.chown(home.group("second").work, UID_BASE + 7, UID_BASE + 7)
    blocks = [Block("user", "hello"), Block("assistant", "hi")]
    SessionFile(home.group("second").sessions / "terminal_second.md", "terminal:second").append(blocks, 41)
    home.ledger_file.write_bytes(b"")
    found = recover(home)
    assert any("1 turns are finished" in each["message"] for each in found), found
    assert [each["command"] for each in found if each["check"] == "groups"] == [
        "clawd groups trust second",
        "clawd groups trust main",
    ][:: 1 if os.geteuid() == 0 else -1]
    ledger = Ledger.open(home.ledger_file)
    rows = {row.name: row for row in ledger.tx(groups.every)}
    session = ledger.tx(lambda tx: groups.session(tx, "terminal:second"))
    turns = [tuple(row) for row in ledger.tx(lambda tx: tx.all("SELECT id, state FROM turn"))]
    ledger.close()
    assert session is not None and (session.group, session.stem) == ("second", "terminal_second")
    assert turns == [(41, "answered")]
    assert os.geteuid() or rows["second"].number == 7
    [kept] = home.backups.glob("damaged-*/ledger.db")
    assert kept.read_bytes() == b""


def test_what_sessions_hold_on_to_comes_back_with_a_lost_ledger(home: Home) -> None:
    sessions = home.group("main").sessions
    pin = {"text": "Never push", "origin": "owner", "trust": 1.0, "source_turn": 1, "ts": "t"}
    said: dict[str, Any] = {"schema": 1, "group": "main", "taint": 0.4, "last_decision_seq": 7, "step_index": 3}
    for id, more in (
        ("a", {"status": "handoff", "successor": "a.2", "sealed": "t", "handoff_manifest": "manifests/m.json"}),
        ("a.2", {"parent": "a", "ledger": {"constraints": [pin]}}),
        ("b", {"status": "stopped", "successor": "nobody", "stopped_reason": "confirm_denied_at_hard"}),
        ("newer", {"schema": 9}),
        ("broken", None),
    ):
        stem = id.replace(".", "_")
        blocks = [Block("user", "hello", meta={"base": "a"} if id == "a.2" else {})]
        SessionFile(sessions / f"{stem}.md", id).append(blocks, 41)
        text = "{" if more is None else json.dumps(said | {"id": id} | more)
        (sessions / f"{stem}.state.json").write_text(text)
    home.ledger_file.write_bytes(b"")
    told = {each["message"]: each["level"] for each in recover(home) if each["check"] == "context"}
    assert any("3 sessions" in message for message in told), told
    assert sorted(level for level in told.values()) == ["ok", "warn", "warn"]
    assert any("newer clawd" in message for message in told) and any("made anew" in message for message in told)
    ledger = Ledger.open(home.ledger_file)
    rows = {row["session"]: row for row in ledger.tx(lambda tx: tx.all("SELECT * FROM context"))}
    pins = [tuple(row) for row in ledger.tx(lambda tx: tx.all("SELECT session, class, text, trust FROM pinned"))]
    ledger.close()
    assert set(rows) == {"a", "a.2", "b"}
    assert (rows["a"]["status"], rows["a"]["successor"], rows["a"]["manifest_file"]) == ("handoff", "a.2", "m.json")
    assert (rows["a.2"]["parent"], rows["a.2"]["taint"], rows["a.2"]["seq"]) == ("a", 0.4, 7)
    assert (rows["b"]["status"], rows["b"]["gate"], rows["b"]["successor"]) == ("stopped", "paused", None)
    assert pins == [("a.2", "constraints", "Never push", 0.6)]


def test_a_ledger_of_a_newer_program_is_not_recovered(home: Home) -> None:
    import sqlite3

    connection = sqlite3.connect(home.ledger_file)
    connection.execute(f"PRAGMA user_version = {schema_version() + 1}")
    connection.close()
    before = home.ledger_file.read_bytes()
    with pytest.raises(LedgerNewer):
        recover(home)
    assert home.ledger_file.read_bytes() == before


def test_a_home_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        Home(tmp_path / "file" / "home").create()


# ---- what was read, judged


NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("found", "levels", "words"),
    [
        (machine.judge_disk(1 << 40, None, "/h"), ["ok"], "MB free"),
        (machine.judge_disk(100 << 20, 5_000_000, "/h"), ["error"], "100 MB free"),
        (machine.judge_disk(1 << 40, 12, "/h"), ["ok", "error"], "only 12 more files"),
        (machine.judge_clock(NOON, NOON - DAY, NOON - DAY, True), ["ok"], "2026"),
        (machine.judge_clock(NOON, NOON - DAY, None, None), ["ok"], "2026"),
        (machine.judge_clock(NOON, NOON, NOON, False), ["warn"], "nothing keeps this machine's clock right"),
        (machine.judge_clock(NOON, NOON, NOON + DAY, True), ["warn"], "the last message came 2026-12-0"),
        (machine.judge_clock(datetime(1970, 1, 1, tzinfo=UTC), NOON, NOON, True), ["error"], "was made in 2026"),
        (machine.judge_locale("utf-8"), ["ok"], "UTF-8"),
        (machine.judge_locale("iso8859-1"), ["warn"], "iso8859-1"),
        (machine.judge_file_limit(65536, 65536), ["ok"], "65536"),
        (machine.judge_file_limit(256, 65536), ["warn"], "only 256"),
        (machine.judge_file_limit(256, 256), ["warn"], "only 256"),
        (machine.judge_file_limit(resource.RLIM_INFINITY, resource.RLIM_INFINITY), ["ok"], "any number"),
    ],
)
def test_what_the_machine_says_is_judged(found: Iterator[Finding], levels: list[str], words: str) -> None:
    lines = list(found)
    assert [each["level"] for each in lines] == levels
    assert words in " ".join(each["message"] for each in lines)
    assert all(each["command"] for each in lines if each["level"] != "ok")


def test_every_finding_that_is_not_well_names_what_mends_it(home: Home) -> None:
    found = doctor(home)
    assert {"disk", "clock", "locale", "file limits", "limits", "groups", "work", "daemon"} <= {
        each["check"] for each in found
    }
    assert not [each for each in found if each["level"] != "ok" and not each["command"]]


# ---- a group's own files


def link(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to("/etc/hostname")


def open_to_all(file: Path) -> None:
    file.touch()
    file.chmod(0o666)


def another_s(file: Path) -> None:
    file.touch()
    os.chown(file, 1, 1)


@pytest.mark.parametrize("name", ["CLAUDE.md", "user_profile.md", "group.toml"])
@pytest.mark.parametrize(
    ("spoil", "why"), [(link, "is a link"), (open_to_all, "others can write"), (another_s, "belongs to another user")]
)
def test_a_file_that_is_not_surely_the_owner_s_is_an_error(
    home: Home, name: str, spoil: Callable[[Path], None], why: str
) -> None:
    if spoil is another_s and os.geteuid():
        pytest.skip("only root can give a file away")
    spoil(home.group("main").root / name)
    assert any(level == "error" and name in message and why in message for level, message in told(home, "groups"))


def test_a_writable_mount_around_the_home_is_an_error(home: Home) -> None:
    config = home.group("main").config_file
    (home.root / "loop").symlink_to("loop")
    odd = "".join(
        f'[[mounts]]\npath = "{path}"\nname = "m{n}"\nmode = "rw"\n'
        for n, path in enumerate(("~nobody-here/x", "/a\\u0000b", home.root / "loop"))
    )
    config.write_text(f'{odd}[[mounts]]\npath = "{home.root.parent}"\nname = "all"\nmode = "rw"\n')
    assert any("could write to" in message for level, message in told(home, "groups") if level == "error")
    config.write_text(f'[[mounts]]\npath = "{home.root.parent}"\nname = "all"\n')
    assert not [level for level, _ in told(home, "groups") if level == "error"]


def test_a_work_that_is_a_link_or_another_s_is_an_error(home: Home) -> None:
    work = home.group("main").work
    if os.geteuid() == 0:
        os.chown(work, 1234, 1234)
        assert any("belongs to user 1234" in message for _, message in told(home, "groups"))
    work.rmdir()
    work.symlink_to("/tmp")
    assert any("is a link" in message for level, message in told(home, "groups") if level == "error")


def test_what_is_wrong_with_skills_is_named(home: Home) -> None:
    assert told(home, "skills") == [("ok", "every skill is sound")]
    folder = home.skills / "mine"
    (folder / ".vscode").mkdir(parents=True)
    file = folder / "SKILL.md"
    file.write_text("---\nname: mine\ndescription: For tests.\n---\nDo it.\n")
    (folder / ".vscode" / "tasks.json").write_text("{}")
    (folder / ".env").write_text("KEY=1")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "closed.md").touch(mode=0o200)
    said = {message for level, message in told(home, "skills") if level == "warn"}
    for words in (
        ".vscode/tasks.json",
        "may be secrets",
        "'link' is left out: it is a link",
        "'closed.md' is left out",
    ):
        assert any(words in each for each in said), words
    file.write_text("no frontmatter")
    assert any(f"{folder} is not used: SKILL.md does not begin" in message for _, message in told(home, "skills"))
    for name in (".env", "link", "closed.md", ".vscode/tasks.json"):
        (folder / name).unlink()
    file.write_text("---\nname: mine\ndescription: For tests.\n---\nDo it.\n")
    assert told(home, "skills") == [("ok", "every skill is sound")]


def test_what_is_left_out_of_memory_is_named(home: Home) -> None:
    memory = home.group("main").memory
    (memory / "episodes").mkdir()
    (memory / "episodes" / "far.md").symlink_to("/etc/passwd")
    (memory / "notes.txt").write_text("not read")
    said = {message for level, message in told(home, "memory") if level == "warn"}
    for words in (
        "'episodes/far.md' is left out: it is a link",
        "'notes.txt' is left out: Markdown files end with .md",
    ):
        assert any(words in each for each in said), words


# ---- what an agent left


RUN = {
    ".git/hooks/pre-commit": "#!/bin/sh",
    "repo/.git/hooks/post-merge": "#!/bin/sh",
    "repo/.git/commondir": "../evil",
    "repo/.git/config": "[core]\n fsmonitor = ./evil",
    ".envrc": "",
    "a/.vscode/tasks.json": "{}",
    "a/.mcp.json": "{}",
    ".claude/settings.local.json": "{}",
    "b/package.json": '{"scripts": {"postinstall" : "evil"}}',
}
QUIET = {
    ".git/hooks/pre-commit.sample": "",
    ".git/config": "[core]\n bare = false",
    "package.json": '{"name": "x"}',
    "node_modules/x/package.json": '{"scripts": {"postinstall": "x"}}',
    "notes.md": ".envrc",
    "x.envrc": "",
}


def lay(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_what_a_persons_tools_would_run_in_work_is_named(home: Home) -> None:
    lay(home.group("main").work, QUIET)
    assert told(home, "work") == [("ok", "nothing in work/ would be run by tools of your own")]
    for name, text in RUN.items():
        file = home.group("main").work / name
        kept = file.read_text() if file.exists() else None
        lay(home.group("main").work, {name: text})
        [(level, message)] = told(home, "work")
        assert level == "warn" and f"would run {name} in" in message
        file.unlink() if kept is None else file.write_text(kept)
    lay(home.group("main").work, RUN)
    [(_, message)] = told(home, "work")
    assert "and 4 more" in message


def test_links_and_special_files_in_work_are_not_followed_and_setuid_files_are_an_error(home: Home) -> None:
    work = home.group("main").work
    os.mkfifo(work / ".envrc")
    (work / ".vscode").symlink_to("/etc")
    assert [level for level, _ in told(home, "work")] == ["ok"]
    (work / "tool").touch()
    (work / "tool").chmod(0o4755)
    [(level, message)] = told(home, "work")
    assert level == "error" and "tool in" in message


def test_a_work_that_is_too_big_or_too_deep_is_looked_at_in_part(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_files, "MOST_FILES", 3)
    lay(home.group("main").work, {str(n): "" for n in range(4)})
    [(level, message)] = told(home, "work")
    assert level == "warn" and "too many" in message
    (home.group("main").work / "/".join("d" * 80)).mkdir(parents=True)
    monkeypatch.setattr(group_files, "MOST_FILES", 100)
    assert "deep" in told(home, "work")[0][1]


def test_what_a_killed_daemon_left_is_named(home: Home, tmp_path: Path) -> None:
    left = tmp_path / "run1"
    left.mkdir()
    ledger = Ledger.open(home.ledger_file)
    authority = Authority(Role.OWNER)
    facts = {"backend": "bubblewrap", "uid": None, "authority": authority, "now": NOW}
    ledger.tx(lambda tx: runs.begin(tx, "run1", "main", directory=str(left), **facts))  # type: ignore[arg-type]
    ledger.close()
    socket = home.state / "control.sock"
    socket.touch()
    first, second = told(home, "remains")
    assert "control.sock" in first[1] and str(left) in second[1]
    lock = HomeLock(home.lock_file)
    lock.acquire()
    try:
        assert told(home, "remains") == []
    finally:
        lock.release()
    socket.unlink()
    left.rmdir()
    assert told(home, "remains") == []


def test_a_program_that_a_group_works_with_is_missed_under_bubblewrap(home: Home) -> None:
    home.config_file.write_text('schema = 1\n[sandbox]\nbackend = "bubblewrap"\n')
    file = home.group("main").config_file
    for engine, program in (
        ('engine = "claude-code"', ""),
        ('engine = "exec"\nagent = "pi"', "pi"),
        ('engine = "exec"\nagent = "mine"', None),
    ):
        file.write_text(f"schema = 1\n[model]\n{engine}\n")
        found = [message for _, message in told(home, "engines")]
        assert bool(found) == (program is not None), engine
        assert program is None or f"this machine has no {program or 'claude'}" in found[0]
        assert program is None or f'["/mnt/NAME/{program or "claude"}"]' in found[0]


def test_what_a_group_s_model_lacks_is_named(home: Home) -> None:
    file = home.group("main").config_file
    assert [level for level, _ in told(home, "models")] == ["ok"]
    for lines, level, words in (
        ('[model]\nengine = "messages"', "error", 'add grants = ["anthropic"] at the top of groups/main/group.toml'),
        ('grants = ["anthropic"]\n[model]\nengine = "messages"', "error", "/model NAME"),
        ('grants = ["anthropic"]\n[model]\nengine = "messages"\nmodel = "m"', "ok", ""),
        ('grants = ["ollama"]\n[model]\nengine = "chat"\nmodel = "m"', "error", 'add "openai" in grants'),
        ('[model]\nengine = "exec"\nagent = "codex"', "error", 'grants = ["openai"]'),
        ('[model]\nengine = "exec"\nagent = "pie"', "error", "there is no [engines.pie]"),
        (
            'grants = ["ollama"]\n[model]\nengine = "chat"\nservice = "ollama"\nmodel = "m"\nfallbacks = ["openai/n"]',
            "warn",
            "The fallback openai/n is not used",
        ),
    ):
        file.write_text(lines)
        [(is_level, message)] = told(home, "models")
        assert is_level == level and words in message, lines


def test_what_groups_ask_for_of_the_host_is_looked_at(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists, code = tmp_path / "lists", tmp_path / "code"
    for each in (lists, code, tmp_path / "me"):
        each.mkdir(mode=0o700)
    file = lists / "mounts.toml"
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("CLAWD_MOUNTS", str(file))
    assert {level for level, _ in told(home, "mounts")} <= {"ok"}, "nobody asks"
    home.group("main").config_file.write_text(
        f'[[mounts]]\npath = "{code}"\nname = "code"\nmode = "rw"\n[[mounts]]\npath = "{tmp_path}"\nname = "all"\n'
    )
    assert [(level, "no mount allowlist" in message) for level, message in told(home, "mounts")] == [("error", True)]
    file.write_text(f'schema = 1\n[[roots]]\npath = "{code}"\nmode = "rw"\nwhy = "x"\n')
    file.chmod(0o666)
    assert [(level, "others can write" in message) for level, message in told(home, "mounts")] == [("error", True)]
    file.chmod(0o600)
    lay(code, {".envrc": "x", "app/.env": "KEY=1", "one": "1", "app/Makefile": "all:"})
    os.link(code / "one", code / "two")
    found = told(home, "mounts")
    for words in (
        "the mount all of group main is not shown",
        "would run .envrc",
        "may be secrets: .envrc, app/.env",
        "second name, which may lie anywhere: one, two",
    ):
        assert any(words in message for level, message in found if level == "warn"), (words, found)
    with file.open("a") as more:
        more.write(f'[[roots]]\npath = "{home.root.parent}/me"\nmode = "ro"\nwhy = "all of it"\n')
    assert any("cannot be shown as a whole" in message for _, message in told(home, "mounts"))


def test_config_check_knows_which_agents_there_are(home: Home) -> None:
    home.group("main").config_file.write_text('[model]\nengine = "exec"\nagent = "nope"\n')
    [wrong] = config_check(home, None)["errors"]
    assert wrong["where"] == "group main [model]" and "there are claude-code, codex" in wrong["what"]


def test_what_does_not_wake_is_told(home: Home) -> None:
    main, words = home.group("main"), "cron: hour: '25' cannot be read; it goes from 0 to 23"
    main.schedules.mkdir()
    (main.schedules / "good.toml").write_text('schema = 1\nevery = "1h"\nprompt = "p"\n')
    assert told(home, "schedules") == [("ok", "every schedule is understood")] and config_check(home, None)["ok"]
    (main.schedules / "bad.toml").write_text('schema = 1\ncron = "0 25 * * *"\nprompt = "p"\n')
    [wrong] = config_check(home, None)["errors"]
    assert wrong == {"where": "groups/main/schedules/bad.toml:2 cron", "what": words.partition(": ")[2], "hint": ""}
    [(level, message)] = told(home, "schedules")
    assert level == "warn" and message == f"main/bad is not taken up: groups/main/schedules/bad.toml:2 {words}"
    main.config_file.write_text('[[watch]]\npaths = ["work"]\n[heartbeat]\nhours = "9-18"\n')
    assert told(home, "watches") == [("ok", "every folder that is to be watched may be")]
    assert told(home, "heartbeat") == [("warn", "the heartbeat of group main has no list, so nothing is looked at")]
    main.config_file.write_text('[[watch]]\npaths = ["work", "/mnt/scans"]\n')
    [(level, message)] = told(home, "watches")
    assert level == "warn" and "/mnt/scans is not watched for group main: it is no mount of the group" in message
    assert told(home, "heartbeat") == []


def test_grants_are_held_against_what_is_there(home: Home, tmp_path: Path) -> None:
    assert told(home, "services") == [("ok", "every service that is granted is there")]
    with home.config_file.open("a") as config:
        config.write('[services.web]\nhosts = ["*"]\n[services.anthropic]\ncredential = "${env:NOT_SET_HERE}"\n')
        config.write('[services.own]\nbase_url = "https://own.example.org"\nca = "/nowhere.pem"\n')
    file = home.group("main").config_file
    file.write_text('grants = ["web", "anthropic"]')
    [(_, key), (_, page)] = told(home, "services")
    assert "NOT_SET_HERE} is not set here" in key and "any page" in page  # which it may read beside a key
    file.write_text('grants = ["web"]')
    assert [level for level, _ in told(home, "services")] == ["ok"]
    home.group("main").user_profile.write_text("I live in X.")
    assert "user_profile.md" in told(home, "services")[0][1]
    file.write_text(
        f'grants = ["opnai", "openai", "own", {{service = "github", credential = "${{file:{tmp_path}/no}}"}}]'
    )
    found = told(home, "services")
    assert [level for level, _ in found] == ["error", "warn", "error", "error"]
    for words in ("no such service: did you mean openai?", "openai", "/nowhere.pem", "cannot be read"):
        assert any(words in message for _, message in found), words
    (tmp_path / "no").write_text("a key\n")
    for mode, levels in ((0o600, ["ok"]), (0o604, ["warn"]), (0o640, ["warn"])):
        (tmp_path / "no").chmod(mode)
        file.write_text(f'grants = [{{service = "github", credential = "${{file:{tmp_path}/no}}"}}]')
        assert [level for level, _ in told(home, "services")] == levels


ADA = '[[people]]\nname = "Ada"\nrole = "owner"\naccounts = ["telegram:7"]\n'


@pytest.mark.parametrize(
    ("people", "channel", "level", "says"),
    [
        (ADA, True, "ok", "one person may speak"),
        ("", False, "ok", "nobody may speak on channels"),
        ("", True, "warn", "no owner can speak on telegram"),
        (ADA.replace("owner", "admin"), True, "warn", "no owner can speak on telegram"),
        (None, False, "ok", "nobody may speak on channels"),
        (None, True, "error", "there is no"),
        ("nonsense", False, "error", "not TOML"),
        (ADA + ADA.replace("Ada", "eve"), False, "error", "telegram:7 is Ada's and eve's"),
    ],
)
def test_who_may_speak_is_looked_at(home: Home, people: str | None, channel: bool, level: str, says: str) -> None:
    if channel:
        home.config_file.write_text('schema = 1\n[channels.telegram]\nenabled = true\ntoken = "${env:T}"\n')
    home.people_file.unlink()
    if people is not None:
        home.people_file.write_text(people)
    [(found, message)] = told(home, "people")
    assert found == level and says in message


def test_a_chat_of_two_groups_is_an_error(home: Home) -> None:
    for name in ("main", "other"):
        ensure_group(home, name)
        home.group(name).config_file.write_text('bindings = ["telegram:-100"]\n')
    [(level, message)] = told(home, "bindings")
    assert level == "error" and "telegram:-100 is in the bindings of main and other" in message
