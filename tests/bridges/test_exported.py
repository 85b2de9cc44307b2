"""What an export writes is renewed and removed; what a person changed or made is left, whatever lies there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clawd.bridges.exported import Laid, Piece, decided, lay, piece
from clawd.errors import Refused, StorageError, UsageError

MANIFEST = ".x/.manifest.json"


def laid(root: Path, wanted: dict[str, str], *, dry: bool = False, group: str = "main") -> Laid:
    pieces = {f".x/{path}": piece(text.encode(), 0o644) for path, text in wanted.items()}
    wholes = sorted({f".x/{path.split('/')[0]}" for path in wanted if "/" in path})
    may = lambda path: path.startswith(".x/")  # noqa: E731
    return lay(root, MANIFEST, group, pieces, may=may, wholes=wholes, dry_run=dry)


def told(found: Laid) -> dict[str, list[str]]:
    kinds = {"written": found.written, "same": found.same, "removed": found.removed}
    kinds["left"] = [each["path"] for each in found.left]
    return {kind: [path.removeprefix(".x/") for path in paths] for kind, paths in kinds.items() if paths}


def lies(root: Path) -> dict[str, str]:
    files = (path for path in (root / ".x").rglob("*") if path.is_file() and path.name != ".manifest.json")
    return {path.relative_to(root / ".x").as_posix(): path.read_text() for path in files}


@pytest.mark.parametrize(
    ("lies", "known", "wanted", "what"),
    [
        (None, (), "a", "write"),
        (None, ("a",), "a", "write"),
        (None, ("a",), "b", "write"),
        ("a", ("a",), "a", "same"),
        ("a", (), "a", "same"),
        ("b", ("a",), "b", "same"),
        ("a", ("a",), "b", "write"),
        ("a", ("a", "b"), "c", "write"),
        ("b", ("a", "b"), "c", "write"),
        ("x", ("a",), "a", "changed"),
        ("x", ("a",), "b", "changed"),
        ("x", (), "a", "theirs"),
        (None, ("a",), None, "gone"),
        ("a", ("a",), None, "remove"),
        ("b", ("a", "b"), None, "remove"),
        ("x", ("a",), None, "changed"),
    ],
)
def test_what_becomes_of_a_file(lies: str | None, known: tuple[str, ...], wanted: str | None, what: str) -> None:
    assert decided(lies, known, wanted) == what


def test_twice_changes_nothing(tmp_path: Path) -> None:
    root, wanted = tmp_path / "a" / "b", {"one.md": "1", "s/SKILL.md": "2", "s/deep/er/file": "3"}
    assert told(laid(root, wanted, dry=True)) == {"written": sorted(wanted)} and not root.exists()
    assert told(laid(root, wanted)) == {"written": sorted(wanted)} and lies(root) == wanted
    stats = {path: path.stat() for path in root.rglob("*")}
    assert told(laid(root, wanted)) == {"same": sorted(wanted)}
    assert {path: path.stat() for path in root.rglob("*") if path.is_file()} == {
        path: stat for path, stat in stats.items() if path.is_file()
    }
    assert not list(root.rglob("*.tmp"))
    assert (root / ".x/one.md").stat().st_mode & 0o777 == 0o644 and (root / MANIFEST).stat().st_mode & 0o777 == 0o600


def test_it_renews_what_nobody_changed_and_removes_what_is_gone(tmp_path: Path) -> None:
    laid(tmp_path, {"a": "1", "b": "1", "c": "1", "d": "1", "s/x": "1", "s/deep/y": "1", "t/x": "1"})
    (tmp_path / ".x/b").write_text("mine")
    (tmp_path / ".x/c").unlink()
    (tmp_path / ".x/d").write_text("mine")
    (tmp_path / ".x/t/own").write_text("mine")
    now = {"a": "2", "b": "2", "c": "2", "s/x": "1"}
    expected = {"written": ["a", "c"], "same": ["s/x"], "left": ["b", "d"], "removed": ["s/deep/y", "t/x"]}
    assert told(laid(tmp_path, now, dry=True)) == expected and lies(tmp_path)["a"] == "1"
    assert told(laid(tmp_path, now)) == expected
    assert lies(tmp_path) == {"a": "2", "b": "mine", "c": "2", "d": "mine", "s/x": "1", "t/own": "mine"}
    assert not (tmp_path / ".x/s/deep").exists()
    again = laid(tmp_path, now)
    assert told(again) == {"same": ["a", "c", "s/x"], "left": ["b", "d"]} == told(laid(tmp_path, now))
    assert [each["why"] for each in again.left] == [
        "it was changed here",
        "it was changed here, and is gone from clawd",
    ]


def test_what_a_person_made_is_theirs(tmp_path: Path) -> None:
    (tmp_path / ".x/s").mkdir(parents=True)
    (tmp_path / ".x/s/SKILL.md").write_text("mine")
    (tmp_path / ".x/a").write_text("mine")
    (tmp_path / ".x/b").write_text("1")
    (tmp_path / ".x/empty").mkdir()
    found = laid(tmp_path, {"a": "1", "b": "1", "s/SKILL.md": "1", "s/scripts/run": "1", "empty/x": "1"})
    assert told(found) == {"written": ["empty/x"], "same": ["b"], "left": ["a", "s"]}
    assert lies(tmp_path) == {"a": "mine", "b": "1", "s/SKILL.md": "mine", "empty/x": "1"}
    # What was the same all along stays when it is gone here: it is not ours.
    assert told(laid(tmp_path, {})) == {"removed": ["empty/x"]} and (tmp_path / ".x/b").exists()


def _link(at: Path, outside: Path) -> None:
    at.symlink_to(outside)


def _dangling(at: Path, outside: Path) -> None:
    at.symlink_to(outside / "nothing")


def _pipe(at: Path, outside: Path) -> None:
    os.mkfifo(at)


def _directory(at: Path, outside: Path) -> None:
    at.mkdir()


@pytest.mark.parametrize("make", [_link, _dangling, _pipe, _directory])
@pytest.mark.parametrize("before", [False, True])
def test_nothing_is_followed(tmp_path: Path, make: Callable[[Path, Path], None], before: bool) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    wanted = {"a": "1", "s/x": "1"}
    (root / ".x").mkdir(parents=True)
    if before:
        laid(root, wanted)
        (root / ".x/a").unlink()
        (root / ".x/s/x").unlink()
        (root / ".x/s").rmdir()
    make(root / ".x/a", outside)
    (root / ".x/s").symlink_to(outside)
    for content in (dict.fromkeys(wanted, "2"), {}):
        found = told(laid(root, content))
        assert "written" not in found and "removed" not in found and list(outside.iterdir()) == []
        if content:
            assert found["left"] == ["a", "s/x" if before else "s"]


def test_beneath_a_link_there_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / ".x").symlink_to(tmp_path / "outside")
    with pytest.raises(Refused, match="a link"):
        laid(tmp_path, {"a": "1"})
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", "{}", '{"group": "main"}', '{"group": "main", "files": [1]}', '{"files": {"a": 1}}',
     '{"group": "main", "files": {".x/a": 1}}', "[" * 100_000, '{"group": [], "files": {}}', "\0"],
)  # fmt: skip
def test_a_manifest_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / ".x").mkdir()
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises((Refused, UsageError)):
        laid(tmp_path, {"a": "1"})
    assert lies(tmp_path) == {} and (tmp_path / MANIFEST).read_text() == text


def test_a_manifest_of_a_stranger_reaches_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / ".x").mkdir(parents=True)
    (root / "own").write_text("1")
    (tmp_path / "outside").write_text("1")
    sha = piece(b"1").sha256
    named = [
        "own",
        "../outside",
        ".x/../own",
        f"{tmp_path}/outside",
        ".x/a\0b",
        ".x/\ud800",
        ".x//a",
        ".x/" + "n" * 300,
    ]
    files = {**dict.fromkeys(named, sha), ".x/list": [None, {}, sha]}
    (root / MANIFEST).write_text(json.dumps({"group": "main", "files": files}))
    assert "removed" not in told(laid(root, {"a": "1"}))
    assert (root / "own").exists() and (tmp_path / "outside").exists()


def test_one_directory_is_one_groups(tmp_path: Path) -> None:
    laid(tmp_path, {"a": "1"})
    with pytest.raises(UsageError, match="of the group 'main'"):
        laid(tmp_path, {"a": "2"}, group="family")
    assert lies(tmp_path) == {"a": "1"}


@pytest.mark.parametrize("after", range(3))
def test_a_crash_leaves_nothing_that_is_not_known_again(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid(tmp_path, {"a": "1", "b": "1", "c": "1"})
    real, left = os.rename, after + 1  # the manifest is first

    def rename(*args: object, **more: object) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        real(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "rename", rename)
        laid(tmp_path, {"a": "2", "b": "2", "d": "2"})
    assert sorted(lies(tmp_path).values()).count("2") == after
    assert "left" not in told(laid(tmp_path, {"a": "3", "b": "2", "d": "3"}))
    assert lies(tmp_path) == {"a": "3", "b": "2", "d": "3"} and not list(tmp_path.rglob("*.tmp"))


def test_what_changes_while_it_is_copied_waits(tmp_path: Path) -> None:
    def gone() -> bytes:
        raise FileNotFoundError

    sha = piece(b"1").sha256
    pieces = {".x/a": Piece(sha, lambda: b"2"), ".x/b": Piece(sha, gone), ".x/c": piece(b"3")}
    found = lay(tmp_path, MANIFEST, "main", pieces, may=lambda path: True)
    assert told(found) == {"written": ["c"], "left": ["a", "b"]} and lies(tmp_path) == {"c": "3"}


def test_a_directory_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        laid(tmp_path / "file" / "x", {"a": "1"})


def test_what_a_killed_run_had_not_renamed_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def rename(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if new == "b.md":
            raise Killed
        renamed(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    renamed = os.rename
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        patch.setattr(os, "unlink", lambda *_, **__: None)
        with pytest.raises(Killed):
            laid(tmp_path, {"one/a.md": "a", "one/b.md": "b"})
    assert list(tmp_path.rglob("*.tmp"))
    laid(tmp_path, {"one/a.md": "a", "one/b.md": "b"})
    assert not list(tmp_path.rglob("*.tmp")) and lies(tmp_path) == {"one/a.md": "a", "one/b.md": "b"}
