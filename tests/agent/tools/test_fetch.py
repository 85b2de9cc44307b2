"""fetch against servers on loopback: answers of every kind, and a stand-in for the gateway that records what it is
asked. The real gateway is in tests/system/test_tools.py."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator

import pytest

from tests.gateway.upstream import Upstream, answer, chunked, echo, endless, gzipped, raw, redirect, silent

from .conftest import TOKEN, Bench

HTML = [("Content-Type", "text/html; charset=iso-8859-1")]
TEXT = [("Content-Type", "text/plain")]
BASIC = "Basic " + base64.b64encode(f"claw:{TOKEN}".encode()).decode()


@pytest.fixture
def server() -> Iterator[Upstream]:
    with Upstream(answer(b"hello", 200, TEXT)) as made:
        yield made


@pytest.fixture
def gateway(bench: Bench) -> Iterator[Upstream]:
    with Upstream(echo()) as made:
        bench.turn.place.gateway = made.url
        yield made


def test_what_comes_back_is_text(bench: Bench, server: Upstream) -> None:
    where = server.url
    assert bench("fetch", url=where) == f"200 Scripted · text/plain · 5 bytes · {where}\n\nhello"
    server.scripts = {
        "/page": answer(b"<title>\xe9</title><p>a <a href='/b'>b</a><script>x</script>", 200, HTML),
        "/meta": answer(b'<meta charset="utf-8"><p>\xc3\xa9', 200, [("Content-Type", "text/html")]),
        "/odd": answer(b"\xff", 200, [("Content-Type", "text/plain; charset=hex")]),
        "/json": answer(b'{"a": 1}', 404, [("Content-Type", "application/problem+json")]),
        "/image": answer(b"\x89PNG", 200, [("Content-Type", "image/png")]),
        "/zeros": answer(b"a\0b"),
        "/packed": gzipped(b"hello", TEXT),
        "/pieces": chunked(b"one ", b"two", headers=TEXT),
        "/cut": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nContent-Type: text/plain\r\n\r\nbegin"),
        "/cut-pieces": chunked(b"begin", headers=TEXT, cut=True),
        "/no-http": raw(b"hello\r\n\r\n"),
    }
    for path, said in {
        "/page": f"é\n\na b ({where}/b)",
        "/meta": "é",
        "/odd": "\\xff",
        "/json": '{"a": 1}',
        "/image": "[It is no text. bash can keep it: curl -sSLo FILE URL]",
        "/zeros": "[It is no text. bash can keep it: curl -sSLo FILE URL]",
        "/packed": "[It is no text. bash can keep it: curl -sSLo FILE URL]",
        "/pieces": "one two",
        "/cut": "begin\n[It is longer: this is how far it was read.]",
        "/cut-pieces": "begin\n[It is longer: this is how far it was read.]",
    }.items():
        head, _, text = bench("fetch", url=where + path).partition("\n")
        assert head.endswith(where + path) and text.strip() == said, path
    assert bench("fetch", url=f"{where}/no-http").startswith("[It cannot be fetched: ")
    assert bench("fetch", url=f"{where}/page", method="head").count("\n") == 0


def test_much_is_read_as_far_as_it_goes_and_a_slow_one_is_kept_as_far_as_it_came(
    bench: Bench, server: Upstream
) -> None:
    server.scripts = {"/": endless(64 << 20, headers=TEXT), "/slow": silent(600)}
    said = bench("fetch", url=f"{server.url}/")
    assert "bytes left out …]" in said and said.endswith("x\n[It is longer: this is how far it was read.]")
    bench.limits["tool_s"] = 1
    assert bench("fetch", url=f"{server.url}/slow") == "[The command was ended after 1 s.]"
    server.scripts["/slow"] = chunked(b"begun", b"never", headers=TEXT, gate=threading.Semaphore(0))
    assert bench("fetch", url=f"{server.url}/slow").endswith("\n\nbegun\n[The command was ended after 1 s.]")


def test_redirects_are_followed_a_few_times_and_keep_no_secret(bench: Bench, server: Upstream) -> None:
    with Upstream(echo()) as other:
        server.scripts = {
            "/a": redirect("b?x=1"),
            "/away": redirect(f"{other.url}/there", 307),
            "/form": redirect("/seen", 303),
            "/round": redirect("/round"),
            "/file": redirect("file:///etc/passwd"),
        }
        assert bench("fetch", url=f"{server.url}/a").endswith(f"{server.url}/b?x=1\n\nhello")
        bench("fetch", url=f"{server.url}/away", method="POST", body="b", headers={"Authorization": "k", "X-A": "b"})
        (away,) = other.requests
        assert (away.method, away.body, away.values("x-a"), away.values("authorization")) == ("POST", b"b", ["b"], [])
        bench("fetch", url=f"{server.url}/form", method="POST", body="b")
        assert [(each.method, each.body) for each in server.requests[-2:]] == [("POST", b"b"), ("GET", b"")]
        assert bench("fetch", url=f"{server.url}/round").startswith("[more than 5 redirects, the last one to http://")
        assert bench("fetch", url=f"{server.url}/file").startswith("['file:///etc/passwd' is no address: ")


def test_what_is_sent(bench: Bench, server: Upstream) -> None:
    address = f"{server.url}/é x?q=a b#top".replace("http://", "http://user:secret@")
    bench("fetch", url=address, method="put", headers={"content-type": "a/b", "Accept": "c"}, body="é")
    (request,) = server.requests
    assert request.head.startswith(b"PUT /%C3%A9%20x?q=a%20b HTTP/1.1\r\n") and request.body == "é".encode()
    assert request.values("host") == [f"127.0.0.1:{server.port}"] and request.values("accept") == ["c"]
    assert request.values("content-type") == ["a/b"] and not request.values("authorization")
    bench("fetch", url=server.url, method="POST")
    assert server.requests[-1].values("content-length") == ["0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"url": ""}, "'' is no address: give http://, https:// or /svc/SERVICE/…"),
        ({"url": "notes.md"}, "'notes.md' is no address"),
        ({"url": "file:///etc/passwd"}, "is no address"),
        ({"url": "http://"}, "is no address"),
        ({"url": "http://x.test:port/"}, "It cannot be fetched: "),
        ({"url": "http://[x/"}, "It cannot be fetched: "),
        ({"url": "http://x.test/", "method": "GET / HTTP/1.1\r\nX: "}, "is no method: GET, HEAD, POST"),
        ({"url": "http://x.test/", "method": "CONNECT"}, "is no method"),
        ({"url": "http://x.test/", "headers": {"A": 1}}, "headers are texts"),
        ({"url": "http://x.test/", "headers": {"A": "b\r\nC: d"}}, "It cannot be fetched: Invalid header value"),
        ({"url": "http://x.test/", "headers": {"A\n": "c"}}, "It cannot be fetched: Invalid header name"),
        ({"url": "https://x.test/", "body": "x" * 200_000}, "too long for one call"),
    ],
)
def test_a_wrong_request_is_a_sentence(
    bench: Bench, gateway: Upstream, arguments: dict[str, object], said: str
) -> None:
    told = bench("fetch", **arguments)
    assert told.startswith("[") and said in told and "Traceback" not in told
    assert not gateway.requests


def test_the_road_is_the_gateway(bench: Bench, gateway: Upstream) -> None:
    assert "200" in bench("fetch", url="http://plain.test/x?y")
    plain = gateway.requests[-1]
    assert plain.head.startswith(b"GET http://plain.test/x?y HTTP/1.1\r\n")
    assert plain.values("proxy-authorization") == [BASIC] and not plain.values("authorization")
    said = bench("fetch", url="/svc/tool/v1?x=1", headers={"authorization": "mine", "X-A": "b"})
    assert TOKEN not in said
    service = gateway.requests[-1]
    assert service.head.startswith(b"GET /svc/tool/v1?x=1 HTTP/1.1\r\n")
    assert service.values("authorization") == [f"Bearer {TOKEN}"] and not service.values("proxy-authorization")
    assert service.values("x-a") == ["b"]
    gateway.script = redirect("/v2")
    assert "Location: /v2" in bench("fetch", url="/svc/tool/v1")  # an address of the service's, not of the gateway's


def test_nobody_outside_leads_into_the_sandbox(bench: Bench, gateway: Upstream, server: Upstream) -> None:
    for to in (f"{gateway.url}/svc/tool/v1", f"//localhost:{server.port}/", f"http://u@127.0.0.1:{server.port}"):
        gateway.script = redirect(to)
        assert "that is not followed]" in bench("fetch", url="http://plain.test/")
    assert len(gateway.requests) == 3 and not server.requests


@pytest.mark.parametrize("url", ["https://x.test/", "https://[2001:db8::1]/", "http://x.test/", "/svc/x/y"])
def test_a_refusal_is_told_with_what_can_be_done(bench: Bench, gateway: Upstream, url: str) -> None:
    body = b'{"schema": 1, "error": "not_granted", "rule": "not_granted", "message": "It is not granted.", "hint": %s}'
    ours = [("X-Clawd-Rule", "not_granted")]
    gateway.script = answer(body % b'"Add it to grants."', 403, ours)
    refused = "[the gateway refused it (403 not_granted): It is not granted."
    assert bench("fetch", url=url) == f"{refused} (Add it to grants.)]"
    gateway.script = answer(body % b"null", 403, ours)
    assert bench("fetch", url=url) == f"{refused}]"
    target = gateway.requests[-1]
    assert target.method == ("CONNECT" if url.startswith("https") else "GET")
    assert (target.values("proxy-authorization") == [BASIC]) == ("svc" not in url)
    gateway.script = answer(body % b"null", 403)  # an upstream that only says so
    assert "refused it" not in bench("fetch", url=url)
    gateway.script = answer(b"<html>", 502)
    said = bench("fetch", url=url)
    if url.startswith("https"):
        assert said == "[the gateway answered 502]"
    else:
        assert said.startswith("502 Scripted · ") and said.endswith("\n\n<html>")


def test_only_what_reads_runs_again(bench: Bench, server: Upstream) -> None:
    assert "hello" in bench("fetch", again=True, url=server.url)
    assert bench("fetch", again=True, url=server.url, method="POST").startswith("[interrupted")
    assert len(server.requests) == 1


def test_nobody_at_the_gateway_is_a_sentence(bench: Bench, server: Upstream) -> None:
    bench.turn.place.gateway = server.url
    server.close()
    assert bench("fetch", url="http://x.test/").startswith("[It cannot be fetched: ")
