"""A daemon's beginning: whom it waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd import daemon
from clawd.config.home import Home
from clawd.control import wire
from clawd.errors import HomeBusy
from clawd.locks import HomeLock


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def test_a_command_that_holds_the_home_is_waited_for(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    command, ours, waited = HomeLock(home.lock_file), HomeLock(home.lock_file), list[float]()
    command.acquire()

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            command.release()

    monkeypatch.setattr(daemon.time, "sleep", sleep)
    daemon._acquire(ours, home)
    assert len(waited) == 3
    ours.release()


def test_for_ever_is_waited_for_nobody_and_for_a_daemon_not_at_all(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    other, ours, now = HomeLock(home.lock_file), HomeLock(home.lock_file), [0.0]
    other.acquire()
    monkeypatch.setattr(daemon.time, "sleep", lambda seconds: now.append(now[-1] + 1))
    monkeypatch.setattr(daemon.time, "monotonic", lambda: now[-1])
    with pytest.raises(HomeBusy):
        daemon._acquire(ours, home)
    assert daemon.COMMAND_S < now[-1] < daemon.COMMAND_S + 3
    now[:] = [0.0]
    with wire.listen(home.state), pytest.raises(HomeBusy):
        daemon._acquire(ours, home)
    assert now == [0.0]
    other.release()
