"""Edits of files on somebody's word: nothing is overwritten, comments stay, what is removed is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.errors import ClawdError, ConfigError, NotFound, UsageError
from clawd.schedules import edits, store

TEXT = '# mine\nschema = 1\ncron = "0 9 * * *" # early\nprompt = "x"\n[budget]\nusd = 1\n'


def plain(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def test_a_new_file_is_put_once_and_never_over_another(tmp_path: Path) -> None:
    directory = tmp_path / "schedules"
    assert sorted(store.stamps(directory)) == [] and edits.read(directory, "a") is None
    for _ in range(2):
        edits.put(directory, "a", TEXT)
    with pytest.raises(UsageError, match="something else"):
        edits.put(directory, "a", TEXT + "#")
    (directory / "b.toml").symlink_to("/etc/passwd")
    (directory / ".hidden.toml").touch()
    (directory / "note.txt").touch()
    (directory / "done").mkdir()
    assert sorted(store.stamps(directory)) == ["a", "b"] and edits.read(directory, "a") == TEXT
    with pytest.raises(ClawdError):
        edits.read(directory, "b")
    (directory / "c.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        edits.read(directory, "c")
    assert not [each for each in directory.iterdir() if each.name.endswith(".new")]


@pytest.mark.parametrize("id", ["", "../a", "a/b", "a.b", "-a", "a" * 65, "ä"])
def test_what_is_no_id_names_no_file(tmp_path: Path, id: str) -> None:
    for act in (lambda: edits.put(tmp_path, id, TEXT), lambda: edits.read(tmp_path, id)):
        with pytest.raises(UsageError, match="cannot be a schedule's id"):
            act()


def test_a_switch_keeps_what_a_person_wrote(tmp_path: Path) -> None:
    edits.put(tmp_path, "a", TEXT)
    (tmp_path / "a.toml").chmod(0o640)
    for _ in range(2):
        edits.switch(tmp_path, "a", TEXT, False)
    paused = edits.read(tmp_path, "a") or ""
    assert plain(paused) == [*plain(TEXT)[:4], "enabled = false", *plain(TEXT)[4:]]
    assert (tmp_path / "a.toml").stat().st_mode & 0o777 == 0o640
    edits.switch(tmp_path, "a", paused, True)
    assert plain(edits.read(tmp_path, "a") or "")[4] == "enabled = true"
    with pytest.raises(ClawdError, match="changed meanwhile"):
        edits.switch(tmp_path, "a", paused + "#", False)
    with pytest.raises(NotFound):
        edits.switch(tmp_path, "b", TEXT, False)
    with pytest.raises(ConfigError):
        edits.switched("enabled = 3", True)


def test_what_is_removed_is_kept_under_a_number(tmp_path: Path) -> None:
    for n in (1, 2):
        edits.put(tmp_path, "a", TEXT + "#" * n)
        assert edits.retire(tmp_path, "a") == tmp_path / "done" / ("a.toml" if n == 1 else "a-2.toml")
    assert (tmp_path / "done" / "a-2.toml").read_text() == TEXT + "##" and list(store.stamps(tmp_path)) == []
    with pytest.raises(NotFound):
        edits.retire(tmp_path, "a")
