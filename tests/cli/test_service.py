"""`clawd service`, beside a `systemctl` that only writes down what it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clawd.cli import service
from clawd.cli.main import run
from clawd.config.begin import init_home
from clawd.config.home import Home

pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="systemd is Linux's")


class Machine:
    """A user's directories, and what systemctl heard."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys
        self.units = root / "config" / "systemd" / "user"
        self.heard = root / "heard"

    def home(self, name: str) -> Path:
        made = Home(self.root / name)
        init_home(made)
        return made.root

    def call(self, home: Path, *words: str, code: int = 0) -> tuple[str, str]:
        """`clawd service WORDS`; gives what it printed, and what it said beside that."""
        self.heard.write_text("")
        assert run(["--home", str(home), "service", *words]) == code
        out, err = self.capsys.readouterr()
        return out, err

    def told(self) -> list[str]:
        return self.heard.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    made = Machine(tmp_path, capsys)
    (tmp_path / "bin").mkdir()
    control = tmp_path / "bin" / "systemctl"
    control.write_text(
        f'#!/bin/sh\necho "$*" >> {made.heard}\n[ ! -e {tmp_path}/broken ] || {{ echo no bus >&2; exit 1; }}\n'
    )
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(service, "BOOTED", tmp_path)
    return made


def test_install_and_uninstall_do_and_undo_it_and_a_second_time_changes_nothing(machine: Machine) -> None:
    home, unit = machine.home("h"), machine.units / "clawd.service"
    text, _ = machine.call(home, "print", "--user")
    shown = json.loads(machine.call(home, "print", "--user", "--json")[0])
    assert shown == {"kind": "systemd-user", "path": str(unit), "text": text}
    assert not unit.exists()
    _, said = machine.call(home, "install", "--user")
    assert "written" in said and "loginctl enable-linger" in said
    assert unit.read_text() == text and unit.stat().st_mode & 0o777 == 0o644
    began = ["--user daemon-reload", "--user enable --now clawd.service"]
    assert machine.told() == began
    _, said = machine.call(home, "install", "--user")
    assert "unchanged" in said and machine.told() == began
    (home / "config.toml").write_text("schema = 1\n[claw]\n[sandbox]\nmax_live = 9\n")
    assert "replaced" in machine.call(home, "install", "--user")[1]
    assert machine.told() == [*began, "--user restart clawd.service"] and unit.read_text() != text
    assert "removed" in machine.call(home, "uninstall", "--user")[1]
    assert machine.told() == ["--user disable --now clawd.service", "--user daemon-reload"] and not unit.exists()
    assert "has no service" in machine.call(home, "uninstall", "--user", code=5)[1]
    assert machine.told() == []


def test_a_unit_of_another_home_is_replaced_by_force_alone(machine: Machine) -> None:
    one, two, unit = machine.home("one"), machine.home("two"), machine.units / "clawd.service"
    machine.call(one, "install", "--user")
    before = unit.read_text()
    _, said = machine.call(two, "install", "--user", code=4)
    assert f"belongs to another home, {one}" in said and "--name" in said
    assert unit.read_text() == before and machine.told() == []
    machine.call(two, "uninstall", "--user", code=5)
    assert unit.read_text() == before
    machine.call(two, "install", "--user", "--name", "second")
    assert (machine.units / "clawd-second.service").exists() and unit.read_text() == before
    assert "unchanged" in machine.call(two, "install", "--user")[1]  # it is known by its home
    assert machine.told()[-1] == "--user enable --now clawd-second.service"
    machine.call(two, "uninstall", "--user")
    assert [it.name for it in machine.units.iterdir()] == ["clawd.service"]
    machine.call(two, "install", "--user", "--force")
    assert service.service.home_of(unit.read_text()) == two
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert "something else" in machine.call(one, "install", "--user", code=4)[1]
    assert "no name for a service" in machine.call(one, "print", "--name", "a/b", code=2)[1]


def test_a_secret_that_is_not_there_yet_is_asked_for_before_anything_is_written(machine: Machine) -> None:
    home = machine.home("h")
    secrets = '[channels.telegram]\ntoken = "${cred:telegram}"\n[channels.slack]\nbot_token = "${env:SLACK}"\n'
    (home / "config.toml").write_text(f"schema = 1\n[claw]\n{secrets}")
    file = machine.root / "config" / "clawd" / "credentials" / "telegram"
    _, said = machine.call(home, "install", "--user", code=4)
    assert str(file) in said and "umask 077" in said and "${env:SLACK} is not there for a service" in said
    assert not machine.units.exists()
    file.parent.mkdir(parents=True)
    file.write_text("x")
    machine.call(home, "install", "--user")
    assert f"LoadCredential=telegram:{file}" in (machine.units / "clawd.service").read_text()


def test_without_systemd_it_says_so_and_shows_what_it_would_be_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "BOOTED", machine.root / "none")
    home = machine.home("h")
    _, said = machine.call(home, "install", "--user", code=1)
    assert "systemd does not manage this machine" in said and "clawd service print" in said
    assert not machine.units.exists() and machine.told() == []
    assert "ExecStart=" in machine.call(home, "print", "--system")[0]


def test_what_systemd_refuses_is_told(machine: Machine) -> None:
    (machine.root / "broken").touch()
    _, said = machine.call(machine.home("h"), "install", "--user", code=1)
    assert "systemctl --user daemon-reload: no bus" in said and "journalctl --user -xe" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a home away")
def test_the_system_s_service_runs_as_the_home_s_owner(machine: Machine) -> None:
    home = machine.home("h")
    assert "User=" not in machine.call(home, "print")[0]
    os.chown(home, 1, 1)
    assert "User=daemon\n" in machine.call(home, "print")[0]
