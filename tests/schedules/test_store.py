"""Files of schedules on a real disk: which there are, which are twins, and where one goes that is done."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from clawd.schedules import store

TEXT = 'schema = 1\ncron = "0 9 * * *"\nprompt = "p"\n'


def test_a_stamp_is_another_whenever_the_file_is(tmp_path: Path) -> None:
    assert store.stamps(tmp_path / "none") == {}
    (tmp_path / "a.toml").write_text(TEXT)
    assert store.stamps(tmp_path) == {"a": ""}  # so fresh that it may be changed again within the same tick
    time.sleep(0.06)
    first = store.stamps(tmp_path)["a"]
    assert first and store.stamps(tmp_path)["a"] == first
    (tmp_path / "b").write_text(TEXT)
    (tmp_path / "b").replace(tmp_path / "a.toml")
    assert store.stamps(tmp_path)["a"] != first
    (tmp_path / "d.toml").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    assert set(store.stamps(tmp_path)) == {"a"} and store.stamps(tmp_path / "link") == {}


@pytest.mark.parametrize(
    ("ids", "known", "refused"),
    [
        (["a", "b"], [], {}),
        (["a", "A"], [], {"a": "A"}),
        (["a", "A"], ["a"], {"A": "a"}),
        (["STRASSE", "stra\u00dfe"], [], {"stra\u00dfe": "STRASSE"}),
    ],
)
def test_of_names_that_differ_in_case_one_holds(ids: list[str], known: list[str], refused: dict[str, str]) -> None:
    assert store.twins(ids, known) == refused


def test_what_is_done_replaces_nothing(tmp_path: Path) -> None:
    for n, name in enumerate(("a", "a-2", "a-3")):
        (tmp_path / "a.toml").write_text(f"{TEXT}# {n}\n")
        assert store.finish(tmp_path, "a") == name
    assert store.finish(tmp_path, "a") is None
    assert [each.read_text()[-2] for each in sorted((tmp_path / "done").iterdir())] == ["1", "2", "0"]
    (tmp_path / "done" / "b.toml").symlink_to("/nowhere")
    (tmp_path / "b.toml").write_text(TEXT)
    assert store.finish(tmp_path, "b") == "b-2"


def test_what_it_says_is_kept_as_it_was_said(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TEXT + 'catch_up = "all"\nbudget = 0.5\n')
    read = store.read(tmp_path, "a", "Europe/Berlin", "a.toml")
    assert read.facts is not None and read.facts["zone"] == "Europe/Berlin" and read.facts["said"] == "0 9 * * *"
    file = store.file_of(read.facts)
    assert (file.catch_up, file.budget and file.budget.usd, file.session) == ("all", 0.5, "group")
    (tmp_path / "a.toml").write_text(TEXT.replace("0 9", "60 9"))
    assert (store.read(tmp_path, "a", "UTC", "a.toml").error or "").startswith("a.toml:2 cron: minute")
