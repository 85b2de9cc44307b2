"""A home made by hand comes in as the specification of its files says."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.arrivals.items import Brought, Item
from clawd.arrivals.staging import stage
from clawd.bridges.pythonclaw import memories, sessions
from clawd.bridges.pythonclaw.forms import session_bytes
from clawd.bridges.pythonclaw.reading import read
from clawd.config.home import Home
from clawd.config.load import machine_zone
from clawd.errors import UsageError
from clawd.ids import Stems
from clawd.memory.keyed import parsed
from clawd.model import Block
from clawd.sessions.format import parse
from tests.bridges.pythonclaw.conftest import DAY, DYNAMIC, FILES, RAW, SECRET, accept, lay
from tests.sessions.strategies import steady, texts


def by_place(brought: Brought) -> dict[tuple[str, str], Item]:
    return {(item.group, item.to): item for item in brought.items}


def test_what_is_in_a_home_and_for_which_group(claw: Path) -> None:
    assert set(by_place(read(claw, None))) == {
        ("telegram_-100123", "sessions/telegram_-100123.md"),
        ("telegram_-100123", "memory/MEMORY.md"),
        ("telegram_-100123", "memory/2026-03-09.md"),
        ("main", "sessions/cli.md"),
        ("main", "sessions/mmkr_a_1.md"),
        ("main", "memory/MEMORY.md"),
        ("main", "memory/INDEX.md"),
        ("main", "memory/2026-03-07.md"),
        ("main", "memory/notes/memory.md"),
        ("main", "memory/notes/boats.md"),
        ("main", "skills/pdf-reader"),
        ("main", "schedules/daily-summary.toml"),
        ("main", "schedules/paused.toml"),
        ("main", "schedules/late.toml"),
        ("main", "CLAUDE.md"),
    }


def test_with_a_group_all_of_it_is_for_that_one(claw: Path) -> None:
    found = read(claw, "all-of-it")
    assert {item.group for item in found.items} == {"all-of-it"}
    facts = parsed(by_place(found)["all-of-it", "memory/MEMORY.md"].files[""])[1]
    assert {key: fact.value for key, fact in facts.items()} == {
        "city": "Wien",
        "notes": "a\n## b",
        "phantom": "what a value of 0.6 had behind its heading",
        "telegram_-100123_city": "Linz",
    }
    assert by_place(found)["all-of-it", "memory/notes/telegram_-100123-2026-03-09.md"].kind == "note"


def test_what_is_left_says_why(claw: Path) -> None:
    left = {each.source: each.why for each in read(claw, None).left}
    assert set(left) == {
        "pythonclaw.json",
        "context/sessions/empty.md",
        "context/memory/old.txt",
        "context/skills/mmkr/only_yaml",
        "context/cron/jobs.yaml: bad",
        "context/cron/jobs.yaml: job 4",
        "context/knowledge/x.pdf",
        "context/files",
        "context/compaction",
        "context/logs",
        "context/odd",
        "daemon.log",
    }
    assert "does not read skill.yaml" in left["context/skills/mmkr/only_yaml"]
    assert all(left.values()) and "five" in left["context/cron/jobs.yaml: bad"]


def test_keys_are_named_and_never_told(claw: Path) -> None:
    found = read(claw, None)
    assert found.keys == ["llm.claude.apiKey", "tavily.apiKey", "channels.telegram.token"]
    assert found.allowed == [
        "channels.telegram.allowedUsers: 7, 8",
        "channels.discord.allowedUsers is empty: everybody may speak",
    ]
    assert any("telegram" in each for each in found.chats) and any("of its own" in each for each in found.chats)
    assert SECRET not in repr(found)


def test_files_with_keys_are_never_copied(tmp_path: Path) -> None:
    key = "sk-ant-0123456789abcdefghij"
    skill = "context/skills/post"
    odd = {
        f"{skill}/.env": f"POST_TOKEN={key}\n",
        f"{skill}/config/.env.local": f"export OTHER='{key}'\n",
        f"{skill}/prod.env": f"THIRD={key}\n",
        f"{skill}/credentials.json": json.dumps({"x": key}),
        f"{skill}/settings.json": json.dumps({"deep": [{"apiKey": key}]}),
        f"{skill}/settings.yaml": f"user: a\npassword: {key}\n",
        f"{skill}/id_ed25519": key,
        f"{skill}/key.pem": key,
        f"{skill}/.netrc": f"machine x password {key}",
        "context/knowledge/secrets.txt": key,
    }
    rest = {f"{skill}/SKILL.md": "---\nname: post\ndescription: d\n---\nb\n", f"{skill}/data.json": '{"a": 1}'}
    config = json.dumps({"llm": {key: {"apiKey": key}}, "channels": {key: {"token": key}}})
    found = read(lay(tmp_path, odd | rest | {"pythonclaw.json": config}), None)
    [item] = found.items
    assert sorted(item.files) == ["SKILL.md", "data.json"]
    assert key not in repr(found)
    assert {each.source for each in found.left if "keys" in each.why} == {*odd}
    assert {f"POST_TOKEN ({skill}/.env)", f"deep[0].apiKey ({skill}/settings.json)"} <= {*found.keys}


def test_every_message_of_both_dialects_comes(claw: Path) -> None:
    found = by_place(read(claw, None))
    raw = parse(found["telegram_-100123", "sessions/telegram_-100123.md"].files[""])
    assert raw.session == "telegram:-100123" and not raw.problems
    assert [(each.role, each.content, each.tool_call_id) for each in raw.blocks] == [
        ("user", "What is in here?", None),
        ("assistant", "I look.\n---\n### not a heading of the file\nbelow", None),
        ("tool", "a.txt", "call_1"),
    ]
    assert raw.blocks[1].tool_calls[0]["function"]["name"] == "list_files"
    assert {each.meta["source"] for each in raw.blocks} == {"pythonclaw"}
    [esc] = parse(found["main", "sessions/cli.md"].files[""]).blocks
    assert esc.content == "a\n---\n### b\n<!-- msg: c"


def test_a_damaged_session_comes_whole_and_says_so(claw: Path) -> None:
    item = by_place(read(claw, None))["main", "sessions/mmkr_a_1.md"]
    read_again = parse(item.files[""])
    assert read_again.session == "mmkr:a_1"
    assert [(each.role, each.content) for each in read_again.blocks] == [
        ("user", "first"),
        ("assistant", "second"),
        ("user", "third"),
    ]
    told = " · ".join(item.changed)
    assert "cannot be told" in told and "META is not an object" in told and "torn tail" in told


@pytest.mark.parametrize(
    ("stem", "header", "expected"),
    [
        ("telegram_-100123", None, "telegram:-100123"),
        ("discord_dm_7", None, "discord:dm:7"),
        ("cron_daily", None, "cron:daily"),
        ("notes", None, "notes"),
        ("mmkr_agent-1", "mmkr:agent-1", "mmkr:agent-1"),
        ("mmkr_agent-1", "mmkr agent-1", "mmkr agent-1"),
        ("copy", "cli", "cli"),
        ("x", "  ", "x"),
        ("x", "a\x07b", "x"),
    ],
)
def test_which_session_a_file_is(stem: str, header: str | None, expected: str) -> None:
    head = "" if header is None else f"# Session: {header}\n\n\n"
    data = (head + RAW.partition("\n\n\n")[2]).encode()
    found = sessions.read(f"context/sessions/{stem}.md", data)
    assert found.id == expected and len(found.blocks) == 3
    assert bool(found.problems) == (header is None or expected != header or stem == "copy")


def test_two_files_that_claim_one_session_are_two(tmp_path: Path) -> None:
    one = session_bytes("cli", [Block("user", "one", None, meta={"ts": "2026-03-07T10:00:00"})])
    two = session_bytes("cli", [Block("user", "two", None, meta={"ts": "2026-03-07T10:00:00"})])
    lay(tmp_path, {"context/sessions/a.md": two, "context/sessions/cli.md": one})
    found = {parse(item.files[""]).session: item for item in read(tmp_path, None).items}
    assert set(found) == {"cli", "a"}
    assert parse(found["cli"].files[""]).blocks[0].content == "one"
    assert "another file has the session 'cli'" in found["a"].changed[0]


def test_names_that_some_file_system_takes_for_one_are_kept_apart(tmp_path: Path) -> None:
    said = [Block("user", "x", None, meta={"ts": "2026-03-07T10:00:00"})]
    lay(tmp_path, {f"context/sessions/{id}.md": session_bytes(id, said) for id in ("agent", "Agent")})
    items = read(tmp_path, None).items
    assert len({item.to.casefold() for item in items}) == 2
    assert [bool(item.changed) for item in items] == [False, True]


def test_keys_of_meta_that_mean_something_here_do_not_come() -> None:
    data = b'<!-- msg:{"role": "user", "turn": 7, "n": "1/1", "from": "owner", "key": "k"} -->\n\nx\n\n---\n'
    found = sessions.read("context/sessions/x.md", data)
    assert found.blocks[0].meta == {}
    assert any("'from'" in each for each in found.problems)


def test_calls_that_are_nested_without_end_are_text() -> None:
    deep = "[" * 200 + "]" * 200
    call = f'[{{"id": "a", "x": {deep}}}]'
    data = f'# Session: x\n\n\n<!-- msg:{{"role": "assistant"}} -->\n### a — Assistant\n\n' \
           f"<details><summary>Tool Calls</summary>\n\n```json\n{call}\n```\n\n</details>\n\n---\n"  # fmt: skip
    [block] = sessions.read("context/sessions/x.md", data.encode()).blocks
    assert not block.tool_calls and "[[[[" in block.content


# ── memory ──


def test_facts_come_with_what_cannot_be_told_apart(claw: Path) -> None:
    item = by_place(read(claw, None))["main", "memory/MEMORY.md"]
    facts = parsed(item.files[""])[1]
    assert {key: fact.value for key, fact in facts.items()} == {
        "city": "Wien",
        "notes": "a\n## b",
        "phantom": "what a value of 0.6 had behind its heading",
    }
    assert any("'city' stands there more than once" in each for each in item.changed)
    assert any("'phantom' has no time" in each for each in item.changed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## a\n> Updated: x\n\n\n", {}),
        ("## a\nx\n## b\ny\n", {"a": "x", "b": "y"}),
        ("\ufeff## a\r\n> Updated: 2026-03-07 10:00:00\r\n\r\nx\r\n", {"a": "x"}),
        (f"## {'k' * 300}\n\nx\n", {f"{'k' * 180}~": f"{'k' * 300}\n\nx"}),
        ("## a\tb\n\nx\n", {"a b": "x"}),
    ],
)
def test_a_memory_file_that_a_person_or_an_older_version_wrote(text: str, expected: dict[str, str]) -> None:
    found = memories.read(text.encode())
    assert {key[:181] if "~" in key else key: fact.value for key, fact in found.facts.items()} == expected


def test_days_keep_their_bytes(claw: Path) -> None:
    assert by_place(read(claw, None))["main", "memory/2026-03-07.md"].files[""] == DAY.encode()


def test_instructions_are_one_file_that_names_no_other(claw: Path) -> None:
    item = by_place(read(claw, None))["main", "CLAUDE.md"]
    assert item.files[""].decode() == (
        "# From PythonClaw\n\n## Soul\n\nBe kind. Read [@]notes.md first.\n\n## Persona\n\nYou are a librarian.\n\n"
        "## Notes on tools\n\nThe printer is upstairs.\n"
    )
    assert len(item.changed) == 2


# ── schedules ──


def test_jobs_are_schedules_that_are_due_when_they_were(claw: Path) -> None:
    found = by_place(read(claw, None))
    zone = machine_zone()
    same = {"schema": 1, "tz": zone, "session": "own", "catch_up": "skip"}
    said = {to: tomllib.loads(item.files[""].decode()) for (_, to), item in found.items() if item.kind == "schedule"}
    assert said == {
        "schedules/daily-summary.toml": {
            **same, "cron": "0 9 * * mon,tue,wed,thu,fri", "prompt": "Summarise my day.", "enabled": True
        },
        "schedules/paused.toml": {**same, "cron": "*/15 * * * *", "prompt": "look", "enabled": False},
        "schedules/late.toml": {**same, "cron": "30 23 L * *", "prompt": DYNAMIC["late"]["prompt"], "enabled": True},
    }  # fmt: skip
    told = " · ".join(found["main", "schedules/daily-summary.toml"].changed)
    assert "'daily summary'" in told and "0 is Sunday" in told and "telegram, chat 123456789" in told and zone in told


# ── the home ──


@pytest.mark.parametrize("keep", ["pythonclaw.json", "context/memory/MEMORY.md", "context/sessions/cli.md"])
def test_a_home_may_have_nothing_but_one_thing(tmp_path: Path, keep: str) -> None:
    assert read(lay(tmp_path, {keep: FILES[keep]}), None).source == "pythonclaw"


def test_the_person_s_own_folder_may_be_named(tmp_path: Path) -> None:
    lay(tmp_path / ".pythonclaw", {"context/sessions/cli.md": FILES["context/sessions/cli.md"]})
    assert [item.to for item in read(tmp_path, None).items] == ["sessions/cli.md"]


def test_what_is_no_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no home of PythonClaw"):
        read(tmp_path, None)
    with pytest.raises(UsageError):
        read(tmp_path / "nowhere", None)


def test_no_link_is_followed_and_no_pipe_is_opened(claw: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    lay(outside, {"secret.md": "# Session: secret\n\n\n<!-- msg:{} -->\nx\n", "dir/SKILL.md": "---\nname: x\n---\n"})
    (claw / "context/sessions/link.md").symlink_to(outside / "secret.md")
    os.mkfifo(claw / "context/sessions/pipe.md")
    (claw / "context/skills/linked").symlink_to(outside / "dir")
    (claw / "context/memory/INDEX.md").unlink()
    (claw / "context/memory/INDEX.md").symlink_to(outside / "secret.md")
    found = read(claw, None)
    left = {each.source for each in found.left}
    assert {"context/sessions/link.md", "context/sessions/pipe.md", "context/skills/linked",
            "context/memory/INDEX.md"} <= left  # fmt: skip
    assert b"secret" not in b"".join(data for item in found.items for data in item.files.values())


def test_a_folder_that_is_a_link_is_left(tmp_path: Path) -> None:
    lay(tmp_path, {"claw/context/x": "", "outside/cli.md": FILES["context/sessions/cli.md"]})
    (tmp_path / "claw/context/sessions").symlink_to(tmp_path / "outside")
    found = read(tmp_path / "claw", None)
    assert not found.items and any("sessions" in each.source and "link" in each.why for each in found.left)


def test_it_can_all_be_staged_and_accepted_and_twice_changes_nothing(claw: Path, home: Home) -> None:
    stage(home, read(claw, None), dry_run=False)
    again = stage(home, read(claw, None), dry_run=False)
    assert {row["state"] for row in again["came"]} == {"same"}
    done = accept(home)
    assert {(each["kind"], each["group"]) for each in done["accepted"]} >= {
        ("session", "main"), ("session", "telegram_-100123"), ("facts", "main"), ("skill", "main"),
        ("schedule", "main"),
    }  # fmt: skip
    assert accept(home)["accepted"] == []


# ── whatever the bytes ──

hostile = st.one_of(st.binary(max_size=200), texts.map(lambda text: text.encode("utf-8", "surrogatepass")))


@steady
@given(hostile, texts.filter(bool))
def test_no_session_s_bytes_are_too_much(data: bytes, stem: str) -> None:
    found = sessions.read(f"context/sessions/{stem}.md", data)
    stem, written, _ = sessions.file(found, Stems())
    assert [each.content for each in parse(written).blocks] == [each.content for each in found.blocks]


@steady
@given(hostile)
def test_no_memory_s_bytes_are_too_much(data: bytes) -> None:
    found = memories.read(data)
    assert parsed(memories.file(found.facts.values()))[1].keys() == found.facts.keys()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(st.sampled_from(sorted(FILES)), hostile, min_size=1))
def test_a_home_of_anything_is_read(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Any]) -> None:
    root = lay(tmp_path_factory.mktemp("claw"), {"context/x": "", **files})
    for item in read(root, None).items:
        assert item.files and all(isinstance(each, str) for each in item.changed)
