"""A look at a tree follows nothing, misses nothing, and holds next to nothing; a comparison is a table."""

from __future__ import annotations

import os
import socket
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.ledger.seen import Known, Stat
from clawd.wakes import tree
from clawd.wakes.tree import Found, Look, Piece, compare, event_of, is_left_out, matches


def found(root: Path, *beneath: str, globs: tuple[str, ...] = ("*",), most: int = tree.MOST_FILES) -> dict[str, int]:
    """Paths with their sizes; the pieces must lie in order, side by side, without a gap."""
    top, sizes = os.open(root, os.O_RDONLY), {}
    try:
        for each in beneath or ("",):
            high = b""
            for piece in Look(top, b"work", globs, most).at(each):
                assert high <= piece.low < piece.high and all(piece.low <= path < piece.high for path in piece.found)
                assert list(piece.found) == sorted(piece.found)
                high = piece.high
                sizes |= {os.fsdecode(path): each.stat.size for path, each in piece.found.items()}
    finally:
        os.close(top)
    return sizes


def stat_of(path: Path) -> Stat:
    status = path.stat()
    return Stat(status.st_size, status.st_mtime_ns, status.st_ino)


def test_what_counts_is_a_plain_file_with_any_name(tmp_path: Path) -> None:
    names = [b"a\nb", b"\xff\xfe", b"n" * 255, b"doc", b"doc.md", b"doc!", b" "]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(name)
    (tmp_path / "doc-dir").mkdir()
    (tmp_path / "doc-dir" / "x").write_text("")
    outside = tmp_path.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "secret").write_text("s")
    (tmp_path / "link").symlink_to(outside / "secret")
    (tmp_path / "dir").symlink_to(outside)
    (tmp_path / "doc-dir" / "loop").symlink_to("..")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(tmp_path)
        listening.bind("socket")
    expected = {f"work/{os.fsdecode(name)}": len(name) for name in names} | {"work/doc-dir/x": 0}
    assert found(tmp_path) == expected
    assert found(tmp_path, "link", "dir", "dir/secret", "pipe", "socket", "doc-dir/loop", "doc-dir/loop/doc") == {}
    assert found(tmp_path, "doc-dir", "doc", "gone", "doc/x") == {"work/doc-dir/x": 0, "work/doc": 3}
    for special in ("link", "dir/secret", "pipe", "socket", "doc-dir", "gone"):
        assert tree.read(os.open(tmp_path, os.O_RDONLY), special, None) == (None, None)


def test_depth_and_number_are_bounded(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(70):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "lost").write_text("")
    (tmp_path / "e").write_text("")
    top = os.open(tmp_path, os.O_RDONLY)
    look = Look(top, b"work", ["*"])
    assert [path for piece in look.at("") for path in piece.found] == [b"work/e"]
    assert look.deep and not look.full
    for n in range(8):
        (tmp_path / f"f{n}").write_text("")
    look = Look(top, b"work", ["*"], most=5)
    *_, last = look.at("")
    assert look.full and look.count == 5
    assert last.high == b"work/f4", "what is beyond is not taken for gone"
    os.close(top)


def test_a_tree_of_any_size_is_looked_at_in_little_memory(tmp_path: Path) -> None:
    for n in range(6_000):
        os.close(os.open(tmp_path / f"f{n}", os.O_CREAT | os.O_WRONLY))
    top = os.open(tmp_path, os.O_RDONLY)
    tracemalloc.start()
    try:
        count = sum(len(piece.found) for piece in Look(top, b"work", ["*"]).at(""))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        os.close(top)
    assert count == 6_000
    assert peak < 1500 << 10, "the names of one directory, and no more"


@pytest.mark.parametrize(
    "name",
    [
        *("a~", ".a.swp", ".a.swx", "4913", ".#lock", ".git", "node_modules", "x.pyc", ".DS_Store", "__pycache__"),
        *(".notes.md.X2bQ9z", ".group.toml.1a2b3c4d.tmp", "a/b/.git", ".claude-state"),
    ],
)
def test_what_programs_make_for_themselves_is_left_out(name: str) -> None:
    assert is_left_out(name)


@pytest.mark.parametrize(
    "name", ["a.md", ".env", ".env.sample", "4913.txt", "git", "a.swimming", "~a", ".gitignore", ""]
)
def test_what_a_person_makes_is_not(name: str) -> None:
    assert not is_left_out(name)


