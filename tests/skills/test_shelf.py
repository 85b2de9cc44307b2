"""Copies of skills: nothing hostile gets into one, and what is used stays as it is."""

from __future__ import annotations

import os
import resource
import socket
import stat
from pathlib import Path

import pytest

from clawd.config.home import Home
from clawd.errors import UnsafePath
from clawd.skills import shelf as shelves
from clawd.skills.catalogue import Catalogue
from clawd.skills.shelf import Shelf, Version, copy, lying
from tests.skills.making import skill


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "h")
    made.create()
    made.group("main").skills.mkdir(parents=True)
    return made


@pytest.fixture
def shelf(home: Home) -> Shelf:
    return Shelf(home, Catalogue(home))


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Mode and content of everything."""
    return {
        str(path.relative_to(root)): (
            stat.S_IMODE(path.lstat().st_mode),
            path.read_text() if path.is_file() and not path.is_symlink() else "",
        )
        for path in root.rglob("*")
    }


def test_only_plain_files_get_into_a_copy(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    folder = skill(tmp_path, "x", scripts__run="#!/bin/sh\n", references__a_DOT_md="a")
    (folder / "scripts/run").chmod(0o4711)
    (folder / "SKILL.md").chmod(0o600)
    (folder / "link").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    os.link(secret, folder / "second")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket"))
    if os.geteuid() == 0:
        os.mknod(folder / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    copy(folder, tmp_path / "to")
    assert {path: mode for path, (mode, _) in tree(tmp_path / "to").items()} == {
        "SKILL.md": 0o644,
        "scripts": 0o755,
        "scripts/run": 0o755,
        "references": 0o755,
        "references/a.md": 0o644,
    }
    (tmp_path / "a-link").symlink_to(folder)
    with pytest.raises(UnsafePath):
        copy(tmp_path / "a-link", tmp_path / "other")
    with (folder / "huge").open("wb") as file:
        file.truncate(shelves.MOST_BYTES + 1)
    with pytest.raises(UnsafePath, match="50 MB"):
        copy(folder, tmp_path / "third")


def render(
    shelf: Shelf, shown: dict[str, Version | None], *, busy: bool = False, run: str = "r"
) -> dict[str, Version | None]:
    versions, _ = shelf.look("main")
    return shelf.render(run, {each.key: each for each in versions}, shown, busy=busy)


def test_what_is_used_stays_until_nobody_uses_it(home: Home, shelf: Shelf) -> None:
    mine, ours = home.group("main").skills, home.skills
    skill(ours, "a", body="one", scripts__x="1")
    skill(ours, "b")
    shared, own = shelf.directories("r")
    shown = render(shelf, {})
    before = tree(shared)
    assert sorted(shown) == ["shared/a", "shared/b"] and before["a/scripts/x"] == (0o644, "1")
    place = shared.stat().st_ino, own.stat().st_ino

    skill(ours, "a", body="two", scripts__x="2")
    skill(mine, "b", body="mine")
    skill(mine, "c")
    (ours / "b").rename(home.root / "b")
    shown = render(shelf, shown, busy=True)
    assert tree(shared) == before and sorted(each.name for each in own.iterdir()) == ["b", "c"]
    shown = render(shelf, shown)
    assert tree(shared)["a/scripts/x"] == (0o644, "2") and not (shared / "b").exists()
    assert "mine" in (own / "b/SKILL.md").read_text()
    assert (shared.stat().st_ino, own.stat().st_ino) == place  # they are mounted
    assert (shared / "a/SKILL.md").stat().st_nlink == 2  # a link to the copy
    assert not [each for each in shared.parent.iterdir() if each.name.startswith(".")]


def test_a_script_that_changes_is_another_version(home: Home, shelf: Shelf) -> None:
    folder = skill(home.skills, "a", scripts__deep__x="1")
    [first] = shelf.look("main")[0]
    assert shelf.look("main")[0] == [first]
    skill(home.skills, "a", scripts__deep__x="2")
    [second] = shelf.look("main")[0]
    assert second.sha256 != first.sha256 and (shelf.copy_of(first) / "scripts/deep/x").read_text() == "1"
    (folder / "scripts/deep/x").chmod(0o666)
    versions, told = shelf.look("main")
    assert versions == [] and "others could change" in told[0]


def test_what_is_wrong_is_said_and_disturbs_no_other(home: Home, shelf: Shelf) -> None:
    skill(home.skills, "good")
    skill(home.skills, "long", description="x" * 2000)
    (home.skills / "bad").mkdir()
    versions, told = shelf.look("main")
    assert [each.skill.name for each in versions] == ["good", "long"]
    assert any(line.startswith("The skill bad (") and "is not used" in line for line in told)
    assert any("long" in line and "2,000 characters" in line for line in told) and len(told) == 2
    assert lying(Catalogue(home), "main") == (versions, told)


def test_one_that_cannot_be_copied_disturbs_no_other(home: Home, shelf: Shelf) -> None:
    skill(home.skills, "good")
    skill(home.skills, "large", data="x" * 20_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        versions, told = shelf.look("main")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.skill.name for each in versions] == ["good"]
    assert len(told) == 1 and "large" in told[0] and "it cannot be copied (File too large)" in told[0]
    assert [each.skill.name for each in shelf.look("main")[0]] == ["good", "large"]


def test_a_copy_that_a_power_cut_left_hollow_is_made_again(home: Home, shelf: Shelf) -> None:
    skill(home.skills, "a", data="x")
    [version] = shelf.look("main")[0]
    shelf.render("stale", {version.key: version}, {}, busy=False)
    os.truncate(shelf.copy_of(version) / "data", 0)
    later = Shelf(home, Catalogue(home))
    assert later.look("main")[0] == [version] and (later.copy_of(version) / "data").read_text() == "x"


def test_only_what_somebody_has_a_use_for_is_kept(home: Home, shelf: Shelf) -> None:
    skill(home.skills, "a", body="one")
    render(shelf, {}, run="old")
    render(shelf, {}, run="alive")
    [old] = shelf.look("main")[0]
    skill(home.skills, "a", body="two")
    [new] = shelf.look("main")[0]
    torn = home.state / "skills" / ".torn"
    torn.mkdir()
    assert shelf.collect({"alive"}) == 2 and not torn.exists() and not shelf.directories("old")[0].exists()
    assert shelf.copy_of(old).is_dir() and shelf.copy_of(new).is_dir()
    shelf.drop("alive")
    assert shelf.collect(set()) == 1 and not shelf.copy_of(old).exists()
    shelf.copy_of(new).joinpath("SKILL.md").unlink()
    shelf.copy_of(new).rmdir()
    assert shelf.look("main")[0] == [new] and shelf.copy_of(new).is_dir()  # it is made again


def test_an_adopted_run_is_known_by_what_lies_there(home: Home, shelf: Shelf) -> None:
    skill(home.skills, "a", body="one")
    skill(home.skills, "b", body="one")
    skill(home.skills, "gone")
    render(shelf, {})
    skill(home.skills, "b", body="two")
    (home.skills / "gone").rename(home.root / "gone")
    later = Shelf(home, Catalogue(home))
    versions, _ = later.look("main")
    found = later.on("r", versions)
    assert found == {"shared/a": versions[0], "shared/b": None, "shared/gone": None}
    later.render("r", {each.key: each for each in versions}, found, busy=False)
    assert "two" in (later.directories("r")[0] / "b/SKILL.md").read_text()
    assert not (later.directories("r")[0] / "gone").exists()


def test_nothing_is_made_for_groups_without_a_run(home: Home, shelf: Shelf) -> None:
    skill(home.skills, "a")
    for number in range(50):
        home.group(f"g{number}").skills.mkdir(parents=True)
    shelf.look("main")
    assert len(list((home.state / "skills").iterdir())) == 1
