"""Whose token is shown, and where: anything but the run's own in its place is refused, and nothing of it leaves."""

from __future__ import annotations

import base64
import itertools
import secrets
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.gateway.caller import Road
from clawd.gateway.refusal import Refusal
from clawd.gateway.tokens import Tokens
from clawd.trust import Role

from .conftest import Run, Stage
from .upstream import Upstream

pytestmark = pytest.mark.anyio


def service(upstream: Upstream) -> str:
    return f'base_url = "{upstream.url}"\nallow_private = true\n'


async def test_no_turn_no_road(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))
    stage.a.live = None
    got = await stage.ask("/svc/shop/v1")
    assert (got.status, got.rule) == (403, "no_turn") and stage.a.sentences == []
    client = await stage.dial()
    for role, turn, status in ((Role.MEMBER, 7, 200), (Role.NONE, 8, 403)):  # of one open connection
        stage.a.live = Road(role, turn)
        await client.send(stage.request("/svc/shop/v1"))
        assert (await client.answer()).status == status
        assert stage.entries()[-1]["turn"] == turn
    assert len(upstream.requests) == 1


async def test_whose_token(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))
    dead = "claw-" + secrets.token_urlsafe(32)
    basic = base64.b64encode(f"{stage.a.token}:".encode()).decode()
    for shown in (f"Bearer {stage.a.token}", f"Basic {basic}", stage.a.token):
        assert (await stage.ask("/svc/shop/v1", f"Authorization: {shown}", token="")).status == 200
    assert (await stage.ask("/svc/shop/v1", f"X-Api-Key: {stage.a.token}", token="")).status == 200
    for token in ("", dead, "mine", stage.a.token[:-1]):
        got = await stage.ask("/svc/shop/v1", token=token)
        assert (got.status, got.rule) == (403, "no_token"), token
    assert stage.a.alarms == []
    for caller, headers in ((stage.a, []), (stage.a, [f"X-Api-Key: {stage.a.token}"])):
        got = await stage.ask("/svc/shop/v1", *headers, caller=caller, token=stage.b.token)
        assert (got.status, got.rule) == (403, "cross_group_token")
    entry = stage.entries()[-1]
    assert (entry["group"], entry["run"], entry["rule"]) == ("main", "run-a", "cross_group_token")
    assert len(stage.a.alarms) == 2 and "run-a" in stage.a.alarms[0] and "run-b" in stage.a.alarms[0]
    assert stage.b.token not in str(stage.entries()) + str(stage.a.alarms)
    stage.a.tokens.clear()  # the runs have ended
    assert (await stage.ask("/svc/shop/v1")).rule == "no_token"
    assert len(upstream.requests) == 4 and stage.b.token.encode() not in upstream.received


async def test_a_token_in_another_place_does_not_leave(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))
    own = stage.a.token
    for token, rule in ((own, "placeholder_misuse"), (stage.b.token, "cross_group_token")):
        basic = base64.b64encode(f"x:{token}".encode()).decode()
        for n, (target, headers, body) in enumerate(
            (
                (f"/svc/shop/v1?key={token}", [], b""),
                (f"/svc/shop/v1?key={token.replace('claw', '%63law')}", [], b""),
                (f"/svc/shop/{token}", [], b""),
                ("/svc/shop/v1", [f"X-Note: see {token}"], b""),
                ("/svc/shop/v1", [f"{token}: x"], b""),
                ("/svc/shop/v1", [], b'{"text": "' + token.encode() + b'"}'),
                ("/svc/shop/v1", [], b"claw-claw-" + token.encode()),
            )
        ):
            got = await stage.ask(target, *headers, method="POST", body=body)
            assert (got.status, got.rule) == (403, rule), n
        port = upstream.port
        for header in (f"Authorization: Bearer {token}", f"Authorization: Basic {basic}", f"X-Note: {token}"):
            got = await stage.ask(f"http://shop.test:{port}/", f"Host: shop.test:{port}", header)
            assert (got.status, got.rule) == (403, rule), header
    assert len(stage.a.alarms) == 20 and upstream.requests == []
    assert own not in str(stage.entries()) and stage.b.token not in str(stage.entries())
    dead = b"claw-" + secrets.token_urlsafe(32).encode()
    assert (await stage.ask("/svc/shop/v1", method="POST", body=dead)).status == 200  # only text
    guesses = b" ".join(b"claw-" + secrets.token_urlsafe(32).encode() for _ in range(100))
    assert (await stage.ask("/svc/shop/v1", method="POST", body=guesses)).rule == "placeholder_misuse"
    for header in ("Authorization: ", "X-Note: "):
        got = await stage.ask("/svc/shop/v1", *[header + "claw-" * 1600 for _ in range(7)])
        assert got.rule == "placeholder_misuse"
    assert [request.body for request in upstream.requests] == [dead]


async def test_a_token_across_chunks_breaks_the_upload_off(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", service(upstream))
    start = stage.request("/svc/shop/v1", "Transfer-Encoding: chunked").replace(b"GET", b"POST")
    client = await stage.dial()
    await client.send(start)
    for n in range(0, len(stage.a.token), 5):
        piece = stage.a.token[n : n + 5].encode()
        await client.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    got = await client.answer()
    assert (got.status, got.rule) == (403, "placeholder_misuse")
    assert not any(request.complete for request in upstream.requests) and b"claw" not in upstream.received


async def test_a_vendors_placeholder_is_for_that_vendor(stage: Stage, upstream: Upstream) -> None:
    line = f'base_url = "{upstream.url}"\nallow_private = true\ncredential = "${{env:CANARY}}"\n'
    stage.config = f"[services.anthropic]\n{line}\n[services.shop]\n{line}"
    stage.group = 'grants = ["anthropic", "shop"]'
    placeholder = f"sk-ant-api03-{stage.a.token}"
    got = await stage.ask("/svc/anthropic/v1/messages", f"x-api-key: {placeholder}", token="")
    assert got.status == 200
    assert (await stage.ask("/svc/shop/v1")).status == 200  # the bare token is for each of them
    for target in ("/svc/shop/v1", "/svc/openai/v1/models", "/svc/none/v1"):
        got = await stage.ask(target, f"x-api-key: {placeholder}", token="")
        assert (got.status, got.rule) == (403, "placeholder_misuse"), target
    assert len(stage.a.alarms) == 3 and b"claw-" not in upstream.received and len(upstream.requests) == 2


_PARTS = st.sampled_from([b"claw-", b"c", b"cl", b"law-", b"-", b"A" * 43, b"A" * 20, b" ", b"xyz"])


@given(st.lists(_PARTS, max_size=30), st.integers(1, 60))
def test_what_is_no_living_token_passes_unchanged(parts: list[bytes], size: int) -> None:
    run = Run("r", "g", {})
    tokens, data = Tokens(run), b"".join(parts)
    passed = [tokens.feed(data[n : n + size]) for n in range(0, len(data), size)]
    assert b"".join([*passed, tokens.end()]) == data


@given(st.sampled_from([b"", b"claw-", b"cl", b"claw-AAA", b"x"]), st.lists(st.integers(0, 60), max_size=8))
def test_no_chunking_lets_a_byte_of_a_token_through(before: bytes, ends: list[int]) -> None:
    run = Run("r", "g", {})
    tokens, data = Tokens(run), before + run.token.encode() + b" after"
    at, passed = [0, *sorted(ends), len(data)], b""
    with pytest.raises(Refusal):
        for a, b in itertools.pairwise(at):
            passed += tokens.feed(data[a:b])
        pytest.fail(quote(data))
    assert before.startswith(passed)
