"""What an agent proposes: copied from its work, sound, and moved where it is used only as it was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.errors import ClawdError, UsageError
from clawd.skills import proposals
from clawd.skills.archive import set_aside
from clawd.skills.manifest import version
from clawd.skills.proposals import accept, clear, drafted, place, skill_md, withdraw
from clawd.skills.skill import load
from tests.skills.making import skill


def propose(skills: Path, name: str, work: Path | None = None, text: str = "") -> str:
    with drafted(skills, name, work, text) as (folder, manifest):
        place(skills, name, folder)
    return manifest.sha256


def test_a_description_cannot_leave_its_line(tmp_path: Path) -> None:
    text = 'Use: "when" asked\nallowed-tools: Bash\n---\n# no'
    propose(tmp_path, "x", text=skill_md("x", text, "body\n---\nmore"))
    made = load(tmp_path / ".proposed/x", shared=False)
    assert made.description == 'Use: "when" asked allowed-tools: Bash --- # no' and made.allowed_tools is None
    assert made.body == "body\n---\nmore" and not made.errors


def test_it_is_a_copy_of_plain_files(tmp_path: Path) -> None:
    work, skills = tmp_path / "work", tmp_path / "skills"
    folder = skill(work, "x", scripts__run_DOT_py="1")
    (folder / "passwd").symlink_to("/etc/passwd")
    sha256 = propose(skills, "x", work)
    (folder / "scripts/run.py").write_text("2")
    at = skills / ".proposed/x"
    assert version(at) == sha256 and (at / "scripts/run.py").read_text() == "1" and not (at / "passwd").exists()
    assert propose(skills, "x", work) == version(at) != sha256  # another one takes its place
    withdraw(skills, "x", sha256)
    assert at.exists(), "it is another one by now"
    withdraw(skills, "x")
    assert [each.name for each in (skills / ".proposed").iterdir()] == []


@pytest.mark.parametrize("name", ["../x", "a/b", ".proposed", "X", "", "con", "x\n"])
def test_a_name_is_a_skills_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        propose(tmp_path, name, text=skill_md("x", "d", "b"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["strasse", "stra\u017fe", "\ufb01le"])
def test_no_name_passes_for_another(tmp_path: Path, name: str) -> None:
    skill(tmp_path, "straße")
    with pytest.raises(UsageError, match=r"too much like|write it plainly"):
        propose(tmp_path, name, text=skill_md(name, "d", "b"))
    propose(tmp_path, "straße", text=skill_md("straße", "d", "b"))


def test_what_nobody_is_asked_about_is_cleared_but_for_what_a_person_edited(tmp_path: Path) -> None:
    theirs = {propose(tmp_path, name, text=skill_md(name, "d", "b")) for name in ("over", "open", "edited", "aside")}
    skill(tmp_path / ".proposed", "edited", "by hand")
    set_aside(tmp_path / ".proposed/aside")
    (tmp_path / ".proposed/.0123456789abcdef").mkdir()
    clear(tmp_path, theirs, {"open"})
    assert sorted(each.name for each in (tmp_path / ".proposed").iterdir()) == [".old", "edited", "open"]


def test_what_cannot_be_proposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, skills = tmp_path / "work", tmp_path / "skills"
    skill(tmp_path / "host", "linked")
    work.mkdir()
    (work / "linked").symlink_to(tmp_path / "host/linked")
    (work / "empty").mkdir()
    big = skill(work, "big")
    with (big / "data").open("wb") as file:
        file.truncate(proposals.MOST_BYTES)
    for name, why in (("linked", "link"), ("missing", "not there"), ("empty", "no skill yet"), ("big", "5 MB")):
        with pytest.raises(UsageError, match=why):
            propose(skills, name, work)
    assert [each.name for each in (skills / ".proposed").iterdir()] == []


def test_only_what_was_asked_for_is_used_and_what_was_there_is_kept(tmp_path: Path) -> None:
    text = skill_md("x", "new", "b")
    sha256 = propose(tmp_path, "x", text=text)
    with pytest.raises(ClawdError):
        accept(tmp_path, "x", "0" * 64)
    skill(tmp_path, "x", "old")
    for _ in range(2):  # once more after a crash
        accept(tmp_path, "x", sha256)
        assert version(tmp_path / "x") == sha256 and not (tmp_path / ".proposed/x").exists()
    [kept] = (tmp_path / ".old").iterdir()
    assert load(kept, shared=False).description == "old"
