"""The one decision, by table: each line that is allowed has twins that are not."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.config.load import merged, parse_group
from clawd.config.presets import PRESETS
from clawd.config.schema import Config
from clawd.errors import ConfigError
from clawd.gateway import policy
from clawd.gateway.policy import Grants, Verdict, decide
from clawd.gateway.target import Malformed, inside, parse
from clawd.trust import Role
from tests.gateway import normal
from tests.gateway.granting import granting

CONFIG = """
[services.anthropic]
credential = "${env:A}"
[services.api]
base_url = "https://api.example.org/base"
hosts = ["up.example.org", "up.example.org:8443"]
credential = "${env:B}"
methods = ["GET", "POST"]
paths = ["/v1/*", "/v2/*/items"]
[services.wild]
hosts = ["*.example.com", "10.0.0.7", "[fd00::7]:8443"]
allow_private = true
[services.close]
hosts = ["a.b.example.com"]
methods = ["GET", "POST"]
[services.web]
hosts = ["*"]
[services.lan]
base_url = "http://nas.lan:8080"
allow_private = true
[services.keyless]
base_url = "https://keyless.example.net"
inject = { header = "x-key" }
"""
GROUP = 'grants = ["anthropic", {service = "api", for = "member"}, "wild", "close", {service = "lan", for = "admin"}]'
GRANTS = granting(GROUP, CONFIG)


def asked(line: str, grants: Grants = GRANTS, role: Role = Role.OWNER) -> Verdict:
    """`METHOD TARGET`, or `METHOD host:port PATH` for a request in a tunnel."""
    method, raw, *path = line.split(" ")
    if path:
        return decide(method, inside(parse("CONNECT", raw), path[0]), grants, role)
    return decide(method, parse(method, raw), grants, role)


@pytest.mark.parametrize(
    ("line", "service", "where"),
    [
        ("POST /svc/anthropic/v1/messages", "anthropic", ("https", "api.anthropic.com", 443, "/v1/messages")),
        ("GET /svc/anthropic/v1/models/x", "anthropic", ("https", "api.anthropic.com", 443, "/v1/models/x")),
        ("CONNECT API.Anthropic.com.:443", "anthropic", ("https", "api.anthropic.com", 443, "")),
        ("GET api.anthropic.com:443 /v1/models", "anthropic", ("https", "api.anthropic.com", 443, "/v1/models")),
        ("GET /svc/api/v1/x", "api", ("https", "api.example.org", 443, "/base/v1/x")),
        ("GET /svc/api/v2/7/items/8", "api", ("https", "api.example.org", 443, "/base/v2/7/items/8")),
        ("GET api.example.org:443 /base/v1/x", "api", ("https", "api.example.org", 443, "/base/v1/x")),
        ("GET up.example.org:443 /v1/x", "api", ("https", "up.example.org", 443, "/v1/x")),
        ("CONNECT up.example.org:8443", "api", ("https", "up.example.org", 8443, "")),
        ("GET x.example.com:443 /", "wild", ("https", "x.example.com", 443, "/")),
        ("GET http://x.y.example.com/a", "wild", ("http", "x.y.example.com", 80, "/a")),
        ("POST a.b.example.com:443 /", "close", ("https", "a.b.example.com", 443, "/")),
        ("CONNECT 10.0.0.7:443", "wild", ("https", "10.0.0.7", 443, "")),
        ("CONNECT [FD00:0::7]:8443", "wild", ("https", "fd00::7", 8443, "")),
        ("GET /svc/lan", "lan", ("http", "nas.lan", 8080, "/")),
        ("GET http://nas.lan:8080/x", "lan", ("http", "nas.lan", 8080, "/x")),
    ],
)
def test_what_is_allowed_goes_to_one_place(line: str, service: str, where: tuple[str, str, int, str]) -> None:
    verdict = asked(line)
    assert verdict.allow and (verdict.rule, verdict.service, verdict.status) == ("granted", service, 200)
    found = verdict.destination
    assert found is not None and found.service is GRANTS.granted[service]
    assert (found.scheme, found.host, found.port, found.path) == where


@pytest.mark.parametrize(
    ("line", "rule", "hint"),
    [
        ("POST /svc/openai/v1/responses", "not_granted", 'add "openai" to grants in groups/main/group.toml'),
        ("CONNECT api.openai.com:443", "not_granted", 'add "openai" to grants in groups/main/group.toml'),
        ("CONNECT evil.org:443", "not_granted", 'hosts = ["evil.org"]'),
        ("GET http://evil.org/", "not_granted", ""),
        ("CONNECT localhost:443", "not_granted", ""),
        ("GET /svc/nothing/x", "unknown_service", "[services.nothing] in config.toml"),
        ("GET /svc/antropic/x", "unknown_service", "did you mean anthropic?"),
        ("PUT /svc/anthropic/v1/messages", "method", "methods of [services.anthropic]"),
        ("POST x.example.com:443 /", "method", "methods of [services.wild]"),
        ("GET /svc/anthropic/v1/organizations", "path", "paths of [services.anthropic]"),
        ("GET /svc/anthropic/v1/messagesx", "path", ""),
        ("GET /svc/anthropic/V1/messages", "path", ""),
        ("GET /svc/anthropic/v1/%6dessages", "path", ""),
        ("GET /svc/anthropic/v1;x/messages", "path", ""),
        ("GET /svc/anthropic", "path", ""),
        ("GET /svc/api/v1", "path", ""),
        ("GET /svc/api/v1/", "path", ""),
        ("GET /svc/api/v10/x", "path", ""),
        ("GET /svc/api/v2/items", "path", ""),
        ("GET /svc/api/v2/7/8/items", "path", ""),
        ("GET api.example.org:443 /v1/x", "path", ""),
        ("GET api.example.org:443 /basement/v1/x", "path", ""),
        ("GET /svc/wild/x", "path", ""),
        ("CONNECT api.anthropic.com:22", "port", '"api.anthropic.com:22" in hosts of [services.anthropic]'),
        ("CONNECT up.example.org:25", "port", ""),
        ("CONNECT [fd00::7]:443", "port", '"[fd00::7]:443"'),
        ("GET http://api.anthropic.com/v1/models", "scheme", "https://"),
        ("GET http://up.example.org:8443/v1/x", "scheme", "https://"),
        ("GET https://api.anthropic.com/v1/models", "scheme", "HTTPS_PROXY"),
        ("CONNECT nas.lan:8080", "scheme", "use http://"),
        ("CONNECT example.com:443", "not_granted", ""),
        ("CONNECT badexample.com:443", "not_granted", ""),
        ("CONNECT xapi.anthropic.com:443", "not_granted", ""),
        ("CONNECT evil-api.anthropic.com.attacker.com:443", "not_granted", ""),
        ("POST /svc/anthropic/v1/messages/access_token", "token_endpoint", ""),
        ("POST /svc/anthropic/api/oauth/claude_cli/create_api_key", "token_endpoint", ""),
        ("POST /svc/anthropic/v1/o%61uth2/T%6fken;x/", "token_endpoint", ""),
        ("POST /svc/api/v1/app/installations/1/access_tokens", "token_endpoint", ""),
        ("POST up.example.org:443 /v1/login/oauth/access_token.json", "token_endpoint", ""),
        ("POST /svc/api/v1/realtime/client_secrets", "token_endpoint", ""),
        *(
            (f"CONNECT {address}:443", "address_not_allowed", "")
            for address in (
                *("169.254.169.254", "100.100.100.200", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "2852039166"),
                *("[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "0xa9fea9fe", "0251.0376.0251.0376", "127.1", "0"),
                *(
                    "127.0.0.1",
                    "8.8.8.8",
                    "[::1]",
                    "10.0.0.07",
                    "10.7",
                    "0xa.0.0.7",
                    "167772167",
                    "x.0x7f",
                    "1.2.3.4.5",
                ),
            )
        ),
    ],
)
def test_what_is_refused_says_which_rule_and_what_the_person_can_do(line: str, rule: str, hint: str) -> None:
    verdict = asked(line)
    assert (verdict.allow, verdict.rule, verdict.status, verdict.destination) == (False, rule, 403, None)
    assert verdict.reason and hint in (verdict.hint or "")


@pytest.mark.parametrize(
    ("line", "lowest"),
    [
        ("GET /svc/anthropic/v1/models", Role.OWNER),
        ("CONNECT api.anthropic.com:443", Role.OWNER),
        ("GET /svc/api/v1/x", Role.MEMBER),
        ("CONNECT x.example.com:443", Role.MEMBER),  # reads alone
        ("CONNECT a.b.example.com:443", Role.OWNER),
        ("GET /svc/lan/", Role.ADMIN),
    ],
)
def test_a_grant_is_for_a_role_and_those_above_it(line: str, lowest: Role) -> None:
    order = [Role.OWNER, Role.ADMIN, Role.MEMBER, Role.STRANGER, Role.NONE]
    for role in order:
        verdict = asked(line, role=role)
        assert verdict.allow == (order.index(role) <= order.index(lowest)), role
        assert verdict.allow or verdict.rule == "role"


@pytest.mark.parametrize(
    ("model", "own"),
    [
        ('engine = "messages"', "anthropic"),
        ('engine = "chat"', "openai"),
        ('engine = "chat"\nservice = "openrouter"', "openrouter"),
        ('engine = "offline"', None),
    ],
)
def test_the_models_own_service_is_for_members_and_does_not_taint(model: str, own: str | None) -> None:
    grants = granting(f'grants = ["anthropic", "openai", "openrouter"]\n[model]\n{model}')
    assert {name for name, it in grants.granted.items() if it.model} == {own} - {None}
    assert all(it.needed == (Role.MEMBER if it.model else Role.OWNER) for it in grants.granted.values())
    assert granting(f"[model]\n{model}").granted == {}


def test_the_closest_name_wins_then_the_earlier_grant() -> None:
    line = "GET a.b.example.com:443 /"
    assert asked(line, granting('grants = ["web", "wild"]', CONFIG)).service == "wild"
    assert asked(line, granting('grants = ["web"]', CONFIG)).service == "web"
    assert not asked("CONNECT intranet:443", granting('grants = ["web"]', CONFIG)).allow
    assert not asked("CONNECT 8.8.8.8:443", granting('grants = ["web"]', CONFIG)).allow
    twins = '[services.a]\nhosts = ["x.org"]\n[services.b]\nhosts = ["x.org"]'
    assert asked("GET x.org:443 /", granting('grants = ["b", "a"]', twins)).service == "b"
    # what the closest one refuses, no wider one allows
    assert asked("POST x.example.com:443 /", granting('grants = ["wild", "web"]', CONFIG)).rule == "method"


def test_without_its_credential_nothing_is_sent() -> None:
    verdict = asked("GET /svc/keyless/x", granting('grants = ["keyless"]', CONFIG))
    assert (verdict.rule, verdict.status) == ("no_credential", 503) and "[services.keyless]" in str(verdict.hint)
    own = granting('grants = [{service = "keyless", credential = "${env:K}"}]', CONFIG)
    assert asked("GET /svc/keyless/x", own).allow and str(own.granted["keyless"].credential) == "${env:K}"
    bearer = granting('grants = [{service = "wild", credential = "${env:K}"}]', CONFIG).granted["wild"]
    assert bearer.inject is not None and bearer.inject.bearer


@pytest.mark.parametrize("service", ["web", "plain"])
def test_a_groups_own_credential_is_held_to_the_same_rules(service: str) -> None:
    config = f'{CONFIG}\n[services.plain]\nbase_url = "http://plain.example.org"'
    with pytest.raises(ConfigError, match="the grant of"):
        granting(f'grants = [{{service = "{service}", credential = "${{env:K}}"}}]', config)


def test_what_echoes_is_refused_everywhere() -> None:
    for method in ("TRACE", "TRACK"):
        assert asked(f"{method} /svc/anthropic/v1/messages").status == 405


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_is_granted_or_has_a_key_of_its_own(name: str) -> None:
    assert asked(f"GET /svc/{name}/", granting("")).rule == "not_granted"
    granted = granting(f'grants = ["{name}"]').granted[name]
    assert granted.credential is None and granted.needed is Role.OWNER


def test_github_is_reached_by_its_api_and_by_git() -> None:
    grants = granting('grants = ["github"]', '[services.github]\ncredential = "${env:G}"')
    for line in (
        "GET /svc/github/repos/a/b",
        "PATCH api.github.com:443 /repos/a/b",
        "GET github.com:443 /a/b.git/info/refs?service=git-upload-pack",
        "POST github.com:443 /a/b.git/git-upload-pack",
        "GET codeload.github.com:443 /a/b/zip/main",
    ):
        assert asked(line, grants).allow, line
    for line in ("DELETE /svc/github/repos/a/b", "POST github.com:443 /login/oauth/access_token"):
        assert not asked(line, grants).allow, line


def test_a_verdict_is_frozen() -> None:
    found = asked("GET /svc/api/v1/x").destination
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.host = "evil.org"  # type: ignore[union-attr, misc]


PIECES = st.sampled_from(
    [
        *(
            "/v1",
            "/v1/",
            "/base",
            "/v10",
            "/..",
            "/%2e%2e",
            "/..;",
            "/.",
            "//",
            "/admin",
            "\\..\\",
            "%2f",
            "%5c",
            "%25",
            ";",
        ),
        *(
            "%2e",
            "x",
            "/x",
            "%61",
            "%C3%A9",
            "%ef%bc%8e",
            "%e2%80%a5",
            "?a=/../",
            "#",
            "@",
            "*",
            "%20",
            "..",
            "/v2/%37/items",
        ),
    ]
)


@given(st.lists(PIECES, max_size=8).map("".join), st.sampled_from(["route", "tunnel"]))
def test_no_path_is_allowed_whose_normal_form_is_not(text: str, shape: str) -> None:
    line = f"GET /svc/api{text}" if shape == "route" else f"GET api.example.org:443 /base{text}"
    try:
        verdict = asked(line)
    except Malformed:
        return
    if verdict.destination is not None:
        path = normal.path(verdict.destination.path)
        assert normal.below("/base/v1", path) or normal.below("/base/v2", path)


LABELS = [
    "api",
    "up",
    "example",
    "org",
    "com",
    "evil",
    "10",
    "0",
    "7",
    "0xa",
    "012",
    "a",
    "ⓐ",
    "b",
    "xn--a",
    "[fd00",
    ":7]",
    "%",
]


@given(st.lists(st.sampled_from([*LABELS, *".-.@:\0 "]), max_size=12).map("".join) | st.text(max_size=10))
def test_no_host_is_allowed_whose_normal_form_is_not(text: str) -> None:
    try:
        verdict = asked(f"CONNECT {text}:443") if " " not in text else None
    except Malformed:
        return
    if verdict is None or verdict.destination is None:
        return
    host = normal.address(text) or normal.host(text)
    assert host == verdict.destination.host
    assert host in ("api.example.org", "up.example.org", "10.0.0.7", "api.anthropic.com") or host.endswith(
        ".example.com"
    )


@pytest.mark.parametrize(("chosen", "own"), [((), {"anthropic", "ollama"}), (["xai"], {"anthropic", "ollama", "xai"})])
def test_fallbacks_and_what_a_turn_chose_are_the_model_s_own_too(chosen: list[str], own: set[str]) -> None:
    text = 'grants = ["anthropic", "xai", "ollama"]\n[model]\nengine = "messages"\nfallbacks = ["ollama/x"]'
    found = policy.grants(Config(), merged(Config(), parse_group(text)), "main", frozenset(chosen))
    assert {name for name, it in found.granted.items() if it.model} == own
