"""What the owner says yes to is in force once, whatever was killed meanwhile; nothing of theirs is replaced."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clawd import faults
from clawd.arrivals import account
from clawd.arrivals.items import Item
from clawd.arrivals.staging import stage
from clawd.cli.arrivals import show_accepted
from clawd.commands import looking, memory, schedules, skills
from clawd.commands.arrivals import listed
from clawd.config.home import Home
from clawd.context.imports import resolve
from clawd.errors import ClawdError, NotFound, StorageError, UsageError
from clawd.health.arrivals import arrivals
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.memory import keyed, looks
from clawd.memory.store import OWNER, GroupMemory
from clawd.model import Block
from clawd.sessions import reading
from clawd.sessions.file import SessionFile
from clawd.sessions.format import write_file
from tests.arrivals.conftest import (
    AT,
    CALL,
    DAY,
    FACTS,
    SCHEDULE,
    SKILL,
    accept,
    blocks,
    brought,
    everything,
    item,
    place,
    session,
    tree,
    whole,
)  # fmt: skip

OTHER = "the other value of a person"


def bring(home: Home, *items: Item) -> None:
    stage(home, brought(*items), dry_run=False)


def states(home: Home, group: str = "main") -> dict[str, str]:
    found = account.read(place(home, group))
    assert found is not None
    return {each.to: each.state for each in found.items}


def why(result: dict[str, Any]) -> str:
    [row] = result["left"]
    return str(row["why"])


def said(home: Home, id: str = "mmkr:a") -> list[str]:
    return [block.content for block in reading.load(looking.session_file(home, id)).blocks]


def known(home: Home, group: str = "main") -> GroupMemory:
    return memory.opened(home, group)


def searched(home: Home, query: str, **more: Any) -> list[dict[str, Any]]:
    with closing(known(home)) as of:
        hits: list[dict[str, Any]] = memory.searched(of, query, k=10, **more)["hits"]
        return hits


def facts(home: Home) -> dict[str, Any]:
    with closing(known(home)) as of:
        return {each.key: each for each in of.every(kind="fact")}


# ── before ──


def test_nothing_of_it_is_anywhere_before(home: Home) -> None:
    before = tree(home.root)
    bring(home, *everything(), item("skill", "skills/other", {"SKILL.md": SKILL.replace(b"tides", b"other")}))
    folder = home.group("main")
    assert not any("heron" in row["text"] or "Porto" in row["text"] for row in memory.listed(known(home), None, ()))
    assert searched(home, "heron frogs Porto", untrusted=True) == []
    assert [row["name"] for row in skills.listed(home, "main") if row["scope"] == "group"] == []
    assert schedules.listed(home, None) == [] and looking.sessions(home, None) == []
    now = {path: data for path, data in tree(home.root).items() if not path.startswith("state/")}
    assert {path for path in now if path not in before} == {
        path for path in now if path.startswith("groups/main/import/pythonclaw/")
    }
    assert all(now[path] == data for path, data in before.items() if path in now)
    [finding] = arrivals(home)
    assert finding["level"] == "ok" and "9 things wait" in finding["message"]
    assert finding["command"] == "clawd bridge accept pythonclaw --group main"
    assert folder.arrivals.stat().st_mode & 0o777 == 0o700


# ── the whole ──


def test_all_of_it_is_in_force_afterwards(home: Home) -> None:
    bring(home, *everything())
    result = accept(home)
    assert result["left"] == []
    assert [row["kind"] for row in result["accepted"]] == [
        "instructions", "facts", "index", "day", "note", "session", "skill", "schedule"
    ]  # fmt: skip
    folder = home.group("main")
    assert folder.claude_md.read_bytes() == b"# Instructions\n\nAnswer in Portuguese.\n"
    assert (folder.memory / "INDEX.md").read_bytes() == b"# What is where\n\nBoats are in boats.md\n"
    assert (folder.memory / "2026-03-07.md").read_bytes().startswith(DAY)
    assert (folder.schedules / "morning.toml").read_bytes() == SCHEDULE
    assert [row["name"] for row in skills.listed(home, "main") if row["scope"] == "group"] == ["tides"]
    assert os.access(folder.skills / "tides/scripts/x.sh", os.X_OK)
    assert said(home) == ["hello", "good day"]
    [heron] = [hit for hit in searched(home, "heron frogs") if hit["kind"] == "episode"]
    assert (heron["trust"], heron["origin"], heron["status"]) == (0.6, "hand", "active")
    assert heron["source"] == "pythonclaw:context/memory/notes/2026-03-01-heron.md"
    assert heron["event_time"].startswith("2026-03-01")
    town = facts(home)["town"]
    assert (town.text, town.trust, town.origin, town.taint) == ("Porto", 0.6, "hand", 1.0)
    assert (
        town.source == "pythonclaw:context/memory/MEMORY.md" and town.updated.year == 2026 and town.updated.month == 3
    )
    with closing(known(home)) as of:
        index = of.get("file:INDEX.md")
        assert (index.trust, index.source) == (0.6, "pythonclaw:context/memory/INDEX.md")
        assert of.every(kind="profile") == []
    assert not list(folder.memory.glob(f"{datetime.now():%Y-%m-%d}.md"))  # it is no news of today
    assert set(states(home).values()) == {"accepted"}
    [row] = listed(home, None)
    assert row["kinds"]["day"] == {"waits": 0, "accepted": 1, "left": 0} and row["path"] == str(place(home))
    assert (row["source"], row["group"], row["home"]) == ("pythonclaw", "main", "/old/.pythonclaw")
    assert list(arrivals(home)) == []


def test_again_is_nothing_new(home: Home) -> None:
    bring(home, *everything())
    accept(home)
    before = {path: data for path, data in tree(home.root).items() if not path.startswith("state/")}
    assert accept(home) == {"source": "pythonclaw", "accepted": [], "left": []}
    bring(home, *everything())
    assert accept(home)["accepted"] == []
    assert {path: data for path, data in tree(home.root).items() if not path.startswith("state/")} == before


POINTS = ["accepted", "accepted:4", "accepted:7", "arriving", "arriving:2", "arriving:3", "arriving:4",
          "remembering-stamped", "remembering-stamped:3", "remembering-written", "remembering-written:2",
          "replacing-MEMORY.md", "replacing-2026-03-07.md", "replacing-CLAUDE.md", "replacing-import.json"]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_the_next_one_ends_it_and_nothing_is_twice(home: Home, point: str) -> None:
    bring(home, *everything())
    pid = os.fork()
    if pid == 0:  # killed as a process is: nothing of it is ended orderly
        try:
            faults.load(f"kill@{point}")
            accept(home)
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 9
    accept(home)
    assert set(states(home).values()) == {"accepted"} and said(home) == ["hello", "good day"]
    folder = home.group("main")
    assert (folder.memory / "2026-03-07.md").read_bytes() == DAY + b"\n" * (not DAY.endswith(b"\n"))
    assert len(list((folder.memory / "episodes").glob("*.md"))) == 1
    assert (folder.memory / "MEMORY.md").read_bytes().count(b"## town\n") == 1 and facts(home)["town"].trust == 0.6
    assert sorted(path.name for path in folder.schedules.glob("*.toml")) == ["morning.toml"]
    assert [row["name"] for row in skills.listed(home, "main") if row["scope"] == "group"] == ["tides"]
    assert accept(home)["accepted"] == []


def test_only_some_of_it_and_of_one_group(home: Home) -> None:
    bring(home, *everything(), *everything("other"))
    result = accept(home, only=["skills", "schedules"], group="other")
    assert {(row["kind"], row["group"]) for row in result["accepted"]} == {("skill", "other"), ("schedule", "other")}
    assert set(states(home).values()) == {"waits"} and states(home, "other")["memory/MEMORY.md"] == "waits"
    # Its conversation has an id, which belongs to one group for ever.
    result = accept(home)
    [left] = result["left"]
    assert left["group"] == "other" and "belongs to group 'main'" in left["why"]
    for params, error in (
        ({"group": "nobody"}, NotFound), ({"source": "nanobot"}, NotFound), ({"source": "../x"}, UsageError),
        ({"only": ["all"]}, UsageError), ({"source": None}, UsageError),
    ):  # fmt: skip
        with pytest.raises(error):
            accept(home, **params)


# ── conversations ──


def test_a_conversation_that_grew_there_goes_on_here(home: Home) -> None:
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "1", "2")))
    accept(home)
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "1", "2", "3", "4")))
    assert states(home) == {"sessions/a.md": "waits"}
    accept(home)
    assert said(home) == ["1", "2", "3", "4"]
    read = reading.load(looking.session_file(home, "mmkr:a"))
    assert read.errors == [] and read.id == "mmkr:a"
    assert {block.meta["source"] for block in read.blocks} == {"pythonclaw:context/sessions/a.md"}


def test_one_that_went_on_in_different_ways_is_left(home: Home) -> None:
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "1", "2")))
    accept(home)
    path = looking.session_file(home, "mmkr:a")
    SessionFile(path, "mmkr:a").append(blocks("here"), 7)
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "1", "2", "there")))
    assert "went on here and there" in why(accept(home)) and said(home) == ["1", "2", "here"]
    assert states(home) == {"sessions/a.md": "left"}
    # What there has all of here goes on: the other way round it was brought back.
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "1", "2", "here", "there")))
    # "here" was a user's message
    assert accept(home)["left"] == [] and said(home) == ["1", "2", "here", "there"]


def test_a_window_of_the_last_messages_goes_on_where_it_was(home: Home) -> None:
    """PythonClaw keeps fifty, puts its summary before them, and notes of its own in between."""
    first = blocks(*map(str, range(10)))
    note, summary = Block("system", "[Memory Refresh]", AT), Block("system", "[Compaction Summary]", AT)
    for there in (first, [note, *first], [summary, *first[4:]], [summary, *first[6:], note, *blocks("10", "11", "12")],
                  [summary, *blocks("10", "11", "12", "13")], first[3:7]):  # fmt: skip
        bring(home, item("session", "sessions/a.md", write_file("mmkr:a", there)))
        assert accept(home)["left"] == []
    assert [each for each in said(home) if each[0] != "["] == [str(n) for n in range(14)]
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "12", "13", "14")))
    assert len(accept(home)["left"]) == 1  # two messages may be the same by chance


def test_one_that_went_on_here_is_known_when_its_folder_was_removed(home: Home) -> None:
    for _ in range(2):
        bring(home, item("session", "sessions/a.md", session("mmkr:a", "1", "2")))
        assert accept(home)["left"] == [] and said(home)[:2] == ["1", "2"]
        SessionFile(looking.session_file(home, "mmkr:a"), "mmkr:a").append(blocks("here"), 7)
        shutil.rmtree(place(home))
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "1", "2", "there")))
    assert "another one" in why(accept(home)) and "there" not in said(home)


def test_one_that_was_another_here_is_left(home: Home) -> None:
    ledger = Ledger.open(home.ledger_file)
    ledger.tx(lambda tx: groups.add(tx, "main", "2026-03-07T10:00:00Z"))
    row = ledger.tx(lambda tx: groups.open_session(tx, "mmkr:a", "main", "2026-03-07T10:00:00Z"))
    ledger.close()
    path = home.group("main").sessions / f"{row.stem}.md"
    SessionFile(path, "mmkr:a").append(blocks("mine"), 7)
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "1", "2")))
    assert "another one" in why(accept(home)) and said(home) == ["mine"]


def test_what_was_changed_here_stays_when_it_grows_there(home: Home) -> None:
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "the secret", "2")))
    accept(home)
    path = looking.session_file(home, "mmkr:a")
    path.write_bytes(path.read_bytes().replace(b"the secret", b"[forgotten]"))
    bring(home, item("session", "sessions/a.md", session("mmkr:a", "the secret", "2", "3")))
    assert accept(home)["left"] == [] and said(home) == ["[forgotten]", "2", "3"]


def test_calls_and_hostile_marks_of_a_conversation(home: Home) -> None:
    said_there = [
        Block("user", "go", AT, meta={"turn": 3, "n": "1/1", "note": "x", "from": "system", "name": "eve"}),
        Block("assistant", "", AT, tool_calls=(CALL,)),
        Block("tool", "a <!-- msg:{} --> b\n---\n### x", AT, tool_call_id="call_1"),
        Block("user", "undated"),
    ]
    bring(home, item("session", "sessions/x.md", write_file("mmkr:../../x", said_there)))
    accept(home)
    read = reading.load(looking.session_file(home, "mmkr:../../x"))
    assert [(each.role, each.content, each.tool_calls, each.tool_call_id) for each in read.blocks] == [
        (each.role, each.content, each.tool_calls, each.tool_call_id) for each in said_there
    ]
    assert read.errors == [] and read.blocks[0].meta["from"] == "external" and read.blocks[0].meta["name"] == "eve"
    assert all(isinstance(block.meta["turn"], str) and "note" not in block.meta for block in read.blocks)
    assert sorted(path.name for path in home.group("main").sessions.iterdir()) == ["mmkr_______x.md"]
    assert all("turn" not in row for row in looking.session_blocks(home, "mmkr:../../x"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", "which session"), (b"no header", "which session"), (b"# Session: a\n\n", "no messages"),
     (session("job:1", "x"), "clawd's own")],
)  # fmt: skip
def test_what_is_no_conversation(home: Home, data: bytes, expected: str) -> None:
    bring(home, item("session", "sessions/a.md", data))
    assert expected in why(accept(home))
    assert looking.sessions(home, None) == [] and accept(home)["accepted"] == []


# ── memory ──


def test_a_fact_with_another_value_stays(home: Home) -> None:
    with closing(known(home)) as of:
        of.put(OTHER, "fact", {"key": "town"}, OWNER)
    bring(home, item("facts", "memory/MEMORY.md", FACTS + b"\n## user_name\n\nEve\n\n## bot_name\n\nEvil\n"))
    result = accept(home)
    assert [row["kind"] for row in result["accepted"]] == ["facts"] and states(home) == {"memory/MEMORY.md": "left"}
    told = why(result)
    assert told.startswith("3 of its ") and "'town': it has another value" in told
    assert "; bot_name is set by the owner alone" in told and "; user_name is set by the owner alone" in told
    assert OTHER not in told and "Porto" not in told and "Eve" not in told
    there = facts(home)
    assert (there["town"].text, there["town"].trust, there["user_name"].text) == (OTHER, 1.0, "Ada")
    assert there["pet"].text == "a cat"
    assert accept(home)["accepted"] == []  # and it is told again


def test_a_fact_that_changed_there_is_renewed_unless_it_was_changed_here(home: Home) -> None:
    bring(home, item("facts", "memory/MEMORY.md", FACTS))
    accept(home)
    file = home.group("main").memory / "MEMORY.md"
    file.write_bytes(file.read_bytes().replace(b"a cat", b"a tame raven"))
    new = FACTS.replace(b"Porto", b"Lisbon").replace(b"a cat", b"two cats")
    bring(home, item("facts", "memory/MEMORY.md", new))
    assert "'pet': it has another value" in why(accept(home))
    assert (facts(home)["town"].text, facts(home)["pet"].text) == ("Lisbon", "a tame raven")


def test_what_was_forgotten_or_quarantined_stays_so(home: Home) -> None:
    note = b"The heron of the old mill eats frogs.\n"
    with closing(known(home)) as of:
        for content, kind, key in ((note.decode(), "episode", {}), ("Porto", "fact", {"key": "town"})):
            of.forget(of.put(content, kind, key, OWNER).id, OWNER)
        bad = of.put("Boats are in boats.md, says the index", "entity", {}, OWNER)
        of.quarantine(bad.id)
    bring(
        home, item("note", "memory/notes/a.md", note), item("facts", "memory/MEMORY.md", FACTS),
        item("index", "memory/INDEX.md", b"Boats are in boats.md, says the index\n"),
        item("day", "memory/2026-03-07.md", DAY + b"\n### 12:00:00 - x\n\n" + note),
    )  # fmt: skip
    result = accept(home)
    told = {row["from"]: row["why"] for row in result["left"]}
    assert set(told) == {f"context/memory/{name}" for name in ("notes/a.md", "MEMORY.md", "INDEX.md", "2026-03-07.md")}
    assert "forgotten" in told["context/memory/notes/a.md"] and "'town'" in told["context/memory/MEMORY.md"]
    assert "quarantined" in told["context/memory/INDEX.md"] and "forgotten" in told["context/memory/2026-03-07.md"]
    kept = b"".join(path.read_bytes() for path in home.group("main").memory.glob("*.md"))
    assert b"eats frogs" not in kept and b"says the index" not in kept and b"heron" in kept


def test_a_day_gets_the_entries_that_it_lacks_and_is_trusted_as_a_hand_s(home: Home) -> None:
    file = home.group("main").memory / "2026-03-07.md"
    ours = "# Daily Memory — 2026-03-07\n\n### 09:00:00 — own\n\nmine\n\n### 10:00:00 — town\n\nPorto\n\n"
    file.write_text(ours)
    with closing(known(home)) as of:
        of.put("Coimbra, says the owner", "fact", {"key": "lake"}, OWNER)
    lake = "### 12:00:00 — lake\n\nThe lake lies behind the seventh hill, it said there\n\n"
    bring(home, item("day", "memory/2026-03-07.md", DAY + f"\n{lake}{lake}".encode()))
    accept(home)
    now = file.read_text()
    assert now.startswith(ours) and now.count("Porto") == 1 and now.count("heron") == 1 and "seventh hill" in now
    assert now.count("# Daily Memory") == 1
    [hit] = [each for each in searched(home, "seventh hill lake behind") if "hill" in each["text"]]
    assert hit["trust"] == 0.6 and hit["kind"] == "day"
    with closing(known(home)) as of:
        assert (of.get("fact:lake").trust, of.get("fact:lake").text) == (1.0, "Coimbra, says the owner")
        of.put("Braga", "fact", {"key": "heights"}, OWNER)
    before = file.read_bytes()
    bring(
        home, item("day", "memory/2026-03-07.md", DAY + f"\n{lake}{lake}### 13:00:00 — heights\n\nof 90 m\n".encode())
    )
    accept(home)
    assert file.read_bytes() == before + "### 13:00:00 — heights\n\nof 90 m\n".encode()


def test_a_fact_of_one_s_own_hand_is_not_the_log_s_that_has_its_key(home: Home) -> None:
    file = home.group("main").memory / keyed.FACTS
    file.write_bytes(keyed.with_fact(file.read_bytes() if file.exists() else b"", "town", "Braga", AT))
    before = facts(home)["town"]
    bring(home, item("day", "memory/2026-03-07.md", DAY))
    accept(home)
    after = facts(home)["town"]
    assert (after.text, after.trust, after.origin) == ("Braga", before.trust, before.origin)
    assert after.source == before.source == keyed.FACTS


def test_long_notes_come_by_their_headings_and_a_changed_one_takes_its_own_place(home: Home) -> None:
    river = "## River {0}\n\n" + "It is the river number {0}. " * 60 + "\n\n"
    text = "# Rivers\n\n" + "".join(river.format(n) for n in range(6))
    bring(home, item("note", "memory/notes/2026-03-02.md", text.encode()))
    accept(home)
    with closing(known(home)) as of:
        first = of.every(kind="episode")
        assert len(first) == 6 and all(each.trust == 0.6 for each in first)
        assert len(first) == 6 and {each.tags for each in first} == {("pythonclaw",)}
        assert {each.event_time.date().isoformat() for each in first} == {"2026-03-02"}
    bring(home, item("note", "memory/notes/2026-03-02.md", text.replace("number 3", "number three").encode()))
    accept(home)
    with closing(known(home)) as of:
        active = {each.id for each in of.every(kind="episode")}
        assert len(active) == 6 and len(active & {each.id for each in first}) == 5
        assert len(of.every(kind="episode", statuses=frozenset({"superseded"}))) == 1


def test_a_huge_note_and_one_with_frontmatter(home: Home) -> None:
    head = b"---\ntitle: x\ndate: 2026-02-03\n---\nThe dated one of the two notes.\n"
    bring(
        home,
        item("note", "memory/notes/a.md", " ".join(f"word{n}" for n in range(20_000)).encode()),
        item("note", "memory/notes/b.md", head),
    )
    assert accept(home)["left"] == []
    with closing(known(home)) as of:
        found = of.every(kind="episode")
    [dated] = [each for each in found if "dated" in each.text]
    assert dated.event_time.date().isoformat() == "2026-02-03" and sum(len(each.text) for each in found) > 180_000


def test_an_index_of_one_s_own_stays(home: Home) -> None:
    (home.group("main").memory / "INDEX.md").write_text("mine\n")
    bring(home, item("index", "memory/INDEX.md", b"theirs\n"))
    assert "stays" in why(accept(home)) and (home.group("main").memory / "INDEX.md").read_text() == "mine\n"


# ── skills, schedules, instructions ──


def test_a_skill_whose_name_is_taken_is_left(home: Home) -> None:
    folder = home.group("main").skills / "tides"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(SKILL + b"mine\n")
    shared = sorted(each.name for each in home.skills.iterdir())[0]
    other = {"SKILL.md": SKILL.replace(b"name: tides", f"name: {shared}".encode())}
    bad = {"SKILL.md": b"---\nname: Nicht So\n---\n"}
    bring(
        home, item("skill", "skills/tides", {"SKILL.md": SKILL}), item("skill", "skills/x", other),
        item("skill", "skills/nicht so", bad), item("skill", "skills/none", {"README.md": b"x"}),
    )  # fmt: skip
    told = {row["from"].rpartition("/")[2]: row["why"] for row in accept(home)["left"]}
    assert "which stays" in told["tides"] and f"every group has a skill {shared}" in told["x"]
    assert "lower-case" in told["nicht so"] and "SKILL.md" in told["none"]
    assert (folder / "SKILL.md").read_bytes() == SKILL + b"mine\n"
    assert [each.name for each in home.group("main").skills.iterdir()] == ["tides"]


def test_a_skill_that_changed_there_is_renewed_unless_it_was_changed_here(home: Home) -> None:
    file = home.group("main").skills / "tides/SKILL.md"
    for more in (b"", b"two\n"):
        bring(home, item("skill", "skills/tides", {"SKILL.md": SKILL + more}))
        assert accept(home)["left"] == [] and file.read_bytes() == SKILL + more
    file.write_bytes(SKILL + b"mine\n")
    bring(home, item("skill", "skills/tides", {"SKILL.md": SKILL + b"three\n"}))
    assert "stays" in why(accept(home)) and file.read_bytes() == SKILL + b"mine\n"


def test_schedules_that_cannot_be_are_left(home: Home) -> None:
    (home.group("main").schedules).mkdir()
    (home.group("main").schedules / "taken.toml").write_bytes(SCHEDULE)
    past = datetime.now(UTC) - timedelta(days=1)
    texts = {
        "taken": SCHEDULE.replace(b"0 9", b"0 8"),
        "past": f'schema = 1\nat = "{past.isoformat()}"\nprompt = "x"\n'.encode(),
        "unheard": SCHEDULE + b'deliver_to = "telegram:7"\n',
        "broken": b'schema = 1\ncron = "99 9 * * *"\nprompt = "x"\n',
        "unknown": SCHEDULE + b"x = 1\n",
        "bytes": b"\xff",
        "off": SCHEDULE + b"enabled = false\n",
        "Taken": SCHEDULE.replace(b"0 9", b"0 7"),
    }
    bring(home, *(item("schedule", f"schedules/{id}.toml", text) for id, text in texts.items() if id != "Taken"))
    told = {row["from"].rpartition("/")[2].removesuffix(".toml"): row["why"] for row in accept(home)["left"]}
    assert set(told) == set(texts) - {"off", "Taken"}
    assert "stays" in told["taken"] and told["past"] == "it is past" and "no binding" in told["unheard"]
    assert [(row["id"], row["enabled"]) for row in schedules.listed(home, None)] == [
        ("main/off", False), ("main/taken", True)
    ]  # fmt: skip
    assert (home.group("main").schedules / "taken.toml").read_bytes() == SCHEDULE


def test_a_schedule_that_changed_there_is_renewed(home: Home) -> None:
    file = home.group("main").schedules / "a.toml"
    for hour in (b"0 9", b"0 8"):
        text = SCHEDULE.replace(b"0 9", hour)
        bring(home, item("schedule", "schedules/a.toml", text))
        assert accept(home)["left"] == [] and file.read_bytes() == text


@pytest.mark.parametrize("name", ["CLAUDE.md", "user_profile.md"])
def test_instructions_of_one_s_own_stay_and_the_others_lie_beside_them(home: Home, name: str) -> None:
    kind, file = "instructions" if name == "CLAUDE.md" else "profile", home.group("main").root / name
    file.write_text("mine\n")
    beside = file.with_name(name.replace(".md", ".pythonclaw.md"))
    for said_there in (b"theirs\n", b"theirs, changed\n"):
        bring(home, item(kind, name, said_there))
        told = why(accept(home))
        assert f"@{beside.name}" in told and beside.read_bytes() == said_there and file.read_text() == "mine\n"
    beside.write_text("mine, too\n")
    bring(home, item(kind, name, b"theirs, again\n"))
    assert "changed by hand" in why(accept(home)) and beside.read_text() == "mine, too\n"
    file.unlink()
    file.symlink_to("elsewhere")
    assert "link" in why(accept(home)) and file.is_symlink()


# ── what lies in import/ ──


def test_what_is_accepted_is_what_lies_there_and_that_is_said(home: Home) -> None:
    bring(home, item("facts", "memory/MEMORY.md", FACTS), item("skill", "skills/tides", {"SKILL.md": SKILL}))
    (place(home) / "memory/MEMORY.md").write_bytes(FACTS.replace(b"Porto", b"Lisbon"))
    result = accept(home)
    assert {row["kind"]: row["changed"] for row in result["accepted"]} == {
        "facts": ["as it was changed by hand in import/"], "skill": []
    }  # fmt: skip
    found = account.read(place(home))
    assert found is not None and facts(home)["town"].text == "Lisbon"
    [entry] = [each for each in found.items if each.kind == "facts"]
    assert entry.accepted == account.digest({"": FACTS.replace(b"Porto", b"Lisbon")}) != entry.sha256


def test_links_and_what_is_gone_are_left(home: Home, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("the secret of somebody else\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/SKILL.md").write_bytes(SKILL)
    bring(home, *everything())
    note = place(home) / "memory/notes/2026-03-01-heron.md"
    note.unlink()
    note.symlink_to(tmp_path / "secret.md")
    (place(home) / "skills/tides").rename(tmp_path / "old")
    (place(home) / "skills/tides").symlink_to(tmp_path / "folder")
    (place(home) / "memory/INDEX.md").unlink()
    os.mkfifo(place(home) / "memory/INDEX.md")
    (place(home) / "CLAUDE.md").unlink()
    told = {row["from"].rpartition("/")[2]: row["why"] for row in accept(home)["left"]}
    assert set(told) == {"2026-03-01-heron.md", "tides", "INDEX.md", "CLAUDE.md"}
    assert "any more" in told["CLAUDE.md"] and "link" in told["tides"] and "link" in told["2026-03-01-heron.md"]
    everywhere = b"".join(tree(home.root).values())
    assert b"somebody else" not in everywhere


def test_the_report_says_what_became_of_it(home: Home) -> None:
    (home.group("main").memory / "INDEX.md").write_text("mine\n")
    stage(home, whole(), dry_run=False)
    accept(home)
    said_there = (place(home) / "REPORT.md").read_text()
    assert "| index | 0 | 0 | 1 |" in said_there and "| skills | 0 | 1 | 0 |" in said_there
    assert "llm.openai.apiKey" in said_there and "which stays" in said_there
    before = tree(place(home))
    assert stage(home, whole(), dry_run=False)["came"][0]["state"] == "same"
    assert tree(place(home)) == before


def test_a_newer_account_is_refused_whole(home: Home) -> None:
    bring(home, *everything())
    file = place(home) / "import.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema": 2}))
    with pytest.raises(ClawdError, match="newer clawd") as refused:
        accept(home)
    assert refused.value.code == 4
    [row] = listed(home, None)
    assert "newer" in row["error"] and row["kinds"] == {}
    [finding] = arrivals(home)
    assert finding["level"] == "warn" and "newer" in finding["message"]


def test_its_conversation_is_trusted_less(home: Home) -> None:
    bring(home, *everything())
    accept(home)
    with closing(sqlite3.connect(home.ledger_file)) as ledger:
        assert ledger.execute("SELECT id, taint FROM session").fetchall() == [("mmkr:a", 0.6)]


def test_what_is_left_is_sent_by_a_line_of_the_owner_s_alone(home: Home) -> None:
    folder = home.group("main")
    folder.claude_md.write_text("mine, and @import/pythonclaw/CLAUDE.md\n")
    bring(home, *everything())
    accept(home)
    found = resolve(folder, [("CLAUDE.md", folder.claude_md.read_text())])
    assert found.files == [] and "not your own word" in found.refused[0]
    found = resolve(folder, [("CLAUDE.md", "@CLAUDE.pythonclaw.md")])
    assert found.files == [("CLAUDE.pythonclaw.md", "# Instructions\n\nAnswer in Portuguese.\n")]


def test_many_days_are_accepted_without_a_look_at_all_that_is_there_for_each(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[str]()
    listed_there = looks.listed
    monkeypatch.setattr(looks, "listed", lambda root, folder: looked.append(folder) or listed_there(root, folder))
    bring(home, *(item("day", f"memory/2024-01-{n:02}.md", f"heron {n}\n".encode()) for n in range(1, 31)))
    assert len(accept(home)["accepted"]) == 30
    assert looked.count("") < 6
    assert len(searched(home, "heron")) == 10


# ── somebody else's hand in import/ ──


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        ("instructions", "group.toml"),
        ("instructions", "schedules/every.toml"),
        ("instructions", "skills/evil/SKILL.md"),
        ("profile", "CLAUDE.md"),
        ("instructions", "../../CLAUDE.md"),
        ("instructions", "/etc/hostname"),
        ("schedule", "memory/2026-03-07.toml"),
        ("schedule", "schedules/a b.toml"),
        ("day", "memory/MEMORY.md"),
        ("facts", "import.json"),
        ("session", "CLAUDE.md"),
        ("skill", "skills/../skills"),
        ("skill", "skills"),
    ],
)
def test_an_account_that_points_elsewhere_reaches_nothing(home: Home, kind: str, to: str) -> None:
    bring(home, *everything())
    file = place(home) / "import.json"
    for name in ("group.toml", "schedules/every.toml", "skills/evil/SKILL.md", "memory/2026-03-07.toml"):
        (place(home) / name).parent.mkdir(parents=True, exist_ok=True)
        (place(home) / name).write_bytes(SCHEDULE)
    said = json.loads(file.read_bytes())
    said["items"] = [{"kind": kind, "from": "x", "to": to, "state": "waits"}]
    file.write_text(json.dumps(said))
    root = home.group("main").root
    before = tree(root)
    result = accept(home)
    assert result["accepted"] == [] and "is no place for it" in why(result)
    after = tree(root)
    assert {path for path in after if after[path] != before.get(path) and not path.startswith("import/")} == set()


def test_an_account_of_another_source_is_none(home: Home) -> None:
    bring(home, *everything())
    file = place(home) / "import.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"source": "nanobot\x1b[31m"}))
    with pytest.raises(ClawdError, match="cannot be understood"):
        accept(home)


def test_what_is_left_is_one_line_each_and_hides_nothing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    bring(home, *everything())
    file = place(home) / "import.json"
    said = json.loads(file.read_bytes())
    said["items"] = [{"kind": "note", "from": "a\x1b[2J\u202e\nIn use in group main: x", "to": "memory/notes/gone.md"}]
    file.write_text(json.dumps(said))
    show_accepted(accept(home))
    shown = capsys.readouterr().out
    assert "\nIn use" not in shown and not {"\x1b", "\u202e"} & {*shown}
    assert not {"\x1b", "\u202e"} & {*(place(home) / "REPORT.md").read_text()}


def test_ids_that_were_brought_in_lock_nobody_out(home: Home) -> None:
    ids = ["telegram:7", "telegram:7@main", "telegram:7@main@main"]
    for n, id in enumerate(ids):
        bring(home, item("session", f"sessions/{n}.md", session(id, "hello"), "family"))
    accept(home, group="family")
    ledger = Ledger.open(home.ledger_file)
    try:
        ledger.tx(lambda tx: groups.add(tx, "main", "2026-12-01T09:00:00+00:00"))
        base = ledger.tx(lambda tx: groups.own_base(tx, "telegram:7", "main"))
        assert base not in ids
        assert ledger.tx(lambda tx: groups.open_session(tx, base, "main", "2026-12-01T09:00:00+00:00")).group == "main"
        assert ledger.tx(lambda tx: groups.own_base(tx, "telegram:7", "main")) == base
    finally:
        ledger.close()


def test_what_somebody_else_works_with_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(home, whole(), dry_run=False)
    monkeypatch.setattr(keyed, "_PATIENCE_S", 0.05)
    with account.alone(place(home)), pytest.raises(StorageError, match="being brought in or accepted just now"):
        accept(home)
