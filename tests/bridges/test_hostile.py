"""Homes that somebody else made to do harm: nothing raises, nothing outside is read, and what comes is sound."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.arrivals import account
from clawd.arrivals.items import Brought
from clawd.bridges import nanobot, nanoclaw, openclaw
from clawd.ids import is_group_name
from clawd.schedules.edits import is_id
from clawd.schedules.file import parse_schedule
from clawd.sessions.format import parse
from tests.bridges.homes import NOW, SECRET, files, nanobots, nanoclaws, openclaws, told

HOMES: dict[str, tuple[Callable[[Path], Path], Any]] = {
    "nanoclaw": (nanoclaws.nanoclaw, nanoclaw),
    "nanoclaw2": (nanoclaws.nanoclaw2, nanoclaw),
    "openclaw": (openclaws.openclaw, openclaw),
    "openclaw, databases": (openclaws.openclaw_of_databases, openclaw),
    "nanobot": (nanobots.nanobot, nanobot),
    "nanobot, newer": (nanobots.newer, nanobot),
}
OUTSIDE = "OUTSIDE-9d3c"
JUNK = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"",
            b"\xff\xfe\0",
            b"[" * 3_000,
            b'{"jobs":' * 3_000,
            b"{",
            b"null",
            b"[[]]",
            b'{"jobs": {"a": 1}, "agents": [], "channels": 3, "bindings": {"x": []}, "chats": [1], "profiles": [2]}',
            b'{"jobs": [{"id": {}, "schedule": [], "payload": 1}, {"id": "\\ud800", "schedule": {"kind": ["at"]}}, 7]}',
            b'{"agents": {"list": [{"id": "../../up", "workspace": "../.."}, {"id": ""}, {"id": [1]}, {"id": "/x"}]}}',
            b'{"jobs": [{"id": "../../x", "name": "../../x", "schedule": {"kind": "every", "everyMs": 1e300},'
            b' "payload": {"kind": "agentTurn", "message": "x"}}]}',
            b'{"role": "user", "content": {"type": ["text"]}, "timestamp": 1e300}\n{"role": "tool", "content": 3}\n7',
            b'{"type": "message", "message": {"role": "assistant", "content": [{"type": "toolCall", "id": []}, 1]}}',
            b"# Session: x\n\n\n<!-- msg:{} -->\n### x\n\n---\n",
            b"[9999-99-99 99:99] x\n[2026-02-30 10:00] y\n[2026-02-03 10:00] z",
            b"---\nname: ../../x\ndescription: d\n---\n",
        ]
    ),
)


def sound(brought: Brought) -> None:
    """Everything goes where it may, no two to one place, and our own readers take it."""
    assert len({(each.group, each.to.casefold()) for each in brought.items}) == len(brought.items)
    for each in brought.items:
        assert is_group_name(each.group)
        assert account.refused(each.kind, each.to, each.files) == ""
        data = b"".join(each.files.values())
        if each.kind == "schedule":
            assert is_id(each.to.removeprefix("schedules/").removesuffix(".toml"))
            parse_schedule(data.decode(), each.to)
        elif each.kind == "session":
            session = parse(data)
            assert (session.problems, bool(session.blocks)) == ([], True)
            assert session.session is not None and session.session.startswith(brought.source + ":")
    said = told(brought)
    assert SECRET not in said
    assert OUTSIDE not in said
    json.dumps([repr(each) for each in brought.left]).encode()
    assert all(line.isprintable() for left in brought.left for line in (left.source, left.why))
    assert all(line.isprintable() for line in (*brought.keys, *brought.allowed, *brought.chats))
    assert all(line.isprintable() for each in brought.items for line in (each.source, *each.changed))


@pytest.mark.parametrize("name", HOMES)
def test_every_file_of_a_home_may_be_a_link_a_pipe_a_folder_or_huge(tmp_path: Path, name: str) -> None:
    make, bridge = HOMES[name]
    made = make(tmp_path / "made")
    outside = files(tmp_path / "outside", {"x.md": OUTSIDE, "SKILL.md": f"---\nname: o\ndescription: {OUTSIDE}\n---\n"})
    (tmp_path / "outside/x.json").write_text(json.dumps({"jobs": [], "apiKey": OUTSIDE, OUTSIDE: {"token": OUTSIDE}}))

    def link(path: Path) -> None:
        path.symlink_to(
            outside / ("SKILL.md" if path.name == "SKILL.md" else "x.md" if path.suffix == ".md" else "x.json")
        )

    def huge(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(3 << 30)

    for spoil in (link, os.mkfifo, Path.mkdir, huge):
        shutil.copytree(made, home := tmp_path / spoil.__name__)
        for path in [path for path in home.rglob("*") if path.is_file() and path.name not in ("package.json",)]:
            path.unlink()
            spoil(path)
        sound(bridge.read(home, None, now=NOW))


@pytest.mark.parametrize("name", HOMES)
def test_every_folder_of_a_home_may_be_a_link(tmp_path: Path, name: str) -> None:
    make, bridge = HOMES[name]
    made = make(tmp_path / "made")
    folders = [path.relative_to(made) for path in made.rglob("*") if path.is_dir()]
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(made, elsewhere)
    for path in elsewhere.rglob("*"):
        if path.is_file():
            path.write_text(OUTSIDE)
    for n, folder in enumerate(folders):
        home = tmp_path / f"home{n}"
        shutil.copytree(made, home)
        shutil.rmtree(home / folder)
        (home / folder).symlink_to(elsewhere / folder)
        try:
            brought = bridge.read(home, None, now=NOW)
        except Exception as error:
            assert type(error).__name__ == "UsageError", error  # all that it is known by is gone
        else:
            sound(brought)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(HOMES)), st.data())
def test_any_file_may_hold_anything(name: str, data: st.DataObject) -> None:
    make, bridge = HOMES[name]
    with tempfile.TemporaryDirectory() as folder:
        home = make(Path(folder) / "home")
        paths = sorted(path for path in home.rglob("*") if path.is_file())
        for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=4)):
            path.write_bytes(data.draw(JUNK))
        brought = bridge.read(home, None, now=NOW)
        sound(brought)
        assert bridge.read(home, None, now=NOW) == brought


@pytest.mark.parametrize("name", HOMES)
def test_names_of_files_may_be_anything(tmp_path: Path, name: str) -> None:
    make, bridge = HOMES[name]
    home = make(tmp_path)
    odd = [
        b"\xff\xfe.md",
        b"a\nb.md",
        "\u202egnp.md".encode(),
        b"-rf.md",
        b"x" * 200 + b".md",
        b"...md",
        "é.md".encode(),
    ]
    for folder in [path for path in (home, *home.rglob("*")) if path.is_dir()]:
        for each in odd:
            (Path(os.fsdecode(os.fsencode(folder) + b"/" + each))).write_text("odd")
    brought = bridge.read(home, None, now=NOW)

    sound(brought)
    sources = [each.source for each in (*brought.left, *brought.items)]
    assert any("\\u202e" in source for source in sources) and any("a\\nb.md" in source for source in sources)


def test_many_files_and_deep_folders_end(tmp_path: Path) -> None:
    home = nanobots.workspace(tmp_path)
    deep = home / "memory"
    for _ in range(80):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "x.md").write_text("x")
    for n in range(1_200):
        (home / "memory" / f"{n}.bin").write_bytes(b"")

    brought = nanobot.read(home, None, now=NOW)

    assert len(brought.left) == 1_001
    assert brought.left[-1].why == "more than 1,000 things are left: only the first are told"


def test_many_keys_are_told_up_to_a_bound(tmp_path: Path) -> None:
    home = files(tmp_path, {"config.json": "{}", ".env": "".join(f"K{n}=1\n" for n in range(1_200))})

    keys = nanobot.read(home, None, now=NOW).keys

    assert len(keys) == 1_001 and keys[-1] == "… (more than 1,000 keys: only the first are told)"


def test_many_entries_of_one_day_are_read_once_each(tmp_path: Path) -> None:
    home = nanobots.workspace(tmp_path)
    (home / "memory/HISTORY.md").write_text("[2026-04-03 10:00] a few words\n\n" * 40_000)
    begun = time.process_time()

    [day] = [item for item in nanobot.read(home, None, now=NOW).items if item.to == "memory/2026-04-03.md"]

    assert time.process_time() - begun < 10  # a copy of the day for each entry took five times that
    assert day.files[""].count(b"a few words") == 40_000


def test_a_wide_tree_of_skills_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawd.bridges.foreign.skills._LOOKED", 20)
    home = files(tmp_path, {"SOUL.md": "s", **{f"skills/{n:02}/x/y": "" for n in range(30)}})

    left = openclaw.read(home, None, now=NOW).left

    assert [each.why for each in left if each.source == "skills"] == [
        "it holds more than 20 folders: not all were looked at"
    ]


@pytest.mark.parametrize("key", ["sk-live-0123456789abcdef", "xoxb-1234567890-abcdef", "A" * 80, "a b", "x\n"])
def test_a_key_where_a_name_is_due_is_not_told(tmp_path: Path, key: str) -> None:
    config = {"env": {key: "value"}, "tokens": {key: {"apiKey": "v"}}, "headers": {key: "v"}, key: {"token": "v"}}
    home = files(
        tmp_path, {"openclaw.json": json.dumps(config), ".env": f'PEM="-----\n{key}=\nMIIAAA=\n"\nGOOD_KEY=1\n'}
    )

    brought = openclaw.read(home, None, now=NOW)

    assert "GOOD_KEY (.env)" in brought.keys
    assert "….token (openclaw.json)" in brought.keys
    assert not any(key.strip() in told_of for told_of in brought.keys)
