"""Requests inside of a tunnel: each is judged by itself, and none goes anywhere but where its CONNECT said."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator

import anyio.to_thread
import pytest

from clawd.gateway.caller import Road
from clawd.trust import Role

from .conftest import CANARY, Client, Stage
from .test_websocket import HANDSHAKE, Socket
from .upstream import Authority, Upstream, echo, websocket

pytestmark = pytest.mark.anyio
HOST = "shop.test"


@pytest.fixture
def secure(authority: Authority) -> Iterator[Upstream]:
    with Upstream(echo(), tls=authority.context(HOST)) as made:
        yield made


def service(upstream: Upstream, authority: Authority, more: str = "") -> str:
    host = f'hosts = ["{HOST}:{upstream.port}"]\nallow_private = true\nmethods = ["GET", "POST"]\n'
    return host + f'credential = "${{env:CANARY}}"\nca = "{authority.pem}"\n{more}'


async def entered(stage: Stage, port: int, name: str = HOST) -> Client:
    client = await stage.dial()
    await client.send(stage.request(f"{HOST}:{port}", f"Host: {HOST}:{port}", method="CONNECT"))
    assert b" 200 " in await client.head()
    bundle = await anyio.to_thread.run_sync(stage.certificates.bundle)
    context = ssl.create_default_context(cadata=bundle.decode())
    with anyio.fail_after(20):
        await client.writer.start_tls(context, server_hostname=name)
    return client


def inner(stage: Stage, target: str, host: str, *headers: str, **what: str) -> bytes:
    return stage.request(target, f"Host: {host}", *headers, token="", **what)  # type: ignore[arg-type]


async def test_each_request_is_judged(stage: Stage, secure: Upstream, authority: Authority) -> None:
    stage.serves("shop", service(secure, authority, 'paths = ["/v1"]'))
    where = f"{HOST}:{secure.port}"
    client = await entered(stage, secure.port)
    await client.send(
        inner(stage, "/v1/a?b=%7e", where)
        + inner(stage, "/v1/a", "evil.test")
        + inner(stage, "/v1/a", HOST)
        + inner(stage, "/v2", where)
        + inner(stage, f"https://{where}/v1", where)
        + inner(stage, "/v1/last", where.upper())
    )
    got = await client.answer()
    said = json.loads(got.body)
    assert (
        got.status == 200
        and ["Authorization", "Bearer [redacted]"] in said["headers"]
        and said["target"] == "/v1/a?b=%7e"
    )
    for status, rule in ((421, "host_mismatch"), (421, "host_mismatch"), (403, "path"), (400, "malformed")):
        got = await client.answer()
        assert (got.status, got.rule) == (status, rule)
    assert await client.read() == b""  # after what was malformed nothing more is read
    assert [request.values("authorization") for request in secure.requests] == [[f"Bearer {CANARY}"]]
    assert secure.requests[0].values("host") == [where] and secure.connections[0].sni == HOST
    entries = stage.entries()
    assert [entry["method"] for entry in entries] == ["CONNECT"] + ["GET"] * 5
    assert [entry["rule"] for entry in entries][:2] == ["granted", "granted"]
    assert {entry["host"] for entry in entries} == {HOST}


async def test_what_changes_meanwhile_holds_at_once(stage: Stage, secure: Upstream, authority: Authority) -> None:
    stage.serves("shop", service(secure, authority))
    where = f"{HOST}:{secure.port}"
    client = await entered(stage, secure.port)
    granted, live = stage.group, stage.a.live
    for change, rule in (("grants = []", "not_granted"), (None, "no_turn")):
        await client.send(inner(stage, "/v1", where))
        assert (await client.answer()).status == 200
        stage.group, stage.a.live = (change, live) if change else (granted, None)
        await client.send(inner(stage, "/v1", where))
        assert (await client.answer()).rule == rule
        stage.group, stage.a.live = granted, live
    stage.a.live = Road(Role.NONE, 2)
    await client.send(inner(stage, "/v1", where))
    assert (await client.answer()).rule == "role"


async def test_tokens_inside(stage: Stage, secure: Upstream, authority: Authority) -> None:
    stage.serves("shop", service(secure, authority))
    where = f"{HOST}:{secure.port}"
    client = await entered(stage, secure.port)
    for header, rule in (
        (f"Authorization: Bearer {stage.a.token}", ""),
        (f"Authorization: Bearer {stage.b.token}", "cross_group_token"),
        (f"x-api-key: sk-ant-api03-{stage.a.token}", "placeholder_misuse"),
        (f"X-Note: {stage.a.token}", "placeholder_misuse"),
    ):
        await client.send(inner(stage, "/v1", where, header))
        got = await client.answer()
        assert got.status == 200 if not rule else (got.status, got.rule) == (403, rule)
    assert len(stage.a.alarms) == 3 and len(secure.requests) == 1
    assert stage.a.token.encode() not in secure.received


async def test_a_tunnel_that_does_not_come_about(stage: Stage, secure: Upstream, authority: Authority) -> None:
    stage.serves("shop", service(secure, authority))
    for target, token, status, rule in (
        (f"{HOST}:{secure.port}", "", 403, "no_token"),
        (f"{HOST}:{secure.port}", stage.b.token, 403, "cross_group_token"),
        ("evil.test:443", None, 403, "not_granted"),
        (f"{HOST}:22", None, 403, "port"),
    ):
        got = await stage.ask(target, "Host: x", method="CONNECT", token=token)
        assert (got.status, got.rule) == (status, rule), target
    for target in (f"{HOST}:65536", f"{HOST}:0", HOST, f"{HOST}:443:443", f"u@{HOST}:443", f"{HOST}%00:443"):
        assert (await stage.ask(target, "Host: x", method="CONNECT")).status == 400, target
    count = len(stage.entries())
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await entered(stage, secure.port, "evil.test")
    entry = await stage.entry(count + 1)
    assert (entry["rule"], entry["status"], entry["verdict"]) == ("host_mismatch", 421, "deny")
    assert secure.connections == [] and stage.lookups == []


async def test_a_websocket_inside(stage: Stage, secure: Upstream, authority: Authority) -> None:
    stage.serves("shop", service(secure, authority, "websocket = true"))
    secure.script = websocket()
    client = await entered(stage, secure.port)
    await client.send(inner(stage, "/v1", f"{HOST}:{secure.port}", *HANDSHAKE))
    assert (await client.answer()).status == 101
    socket = Socket(client)
    await socket.send(b"through both")
    assert await socket.receive() == (1, b"through both")