@pytest.mark.parametrize(
    "glob, fit, unfit",
    [
        ("*", ["a", "d/e/f"], []),
        ("*.md", ["a.md", "d/e/a.md", ".md"], ["a.md.bak", "md"]),
        ("docs/**/*.txt", ["docs/a.txt", "docs/x/y/a.txt"], ["a.txt", "x/docs/a.txt", "docs/a.md"]),
        ("docs/*", ["docs/a"], ["docs/x/a", "docs"]),
        ("**/b/*", ["b/x", "a/b/x", "b/b/x"], ["b", "a/x"]),
        ("report-[1].?d", ["report-[1].md"], ["report-1.md"]),
        ("*a*a*a*a*a*a*a*a*a*b", ["aaaaaaaaab"], ["a" * 250]),
    ],
)
def test_globs(glob: str, fit: list[str], unfit: list[str]) -> None:
    assert [each for each in fit + unfit if matches(each, [glob])] == fit


def test_reading_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hello")
    with (tmp_path / "big").open("wb") as big:
        big.truncate(tree.READ_BYTES + 1)
    top = os.open(tmp_path, os.O_RDONLY)
    now = stat_of(tmp_path / "a")
    assert tree.read(top, "a", now)[0] == now
    assert tree.read(top, "a", now)[1].hex().startswith("2cf24dba5fb0a30e")  # type: ignore[union-attr]
    other = now._replace(size=4)
    assert tree.read(top, "a", other) == (now, None), "it is not read while it moves"
    big = stat_of(tmp_path / "big")
    assert tree.read(top, "big", big) == (big, None)
    os.close(top)


A, B, C = Stat(1, 10, 7), Stat(2, 20, 7), Stat(1, 30, 8)


@pytest.mark.parametrize(
    "known, now, expected",
    [
        (None, A, (A, True, False)),
        (Known(b"x", A, b"h"), A, None),
        (Known(b"x", A, b"h"), B, (B, True, False)),
        (Known(b"x", A, b"h"), None, (None, True, False)),
        (Known(b"x", A, b"h", True, B, own=True), B, None),  # as it was at the last look
        (Known(b"x", A, b"h", True, B, own=True), C, (C, True, False)),
        (Known(b"x", A, b"h", True, B, own=False), C, (C, False, False)),  # others had a part in it
        (Known(b"x", A, b"h", True, B), A, (A, False, True)),  # as it was told last
        (Known(b"x", None, None, True, B, own=True), None, (None, True, True)),  # it came and went
        (Known(b"x", A, b"h", True, None), None, None),
    ],
)
def test_comparing(known: Known | None, now: Stat | None, expected: tuple[object, ...] | None) -> None:
    piece = Piece(b"", b"z", {b"x": Found(now, 0, 0.0)} if now else {})
    (*found,) = compare(piece, [known] if known else [], lambda known, found: True)
    assert [(each.now, each.own, each.like_seen) for each in found] == ([expected] if expected else [])


@pytest.mark.parametrize(
    "seen, content, now, read, event",
    [
        (None, None, A, b"h", "added"),
        (A, b"h", None, None, "deleted"),
        (None, None, None, None, None),
        (A, b"h", C, b"h", None),  # touched, or written again
        (A, b"h", B, b"i", "modified"),
        (A, b"h", B, None, "modified"),  # it has become too large to be read
        (A, None, A._replace(ino=9), None, None),
        (A, None, C, None, "modified"),
    ],
)
def test_what_became_of_it(
    seen: Stat | None, content: bytes | None, now: Stat | None, read: bytes | None, event: str | None
) -> None:
    assert event_of(Known(b"x", seen, content, True, now), read) == event


_NAMES = st.lists(st.sampled_from("ab./!0"), min_size=1, max_size=6).map("".join)


@given(st.sets(_NAMES, max_size=12))
def test_files_come_in_the_order_of_their_bytes(paths: set[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path in paths:
            try:
                (root / path.strip("/.") or "a").parent.mkdir(parents=True, exist_ok=True)
                (root / path.strip("/.")).write_text("x")
            except OSError:
                continue
        there = {f"work/{each.relative_to(root)}" for each in root.rglob("*") if each.is_file()}
        assert found(root).keys() == there
