"""Both ways: what grew grows the other, what both changed is told, and doing it again changes nothing."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clawd.arrivals.staging import stage
from clawd.bridges.pythonclaw import target
from clawd.bridges.pythonclaw.forms import session_bytes
from clawd.bridges.pythonclaw.reading import read
from clawd.bridges.pythonclaw.sync import sync
from clawd.bridges.pythonclaw.writing import export
from clawd.cli import bridges as cli
from clawd.config.home import Home
from clawd.errors import UsageError
from clawd.memory.keyed import KeyedMemory, parsed
from clawd.model import Block
from clawd.schedules import edits
from clawd.sessions.format import parse, write_file
from tests.bridges.pythonclaw.conftest import FILES, accept, lay, tree
from tests.memory import pythonclaw as its_memory

AT = datetime(2026, 3, 7, 10, tzinfo=UTC)
SESSION = "context/sessions/telegram_7.md"


def said(*texts: str) -> list[Block]:
    return [Block("user" if n % 2 == 0 else "assistant", each, AT) for n, each in enumerate(texts)]


def keep(home: Home, *texts: str, group: str = "main") -> None:
    folder = home.group(group).sessions
    folder.mkdir(exist_ok=True)
    (folder / "telegram_7.md").write_bytes(write_file("telegram:7", said(*texts)))


def facts_there(claw: Path) -> dict[str, str]:
    return {key: value for key, (_, value) in its_memory.read((claw / "context/memory/MEMORY.md").read_bytes()).items()}


def facts_here(home: Home) -> dict[str, str]:
    data = (home.group("main").memory / "MEMORY.md").read_bytes()
    return {key: fact.value for key, fact in parsed(data)[1].items()}


def put_there(claw: Path, facts: dict[str, str], at: datetime) -> None:
    """As PythonClaw writes its whole memory."""
    lay(claw, {"context/memory/MEMORY.md": its_memory.write(
        {key: (its_memory.local(at), value) for key, value in facts.items()})})  # fmt: skip


def put_here(home: Home, key: str, value: str, at: datetime) -> None:
    KeyedMemory(home.group("main").memory).set(key, value, at)


def places(rows: list[dict[str, Any]], *states: str) -> set[str]:
    return {row["to"] for row in rows if not states or row["state"] in states}


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    return lay(tmp_path / "small", {"pythonclaw.json": "{}"})


def test_everything_goes_both_ways_and_then_rests(claw: Path, home: Home) -> None:
    keep(home, "hello", "good day")
    put_here(home, "boat", "the Albatros", AT)
    edits.put(home.group("main").schedules, "morning", 'schema = 1\ncron = "0 9 * * *"\nprompt = "wake me"\n')
    lay(home.group("main").skills, {"tides/SKILL.md": "---\nname: tides\ndescription: Tells the tides.\n---\nx\n"})
    first = sync(home, "main", claw, False)
    assert {"sessions/cli.md", "memory/MEMORY.md", "skills/pdf-reader", "schedules/daily-summary.toml"} <= places(
        first["came"]
    )
    assert SESSION in places(first["wrote"], "new")
    assert facts_there(claw)["boat"] == "the Albatros" and facts_there(claw)["city"] == "Wien"
    assert (claw / "context/cron/jobs.yaml").read_text() == FILES["context/cron/jobs.yaml"]
    assert accept(home)["accepted"]

    sync(home, "main", claw, False)
    before = tree(claw), tree(home.groups)
    again = sync(home, "main", claw, False)
    assert (tree(claw), tree(home.groups)) == before
    assert not places(again["came"], "new", "changed") and not places(again["wrote"], "new", "changed")
    assert accept(home)["accepted"] == []


def test_what_came_from_there_is_not_put_there_as_new(claw: Path, home: Home) -> None:
    files = set(tree(claw))
    sync(home, "main", claw, False)
    accept(home)
    sync(home, "main", claw, False)
    assert set(tree(claw)) - files == {target.NAME}
    report = export(home, "main", claw, False)
    assert set(tree(claw)) - files == {target.NAME}
    assert "skills/pdf-reader" in {row["from"] for row in report["left"] if "came from there" in row["why"]}


def test_what_was_put_there_does_not_come_back(home: Home, empty: Path) -> None:
    keep(home, "hello")
    put_here(home, "boat", "the Albatros", AT)
    edits.put(home.group("main").schedules, "morning", 'schema = 1\ncron = "0 9 * * *"\nprompt = "wake me"\n')
    lay(home.group("main").skills, {"tides/SKILL.md": "---\nname: tides\ndescription: Tells the tides.\n---\nx\n"})
    lay(home.group("main").memory, {"2026-03-07.md": "# Daily Memory — 2026-03-07\n\n### 10:00:00 — boat\n\nx\n\n"})
    export(home, "main", empty, False)
    found = sync(home, "main", empty, False)
    assert found["came"] == [] and places(found["wrote"], "new", "changed") == set()


def test_a_dry_run_touches_neither(claw: Path, home: Home) -> None:
    keep(home, "hello")
    before = tree(claw), tree(home.groups)
    found = sync(home, "main", claw, True)
    assert found["came"] and found["wrote"] and (tree(claw), tree(home.groups)) == before


# ── sessions ──


@pytest.mark.parametrize("wrote", ["we", "it"])
def test_the_shorter_session_grows(home: Home, empty: Path, wrote: str) -> None:
    keep(home, "a", "b")
    if wrote == "we":
        export(home, "main", empty, False)
    else:
        lay(empty, {SESSION: session_bytes("telegram:7", said("a", "b"))})
    keep(home, "a", "b", "c")
    sync(home, "main", empty, False)
    assert (empty / SESSION).read_bytes() == session_bytes("telegram:7", said("a", "b", "c"))

    (empty / SESSION).write_bytes(session_bytes("telegram:7", said("a", "b", "c", "d")))
    found = sync(home, "main", empty, False)
    assert places(found["came"]) == {"sessions/telegram_7.md"}
    own = home.group("main").sessions / "telegram_7.md"
    assert [each.content for each in parse(own.read_bytes()).blocks] == ["a", "b", "c"]
    accept(home)
    assert [each.content for each in parse(own.read_bytes()).blocks] == ["a", "b", "c", "d"]
    assert "d" in own.read_text() and sync(home, "main", empty, False)["came"] == []


def test_two_that_went_on_by_themselves_are_told_and_neither_is_touched(home: Home, empty: Path) -> None:
    keep(home, "a", "here")
    theirs = session_bytes("telegram:7", said("a", "there"))
    lay(empty, {SESSION: theirs})
    found = sync(home, "main", empty, False)
    assert (empty / SESSION).read_bytes() == theirs and found["came"] == []
    assert [row["why"] for row in found["left"] if row["from"] == SESSION] == [
        "it went on here and there in different ways: neither is touched"
    ]


def test_a_file_that_is_damaged_is_not_added_to(home: Home, empty: Path) -> None:
    keep(home, "a", "b", "c")
    torn = session_bytes("telegram:7", said("a", "b"))[:-5]
    lay(empty, {SESSION: torn})
    found = sync(home, "main", empty, False)
    assert (empty / SESSION).read_bytes() == torn
    assert any("damaged" in row["why"] for row in found["left"])


def test_a_session_of_another_group_is_that_group_s(home: Home, empty: Path) -> None:
    from clawd.config.begin import ensure_group

    ensure_group(home, "other")
    keep(home, "a", group="other")
    lay(empty, {SESSION: session_bytes("telegram:7", said("a", "b"))})
    found = sync(home, "main", empty, False)
    assert found["came"] == [] and any("--group other" in row["why"] for row in found["left"])
    assert places(sync(home, "other", empty, False)["came"]) == {"sessions/telegram_7.md"}


# ── memory ──


def test_a_fact_goes_where_the_other_still_has_what_both_had(home: Home, empty: Path) -> None:
    put_here(home, "city", "Wien", AT)
    put_here(home, "town", "Melk", AT)
    sync(home, "main", empty, False)
    later = AT + timedelta(days=1)
    put_here(home, "city", "Linz", later)
    put_there(empty, {"city": "Wien", "town": "Graz"}, AT)
    put_there(empty, {**facts_there(empty), "town": "Graz"}, later)
    found = sync(home, "main", empty, False)
    # `city` there is newer by its time alone, though it is the same: nothing says that ours is the later word.
    assert facts_there(empty) == {"city": "Linz", "town": "Graz"}
    assert places(found["came"]) == {"memory/MEMORY.md"}
    accept(home)
    sync(home, "main", empty, False)
    assert facts_there(empty)["city"] == "Linz"


def test_what_both_changed_is_told(home: Home, empty: Path) -> None:
    put_here(home, "city", "Wien", AT)
    sync(home, "main", empty, False)
    put_here(home, "city", "Linz", AT + timedelta(days=1))
    put_there(empty, {"city": "Graz"}, AT + timedelta(days=2))
    found = sync(home, "main", empty, False)
    assert facts_there(empty) == {"city": "Graz"} and facts_here(home) == {"city": "Linz"} and found["came"] == []
    assert any("(city)" in row["from"] and "neither" in row["why"] for row in found["left"])


def test_what_was_forgotten_on_one_side_does_not_come_back(home: Home, empty: Path) -> None:
    put_here(home, "city", "Wien", AT)
    put_here(home, "town", "Melk", AT)
    sync(home, "main", empty, False)
    put_there(empty, {"city": "Wien"}, AT)
    KeyedMemory(home.group("main").memory).delete("city")
    found = sync(home, "main", empty, False)
    assert facts_there(empty) == {"city": "Wien"} and facts_here(home) == {"town": "Melk"} and found["came"] == []
    assert len([row for row in found["left"] if "forgotten" in row["why"]]) == 2


def test_a_person_s_own_memory_there_keeps_every_byte_of_the_others(home: Home, empty: Path) -> None:
    theirs = "# Mine\n\nbefore\n\n## city\n> Updated: 2026-03-07 10:00:00\n\nWien\n\n\n## odd\nno time\n"
    lay(empty, {"context/memory/MEMORY.md": theirs})
    put_here(home, "boat", "the Albatros", AT)
    sync(home, "main", empty, False)
    assert (empty / "context/memory/MEMORY.md").read_text() == (
        f"{theirs}\n## boat\n> Updated: {its_memory.local(AT)}\n\nthe Albatros\n"
    )


def test_days_get_what_they_lack(home: Home, empty: Path) -> None:
    head, name = "# Daily Memory — 2026-03-07\n\n", "2026-03-07.md"
    lay(empty, {f"context/memory/{name}": f"{head}### 10:00:00 — a\n\nthere\n\n"})
    lay(home.group("main").memory, {name: f"{head}### 11:00:00 — b\n\nhere\n\n"})
    sync(home, "main", empty, False)
    assert (empty / "context/memory" / name).read_text() == (
        f"{head}### 10:00:00 — a\n\nthere\n\n### 11:00:00 — b\n\nhere\n\n"
    )
    accept(home)
    text = (home.group("main").memory / name).read_text()
    assert text.count("there") == 1 and text.count("here\n") == 2
    found = sync(home, "main", empty, False)
    assert not places(found["came"]) and not places(found["wrote"], "new", "changed")


@pytest.mark.parametrize(
    ("here", "there", "comes", "expected"),
    [
        ("", "new there\n", True, "new there\n"),
        ("ours\n", None, False, "ours\n"),
        ("ours\n", "another\n", False, "another\n"),
        ("same\n", "same\n", False, "same\n"),
    ],
)
def test_the_index_is_one_text(
    home: Home, empty: Path, here: str, there: str | None, comes: bool, expected: str
) -> None:
    lay(home.group("main").memory, {"INDEX.md": here} if here else {})
    if not here:
        (home.group("main").memory / "INDEX.md").unlink(missing_ok=True)
    lay(empty, {"context/memory/INDEX.md": there} if there is not None else {})
    found = sync(home, "main", empty, False)
    assert bool(found["came"]) == comes
    assert (empty / "context/memory/INDEX.md").read_text() == expected


def test_a_chat_s_memory_is_synced_with_its_own_group(claw: Path, home: Home) -> None:
    from clawd.config.begin import ensure_group

    ensure_group(home, "telegram_-100123")
    found = sync(home, "telegram_-100123", claw, False)
    assert places(found["came"]) == {"sessions/telegram_-100123.md", "memory/MEMORY.md", "memory/2026-03-09.md"}
    KeyedMemory(home.group("telegram_-100123").memory).set("boat", "the Albatros", AT)
    sync(home, "telegram_-100123", claw, False)
    chat = its_memory.read((claw / "context/groups/telegram_-100123/memory/MEMORY.md").read_bytes())
    assert chat["boat"][1] == "the Albatros" and "boat" not in facts_there(claw)


def test_what_a_chat_alone_knew_is_not_told_to_all_there(claw: Path, home: Home) -> None:
    stage(home, read(claw, "main"), dry_run=False)
    accept(home)
    assert facts_here(home)["telegram_-100123_city"] == "Linz"
    sync(home, "main", claw, False)
    assert "telegram_-100123_city" not in facts_there(claw)


def test_a_skill_that_was_removed_here_does_not_come_back(home: Home, empty: Path) -> None:
    skill = lay(home.group("main").skills, {"tides/SKILL.md": "---\nname: tides\ndescription: Tells them.\n---\nx\n"})
    sync(home, "main", empty, False)
    (skill / "tides/SKILL.md").unlink()
    (skill / "tides").rmdir()
    assert sync(home, "main", empty, False)["came"] == []
    (empty / "context/skills/clawd/tides/SKILL.md").write_text("---\nname: tides\ndescription: Better.\n---\nx\n")
    assert places(sync(home, "main", empty, False)["came"]) == {"skills/tides"}


def test_the_commands_say_what_was_done(
    home: Home, claw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(home, "hello")
    options = Namespace(group="main", source_home=str(tmp_path / "new"), dry_run=False, json=True)
    assert cli.pythonclaw_export(options, home) == 0
    assert SESSION in places(json.loads(capsys.readouterr().out)["wrote"])
    options = Namespace(group="main", source_home=str(claw), dry_run=False, json=False)
    assert cli.pythonclaw_sync(options, home) == 0
    printed = capsys.readouterr()
    came, went = printed.out.split("  to there\n")
    assert came.startswith(f"Between {claw} and group main:\n  from there\n    conversations ") and "kind=" not in went
    assert "    conversations       1  (1 new)\n" in went and "  left, and why\n    " in went
    assert "clawd bridge accept pythonclaw" in printed.err
    assert cli.pythonclaw_sync(options, home) == 0
    assert "accept" not in capsys.readouterr().err


def test_it_must_be_a_home(home: Home, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        sync(home, "main", tmp_path / "nowhere", False)
