"""The target of a request: what is one way to write a place is parsed, all else is refused."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawd.gateway.target import Malformed, Target, inside, parse
from tests.gateway.normal import host as normal_host
from tests.gateway.normal import path as normal_path


@pytest.mark.parametrize(
    ("method", "raw", "target"),
    [
        ("GET", "/svc/a/v1/x?y=/z%0A", Target("route", "a", path="/v1/x", query="y=/z%0A")),
        ("GET", "/svc/a", Target("route", "a")),
        ("GET", "/svc/a?q=/x/..", Target("route", "a", query="q=/x/..")),
        ("GET", b"/svc/a-1_b/", Target("route", "a-1_b", path="/")),
        ("GET", "/svc/a/caf%C3%A9/a;b=c/~@:!$&'()*+,=", Target("route", "a", path="/caf%C3%A9/a;b=c/~@:!$&'()*+,=")),
        ("GET", "http://x.org", Target("plain", "", "http", "x.org", 80, "/")),
        ("GET", "http://X.org.:81/a?b", Target("plain", "", "http", "x.org", 81, "/a", "b")),
        ("GET", "https://x.org/a", Target("plain", "", "https", "x.org", 443, "/a")),
        ("CONNECT", "API.Example.ORG:443", Target("tunnel", "", "https", "api.example.org", 443)),
        ("CONNECT", "api.example.org.:443", Target("tunnel", "", "https", "api.example.org", 443)),
        ("CONNECT", "[2001:DB8:0::1]:443", Target("tunnel", "", "https", "2001:db8::1", 443)),
        ("CONNECT", "2852039166:80", Target("tunnel", "", "https", "2852039166", 80)),
    ],
)
def test_one_way_to_write_a_place(method: str, raw: str | bytes, target: Target) -> None:
    assert parse(method, raw) == target


PATHS = """
/../x /v1/../x /v1/.. /v1/%2e%2e/x /v1/%2E./x /v1/.%2e /v1/..%2fx /v1/%2Fx /v1/%5cx /v1/..%5c /v1\\..\\x /v1/\\@x
/v1/%00 /v1/%252e%252e/ /v1/%25 /v1;/..;/x /v1/..;a=b/x /v1/..%3bx /v1/. /v1/.;x /v1//x //x /v1/;/x /v1/%20/x
/v1/..%20/x /v1/... /v1#x /v1/%0d%0ax /v1/a%0Ab /v1/%7f /v1/%c2%85 /v1/%zz /v1/% /v1/%2 /v1/\xe9 /v1/%c0%ae%c0%ae/
/v1/%ff /v1/%u002e /v1/%ef%bc%8e%ef%bc%8e/ /v1/%e2%80%a5/x /v1/%ef%bc%8f /v1/%ef%bc%852e
/v1/<x> /v1/"x /v1? /v1?# /v1?a#b /v1?%z /v1?\\
""".split()  # noqa: SIM905


@pytest.mark.parametrize("path", [*PATHS, "/v1/a b", "/v1/\r\nHost:", "/v1/\x00", "/v1?a\r\nb", "/v1?a b", "/v1\n"])
def test_a_path_that_could_be_read_in_two_ways_is_refused_in_every_shape(path: str) -> None:
    tunnel = parse("CONNECT", "x.org:443")
    for parsed in (
        lambda: parse("GET", f"/svc/a{path}"),
        lambda: parse("GET", f"http://x.org{path}"),
        lambda: inside(tunnel, path),
    ):
        with pytest.raises(Malformed):
            parsed()


HOSTS = """
x.org@evil.org user:pass@x.org x.org\\@evil.org x..org .x.org -x.org x-.org x_y.org xn--pi-via.org a.xn--p1ai.org
ⓐpi.org ａpi.org аpi.org %78.org x.org%00 x.org.. [::1 ::1 [::1%25eth0] [::1%eth0] [fe80::1%1] [1.2.3.4] [::g]
*.x.org x.org,y.org \u212a.org
""".split()  # noqa: SIM905


@pytest.mark.parametrize(
    "host", ["", ".", *HOSTS, "a\0.x.org", "x.org\r\n", "x .org", "a" * 64 + ".org", "a." * 150 + "org"]
)
def test_what_is_no_host_is_refused(host: str) -> None:
    for method, raw in (("CONNECT", f"{host}:443"), ("GET", f"http://{host}/"), ("GET", f"https://{host}:443/x")):
        with pytest.raises(Malformed):
            parse(method, raw)


@pytest.mark.parametrize(
    "port", ["", ":", ":0", ":65536", ":-1", ":+443", ":0443", ":4 3", ":443:443", ":http", ":443/", ":４"]
)
def test_what_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(Malformed):
        parse("CONNECT", f"x.org{port}")
    if port:
        with pytest.raises(Malformed):
            parse("GET", f"http://x.org{port}//")


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        ("GET", raw)
        for raw in (
            *(
                "",
                "*",
                "x.org:443",
                "//evil.org/",
                "@evil.org",
                "/",
                "/host/v1/turn",
                "/svc",
                "/svc/",
                "/svc//evil.org/",
            ),
            *("/svc/a@evil.org/", "/svc/A/", "/svc/a%62/", "/svc/../host/", "/svc/.a/", "/svc/a/http://evil.org/"),
            *(
                "/svc/a\\evil",
                "ftp://x.org/",
                "HTTP://x.org/",
                "http:x.org",
                "http:/x.org",
                "http:///x",
                "http://x.org?y",
            ),
            *("http://x.org#", "svc/a/", " /svc/a/", "/svc/a/ HTTP/1.1", "/svc/a/#x", "/SVC/a/", "/%73vc/a/"),
        )
    ]
    + [("CONNECT", raw) for raw in ("/svc/a/", "http://x.org:443", "x.org:443/", "x.org:443?x", "*", "")]
    + [("OPTIONS", "*")],
)
def test_no_other_shape(method: str, raw: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse(method, raw)
    assert caught.value.rule == "malformed" and caught.value.message


@pytest.mark.parametrize("raw", ["", "x", "*", "http://x.org/", "https://x.org/", "x.org:443", "//x.org/", "@x", "?x"])
def test_in_a_tunnel_there_is_a_path_alone(raw: str) -> None:
    tunnel = parse("CONNECT", "x.org:443")
    assert inside(tunnel, "/a?b") == Target("tunnel", "", "https", "x.org", 443, "/a", "b")
    with pytest.raises(Malformed):
        inside(tunnel, raw)


PIECES = st.sampled_from(
    [
        *"/.;%\\?#@:&=ab ",
        "..",
        "%2e",
        "%2F",
        "%5c",
        "%25",
        "%252e",
        "%c0%ae",
        "%EF%BC%8E",
        "//",
        "/v1",
        "admin",
        "%0a",
        "%61",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=20))
@example("/v1/%61")
def test_a_path_that_passes_is_its_own_normal_form(text: str) -> None:
    try:
        target = parse("GET", "/svc/a/v1/" + text)
    except Malformed:
        return
    assert f"/svc/a{target.path}" + (f"?{target.query}" if target.query else "") == "/svc/a/v1/" + text
    kept = normal_path(target.path).strip("/").split("/")
    assert kept[0] == "v1" and len(kept) == len(target.path.strip("/").split("/"))


@given(st.text(st.sampled_from("aA1x.-0fX:[]@%ⓐ。．\u200d\0 "), max_size=16) | st.text(max_size=12))
@example("0x7f.1")
@example("a。org")
def test_a_host_that_passes_is_its_own_normal_form(text: str) -> None:
    try:
        target = parse("CONNECT", f"{text}:443")
    except Malformed:
        return
    assert target.port == 443
    assert normal_host(text) == target.host
