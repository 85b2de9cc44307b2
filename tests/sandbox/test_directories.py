"""The host's side of a run's mounts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from clawd.errors import SandboxUnavailable
from clawd.sandbox.directories import own_work, prepare
from clawd.sandbox.protocol import RunSpec


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    group = tmp_path / "groups" / "main"
    return RunSpec(
        run="r1",
        group="main",
        uid=64_001 if os.geteuid() == 0 else None,
        directory=tmp_path / "run" / "r1",
        work=group / "work",
        inbox=group / "inbox",
        group_skills=group / "skills",
        skills=tmp_path / "skills",
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_is_made_with_its_mode_whatever_the_umask(spec: RunSpec) -> None:
    before = os.umask(0o077)
    try:
        assert prepare(spec) == spec
        assert prepare(spec) == spec
    finally:
        os.umask(before)
    assert (mode(spec.directory), mode(spec.work)) == (0o700, 0o700)
    open_ = (spec.socket_directory, spec.view, spec.view / "work", spec.inbox, spec.group_skills, spec.skills)
    assert {mode(path) for path in open_} == {0o755}
    assert {mode(path) for path in (spec.directory / "etc").iterdir()} == {0o644}
    assert spec.work.stat().st_uid == (os.geteuid() if spec.uid is None else spec.uid)


def test_what_a_closed_umask_made_is_opened_and_a_link_is_left_alone(spec: RunSpec, tmp_path: Path) -> None:
    private = tmp_path / "private"
    for directory in (private, spec.inbox, spec.group_skills):
        directory.mkdir(mode=0o700, parents=True)
    spec.skills.symlink_to(private)
    assert prepare(spec) == spec
    assert (mode(spec.inbox), mode(spec.group_skills), mode(private)) == (0o755, 0o755, 0o700)


def test_an_empty_directory_stands_in_for_what_cannot_be_shown(spec: RunSpec) -> None:
    spec.skills.write_text("not a directory")
    spec.group_skills.parent.mkdir(parents=True)
    spec.group_skills.symlink_to("/nowhere/at/all")
    ready = prepare(spec)
    assert ready.skills == ready.group_skills == spec.directory / "empty"
    assert ready.inbox == spec.inbox


@pytest.mark.parametrize("target", ["directory", "file", "missing"])
def test_a_link_for_work_is_never_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "directory").mkdir(mode=0o755)
    (tmp_path / "file").touch()
    (tmp_path / "work").symlink_to(tmp_path / target)
    with pytest.raises(SandboxUnavailable, match="is a link"):
        own_work(tmp_path / "work", 64_001, 64_001)
    assert (tmp_path / "directory").stat().st_uid == os.geteuid()


def test_work_of_another_user_is_given_to_the_group_by_root_alone(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir(mode=0o755)
    if os.geteuid() == 0:
        own_work(work, 64_001, 64_001)
        assert (work.stat().st_uid, mode(work)) == (64_001, 0o700)
    else:
        with pytest.raises(SandboxUnavailable, match="belongs to another user"):
            own_work(work, 64_001, 64_001)
