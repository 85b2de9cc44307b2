"""Files beneath a root that an agent can write to: nothing leads out, nothing hangs, nothing is half
written."""

import hashlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from clawd import files
from clawd.errors import UnsafePath
from clawd.files import Blobs, open_beneath, parts_of, read_beneath, remove_tree, walk_beneath, write_atomic


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_bytes(b"content")
    (tmp_path / "secret").write_bytes(b"outside")
    return root


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("path", ["", ".", "/", "/etc/passwd", "..", "a/../b", "../secret", "a\0b", "a/b/../../.."])
def test_paths_that_leave_the_root_are_refused(path: str, root: Path) -> None:
    with pytest.raises(UnsafePath):
        parts_of(path)
    with pytest.raises(UnsafePath):
        read_beneath(root, path, 10)


def test_a_file_is_read_up_to_the_limit(root: Path) -> None:
    assert read_beneath(root, "a/b/file", 100) == b"content"
    assert read_beneath(root, "./a//b/./file", 3) == b"con"
    with pytest.raises(FileNotFoundError):
        read_beneath(root, "a/none", 1)


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda root: (root / "x").symlink_to(root.parent / "secret"), "x"),
        (lambda root: (root / "x").symlink_to("a/b/file"), "x"),
        (lambda root: (root / "x").symlink_to(root.parent), "x/secret"),
        (lambda root: (root / "x").symlink_to("a"), "x/b/file"),
        (lambda root: (root / "x").symlink_to("x"), "x"),
        (lambda root: os.mkfifo(root / "x"), "x"),
        (lambda root: socket_at(root / "x"), "x"),
        (lambda root: (root / "x").mkdir(), "x"),
        (lambda root: (root / "x").write_text(""), "x/y"),
    ],
)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT])
def test_links_and_special_files_are_refused(root: Path, make: Callable[[Path], None], path: str, flags: int) -> None:
    make(root)
    before = descriptors()
    with pytest.raises(UnsafePath):
        open_beneath(root, path, flags)
    assert descriptors() == before


def test_a_walk_finds_regular_files_alone(root: Path) -> None:
    (root / "top").write_bytes(b"12")
    (root / "link").symlink_to(root.parent / "secret")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "a" / "fifo")
    before = descriptors()
    found = {path: status.st_size for path, status in walk_beneath(root)}
    assert found == {"top": 2, "a/b/file": 7}
    assert list(walk_beneath(root / "nowhere")) == list(walk_beneath(root / "top")) == []
    assert list(walk_beneath(root / "loop")) == []
    walk = walk_beneath(root)
    next(walk)
    del walk
    assert descriptors() == before


def test_a_walk_is_not_led_away_or_stopped_by_what_changes(root: Path) -> None:
    for n in range(5):
        (root / f"d{n}").mkdir()
        (root / f"d{n}" / "file").write_bytes(b"x")
    walk = walk_beneath(root)
    seen = [next(walk)[0]]
    for n in range(5):
        if not seen[0].startswith(f"d{n}/"):
            (root / f"d{n}" / "file").unlink()
            (root / f"d{n}").rmdir()
            (root / f"d{n}").symlink_to(root.parent)
    assert not any("secret" in path for path, _ in walk)


def test_nesting_without_end_is_an_error_and_can_be_removed(root: Path) -> None:
    before = descriptors()
    try:
        at = os.open(root, os.O_RDONLY)
        for _ in range(2000):  # longer than any path may be
            os.mkdir("d", dir_fd=at)
            below = os.open("d", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(at)
        with pytest.raises(UnsafePath, match="more than 64 deep"):
            list(walk_beneath(root))
        assert descriptors() == before
        for level in range(files.DEEPEST):
            (root / "/".join(["e"] * (level + 1))).mkdir()
        assert list(walk_beneath(root / "e")) == []
    finally:
        remove_tree(root)
    assert not root.exists() and descriptors() == before
    remove_tree(root)


def test_removing_a_tree_follows_no_link(root: Path) -> None:
    for place in (root, root / "a", root / "a" / "b"):
        (place / "link").symlink_to(root.parent)
        os.mkfifo(place / "fifo")
    remove_tree(root)
    assert not root.exists()
    assert (root.parent / "secret").read_bytes() == b"outside"


def test_an_atomic_write_replaces_all_or_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = root / "file"
    write_atomic(file, b"one")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"one", 0o600)
    write_atomic(file, b"two", 0o644)
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"two", 0o644)

    def fail(descriptor: int) -> None:
        raise OSError("disk")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk"):
        write_atomic(file, b"three")
    assert file.read_bytes() == b"two"
    assert sorted(path.name for path in root.iterdir()) == ["a", "file"]


def test_an_atomic_write_replaces_a_link_not_its_target(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "secret")
    write_atomic(root / "link", b"new")
    assert (root.parent / "secret").read_bytes() == b"outside"
    assert (root / "link").read_bytes() == b"new" and not (root / "link").is_symlink()


def test_a_blob_is_the_content_at_the_call(root: Path, tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "state" / "blobs")
    sha256, size = blobs.keep(root, "a/b/file", 7)
    assert (sha256, size) == (hashlib.sha256(b"content").hexdigest(), 7)
    (root / "a" / "b" / "file").write_bytes(b"changed")
    assert blobs.path(sha256).read_bytes() == b"content"
    assert stat.S_IMODE(blobs.directory.stat().st_mode) == 0o700
    (root / "again").write_bytes(b"content")
    assert blobs.keep(root, "again", 7) == (sha256, size)
    for path, limit in (("a/b/file", 6), ("../secret", 100), ("a", 100)):
        with pytest.raises(UnsafePath):
            blobs.keep(root, path, limit)
    assert [path.name for path in blobs.directory.iterdir()] == [sha256]
