"""The first files: a home that works as it is, and nothing of a person's that is ever overwritten."""

import stat
from datetime import UTC, datetime
from pathlib import Path

from clawd.clock import TurnedClock
from clawd.config.home import Home, is_home
from clawd.config.load import ensure_group, init_home, load_config
from clawd.config.schema import Config


def test_a_new_home_works_as_it_is(tmp_path: Path) -> None:
    home = Home(tmp_path / "claw")
    made = init_home(home, user="Ada", clock=TurnedClock(datetime(2026, 3, 7, 10, tzinfo=UTC)))
    main = home.group("main")
    assert [path for path in made if not path.is_relative_to(home.skills)] == [
        home.config_file, home.people_file, main.claude_md, main.user_profile, main.memory / "MEMORY.md",
    ]  # fmt: skip
    assert load_config(home, {}) == Config()
    assert is_home(home.root)
    home.config_file.write_text(home.config_file.read_text() + "[claw\n")
    assert is_home(home.root)  # broken, and still the one that is meant
    assert home.people_file.read_text().startswith("schema = 1\n")
    for directory in (home.groups, home.state, main.root, main.work, main.inbox, main.sessions, main.skills):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    lines = (main.memory / "MEMORY.md").read_text().split("\n")
    updated = datetime(2026, 3, 7, 10, tzinfo=UTC).astimezone().strftime("> Updated: %Y-%m-%d %H:%M:%S")
    assert lines == [
        "# Long-Term Memory", "", "## bot_name", updated, "", "clawd", "", "## user_name", updated, "", "Ada", "",
    ]  # fmt: skip


def test_doing_it_again_changes_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    init_home(home)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in files:
        path.write_text("mine")
    home.group("main").user_profile.unlink()
    assert init_home(home) == [home.group("main").user_profile]
    assert all(path.read_text() == "mine" for path in files if path.name != "user_profile.md")


def test_a_group_gets_its_folders_and_two_files(tmp_path: Path) -> None:
    home = Home(tmp_path)
    group = home.group("work")
    assert ensure_group(home, "work") == [group.claude_md, group.user_profile]
    assert ensure_group(home, "work") == []
    assert sorted(path.name for path in group.root.iterdir()) == [
        "CLAUDE.md", "inbox", "memory", "sessions", "skills", "user_profile.md", "work",
    ]  # fmt: skip


def test_a_dangling_link_is_a_persons_too(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    home.config_file.symlink_to(tmp_path / "elsewhere")
    init_home(home)
    assert not (tmp_path / "elsewhere").exists()
