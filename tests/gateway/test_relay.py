"""A request and its answer on their way, as bytes: what reaches the upstream, and what comes back."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import random
import ssl
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

from clawd.errors import ConfigError, StorageError
from clawd.gateway.caller import Road
from clawd.gateway.policy import Grants
from clawd.gateway.scrub import forms_of
from clawd.trust import Role

from .conftest import CANARY, Stage, until
from .upstream import (
    MOST_KEPT,
    Authority,
    Script,
    Upstream,
    answer,
    chunked,
    echo,
    endless,
    gzipped,
    head,
    raw,
    redirect,
    silent,
    sse,
)

pytestmark = pytest.mark.anyio


def keyed(upstream: Upstream, more: str = "") -> str:
    return f'base_url = "{upstream.url}/base"\nallow_private = true\ncredential = "${{env:CANARY}}"\n{more}'


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_the_credential_is_exchanged_for_the_token(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream, 'inject = {header = "x-api-key"}'))
    upstream.script = echo()
    got = await stage.ask("/svc/shop/v1/a?b=%7e&c=d+e", method="POST", body=b'{"x": 1}')
    assert got.status == 200
    [request] = upstream.requests
    assert request.target == "/base/v1/a?b=%7e&c=d+e" and request.body == b'{"x": 1}'
    assert request.values("x-api-key") == [CANARY] and request.values("authorization") == []
    assert request.values("host") == [f"127.0.0.1:{upstream.port}"]
    assert request.values("accept-encoding") == ["identity"] and request.values("content-length") == ["8"]
    assert stage.a.token.encode() not in upstream.received
    assert CANARY.encode() not in got.raw and "[redacted]" in json.loads(got.body)["headers"][-2][1]
    assert stage.a.taints == [0.2]
    entry = await stage.entry()
    assert entry["credential"] == "${env:CANARY}" and entry["path"] == "/base/v1/a" and entry["verdict"] == "allow"
    assert (entry["bytes_in"], entry["bytes_out"], entry["status"]) == (8, len(got.body), 200)


async def test_a_redirect_is_the_clients_to_follow(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream, 'paths = ["/v1"]'))
    with Upstream() as attacker:
        upstream.scripts = {
            "/base/v1/away": redirect(f"{attacker.url}/steal"),
            "/base/v1/admin": redirect("/base/admin"),
            "/base/v1/near": redirect("/base/v1/there"),
        }
        for path, location in (("away", f"{attacker.url}/steal"), ("admin", "/base/admin"), ("near", "/base/v1/there")):
            got = await stage.ask(f"/svc/shop/v1/{path}")
            assert got.status == 302 and got.values("location") == [location] and got.body == b"moved"
        followed = await stage.ask(f"{attacker.url}/steal", f"Host: 127.0.0.1:{attacker.port}")
        assert followed.status == 403 and attacker.connections == []
    assert (await stage.ask("/svc/shop/admin")).rule == "path"
    assert (await stage.ask("/svc/shop/v1/there")).status == 200
    assert [request.path for request in upstream.requests] == [
        "/base/v1/away",
        "/base/v1/admin",
        "/base/v1/near",
        "/base/v1/there",
    ]


async def test_absolute_form_goes_where_its_target_says_and_never_with_a_credential(
    stage: Stage, upstream: Upstream
) -> None:
    port = upstream.port
    stage.serves("web", f'hosts = ["shop.test:{port}"]\nallow_private = true')
    url = f"http://Shop.Test.:{port}/a?b"
    assert (await stage.ask(url, f"Host: shop.test:{port}")).status == 200
    [request] = upstream.requests
    assert request.target == "/a?b" and request.values("host") == [f"shop.test:{port}"]
    assert stage.lookups == ["shop.test"] and stage.a.token.encode() not in upstream.received
    stage.lookups.clear()
    for target, host, status, rule in (
        (url, "api.anthropic.com", 421, "host_mismatch"),
        (url, "shop.test", 421, "host_mismatch"),
        (f"http://evil.test:{port}/a", f"shop.test:{port}", 421, "host_mismatch"),
        (f"http://evil.test:{port}/a", f"evil.test:{port}", 403, "not_granted"),
        (f"https://shop.test:{port}/a", f"shop.test:{port}", 403, "scheme"),
        (f"http://u:p@shop.test:{port}/a", f"shop.test:{port}", 400, "malformed"),
    ):
        got = await stage.ask(target, f"Host: {host}")
        assert (got.status, got.rule) == (status, rule), target
    stage.serves("web", f'hosts = ["shop.test:{port}"]\nallow_private = true\ncredential = "${{env:CANARY}}"')
    assert (await stage.ask(url, f"Host: shop.test:{port}")).rule == "scheme"
    assert len(upstream.requests) == 1 and stage.lookups == []


@pytest.mark.parametrize("target", ["//evil.com/", "@evil.com/", "/svc/shop//evil.com/", "/svc/shop/http://evil.com/"])
async def test_a_route_that_could_be_read_as_a_host_is_refused(stage: Stage, upstream: Upstream, target: str) -> None:
    stage.serves("shop", keyed(upstream))
    client = await stage.dial()
    await client.send(stage.request("/").replace(b"GET / ", f"GET {target} ".encode()))
    assert (await client.answer()).status == 400 and upstream.connections == []


SMUGGLED = [
    b"Content-Length: 4\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 4",
    b"Content-Length: 4\r\nContent-Length: 4",
    b"Content-Length: 4\r\nContent-Length: 5",
    b"Content-Length: +4",
    b"Content-Length: 4,4",
    b"Content-Length: 0x4",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\x0bchunked",
    b"Transfer-Encoding: \x00chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b" Transfer-Encoding: chunked",
    b"X: a\r\n b",
    b"X: a\nY: b",
    b"X: a\x00b",
    b"Host: two",
]


async def test_a_request_of_two_readings_is_refused_and_its_connection_ends(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    start = stage.request("/svc/shop/v1").removesuffix(b"\r\n")
    client = await stage.dial()  # the same without any of it goes through
    await client.send(start + b"\r\n")
    assert (await client.answer()).status == 200
    for lines in SMUGGLED:
        client = await stage.dial()
        smuggled = start.replace(b"GET", b"POST") + lines + b"\r\n\r\n0\r\n\r\n" + stage.request("/svc/shop/smuggled")
        await client.send(smuggled)
        got = await client.answer()
        assert got.status == 400, lines
        assert await client.read() == b"", lines
    assert len(upstream.requests) == 1


async def test_what_would_echo_or_means_no_path_reaches_nobody(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    for method in ("TRACE", "OPTIONS"):
        got = await stage.ask("/svc/shop/v1", method=method)
        assert (got.status, got.rule) == (405 if method == "TRACE" else 403, "method")
    client = await stage.dial()
    await client.send(stage.request("*", method="OPTIONS"))
    assert (await client.answer()).status == 400
    client = await stage.dial()
    await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert (await client.answer()).status == 400
    assert upstream.connections == []
    stage.serves("shop", keyed(upstream, 'methods = ["OPTIONS"]'))
    assert (await stage.ask("/svc/shop/v1", method="OPTIONS")).status == 200


async def test_no_upgrade_but_a_websocket_leaves(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    got = await stage.ask(
        "/svc/shop/v1",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABk",
        "Connection: Upgrade, HTTP2-Settings, X-Hop",
        "X-Hop: 1",
    )
    assert got.status == 200
    [request] = upstream.requests
    assert {name.lower() for name, _ in request.headers} == {"host", "accept-encoding", "authorization"}
    upstream.script = raw(head(101, [("Upgrade", "h2c"), ("Connection", "Upgrade")]))
    assert (await stage.ask("/svc/shop/v1")).rule == "upstream"


async def test_what_a_sandbox_says_of_itself_stays_there(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream, 'inject = {header = "X-Api-Key"}'))
    own = [
        "authorization: Bearer mine",
        "x-api-key: mine",
        "X_Api_Key: mine",
        "x.api-key: mine",
        "api-key: mine",
        "x-goog-api-key: mine",
        "PRIVATE-TOKEN: mine",
        "Cookie: session=mine",
        "Proxy-Authorization: Basic bWluZQ==",
        "X-HTTP-Method-Override: DELETE",
        "X-Forwarded-Host: evil.com",
        "X-Original-URL: /admin",
        "TE: trailers",
        "Keep-Alive: 5",
        "Accept-Encoding: gzip",
    ]
    assert (await stage.ask("/svc/shop/v1", *own, "X-Plain: kept", "X-Plain: twice", "User-Agent: ours")).status == 200
    [request] = upstream.requests
    assert sorted(request.headers) == [
        ("Accept-Encoding", "identity"),
        ("Host", f"127.0.0.1:{upstream.port}"),
        ("User-Agent", "ours"),
        ("X-Api-Key", CANARY),
        ("X-Plain", "kept"),
        ("X-Plain", "twice"),
    ]
    assert b"mine" not in upstream.received


@pytest.mark.parametrize(
    ("inject", "name", "value"),
    [
        ('{header = "X-Key"}', "x-key", CANARY),
        ("{bearer = true}", "authorization", f"Bearer {CANARY}"),
        ('{basic = "user"}', "authorization", "Basic " + base64.b64encode(f"user:{CANARY}".encode()).decode()),
    ],
)
async def test_ways_to_inject(stage: Stage, upstream: Upstream, inject: str, name: str, value: str) -> None:
    stage.serves("shop", keyed(upstream, f"inject = {inject}"))
    upstream.script = echo()
    got = await stage.ask("/svc/shop/v1")
    assert upstream.requests[0].values(name) == [value]
    assert got.status == 200 and not any(form in got.raw for form in forms_of(CANARY, "user"))


async def test_a_credential_in_the_query_replaces_the_sandboxs_own(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream, 'inject = {query = "key"}'))
    upstream.script = echo()
    got = await stage.ask("/svc/shop/v1?a=%2f&key=mine&KEY=mine&%6bey=mine&b=")
    assert upstream.requests[0].target == f"/base/v1?a=%2f&b=&key={quote(CANARY, safe='')}"
    assert not any(form in got.raw for form in forms_of(CANARY))
    assert (await stage.entry())["path"] == "/base/v1"


async def test_bodies_pass_as_they_were_framed(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    large = bytes(range(256)) * 1000
    assert (await stage.ask("/svc/shop/v1", method="POST", body=large)).status == 200
    assert upstream.requests[-1].values("content-length") == ["256000"] and upstream.requests[-1].body == large
    client = await stage.dial()
    start = stage.request("/svc/shop/v1", "Transfer-Encoding: chunked", "Trailer: X-T").replace(b"GET", b"POST")
    await client.send(start + b"3;ext=1\r\nabc\r\n4\r\ndefg\r\n0\r\nX-T: secret\r\nAuthorization: mine\r\n\r\n")
    assert (await client.answer()).status == 200
    last = upstream.requests[-1]
    assert last.chunked and last.body == b"abcdefg" and not last.extensions and last.trailers == []
    assert last.values("trailer") == []
    await client.send(stage.request("/svc/shop/v1", method="POST"))  # on the same connection
    assert (await client.answer()).status == 200 and upstream.requests[-1].values("content-length") == ["0"]
    assert upstream.requests[-1].values("content-type") == []


async def test_a_client_that_waits_for_continue_is_answered_when_it_may(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    for path, status in (("/svc/shop/v1", 100), ("/svc/other/v1", 403)):
        client = await stage.dial()
        await client.send(stage.request(path, "Expect: 100-continue", "Content-Length: 4").replace(b"GET", b"POST"))
        assert (await client.answer()).status == status
        if status == 100:
            await client.send(b"body")
            assert (await client.answer()).status == 200
    assert [request.body for request in upstream.requests] == [b"body"] and not upstream.requests[0].values("expect")
    got = await stage.ask("/svc/shop/v1", "Expect: miracles")
    assert got.status == 400 and len(upstream.requests) == 1


async def test_answers_without_a_body(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    upstream.scripts = {
        "/base/204": answer(status=204),
        "/base/304": raw(head(304, [("ETag", "e"), ("Content-Length", "9")]), close=False),
        "/base/head": answer(b"12345", headers=[("Content-Encoding", "gzip")]),
        "/base/hints": raw(head(103, [("Link", "x")]) + head(200, [("Content-Length", "2")]) + b"ok", close=False),
        "/base/close": raw(head(200) + b"until the end"),
        "/base/empty": answer(b""),
        "/base/odd": answer(b"odd", 599),
    }
    client = await stage.dial()  # one connection: nothing is left over between them
    for path, method, status, body, length in (
        ("204", "GET", 204, b"", []),
        ("304", "GET", 304, b"", []),
        ("head", "HEAD", 200, b"", ["5"]),
        ("hints", "GET", 200, b"ok", ["2"]),
        ("close", "GET", 200, b"until the end", None),
        ("empty", "GET", 200, b"", ["0"]),
        ("odd", "GET", 599, b"odd", ["3"]),
    ):
        await client.send(stage.request(f"/svc/shop/{path}", method=method))
        got = await client.answer(method)
        assert (got.status, got.body) == (status, body), path
        assert length is None or got.values("content-length") == length, path


async def test_an_old_client_is_served_until_the_end(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    upstream.script = chunked(b"one ", b"two")
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1").replace(b"HTTP/1.1", b"HTTP/1.0"))
    got = await client.answer()
    assert got.body == b"one two" and got.values("transfer-encoding") == []
    assert (await stage.entry())["bytes_out"] == 7


async def test_what_comes_back_has_no_session_and_no_hop(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    upstream.script = chunked(
        b"body",
        headers=[
            ("Set-Cookie", "a=b"),
            ("Alt-Svc", 'h3=":443"'),
            ("Connection", "X-Hop"),
            ("X-Hop", "1"),
            ("Keep-Alive", "5"),
            ("Proxy-Authenticate", "Basic"),
            ("X-Kept", "1"),
            ("X-Name", "caf\xe9"),
            ("Retry-After", "7"),
        ],
        trailers=[("X-Trailer", CANARY)],
    )
    for _ in range(2):
        got = await stage.ask("/svc/shop/v1")
        names = {name.lower() for name, _ in got.headers}
        names -= {"content-length", "transfer-encoding"}
        assert names == {"x-kept", "x-name", "retry-after", "content-type", "date", "server"}
        assert got.body == b"body" and CANARY.encode() not in got.raw
    assert b"a=b" not in upstream.received


@pytest.mark.parametrize("status", [401, 429, 500, 529])
async def test_an_upstreams_own_failure_is_passed_on(stage: Stage, upstream: Upstream, status: int) -> None:
    stage.serves("shop", keyed(upstream))
    upstream.script = answer(b'{"error": 1}', status, [("Retry-After", "3"), ("WWW-Authenticate", "Bearer")])
    got = await stage.ask("/svc/shop/v1")
    assert (got.status, got.body, got.values("retry-after")) == (status, b'{"error": 1}', ["3"])
    assert (await stage.entry())["verdict"] == "allow"


async def test_events_are_passed_on_at_once(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    gate = threading.Semaphore(0)
    upstream.script = sse(b"one", b"two", b"three", gate=gate)
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1"))
    for event in (b"one", b"two", b"three"):
        await client.until(b"data: " + event + b"\n\n")
        gate.release()
    assert client.raw.endswith(b"0\r\n\r\n") or await client.until(b"0\r\n\r\n")


async def test_a_head_does_not_wait_for_the_first_byte(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    gate = threading.Semaphore(0)
    upstream.script = chunked(b"", b"later", gate=gate)  # an empty piece is no chunk
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1"))
    assert b" 200 " in await client.head()
    gate.release()
    await client.until(b"later")


@pytest.mark.parametrize("script", [
    sse(b"one", cut=True),
    raw(head(200, [("Content-Length", "100")]) + b"one"),
    raw(head(200, [("Transfer-Encoding", "chunked")]) + b"3\r\none\r\nzz\r\n"),
])  # fmt: skip
async def test_an_upstream_that_dies_is_no_end(stage: Stage, upstream: Upstream, script: Script) -> None:
    stage.serves("shop", keyed(upstream))
    upstream.script = script
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1"))
    try:
        got = await client.answer()
    except (asyncio.IncompleteReadError, ConnectionError):
        entry = await stage.entry()
        assert (entry["rule"], entry["status"], entry["verdict"]) == ("upstream", 200, "allow")
    else:  # it was dead before anything was passed on
        assert (got.status, got.rule) == (502, "upstream")
    upstream.script = answer(b"fine")
    assert (await stage.ask("/svc/shop/v1")).body == b"fine"


async def test_when_the_sandbox_leaves_so_do_we(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    for n, script in enumerate((silent(), sse(b"one", *[b"x"] * 9, gate=threading.Semaphore(0)))):
        upstream.script = script
        client = await stage.dial()
        await client.send(stage.request("/svc/shop/v1"))
        await until(lambda n=n: len(upstream.requests) == n + 1)
        if n:
            await client.until(b"one")
        client.abort()
        assert await asyncio.to_thread(upstream.connections[-1].ended.wait, 5)
        entry = await stage.entry(n + 1)
        assert entry["rule"] == "aborted" and entry["verdict"] == "allow"


async def test_a_sandbox_that_leaves_in_its_body_ends_the_upstreams_request(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    client = await stage.dial()
    start = stage.request("/svc/shop/v1", "Content-Length: 1000000").replace(b"GET", b"POST")
    await client.send(start + b"x" * 200_000)
    await until(lambda: upstream.requests and len(upstream.received) > 100_000)
    client.abort()
    assert await asyncio.to_thread(upstream.connections[-1].ended.wait, 5)
    assert not upstream.requests[0].complete and (await stage.entry())["rule"] == "aborted"
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1", "Transfer-Encoding: chunked").replace(b"GET", b"POST") + b"zz\r\n")
    assert (await client.answer()).status == 400
    assert not any(request.complete for request in upstream.requests)


async def test_much_passes_and_little_is_kept(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    size, started = 100 << 20, resident()
    upstream.script = endless(size)
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1"))
    await client.head()
    taken = 0
    while taken < size:
        taken += len(await client.reader.read(1 << 18))
    assert resident() - started < 20 << 20
    client.abort()
    upstream.script = answer(b"ok")
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1", f"Content-Length: {size}").replace(b"GET", b"POST"))
    piece = bytes(1 << 18)
    for _ in range(size // len(piece)):
        await client.send(piece)
    assert (await client.answer()).status == 200
    assert upstream.requests[-1].body_size == size
    assert resident() - started < (20 << 20) + 4 * MOST_KEPT  # the upstream keeps what it records


async def test_a_long_key_and_a_long_head_keep_nobody_waiting(
    stage: Stage, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = base64.b64encode(random.Random(1).randbytes(9000)).decode()
    monkeypatch.setenv("CANARY", key)
    stage.serves("shop", keyed(upstream))
    upstream.script = chunked(b"<", key[:5000].encode(), key[5000:].encode(), b">")
    assert (await stage.ask("/svc/shop/v1")).body == b"<[redacted]>"
    upstream.script = answer(b"x", headers=[(f"X-{n}", "," * 30_000) for n in range(100)])
    assert (await stage.ask("/svc/shop/v1")).rule == "upstream"
    got = await stage.ask("/svc/shop/v1", *["Connection: " + "," * 8000 for _ in range(100)])
    assert (got.status, got.rule, len(upstream.requests)) == (431, "too_large", 2)


async def test_what_outlives_its_turn_is_broken_off(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    stage.group = 'grants = ["shop"]'
    for n, (road, rule) in enumerate(((None, "no_turn"), (Road(Role.MEMBER, 2), "role"))):
        stage.a.live = Road(Role.OWNER, 1)
        gate = threading.Semaphore(0)
        upstream.script = sse(b"one", b"two", gate=gate)
        client = await stage.dial()
        await client.send(stage.request("/svc/shop/v1"))
        await client.until(b"one")
        stage.a.live = road
        gate.release()
        with contextlib.suppress(ConnectionError):
            assert b"two" not in await client.read()
        assert (await stage.entry(n + 1))["rule"] == rule


async def test_a_compressed_answer_is_refused(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    upstream.script = gzipped(CANARY.encode())
    got = await stage.ask("/svc/shop/v1")
    assert (got.status, got.rule) == (502, "upstream_encoding")
    upstream.script = answer(b"plain", headers=[("Content-Encoding", "identity")])
    assert (await stage.ask("/svc/shop/v1")).body == b"plain"


async def test_an_upstream_must_be_who_it_should(stage: Stage, authority: Authority) -> None:
    stage.names = {"shop.test": ["127.0.0.1"]}
    old = {"oldest": ssl.TLSVersion.TLSv1, "newest": ssl.TLSVersion.TLSv1_1}
    for context, ca, rule in (
        (authority.context("shop.test"), True, ""),
        (authority.context("shop.test"), False, "upstream_certificate"),
        (authority.context("evil.test"), True, "upstream_certificate"),
        (authority.context("shop.test", expired=True), True, "upstream_certificate"),
        (authority.context("shop.test", **old), True, "upstream_certificate"),
    ):
        with Upstream(tls=context) as upstream:
            trusted = f'ca = "{authority.pem}"' if ca else ""
            url = upstream.url.replace("127.0.0.1", "shop.test")
            stage.serves("shop", f'base_url = "{url}"\nallow_private = true\ncredential = "${{env:CANARY}}"\n{trusted}')
            got = await stage.ask("/svc/shop/v1")
            if rule:
                assert (got.status, got.rule, upstream.received) == (502, rule, b"")
            else:
                assert got.status == 200 and upstream.connections[0].sni == "shop.test"
    os.mkfifo(stage.root / "pipe")
    for ca in ("none.pem", "pipe"):
        stage.serves("shop", f'base_url = "https://shop.test:1"\nallow_private = true\nca = "{stage.root}/{ca}"')
        assert (await stage.ask("/svc/shop/v1")).rule == "upstream_certificate"


async def test_an_upstream_that_cannot_be_reached(stage: Stage, upstream: Upstream) -> None:
    upstream.close()
    stage.serves("shop", f'base_url = "http://shop.test:{upstream.port}"\nallow_private = true')
    assert (await stage.ask("/svc/shop/v1")).rule == "upstream"
    stage.names = {"shop.test": []}
    got = await stage.ask("/svc/shop/v1")
    assert (got.status, got.rule) == (502, "upstream")


async def test_addresses_are_judged_with_each_connection(stage: Stage, upstream: Upstream) -> None:
    base = f'base_url = "http://shop.test:{upstream.port}"'
    stage.serves("shop", base)
    got = await stage.ask("/svc/shop/v1")
    assert (got.status, got.rule) == (403, "address_not_allowed") and upstream.connections == []
    assert stage.lookups == ["shop.test"] and (await stage.entry())["verdict"] == "deny"
    stage.serves("shop", f'base_url = "{upstream.url}"')  # an address itself, which aiohttp never resolves
    assert (await stage.ask("/svc/shop/v1")).rule == "address_not_allowed" and upstream.connections == []
    stage.serves("shop", f"{base}\nallow_private = true")
    client = await stage.dial()
    for status in (200, 403):  # the kept connection is of the service as it was
        await client.send(stage.request("/svc/shop/v1"))
        assert (await client.answer()).status == status
        stage.serves("shop", base)
    assert len(upstream.requests) == 1


async def test_a_credential_that_cannot_be_read_lets_nothing_out(
    stage: Stage, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.serves("shop", keyed(upstream))
    pipe, file = stage.root / "pipe", stage.root / "key"
    os.mkfifo(pipe)
    monkeypatch.delenv("CANARY")
    assert [(await stage.ask("/svc/shop/v1")).status, (await stage.ask("/svc/shop/v1")).rule] == [503, "no_credential"]
    for path, value in ((pipe, None), (file, None), (file, "two\nlines"), (file, "")):
        if value is not None:
            path.write_text(value)
        stage.serves("shop", keyed(upstream).replace("${env:CANARY}", f"${{file:{path}}}"))
        assert (await stage.ask("/svc/shop/v1")).rule == "no_credential", path
    assert upstream.connections == []
    client = await stage.dial()
    for value in ("first-key", "second-key"):  # a new one holds from the next request of an open connection
        file.write_text(value + "\n")
        await client.send(stage.request("/svc/shop/v1"))
        assert (await client.answer()).status == 200
        assert upstream.requests[-1].values("authorization") == [f"Bearer {value}"]


async def test_groups_share_no_connection(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    upstream.script = answer(b"ok", headers=[("Set-Cookie", "a=b")])
    for caller in (stage.a, stage.b, stage.a, stage.b):
        got = await stage.ask("/svc/shop/v1", caller=caller, token=caller.token)
        assert got.status == 200 and got.values("set-cookie") == []
    assert [len(connection.requests) for connection in upstream.connections] == [2, 2]
    assert [request.values("cookie") for request in upstream.requests] == [[], [], [], []]


async def test_what_hands_out_tokens_is_refused(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))
    assert (await stage.ask("/svc/shop/oauth/token", method="POST", body=b"{}")).rule == "token_endpoint"
    assert upstream.connections == [] and (await stage.ask("/svc/shop/tokens/1")).status == 200


async def test_nothing_is_passed_on_before_it_taints(
    stage: Stage, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.serves("shop", keyed(upstream))

    async def full(trust: float) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(stage.a, "taint", full)
    upstream.script = answer(b"poison")
    got = await stage.ask("/svc/shop/v1")
    assert got.status == 503 and b"poison" not in got.raw
    stage.config = "[model]\nengine = 'messages'\nservice = 'shop'\n" + stage.config
    assert (await stage.ask("/svc/shop/v1")).body == b"poison"  # the model's own service taints nothing


async def test_a_broken_config_lets_nothing_out(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream))

    def broken(group: str) -> Grants:
        raise ConfigError("config.toml is not TOML", hint="clawd config check")

    stage.gateway._grants = broken
    got = await stage.ask("/svc/shop/v1")
    assert (got.status, got.rule) == (503, "config") and upstream.connections == []


async def test_nothing_that_passes_is_logged(
    stage: Stage, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stage.serves("shop", keyed(upstream))
    for script in (
        echo(),
        raw(b"\x00" + CANARY.encode()),
        raw(head(200, [("Content-Length", "9")]) + CANARY.encode()[:5]),
    ):
        upstream.script = script
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await stage.ask(
                "/svc/shop/secret-path?secret=query", "X-Secret: header", method="POST", body=b"secret-body"
            )
    text = caplog.text + repr(stage.gateway) + repr(vars(stage.gateway)) + str(stage.entries())
    assert CANARY not in text and "secret=query" not in text and "secret-body" not in text and "X-Secret" not in text
    assert stage.a.token not in text
    assert [entry["rule"] for entry in stage.entries()] == ["granted", "upstream", "upstream"]
