"""The first run: a fresh clone, one command, a reply."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from tests.system.clone import Clone

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def first(clone: Clone) -> subprocess.CompletedProcess[str]:
    """The very first command in the clone."""
    return clone.make("chat", "MESSAGE=note: buy milk")


@pytest.fixture(scope="module")
def again(clone: Clone, first: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    return clone.make("chat", "MESSAGE=say again")


def test_one_command_prints_one_reply(first: subprocess.CompletedProcess[str]) -> None:
    assert first.stdout == "Noted: buy milk\n"


def test_the_note_lies_in_the_groups_work_directory(clone: Clone, first: object) -> None:
    texts = [path.read_text() for path in (clone.tree / "groups/main/work").iterdir()]
    assert len(texts) == 1 and texts[0].rstrip().endswith("buy milk")


def test_the_session_file_is_accepted(clone: Clone, first: object) -> None:
    checked = clone.json("session", "check", "terminal:main")
    assert (checked["ok"], checked["errors"]) == (True, [])


def test_one_message_is_recorded(clone: Clone, first: object) -> None:
    messages = clone.json("messages", "list")
    assert [(row["id"], row["state"]) for row in messages][:1] == [(1, "recorded")]


def test_the_clone_is_a_home_with_a_config_that_is_the_persons_alone(clone: Clone, first: object) -> None:
    config = clone.tree / "config.toml"
    assert config.read_text() == (clone.tree / "config.example.toml").read_text()
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert {stat.S_IMODE((clone.tree / name).stat().st_mode) for name in ("state", "groups")} == {0o700}
    assert clone.json("status")["home"] == str(clone.tree)


def test_git_sees_nothing_of_what_a_person_made(clone: Clone, again: object) -> None:
    assert clone.run("git", "status", "--porcelain").stdout == ""


def test_a_second_run_sets_nothing_up(again: subprocess.CompletedProcess[str]) -> None:
    assert again.stdout == "again\n"
    assert again.stderr == ""


@pytest.mark.parametrize(
    "text",
    [
        """it's "quoted" 'twice'""",
        "$HOME ${PATH} $(id) $$ `id`",
        "one\ntwo\n\n\tfour",
        "50% #1 a\\nb \\ $(shell id) $@ ; exit 3 && false",
        "grüße 🦀",
    ],
)
def test_a_message_arrives_as_it_was_typed(clone: Clone, again: object, text: str) -> None:
    assert clone.make("chat", f"MESSAGE=say {text}").stdout == f"{text}\n"


def test_a_clone_that_others_may_write_to_is_no_home_by_itself(clone: Clone, again: object, tmp_path: Path) -> None:
    mode = stat.S_IMODE(clone.tree.stat().st_mode)
    clone.tree.chmod(mode | stat.S_IWGRP)
    try:
        done = clone.run(str(clone.tree / ".venv/bin/clawd"), "messages", "list", HOME=str(tmp_path))
        assert (done.returncode, done.stdout) == (5, "")
        assert str(tmp_path / "clawd") in done.stderr and "chmod go-w . config.toml" in done.stderr
        assert clone.make("chat", "MESSAGE=say still here").stdout == "still here\n"
    finally:
        clone.tree.chmod(mode)
