"""The running config: a good edit is taken, a bad one keeps the old."""

import os
from pathlib import Path

import pytest

from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.config.load import ensure_group, init_home
from clawd.errors import ConfigError, NotFound


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    init_home(home)
    return home


def write(path: Path, text: str) -> None:
    """Write in a way that `stat` can see, whatever the clock's grain."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_a_good_edit_is_taken_and_told(home: Home) -> None:
    live = LiveConfig(home, {})
    assert not live.changed() and live.reload() == []
    write(home.config_file, "schema = 1\n[model]\nengine = 'scripted'\n[profiles.p]\nsoft = 1\nhard = 2\n")
    assert live.changed()
    assert live.reload() == ["model.engine: offline → scripted", "profiles.p: nothing → soft=1 hard=2 calibration=None"]
    assert not live.changed() and live.current.model.engine == "scripted"


def test_a_bad_edit_keeps_the_old_one(home: Home) -> None:
    live = LiveConfig(home, {})
    running = live.current
    write(home.config_file, "[model]\nengin = 'x'\n")
    with pytest.raises(ConfigError, match="did you mean engine"):
        live.reload()
    assert live.current is running and "config.toml" in live.problems
    assert not live.changed()  # it is not read again until it is edited again
    home.config_file.unlink()
    assert live.changed()
    with pytest.raises(NotFound):
        live.reload()
    write(home.config_file, "[model]\nengine = 'offline'\n")
    assert live.reload() == [] and not live.problems


def test_a_broken_config_ends_the_start(home: Home) -> None:
    home.config_file.write_text("nonsense")
    with pytest.raises(ConfigError):
        LiveConfig(home, {})


def test_an_edit_of_a_groups_file_holds_at_once(home: Home) -> None:
    live = LiveConfig(home, {})
    ensure_group(home, "work")
    file = home.group("work").config_file
    assert live.for_group("work").model.engine == "offline"
    assert live.group("work") is live.group("work")
    write(file, "[model]\nengine = 'scripted'\n")
    assert live.for_group("work").model.engine == "scripted"
    assert live.for_group("main").model.engine == "offline"
    write(file, "[model]\nengine = 'gpt'\n")
    assert live.for_group("work").model.engine == "scripted"
    assert "groups/work/group.toml:2" in str(live.problems["groups/work/group.toml"])
    file.unlink()
    assert live.for_group("work").model.engine == "offline" and not live.problems


def test_a_group_that_was_never_right_cannot_be_used(home: Home) -> None:
    live = LiveConfig(home, {})
    write(home.group("main").config_file, "[model]\nengine = 'gpt'\n")
    for _ in range(2):
        with pytest.raises(ConfigError):
            live.for_group("main")
