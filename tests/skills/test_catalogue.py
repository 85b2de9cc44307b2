"""All skills of a group, as they are at this moment."""

from __future__ import annotations

import shutil
import unicodedata
from pathlib import Path

import pytest

from clawd.config.home import Home
from clawd.skills import catalogue as module
from clawd.skills.catalogue import Catalogue
from clawd.skills.skill import Skill, load
from tests.skills.folders import skill


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    made.group("main").skills.mkdir(parents=True)
    return made


def names(skills: list[Skill]) -> list[str]:
    return [each.name for each in skills]


def test_a_folder_is_live_when_it_is_there_and_gone_when_it_is_not(home: Home) -> None:
    catalogue = Catalogue(home)
    assert catalogue.of("main") == [] == catalogue.of("nobody")
    folder = skill(home.skills, "b")
    own = skill(home.group("main").skills, "a")
    assert names(catalogue.of("main")) == ["a", "b"] and names(catalogue.of("other")) == ["b"]
    (folder / "SKILL.md").write_text("---\nname: b\ndescription: Edited in place.\n---\nx\n")
    assert catalogue.of("other")[0].description == "Edited in place."
    (folder / "SKILL.md").chmod(0o666)
    assert catalogue.of("other") == [] and "chmod" in catalogue.refused("other")[0].errors[0]
    shutil.rmtree(own)
    (folder / "SKILL.md").chmod(0o644)
    assert names(catalogue.of("main")) == ["b"]


def test_a_group_s_own_comes_before_the_shared_one_also_when_it_is_broken(home: Home) -> None:
    skill(home.skills, "digest")
    own = skill(home.group("main").skills, "digest", "name: digest\ndescription: Ours.\n")
    catalogue = Catalogue(home)
    assert [(each.description, each.shared) for each in catalogue.of("main")] == [("Ours.", False)]
    assert catalogue.of("other")[0].shared
    (own / "SKILL.md").write_text("broken")
    assert catalogue.of("main") == [] and names(catalogue.refused("main")) == ["digest"]
    shutil.rmtree(own)
    assert catalogue.of("main")[0].shared


def test_of_two_names_that_look_the_same_the_second_is_refused(home: Home) -> None:
    composed = unicodedata.normalize("NFC", "café")
    for name in (composed, unicodedata.normalize("NFD", composed), "digest", "Digest"):
        skill(home.skills, name, "description: x\n")
    catalogue = Catalogue(home)
    assert names(catalogue.of("main")) == [composed, "digest"]
    upper, twin = catalogue.refused("main")
    assert upper.path.name == "Digest" and "has the same name" in twin.errors[-1]


def test_what_somebody_may_take_for_a_skill_is_refused_and_what_nobody_does_is_not_there(home: Home) -> None:
    real = skill(home.root, "elsewhere")
    (home.skills / "linked").symlink_to(real)
    for name in ("digest.zip", "SKILL.md", "README.md", ".DS_Store"):
        (home.skills / name).touch()
    skill(home.skills, ".hidden")
    (home.skills / "empty").mkdir()
    catalogue = Catalogue(home)
    assert catalogue.of("main") == []
    assert [each.path.name for each in catalogue.refused("main")] == ["SKILL.md", "digest.zip", "empty", "linked"]


def test_where_others_can_write_nothing_is_believed(home: Home) -> None:
    skill(home.skills, "a")
    home.skills.chmod(0o777)
    catalogue = Catalogue(home)
    assert catalogue.of("main") == [] and "chmod go-w" in catalogue.refused("main")[0].errors[0]
    home.skills.chmod(0o755)
    assert names(catalogue.of("main")) == ["a"]
    home.skills.rename(elsewhere := home.root / "elsewhere")
    home.skills.symlink_to(elsewhere)
    assert catalogue.of("main") == [] and "is a link: put" in catalogue.refused("main")[0].errors[0]
    home.skills.unlink()
    assert catalogue.of("main") == [] == catalogue.refused("main")
    home.skills.touch()
    assert catalogue.of("main") == [] and "it is no folder" in catalogue.refused("main")[0].errors[0]


def test_what_is_mended_deep_inside_is_used(home: Home) -> None:
    folder = skill(home.skills, "a", references__x="1")
    (folder / "references/x").chmod(0o666)
    catalogue = Catalogue(home)
    assert [each.name for each in catalogue.refused("main")] == ["a"]
    (folder / "references/x").chmod(0o644)
    assert names(catalogue.of("main")) == ["a"]


def test_what_an_agent_proposes_is_not_used(home: Home) -> None:
    skill(home.group("main").skills / ".proposed", "a")
    catalogue = Catalogue(home)
    assert catalogue.of("main") == [] == catalogue.refused("main") and names(catalogue.proposed("main")) == ["a"]


def test_five_hundred_that_did_not_change_are_not_read_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()

    def counting(folder: Path, *, shared: bool) -> Skill:
        read.append(folder.name)
        return load(folder, shared=shared)

    monkeypatch.setattr(module, "load", counting)
    for n in range(500):
        skill(home.skills, f"s{n}")
    catalogue = Catalogue(home)
    assert len(catalogue.of("main")) == len(read) == 500
    skill(home.group("main").skills, "own")
    (home.skills / "s7" / "SKILL.md").write_text("---\nname: s7\ndescription: New.\n---\nx\n")
    read.clear()
    assert len(catalogue.of("main")) == 501 == len(catalogue.of("main")) and read == ["s7", "own"]
