"""The daemon as a service: what its manager hears, and what it does not hear when something stands still."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.conftest import DEADLINE, Home, until
from tests.system.ground import Ground
from tests.system.test_trouble import AS_ROOT, Disk, deaf_until_full, small

__all__ = ["small"]
STILL = 2.0  # seconds without a ping: eight times what is between two


class Manager:
    """Who listens at NOTIFY_SOCKET, and what it heard since it was last asked."""

    def __init__(self, at: Path) -> None:
        self.address = str(at / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self.environment = {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": "500000"}

    def hears(self, field: str, seconds: float = DEADLINE) -> list[str]:
        """Wait for a field that begins like this; gives its message."""
        self._socket.settimeout(seconds)
        while True:
            message = self._socket.recv(4096).decode().splitlines()
            if any(each.startswith(field) for each in message):
                return message

    def forget(self) -> None:
        """What was said so far."""
        self._socket.setblocking(False)
        try:
            while self._socket.recv(4096):
                pass
        except BlockingIOError:
            pass

    def falls_silent(self) -> None:
        """Wait until no ping comes any more."""
        deadline = time.monotonic() + DEADLINE
        with pytest.raises(TimeoutError):
            while time.monotonic() < deadline:
                self.hears("WATCHDOG=1", STILL)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(home: Home) -> Iterator[Manager]:
    made = Manager(home.runtime)
    yield made
    made.close()


def test_the_service_s_own_command_is_ready_reloads_pings_and_ends(home: Home, manager: Manager) -> None:
    """Under what the unit says about it: its command, no new privileges, its umask."""
    unit = home.json("service", "print", "--system")["text"]
    [start] = [line.removeprefix("ExecStart=:") for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert "NoNewPrivileges=yes" in unit and "UMask=0077" in unit
    before = ["setpriv", "--no-new-privs", "sh", "-c", 'umask 077 && exec "$@"', "sh", *shlex.split(start)]
    daemon = home.daemon = subprocess.Popen(before, env=home.environment(**manager.environment), text=True)
    home.started.append(daemon)
    assert "READY=1" in manager.hears("READY=1")
    manager.hears("WATCHDOG=1")
    assert home.ask("status")["ready"] and home.ask("status")["pid"] == daemon.pid
    assert home.cli("chat", "-m", "sh:touch made; ls").stdout == "made\n"
    home.configure(more='[logging]\nlevel = "debug"')
    daemon.send_signal(signal.SIGHUP)
    _, second = manager.hears("RELOADING=1")
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0
    assert manager.hears("READY=1") == ["READY=1"]
    assert any("logging.level: info → debug" in line["msg"] for line in home.log())
    manager.hears("WATCHDOG=1")
    daemon.terminate()
    assert "STOPPING=1" in manager.hears("STOPPING=1")
    assert home.wait() == 0 and not home.left_over()


@pytest.mark.parametrize("what", ["loop", "ledger"])
def test_a_daemon_that_stands_still_gives_no_sign_of_life_until_it_goes_on(
    home: Home, manager: Manager, what: str
) -> None:
    home.may_block = True
    home.start(module="tests.system.stuck", **manager.environment)
    manager.hears("WATCHDOG=1")
    (home.root / what).touch()
    until((home.root / f"{what}.stands").exists)
    manager.falls_silent()
    (home.root / what).unlink()
    manager.hears("WATCHDOG=1")
    told = [line["msg"] for line in home.log() if "no sign of life" in line["msg"]]
    assert told and "the ledger" in told[0]
    assert home.cli("chat", "-m", "say hi").stdout.splitlines()[-1] == "hi"
    assert home.deliveries(kind="notice", state="sent")
    home.may_block = False
    assert bool(home.blocked()) == (what == "loop")  # the guard of all other tests here can fail
    home.may_block = True


def test_without_a_manager_nothing_pings(home: Home) -> None:
    home.start()
    assert home.cli("chat", "-m", "say hi").stdout == "hi\n"
    home.stop()
    assert "sign of life" not in json.dumps(home.log())


@AS_ROOT
def test_a_full_disk_is_no_reason_to_be_killed(small: tuple[Ground, Disk]) -> None:
    home, disk = small
    manager = Manager(home.runtime)
    try:
        home.stop()
        home.start(**manager.environment)
        home.json("groups", "add", "filler")
        disk.fill()
        deaf_until_full(home)
        disk.fill()  # what the ballast left, too
        manager.forget()
        for _ in range(3):
            manager.hears("WATCHDOG=1")
        assert home.ask("status")["ready"]
        disk.free()
    finally:
        manager.close()
