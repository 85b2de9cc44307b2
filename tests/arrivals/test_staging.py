"""What comes is written beneath import/ once, is a person's afterwards, and is never half there."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd import faults, files
from clawd.arrivals import account
from clawd.arrivals.items import Brought, Item
from clawd.arrivals.staging import stage
from clawd.clock import TurnedClock
from clawd.config.home import Home
from clawd.errors import DiskFull, Refused, UnsafePath, UsageError
from tests.arrivals.conftest import AT, FACTS, SKILL, brought, everything, item, place, session, tree, whole


def put(home: Home, what: Brought, **more: Any) -> dict[str, str]:
    """The state of each that came."""
    return {row["to"]: row["state"] for row in stage(home, what, dry_run=False, **more)["came"]}


def entry(home: Home, to: str) -> account.Entry:
    found = account.read(place(home))
    assert found is not None
    return next(each for each in found.items if each.to == to)


def test_what_comes_lies_beneath_import_and_is_the_owner_s_alone(home: Home) -> None:
    result = stage(home, whole(), dry_run=False)
    assert [row["state"] for row in result["came"]] == ["new"] * 8 and result["groups"] == ["main"]
    assert result["left"] == [{"from": "context/soul/SOUL.md", "why": "clawd has no such thing"}]
    assert (result["keys"], result["allowed"], result["chats"]) == (
        ["llm.openai.apiKey"], ["telegram: everybody"], ["telegram:7 was main"]
    )  # fmt: skip
    lies = tree(place(home))
    assert lies.pop("import.json") and lies.pop("REPORT.md")
    wanted = {
        f"{each.to}/{path}" if path else each.to: data for each in everything() for path, data in each.files.items()
    }
    assert lies == wanted
    modes = {path.relative_to(place(home)).as_posix(): path.stat().st_mode & 0o777 for path in place(home).rglob("*")}
    runs = modes.pop("skills/tides/scripts/x.sh")
    assert runs == 0o700 and {mode for path, mode in modes.items() if (place(home) / path).is_file()} == {0o600}
    assert {mode for path, mode in modes.items() if (place(home) / path).is_dir()} == {0o700}


def test_of_two_things_with_one_place_the_first_has_it(home: Home) -> None:
    one, other = (item("note", "memory/notes/a.md", data, source="a.md") for data in (b"one", b"other"))
    result = stage(home, brought(one, one, other), dry_run=False)
    assert [row["to"] for row in result["came"]] == ["memory/notes/a.md"]
    assert result["left"] == [{"from": "a.md", "why": "a.md has its place, memory/notes/a.md"}]
    assert (place(home) / "memory/notes/a.md").read_bytes() == b"one"


def test_a_dry_run_writes_nothing_and_makes_no_group(home: Home) -> None:
    before = tree(home.root)
    result = stage(home, brought(*everything("other")), dry_run=True)
    assert {row["state"] for row in result["came"]} == {"new"} and result["dry_run"]
    assert tree(home.root) == before and not home.group("other").root.exists()


def test_twice_changes_nothing(home: Home) -> None:
    put(home, whole(), clock=TurnedClock(AT))
    before = {path: path.stat().st_mtime_ns for path in place(home).rglob("*")}
    bytes_before = tree(place(home))
    assert set(put(home, whole()).values()) == {"same"}
    assert tree(place(home)) == bytes_before
    assert {path: path.stat().st_mtime_ns for path in place(home).rglob("*")} == before


def test_what_changed_there_is_staged_anew_and_waits_again(home: Home) -> None:
    put(home, whole(), clock=TurnedClock(AT))
    account.write(place(home), _accepted(place(home)))
    new = [
        replace(each, files={"SKILL.md": SKILL + b"More.\n"}) if each.kind == "skill" else each for each in everything()
    ]
    states = put(home, brought(*new))
    assert states.pop("skills/tides") == "changed" and set(states.values()) == {"same"}
    found = entry(home, "skills/tides")
    assert (found.state, found.accepted, found.parts) == ("waits", "before", {"skill": "x"})
    assert not (place(home) / "skills/tides/scripts").exists()  # gone there, gone here
    assert entry(home, "memory/MEMORY.md").state == "accepted"


def _accepted(where: Path) -> account.Account:
    found = account.read(where)
    assert found is not None
    done = {"state": "accepted", "accepted": "before", "parts": {"skill": "x"}}
    return found.model_copy(update={"items": tuple(each.model_copy(update=done) for each in found.items)})


def test_what_a_person_changed_or_took_away_is_theirs(home: Home) -> None:
    put(home, brought(*everything()))
    (place(home) / "memory/MEMORY.md").write_text("## town\n\nLisbon\n")
    (place(home) / "schedules/morning.toml").unlink()
    (place(home) / "skills/tides/more.md").write_text("mine")
    (place(home) / "memory/notes/own.md").write_text("mine")
    changed = [
        replace(each, files={"": each.files[""] + b"x"}) if each.kind == "facts" else each for each in everything()
    ]
    own = item("note", "memory/notes/own.md", b"theirs")
    before = tree(place(home))
    result = stage(home, brought(*changed, own), dry_run=False)
    why = {row["from"]: row["why"] for row in result["left"]}
    assert set(why) == {"context/memory/MEMORY.md", "context/schedules/morning.toml", "context/skills/tides",
                        "context/memory/notes/own.md"}  # fmt: skip
    assert "another version" in why["context/memory/MEMORY.md"] and "another" not in why["context/skills/tides"]
    assert "taken out" in why["context/schedules/morning.toml"]
    after = tree(place(home))
    for name in ("import.json", "REPORT.md"):
        before.pop(name), after.pop(name)
    assert after == before
    assert stage(home, brought(*changed, own), dry_run=False)["left"] == result["left"]


POINTS = ["staging", "staged", "staged:2", "replacing-MEMORY.md", "replacing-import.json", "replacing-import.json:2",
          "replacing-SKILL.md", "staging-swap", "replacing-REPORT.md", "replacing-x.sh"]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_was_killed_is_ended_by_the_next(home: Home, point: str) -> None:
    old = [item("skill", "skills/tides", {"SKILL.md": SKILL}), item("facts", "memory/MEMORY.md", FACTS + b"old\n")]
    put(home, brought(*old), clock=TurnedClock(AT))
    pid = os.fork()
    if pid == 0:  # killed as a process is: nothing of it is ended orderly
        try:
            faults.load(f"kill@{point}")
            put(home, whole())
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 9
    for each in (place(home) / "memory").glob("*.md"):
        assert each.read_bytes() in (FACTS, FACTS + b"old\n", *(i.files.get("", b"") for i in everything()))
    put(home, whole(), clock=TurnedClock(AT))
    other = Home(home.root.parent / "other")
    other.create()
    put(other, whole(), clock=TurnedClock(AT))
    ours, theirs = tree(place(home)), tree(place(other))
    for each in (ours, theirs):
        each.pop("import.json"), each.pop("REPORT.md")
    assert ours == theirs  # whole, and nothing beside it
    found = account.read(place(home))
    assert found is not None and {(each.state, each.coming) for each in found.items} == {("waits", "")}
    assert set(put(home, whole()).values()) == {"same"}


def test_a_full_disk_is_said_and_the_next_run_ends_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = os.fsync, [3]

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(DiskFull, match="there is no room"):
        put(home, whole())
    monkeypatch.undo()
    put(home, whole())
    assert set(put(home, whole()).values()) == {"same"} and not list(place(home).rglob("*.tmp"))


BAD = [
    ("note", "memory/notes/../../x.md"), ("note", "/etc/x.md"), ("note", "memory/notes/a/b.md"), ("note", "notes/x.md"),
    ("note", "memory/notes/.x.md"), ("note", "memory/notes/a\x1b.md"), ("note", "memory/notes/a\u202e.md"),
    ("note", f"memory/notes/{'x' * 300}.md"), ("session", "sessions/x.txt"), ("session", "sessions/"),
    ("day", "memory/2026-13-01.md"), ("schedule", "schedules/a b.toml"), ("facts", "MEMORY.md"), ("skill", "skills/.."),
    ("skill", "skills/.hidden"), ("profile", "CLAUDE.md"), ("note", "memory/notes/x\0.md"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "to"), BAD)
def test_no_place_but_its_own(home: Home, kind: str, to: str) -> None:
    bad = item(kind, to, {"SKILL.md": SKILL} if kind == "skill" else b"x", source="there")
    before = tree(home.root)
    result = stage(home, brought(bad), dry_run=False)
    assert result["came"] == [] and [row["from"] for row in result["left"]] == ["there"]
    assert tree(home.root) == before


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_name_leaves_import(stem: str, inside: str) -> None:
    for kind, to, data in (
        ("session", f"sessions/{stem}.md", {"": b""}),
        ("skill", f"skills/{stem}", {inside: b""}),
        ("skill", stem, {"SKILL.md": b""}),
    ):
        if not account.refused(kind, to, data):  # type: ignore[arg-type]
            for path in (f"{to}/{each}" if each else to for each in data):
                assert not path.startswith("/") and ".." not in path.split("/") and "\0" not in path
                assert path.count("//") == 0 and path.startswith(("sessions/", "skills/"))


def test_twins_and_files_of_the_wrong_shape_are_left(home: Home) -> None:
    items = [
        item("note", "memory/notes/Café.md", b"1", source="one"),
        item("note", "memory/notes/cafe\u0301.md", b"2", source="two"),
        item("skill", "skills/a", {"SKILL.md": SKILL, "skill.md": SKILL}, source="three"),
        item("skill", "skills/b", SKILL, source="four"),
        item("note", "memory/notes/c.md", {"x": b""}, source="five"),
    ]
    result = stage(home, brought(*items), dry_run=False)
    assert [row["from"] for row in result["came"]] == ["one"]
    assert sorted(row["from"] for row in result["left"]) == ["five", "four", "three", "two"]


def test_links_on_the_way_are_not_followed(home: Home, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "pythonclaw").mkdir(parents=True)
    home.group("main").arrivals.symlink_to(outside)
    with pytest.raises(UnsafePath):
        put(home, whole())
    home.group("main").arrivals.unlink()
    place(home).mkdir(parents=True)
    (place(home) / "memory").symlink_to(outside)
    [row] = stage(home, brought(item("facts", "memory/MEMORY.md", FACTS)), dry_run=False)["left"]
    assert "link" in row["why"] and entry(home, "memory/MEMORY.md").state == "left"
    assert [path for path in outside.rglob("*") if path.is_file()] == []


def test_a_newer_or_broken_account_is_refused_and_kept(home: Home) -> None:
    place(home).mkdir(parents=True)
    for said, why in (('{"schema": 2, "x": 1}', "newer clawd"), ("[1]", "cannot be understood"), ("{", "cannot be")):
        (place(home) / "import.json").write_text(said)
        for dry in (True, False):
            with pytest.raises(Refused, match=why) as refused:
                stage(home, whole(), dry_run=dry)
            assert refused.value.code == 4
        assert (place(home) / "import.json").read_text() == said


def test_another_home_of_the_same_kind_is_not_mixed_in(home: Home) -> None:
    put(home, whole())
    before = tree(place(home))
    for dry in (True, False):
        with pytest.raises(Refused, match=r"came from /old/\.pythonclaw, not from /new"):
            stage(home, replace(whole(), home=Path("/new")), dry_run=dry)
    assert tree(place(home)) == before


def test_groups_are_made_and_names_are_checked(home: Home) -> None:
    made: list[str] = []

    def make(name: str) -> None:
        made.append(name)
        home.group(name).root.mkdir()

    result = stage(home, brought(*everything("other"), *everything()), dry_run=False, make=make)
    assert made == ["other"] and result["groups"] == ["other", "main"] and (place(home, "other") / "REPORT.md").exists()
    put(home, brought(*everything("third")))
    assert home.group("third").claude_md.exists()
    for group in ("../x", "Main", ""):
        with pytest.raises(UsageError):
            put(home, brought(*everything(group)))
    for source in ("../x", "A", "", "x/y"):
        with pytest.raises(UsageError):
            put(home, Brought(source, Path("/x"), []))


def test_a_home_makes_no_end_of_groups(home: Home) -> None:
    items = [item("instructions", "CLAUDE.md", b"x", f"g{n}") for n in range(201)]
    with pytest.raises(UsageError, match="201 groups"):
        stage(home, brought(*items), dry_run=False)
    assert tree(home.groups) == {} or not [each for each in tree(home.groups) if "import" in each]
    assert len(stage(home, brought(*items[:200]), dry_run=True)["groups"]) == 200


def test_an_account_is_what_the_report_is_made_of(home: Home) -> None:
    hostile = "![x](http://evil/)\x1b[31m\u202e `rm`\n# Head"
    bad = item("note", "memory/notes/x.md", b"x", source=hostile, changed=(hostile,))
    stage(home, brought(bad, keys=["KEY_A"], chats=[hostile]), dry_run=False, clock=TurnedClock(AT))
    said = (place(home) / "REPORT.md").read_text()
    assert "\x1b" not in said and "\u202e" not in said and "\n# Head" not in said
    assert "`KEY_A`" in said and "clawd bridge accept pythonclaw --group main" in said
    assert "\n- ![" not in said and r"!\[x\](http" in said
    told = json.loads((place(home) / "import.json").read_text())
    assert told["schema"] == 1 and told["items"][0]["from"] == hostile and told["items"][0]["sha256"]


def test_a_session_is_one_file_by_its_bytes() -> None:
    one = Item("session", "a", "sessions/a.md", {"": session("a", "x")})
    assert account.digest(one.files) != account.digest({"a": session("a", "x")})
    assert account.digest({"a": b"1", "b": b"2"}) == account.digest({"b": b"2", "a": b"1"})


def test_things_are_not_compared_with_each_other(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand that takes minutes."""
    monkeypatch.setattr(Item, "__eq__", lambda one, other: pytest.fail("compared"))
    facts = item("facts", "memory/MEMORY.md", FACTS)
    others = [item("session", f"sessions/{n}.md", session(f"mmkr:{n}")) for n in "ab"]
    assert set(put(home, brought(facts, *others)).values()) == {"new"}
