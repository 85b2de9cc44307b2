"""The view: what is shown, what is refused and said, and what stays."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from clawd.config.home import GroupHome
from clawd.files import OWNED_LIMIT
from clawd.sandbox.view import render


@pytest.fixture
def group(tmp_path: Path) -> GroupHome:
    home = GroupHome(tmp_path / "main")
    home.root.mkdir()
    home.claude_md.write_text("be kind")
    home.user_profile.write_text("likes tea")
    return home


@pytest.fixture
def view(tmp_path: Path) -> Path:
    return tmp_path / "view"


def test_the_person_s_files_are_shown(group: GroupHome, view: Path) -> None:
    before = os.umask(0o077)
    try:
        assert render(view, group).changed
    finally:
        os.umask(before)
    assert sorted(path.name for path in view.iterdir()) == [
        "CLAUDE.md",
        "inbox",
        "skills",
        "user_profile.md",
        "work",
    ]
    assert (view / "CLAUDE.md").read_text() == "be kind"
    assert {stat.S_IMODE(path.stat().st_mode) for path in view.iterdir() if path.is_file()} == {0o644}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (view, view / "work")} == {0o755}


def test_renewed_only_when_the_source_changed(group: GroupHome, view: Path) -> None:
    render(view, group)
    first = (view / "CLAUDE.md").stat()
    assert not render(view, group).changed
    assert (view / "CLAUDE.md").stat() == first
    group.claude_md.write_text("be brief")
    assert render(view, group).changed
    assert (view / "CLAUDE.md").read_text() == "be brief"
    assert (view / "CLAUDE.md").stat().st_ino != first.st_ino
    group.claude_md.unlink()
    assert render(view, group).changed
    assert not (view / "CLAUDE.md").exists()
    assert not render(view, group).changed


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _huge(path: Path) -> None:
    os.truncate(path, OWNED_LIMIT + 1)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_link, "link"),
        (_directory, "not a regular file"),
        (_fifo, "not a regular file"),
        (_huge, "larger than 1 MB"),
        (lambda path: path.chmod(0o664), "others can write"),
        (lambda path: path.chmod(0o646), "others can write"),
    ],
)
def test_a_bad_source_is_refused_and_the_rest_kept(group: GroupHome, view: Path, spoil, why: str) -> None:
    render(view, group)
    spoil(group.claude_md)
    group.user_profile.write_text("likes coffee")
    done = render(view, group)
    assert done.changed
    assert len(done.refused) == 1
    assert str(group.claude_md) in done.refused[0] and why in done.refused[0]
    assert (view / "user_profile.md").read_text() == "likes coffee"
    assert (view / "CLAUDE.md").read_text() == "be kind"


def test_another_s_file_is_refused(group: GroupHome, view: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(group.claude_md, 64_001, 64_001)
    assert "belongs to another user" in render(view, group).refused[0]
    assert not (view / "CLAUDE.md").exists()


def test_an_unreadable_source_is_refused(group: GroupHome, view: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root can read everything")
    group.claude_md.chmod(0)
    assert "cannot be read" in render(view, group).refused[0]
