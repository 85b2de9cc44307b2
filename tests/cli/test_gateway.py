"""`clawd gateway services` and `check`: what a person sees of the policy."""

import json
from pathlib import Path

import pytest

from clawd.cli.main import run
from clawd.config.begin import init_home
from clawd.config.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    init_home(Home(tmp_path / "h"))
    with Home(tmp_path / "h").config_file.open("a") as config:
        config.write(f'[services.anthropic]\ncredential = "${{file:{tmp_path}/key}}"\n')
        config.write('[services.docs]\nhosts = ["*.example.org"]\n')
    Home(tmp_path / "h").group("main").config_file.write_text(
        'grants = ["anthropic", {service = "docs", for = "admin"}]'
    )
    return tmp_path / "h"


def said(home: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, object]:
    code = run(["--home", str(home), "gateway", *argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_services_say_who_has_them_and_whether_their_key_is_there(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = said(home, capsys, "services")
    assert code == 0 and isinstance(found, list)
    by_name = {it["service"]: it for it in found}
    assert by_name["anthropic"] == {
        "service": "anthropic",
        "granted_to": [{"group": "main", "for": "owner", "credential": "missing"}],
        "credential": "missing",
        "hosts": [],
        "base_url": "https://api.anthropic.com",
    }
    assert by_name["docs"]["granted_to"] == [{"group": "main", "for": "admin", "credential": "none"}]
    assert by_name["docs"]["hosts"] == ["*.example.org"] and by_name["docs"]["base_url"] is None
    assert by_name["github"]["granted_to"] == []
    (home.parent / "key").write_text("sk-canary\n")
    code, found = said(home, capsys, "services")
    assert "sk-canary" not in str(found) and [it["credential"] for it in found if it["service"] == "anthropic"] == [
        "present"
    ]


@pytest.mark.parametrize(
    ("argv", "rule", "service"),
    [
        (["POST", "https://api.anthropic.com/v1/messages"], "granted", "anthropic"),
        (["post", "/svc/anthropic/v1/messages"], "granted", "anthropic"),
        (["CONNECT", "api.anthropic.com:443"], "granted", "anthropic"),
        (["GET", "https://a.example.org/x?y=1", "--as", "admin"], "granted", "docs"),
        (["GET", "http://a.example.org/"], "granted", "docs"),
        (["GET", "https://a.example.org/x", "--as", "member"], "role", "docs"),
        (["POST", "https://api.anthropic.com/v1/organizations"], "path", "anthropic"),
        (["TRACE", "https://a.example.org/"], "method", None),
        (["GET", "https://evil.org/"], "not_granted", None),
        (["GET", "https://evil.org/../x"], "not_granted", None),  # no client comes to say more than its host
        (["GET", "https://a.example.org:22/../x", "--as", "admin"], "port", "docs"),
        (["GET", "https://a.example.org?y=1", "--as", "admin"], "granted", "docs"),
        (["GET", "http://a.example.org?y=1"], "granted", "docs"),
        (["GET", "https://me@a.example.org?y=1"], "malformed", None),
        (["GET", "https://api.github.com/"], "not_granted", "github"),
        (["GET", "https://a.example.org/../x"], "malformed", None),
        (["GET", "file:///etc/passwd"], "malformed", None),
    ],
)
def test_check_says_what_would_be_decided(
    home: Path, capsys: pytest.CaptureFixture[str], argv: list[str], rule: str, service: str | None
) -> None:
    code, found = said(home, capsys, "check", *argv)
    assert isinstance(found, dict)
    assert set(found) == {"allow", "rule", "reason", "hint", "service"}
    assert (code, found["allow"]) == ((0, True) if rule == "granted" else (1, False))
    assert (found["rule"], found["service"]) == (rule, service) and found["reason"]


def test_check_names_the_roles_there_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = said(home, capsys, "check", "GET", "/svc/docs/", "--as", "king")
    assert code == 2 and isinstance(found, dict) and "'owner', 'admin', 'member'" in found["error"]


def test_check_of_no_group_is_not_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(home, capsys, "check", "--group", "nobody", "GET", "/svc/docs/")[0] == 5
