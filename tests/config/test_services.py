"""`[services]`: presets beneath, one grammar for hosts and paths, and combinations that cannot be."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from clawd.config import grammar
from clawd.config.load import merged, parse, parse_group
from clawd.config.mounts import Allowlist
from clawd.config.presets import PRESETS, services
from clawd.config.schema import Config, Service
from clawd.gateway import policy

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "services.md"


def read(text: str) -> dict[str, Service]:
    return services(Config.model_validate(tomllib.loads(text)))


def refusal(text: str) -> str:
    with pytest.raises(ValueError) as caught:
        read(text)
    return str(caught.value)


def test_the_presets_are_there_without_any_config() -> None:
    found = read("")
    assert list(found) == list(PRESETS) == ["anthropic", "openai", "openrouter", "xai", "ollama", "github"]
    assert all(it.credential is None for it in found.values())
    assert Config().services == {}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("anthropic.credential = '${env:K}'", {"base_url": "https://api.anthropic.com", "hosts": []}),
        ("anthropic.paths = []", {"paths": [], "base_url": "https://api.anthropic.com"}),
        ("github.methods = ['GET']", {"methods": ["GET"], "hosts": PRESETS["github"]["hosts"]}),
        ("github.base_url = 'https://git.example.org/api'", {"hosts": [], "base_url": "https://git.example.org/api"}),
        ("openrouter.base_url = 'https://a.org/x/v2'", {"paths": PRESETS["openrouter"]["paths"]}),
        ("anthropic.base_url = 'https://a.org/v1/'", {"paths": ["/messages", "/models", "/complete", "/files"]}),
        ("ollama.base_url = 'http://10.0.0.7:11434/v1'", {"paths": ["/"]}),
        ("github.hosts = ['git.example.org']", {"hosts": ["git.example.org"], "base_url": None}),
        ("ollama.base_url = 'http://10.0.0.7:11434'", {"allow_private": True, "base_url": "http://10.0.0.7:11434"}),
    ],
)
def test_own_keys_lie_over_a_preset(own: str, expected: dict[str, Any]) -> None:
    found = read(f"[services]\n{own}")[own.partition(".")[0]]
    assert {key: getattr(found, key) for key in expected} == expected
    assert found.inject == read("")[own.partition(".")[0]].inject


def test_what_is_only_looked_up_reads_and_has_limits() -> None:
    found = read("[services.a]\nhosts = ['a.org']\n[services.b]\nbase_url = 'https://a.org'")
    assert found["a"].methods == ["GET", "HEAD"] and found["b"].methods == ["GET", "HEAD", "POST"]
    assert (found["a"].limits.requests_per_turn, found["a"].limits.bytes_per_turn) == (300, 256 << 20)
    assert found["b"].limits.requests_per_turn is None
    own = read("[services.a]\nhosts = ['a.org']\nmethods = ['POST']\nlimits = {bytes_per_turn = '1g'}")["a"]
    assert own.methods == ["POST"]
    assert (own.limits.requests_per_turn, own.limits.bytes_per_turn) == (300, 1 << 30)


URL, KEY = "base_url = 'https://a.org'\n", "credential = '${env:K}'\n"


@pytest.mark.parametrize(
    ("table", "what"),
    [
        *(
            (f"base_url = {url!r}", "")
            for url in (
                *(
                    "ftp://a.org",
                    "a.org",
                    "https://",
                    "https:///x",
                    "https://u@a.org",
                    "https://u:p@a.org",
                    "https://a.org?x",
                ),
                *("https://a.org#x", "https://a.org:0", "https://a.org:65536", "https://a.org:", "https://a.org//x"),
                *(
                    "https://a.org/../x",
                    "https://127.1",
                    "http://0x7f.1",
                    "http://2130706433",
                    "https://a_b.org",
                    "https://*",
                ),
                *(
                    "https://xn--a.org",
                    "https://ａ.org",
                    "https://a.org/%2e",
                    "HTTPS://a.org",
                    "https://[::1",
                    "https://a b",
                ),
            )
        ),
        *(
            (f"hosts = [{host!r}]", "")
            for host in (
                *(
                    "",
                    "a.*.org",
                    "*a.org",
                    "**",
                    "*.",
                    "*.org",
                    "*.127.0.0.1",
                    "a.org:0",
                    "a.org:x",
                    "a.org/x",
                    "http://a.org",
                ),
                *(
                    "a.org:443:443",
                    "u@a.org",
                    "*:0",
                    "*:",
                    "[::1",
                    "::1",
                    "127.1",
                    "a..org",
                    ".org",
                    "xn--a.org",
                    "a,b.org",
                ),
            )
        ),
        *(
            (f"{URL}paths = [{path!r}]", "")
            for path in ("v1", "", "/v1/", "/v1*", "/a/../b", "/a//b", "/%2f", "/a?b", "/a/**")
        ),
        *(
            (f"{URL}methods = [{it!r}]", "")
            for it in ("get", "", "CONNECT", "TRACE", "TRACK", "GET POST", "*", "GET\\n")
        ),
        (f"{URL}methods = []", ""),
        ("credential = '${env:K}'", "base_url, hosts or both"),
        (f"base_url = 'http://a.org'\n{KEY}", "allow_private"),
        (f"hosts = ['*']\n{KEY}", "any host could read it"),
        (f"hosts = ['a.org', '*:8080']\n{KEY}", "any host could read it"),
        ("hosts = ['*']\nallow_private = true", "all of this network"),
        (f"{URL}inject = {{bearer = true, basic = 'u'}}", "exactly one"),
        *(
            (f"{URL}inject = {{{how} = {name!r}}}", "")
            for how, name in (
                *(
                    ("header", name)
                    for name in ("Host", "content-length", "Proxy-Authorization", "a b", "a:b", "", "ä")
                ),
                *(("basic", "a:b"), ("basic", ""), ("query", "a&b"), ("query", "")),
            )
        ),
        (f"{URL}ca = 'relative.pem'", "absolute"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(table: str, what: str) -> None:
    assert what in refusal(f"[services.x]\n{table}")


@pytest.mark.parametrize("name", ["A", "a.b", "a/b", "-a", "_a", "", "a" * 65, "ä", "a b"])
def test_a_services_name_stands_in_paths_and_variables(name: str) -> None:
    assert "cannot be a service's name" in refusal(f'[services."{name}"]\n{URL}')


def test_two_services_with_the_same_variables_are_refused() -> None:
    assert "the same variables" in refusal(f"[services.x-y]\n{URL}\n[services.x_y]\n{URL}")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://A.Example.org.", ("https", "a.example.org", 443, "")),
        ("http://127.0.0.1:11434/", ("http", "127.0.0.1", 11434, "")),
        ("http://localhost:1/v1/", ("http", "localhost", 1, "/v1")),
        ("https://[2001:DB8::0:1]:8443/a/b", ("https", "2001:db8::1", 8443, "/a/b")),
    ],
)
def test_an_address_has_one_form(url: str, expected: tuple[str, str, int, str]) -> None:
    assert grammar.base(url) == expected


def test_every_example_of_the_documentation_is_right() -> None:
    config, group = list[str](), list[str]()
    for block in re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL):
        (config if block.startswith("[services.") else group).append(block)
    read_config = Config.model_validate(tomllib.loads("\n".join(config)))
    grants = policy.grants(read_config, merged(read_config, parse_group("\n".join(group))), "main")
    assert list(grants.granted) == ["anthropic", "github"]
    assert {"tickets", "packages", "web", "workstation"} <= grants.known
    for host in re.findall(r'"([^"]*)"', " ".join(line for line in config if "hosts" in line)):
        assert "." not in host or "example" in host or host.startswith("/"), host


def test_what_the_readme_says_of_grants_and_mounts_is_right() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    allowed = [parse(Allowlist, block, "mounts.toml") for block in blocks if "[[roots]]" in block]
    of_config = [block for block in blocks if re.search(r"^\[(services|channels)\.", block, re.M)]
    config = Config.model_validate(tomllib.loads("".join(of_config)))
    group = parse_group("\n".join(block for block in blocks if "[[roots]]" not in block and block not in of_config))
    assert config.channels.enabled() == ["telegram"]
    assert [mount.path for mount in group.mounts] == [root.path for it in allowed for root in it.roots]
    granted = policy.grants(config, merged(config, group), "main").granted
    assert [name for name, service in granted.items() if service.credential] == ["anthropic"]
