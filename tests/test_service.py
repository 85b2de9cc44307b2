"""What systemd and launchd are told, read back as they read it."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd import service
from clawd.config.group import GroupConfig
from clawd.config.schema import Config
from clawd.errors import ConfigError
from clawd.service import Place

SYSTEM = Place.of("system", {})
USER = Place.of("user", {"XDG_CONFIG_HOME": "/home/ada/.config"})
ESCAPES = {"n": "\n", "t": "\t", "s": " ", "a": "\a", "b": "\b", "f": "\f", "r": "\r", "v": "\v"}
# Names of files: anything but NUL, also bytes that are not UTF-8.
names = st.binary(min_size=1).map(os.fsdecode).filter(lambda name: "\0" not in name) | st.text(
    st.sampled_from(" \"'\\%$;\n\t#=:aä\x7f"), min_size=1
)


def words(line: str) -> list[str]:
    """The words of a value by systemd's rules (systemd.syntax, "Quoting"; systemd.unit, "Specifiers")."""
    found, word, quote, at = list[str](), None, "", 0
    while at < len(line):
        each = line[at]
        at += 1
        if each == "\\":
            code, word = line[at], word or ""
            if code == "x":
                byte = int(line[at + 1 : at + 3], 16)
                assert byte
                word += chr(byte) if byte < 0x80 else chr(0xDC00 + byte)
                at += 3
            else:
                word += ESCAPES.get(code, code)
                assert code in ESCAPES or code in "\\\"'"
                at += 1
        elif quote and each == quote:
            quote = ""
        elif not quote and each in "\"'":
            quote, word = each, word or ""
        elif not quote and each in " \t":
            if word is not None:
                found.append(word)
            word = None
        else:
            assert each != "\n"
            if each == "%":
                assert line[at] == "%"
                at += 1
            word = (word or "") + each
    assert not quote
    return [*found, *([] if word is None else [word])]


def values(text: str, key: str) -> list[str]:
    """Each value of a key; a unit's lines end with \\n alone, and a backslash at the end joins them."""
    assert not any(line.endswith("\\") for line in text.split("\n"))
    return [line.partition("=")[2] for line in text.split("\n") if line.startswith(f"{key}=")]


def told(home: Path, config: dict[str, Any] | None = None, groups: tuple[GroupConfig, ...] = (), **more: Any) -> Any:
    return service.facts(home, Config.model_validate(config or {}), groups, more.pop("environment", {}), **more)


@given(names, names)
def test_whatever_a_path_holds_is_read_back_as_it_was(name: str, value: str) -> None:
    home = Path("/") / name
    text = service.unit(told(home, environment={"DOCKER_HOST": value}), SYSTEM)
    [start] = values(text, "ExecStart")
    assert start[0] == ":"
    assert words(start[1:]) == [sys.executable, "-P", "-m", "clawd", "--home", str(home), "run"]
    [environment] = values(text, "Environment")
    assert words(environment) == [f"DOCKER_HOST={value}"]
    assert service.home_of(text) == home
    text.encode()


def test_a_program_with_a_name_that_systemd_refuses_is_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/ada's/python")
    [start] = values(service.unit(told(Path("/h")), SYSTEM), "ExecStart")
    assert words(start[1:])[:2] == ["/usr/bin/env", "/opt/ada's/python"]


def test_every_credential_that_a_config_names_is_handed_over_and_no_other() -> None:
    config = {
        "services": {
            "a": {"base_url": "https://a", "credential": "${cred:key-a}", "inject": {"bearer": True}},
            "b": {"base_url": "https://b", "credential": "${env:B}", "inject": {"bearer": True}},
        },
        "channels": {"telegram": {"token": "${cred:telegram}"}},
    }
    group = GroupConfig.model_validate(
        {
            "grants": [{"service": "a", "credential": "${cred:own%}"}],
            "webhook": [{"name": "w", "secret": "${cred:hook}"}, {"name": "v", "secret": "${file:/f}"}],
        }
    )
    text = service.unit(told(Path("/h"), config, (group,)), USER)
    assert values(text, "LoadCredential") == [
        f"{name}:/home/ada/.config/clawd/credentials/{name}" for name in ("hook", "key-a", "own%%", "telegram")
    ]
    assert "LoadCredential" not in service.unit(told(Path("/h")), SYSTEM)


