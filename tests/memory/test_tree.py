"""What lies in a group's memory/, however it came there."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.memory import tree
from clawd.memory.keyed import LIMIT
from clawd.memory.record import ID, MemoryRecord, written
from clawd.trust import Origin

AT = datetime(2026, 11, 29, 12, 52, tzinfo=UTC)
BOAT = MemoryRecord("ep_0123456789", "episode", "The boat is green.", AT, AT, AT, "telegram:7#12", Origin.OWNER, 1.0)


def put(root: Path, path: str, data: bytes | str = "text\n") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return file


def every(root: Path) -> tuple[dict[str, tree.RawMemory], list[str]]:
    problems, found = list[str](), dict[str, tree.RawMemory]()
    with tree.reading(root) as read:
        for path, stamp in tree.walk(root, problems):
            looked = read(path)
            assert looked.stamp == stamp and tree.holds(path)
            problems += looked.problems
            found |= {memory.id: memory for memory in looked.memories}
    return found, problems


def test_a_folder_that_a_person_made(tmp_path: Path) -> None:
    put(tmp_path, "MEMORY.md", "# Mine\nfree words\n## town\n> Updated: 2026-11-29 12:52:00\n\nGraz\n## car\nred\n")
    put(tmp_path, "INDEX.md", "---\ntitle: System\nid: ep_0123456789\n---\nwhat is where")
    put(tmp_path, "2026-11-30.md", "# Daily Memory — 2026-11-30\n\n### 10:00:00 — k\n\nv\n")
    put(tmp_path, "notes.md", "about everything")
    put(tmp_path, "people/Ada Lovelace.md", "---\naliases: [Ada]\ntags: friend\n---\nShe has a boat.")
    put(tmp_path, "episodes/2026/11/2026-11-28 regatta.md", "We won.")
    put(tmp_path, "procedures/pack.md", "---\nkind: episode\nevent_time: 2026-11-29T12:52:00Z\n---\nFirst the socks.")
    put(tmp_path, "reflections/empty.md", "\n")
    put(tmp_path, "episodes/café ☕.md", "Graz, again")
    found, problems = every(tmp_path)
    assert {id: (each.kind, each.text, each.title) for id, each in found.items()} == {
        "fact:town": ("fact", "Graz", "town"),
        "fact:car": ("fact", "red", "car"),
        "file:MEMORY.md": ("entity", "# Mine\nfree words", ""),
        "file:INDEX.md": ("entity", "what is where", "System"),
        "day:2026-11-30": ("day", "# Daily Memory — 2026-11-30\n\n### 10:00:00 — k\n\nv", "2026-11-30"),
        "file:notes.md": ("entity", "about everything", "notes"),
        "file:people/Ada Lovelace.md": ("entity", "She has a boat.", "Ada Lovelace"),
        "file:episodes/2026/11/2026-11-28 regatta.md": ("episode", "We won.", "2026-11-28 regatta"),
        "file:procedures/pack.md": ("procedure", "First the socks.", "pack"),
        "file:episodes/café ☕.md": ("episode", "Graz, again", "café ☕"),
    }
    assert problems == []
    assert found["fact:town"].at == datetime(2026, 11, 29, 12, 52).astimezone()
    assert found["fact:town"].fields == {"key": "town"}
    assert found["file:procedures/pack.md"].at == AT
    assert found["file:episodes/2026/11/2026-11-28 regatta.md"].at.date() == date(2026, 11, 28)
    assert found["day:2026-11-30"].at.date() == date(2026, 11, 30)
    assert [piece.key for piece in found["day:2026-11-30"].pieces] == ["", "k"]
    changed = (tmp_path / "notes.md").stat().st_mtime
    assert found["file:notes.md"].at.timestamp() == pytest.approx(changed, abs=1e-3)
    assert found["file:people/Ada Lovelace.md"].head == "aliases: [Ada]\ntags: friend"


def test_a_file_of_ours_is_what_it_was_wherever_it_lies(tmp_path: Path) -> None:
    name = tree.name_of(BOAT)
    assert name == "episodes/2026-11-29T1252Z-0123456789.md"
    put(tmp_path, name, written(BOAT))
    put(tmp_path, "entities/moved.md", written(replace(BOAT, id="ep_1123456789")))
    put(tmp_path, "quarantine/x.md", written(replace(BOAT, id="pr_0123456789", kind="procedure")))
    put(tmp_path, "quarantine/y.md", "---\nkind: reflection\n---\nby hand")
    put(tmp_path, "quarantine/z.md", "---\nid: fact:town\nkind: nonsense\n---\nby hand")
    found, problems = every(tmp_path)
    assert {id: each.kind for id, each in found.items()} == {
        "ep_0123456789": "episode",
        "ep_1123456789": "entity",
        "pr_0123456789": "procedure",
        "file:quarantine/y.md": "reflection",
        "file:quarantine/z.md": "episode",
    }
    boat = found["ep_0123456789"]
    assert (boat.text, boat.at, boat.title, boat.head, boat.path, problems) == (BOAT.text, AT, "", "", name, [])
    assert boat.fields["source"] == "telegram:7#12"


def test_what_is_left_out_is_said_and_nothing_is_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "memory", tmp_path / "outside"
    put(outside, "secret.md", "a secret")
    put(root, "episodes/good.md", "good")
    put(root, "episodes/latin.md", b"caf\xe9")
    put(root, "notes.txt")
    (root / "link.md").symlink_to(outside / "secret.md")
    (root / "folder").symlink_to(outside)
    os.mkfifo(root / "pipe.md")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(root / "door.md"))
    (root / os.fsdecode(b"bad\xff.md")).write_text("x")
    put(root, "line\nbreak.md")
    put(root, "/".join(["d"] * 70) + "/deep.md")
    for name in (".hidden.md", ".obsidian/x.md", "a/.git/y.md", "n.md~", "#n.md#", ".#n.md", "n.md.tmp", "n.md.bak",
                 "photo.png", "n.md.swp"):  # fmt: skip
        put(root, name)
        assert not tree.holds(name)
    found, problems = every(root)
    assert {each.text for each in found.values()} == {"good", "caf\ufffd"}
    for words in ("'link.md' is left out: it is a link", "'folder' is left out: it is a link", "'pipe.md' is left out",
                  "'door.md' is left out", "'bad\\udcff.md' is left out", "'line\\nbreak.md' is left out",
                  "more than 64 deep", "'notes.txt' is left out", "latin.md is not UTF-8"):  # fmt: skip
        assert [words in each for each in problems].count(True) == 1, words
    assert len(problems) == 9
    for name in ("link.md", "folder/secret.md", "pipe.md", "door.md"):
        looked = tree.look(root, name)
        assert not looked.memories and looked.stamp is None and "it is left out" in looked.problems[0]
    assert tree.look(root, "episodes/gone.md") == tree.look(root, "gone/gone.md") == tree.Looked()
    (tmp_path / "linked").symlink_to(root)
    assert every(tmp_path / "linked")[1] == [f"{tmp_path / 'linked'} is a link: put the folder itself there"]
    assert every(tmp_path / "nothing") == ({}, [])


@pytest.mark.parametrize("filling", [b"x", "é".encode(), "☕".encode(), "\U0001f6a3".encode(), b"line\n"])
def test_a_large_file_is_read_to_its_limit(filling: bytes, tmp_path: Path) -> None:
    put(tmp_path, "entities/large.md", written(BOAT) + filling * (LIMIT // len(filling)))
    found, problems = every(tmp_path)
    large = found["ep_0123456789"]
    assert not large.whole and LIMIT - 500 < len(large.text.encode()) <= LIMIT and "\ufffd" not in large.text
    assert problems == ["memory/entities/large.md is larger than 10 MB: what follows is not read"]


def test_a_change_is_seen_by_its_stamp(tmp_path: Path) -> None:
    file = put(tmp_path, "episodes/x.md", "one")
    first = tree.look(tmp_path, "episodes/x.md")
    file.write_text("two")
    os.utime(file, ns=(0, 0))
    second = tree.look(tmp_path, "episodes/x.md")
    put(tmp_path, "new", "ten").replace(file)
    os.utime(file, ns=(0, 0))
    third = tree.look(tmp_path, "episodes/x.md")
    assert len({first.stamp, second.stamp, third.stamp}) == 3
    assert [each.memories[0].text for each in (first, second, third)] == ["one", "two", "ten"]


def test_one_reader_sees_a_folder_that_is_replaced(tmp_path: Path) -> None:
    put(tmp_path, "episodes/x.md", "one")
    put(tmp_path, "entities/x.md", "other")
    with tree.reading(tmp_path) as read:
        assert read("episodes/x.md").memories[0].text == "one"
        (tmp_path / "entities").rename(tmp_path / "aside")
        (tmp_path / "aside").rename(tmp_path / "episodes" / "below")
        assert read("episodes/below/x.md").memories[0].text == "other"
        assert not read("entities/x.md").memories


@pytest.mark.parametrize(
    ("record", "folder"),
    [
        (BOAT, "episodes"),
        (replace(BOAT, kind="procedure", status="proposed"), "procedures"),
        (replace(BOAT, kind="profile", status="proposed"), "quarantine"),
        (replace(BOAT, kind="fact", status="proposed"), "quarantine"),
        (replace(BOAT, status="quarantined"), "quarantine"),
        (replace(BOAT, status="superseded"), "episodes"),
    ],
)
def test_where_a_new_file_lies(record: MemoryRecord, folder: str) -> None:
    assert tree.name_of(record) == f"{folder}/2026-11-29T1252Z-0123456789.md"
    assert tree.holds(tree.name_of(record))


@given(st.text(), st.sampled_from(["episodes/x.md", "MEMORY.md", "2026-11-30.md", "INDEX.md"]))
def test_any_text_becomes_memories(text: str, path: str) -> None:
    for memory in tree._memories(path, text.encode("utf-8", "replace"), 0.0, True, []):
        assert (
            memory.path == path
            and memory.at.tzinfo
            and (memory.id.startswith(("file:", "fact:", "day:")) or ID.fullmatch(memory.id))
        )
