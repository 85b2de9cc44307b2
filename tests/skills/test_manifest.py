"""One hash over what a skill is made of: the same for the same files, another for any change that matters."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from clawd.errors import UnsafePath
from clawd.skills.manifest import File, manifest, stamp
from tests.skills.folders import skill


def test_it_lists_plain_files_with_what_is_in_them(tmp_path: Path) -> None:
    folder = skill(tmp_path, "a", scripts__run="#!", git__config="[x]")
    (folder / "git").rename(folder / ".git")
    (folder / "scripts/run").chmod(0o700)
    (folder / "link").symlink_to("SKILL.md")
    text = (folder / "SKILL.md").read_bytes()
    assert manifest(folder).files == (
        File("SKILL.md", 0o644, len(text), sha256(text).hexdigest()),
        File("scripts/run", 0o755, 2, sha256(b"#!").hexdigest()),
    )


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda folder: (folder / "x").write_text("2"), False),
        (lambda folder: (folder / "x").rename(folder / "y"), False),
        (lambda folder: (folder / "x").chmod(0o755), False),
        (lambda folder: (folder / "new").touch(), False),
        (lambda folder: (folder / "x").unlink(), False),
        (lambda folder: (folder / "x").chmod(0o600), True),
        (lambda folder: (folder / "empty").mkdir(), True),
        (lambda folder: (folder / "x").write_text("1"), True),
        (lambda folder: (folder / "link").symlink_to("x"), True),
    ],
)
def test_what_changes_it(tmp_path: Path, change: Callable[[Path], object], same: bool) -> None:
    folder = skill(tmp_path, "a", x="1")
    before, seen = manifest(folder).sha256, stamp(folder)
    change(folder)
    assert (manifest(folder).sha256 == before) == same
    assert same or stamp(folder) != seen


def test_it_is_the_same_wherever_the_folder_lies(tmp_path: Path) -> None:
    first, second = skill(tmp_path / "1", "a", x="1"), skill(tmp_path / "2", "a", x="1")
    assert manifest(first) == manifest(second) and stamp(first) != stamp(second)
    (tmp_path / "link").symlink_to(first)
    for wrong in (tmp_path / "link", first / "x"):
        with pytest.raises(UnsafePath):
            manifest(wrong)