@pytest.mark.parametrize("name", ["a/b", "a b", "ä", "a\\b"])
def test_a_credential_that_systemd_cannot_name_is_refused(name: str) -> None:
    config = {"channels": {"telegram": {"token": f"${{cred:{name}}}"}}}
    with pytest.raises(ConfigError, match="cannot be the name of a credential"):
        service.unit(told(Path("/h"), config), SYSTEM)


def test_the_limits_have_room_for_the_sandboxes_that_live_within() -> None:
    big = GroupConfig.model_validate({"sandbox": {"memory": "2g", "pids": 1000}})
    for backend, sandboxes in (("bubblewrap", 3), ("auto", 3), ("docker", 0)):
        config = {"sandbox": {"backend": backend, "max_live": 3, "memory": "1g"}}
        text = service.unit(told(Path("/h"), config, (big,)), SYSTEM)
        assert values(text, "MemoryMax") == [str((1 + 2 * sandboxes) << 30)]
        assert values(text, "TasksMax") == [str(256 + 1000 * sandboxes)]


@pytest.mark.parametrize(
    ("backend", "place", "after", "wants"),
    [
        ("docker", SYSTEM, True, True),
        ("auto", SYSTEM, True, False),
        ("bubblewrap", SYSTEM, False, False),
        ("docker", USER, False, False),
    ],
)
def test_docker_comes_first_where_it_is_needed(backend: str, place: Place, after: bool, wants: bool) -> None:
    text = service.unit(told(Path("/h"), {"sandbox": {"backend": backend}}), place)
    assert ("docker.service" in values(text, "After"), "docker.service" in values(text, "Wants")) == (after, wants)


def test_a_user_is_named_in_a_unit_of_the_system_alone() -> None:
    assert values(service.unit(told(Path("/h"), user="ada"), SYSTEM), "User") == ["ada"]
    assert not values(service.unit(told(Path("/h"), user="ada"), USER), "User")
    assert not values(service.unit(told(Path("/h")), SYSTEM), "User")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("place", [SYSTEM, USER])
def test_systemd_itself_finds_no_fault_in_it(tmp_path: Path, place: Place) -> None:
    home = tmp_path / "a home of 100 % \"quotes\" 'and' $signs \\ and\nlines ä"
    config = {"sandbox": {"backend": "docker"}, "channels": {"telegram": {"token": "${cred:telegram}"}}}
    file = tmp_path / "clawd.service"
    file.write_text(service.unit(told(home, config, environment={"DOCKER_HOST": "unix:///a b"}), place))
    mode = ["--user"] if place.scope == "user" else []
    done = subprocess.run(
        ["systemd-analyze", *mode, "verify", "--man=no", str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "clawd" in line and "docker" not in line]
    assert not ours, ours


@given(names.filter(lambda name: not re.search("[\x00-\x08\x0b-\x1f\x7f\udc80-\udcff\ufffe\uffff\r]", name)))
def test_launchd_is_told_the_same(name: str) -> None:
    home = Path("/") / name
    text = service.agent(told(home, environment={"CLAWD_MOUNTS": "/m"}), "org.clawd.main")
    read = plistlib.loads(text.encode())
    assert read["ProgramArguments"][-2:] == [str(home), "run"] and read["KeepAlive"] is True
    assert read["EnvironmentVariables"] == {"CLAWD_MOUNTS": "/m"} and read["Umask"] == 0o077
    assert service.home_of(text) == home


@pytest.mark.parametrize(
    "text", ["", "[Unit]\n", "# The daemon of nothing", '# The daemon of "', "<?xml", "<?xml?><a/>"]
)
def test_what_is_not_ours_is_nobodys(text: str) -> None:
    assert service.home_of(text) is None
