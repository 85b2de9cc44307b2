"""How much and how long: a limit is never passed, not by a burst and not by a byte, and who waits is told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from clawd.clock import TurnedClock
from clawd.config.schema import ServiceLimits
from clawd.gateway.caller import Road
from clawd.gateway.limits import Counts, Deadline
from clawd.gateway.refusal import Refusal
from clawd.trust import Role

from .conftest import Stage, until
from .upstream import Recorded, Script, Upstream, Wire, answer, chunked, endless, head, silent

pytestmark = pytest.mark.anyio


def limited(upstream: Upstream, limits: str) -> str:
    return f'base_url = "{upstream.url}"\nallow_private = true\nmethods = ["GET", "POST"]\nlimits = {{{limits}}}'


def refused(counts: Counts, limits: ServiceLimits, group: str = "g", turn: int | None = 1) -> Refusal | None:
    try:
        counts.take(group, "s", "r", turn, limits)
    except Refusal as refusal:
        return refusal
    return None


def test_a_rate_slides() -> None:
    clock = TurnedClock(datetime(2026, 1, 1, tzinfo=UTC))
    counts, limits = Counts(clock), ServiceLimits(requests_per_minute=3)
    for _ in range(3):
        assert refused(counts, limits) is None
        clock.advance(10)
    refusal = refused(counts, limits)
    assert refusal is not None and (refusal.status, refusal.retry_after) == (429, 30)
    assert refused(counts, limits, "other") is None  # each group has its own
    clock.advance(29.5)
    assert (late := refused(counts, limits)) is not None and late.retry_after == 1
    clock.advance(0.5)
    assert refused(counts, limits) is None and refused(counts, limits) is not None
    assert refused(counts, ServiceLimits(requests_per_minute=1)) is not None  # a limit that was lowered meanwhile


def test_a_turn_has_its_own_sums() -> None:
    clock = TurnedClock(datetime(2026, 1, 1, tzinfo=UTC))
    counts, limits = Counts(clock), ServiceLimits(requests_per_turn=2)
    for turn in (1, 2, 1, 2):
        assert refused(counts, limits, turn=turn) is None
    for turn in (1, 2):
        refusal = refused(counts, limits, turn=turn)
        assert refusal is not None and (refusal.rule, refusal.status) == ("turn_requests", 403)
    assert [refused(counts, limits, turn=None) is None for _ in range(3)] == [True, True, False]
    clock.advance(601)  # what no single turn sent is forgotten
    assert refused(counts, limits, turn=None) is None and refused(counts, limits, turn=1) is not None


async def test_a_burst_is_never_over_its_limit(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", limited(upstream, "requests_per_minute = 10"))
    assert [(await stage.ask("/svc/shop/v1")).status for _ in range(9)] == [200] * 9
    got = await asyncio.gather(*[stage.ask("/svc/shop/v1") for _ in range(50)])
    assert sorted(each.status for each in got) == [200] + [429] * 49
    assert all(0 < int(each.values("retry-after")[0]) <= 60 for each in got if each.status == 429)
    assert len(upstream.requests) == 10


async def test_a_turns_bytes(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", limited(upstream, "bytes_per_turn = 1000"))
    upstream.script = answer(b"x" * 400)
    assert [(await stage.ask("/svc/shop/v1")).status for _ in range(2)] == [200, 200]
    got = await stage.ask("/svc/shop/v1")
    assert (got.status, got.rule) == (403, "turn_bytes") and b"xxx" not in got.raw
    upstream.script = answer(b"x" * 200)
    assert (await stage.ask("/svc/shop/v1")).status == 200  # exactly
    count = len(upstream.requests)
    assert (await stage.ask("/svc/shop/v1")).rule == "turn_bytes" and len(upstream.requests) == count
    stage.a.live = Road(Role.OWNER, 2)
    upstream.script = endless(1 << 20)
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1"))
    with pytest.raises((asyncio.IncompleteReadError, AssertionError)):
        assert (await client.answer()).status == 200
    assert sum(entry["bytes_out"] for entry in stage.entries() if entry["turn"] == 2) <= 1000


async def test_the_size_of_a_request(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", limited(upstream, "request_bytes = 100000"))
    assert (await stage.ask("/svc/shop/v1", method="POST", body=b"x" * 100_000)).status == 200
    got = await stage.ask("/svc/shop/v1", method="POST", body=b"x" * 100_001)
    assert (got.status, got.rule) == (413, "too_large") and len(upstream.requests) == 1
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1", "Transfer-Encoding: chunked").replace(b"GET", b"POST"))
    for _ in range(11):
        await client.send(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
    assert (await client.answer()).rule == "too_large"
    assert [request.complete for request in upstream.requests].count(True) == 1


async def test_the_size_of_an_answer(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", limited(upstream, "response_bytes = 100"))
    upstream.script = answer(b"x" * 100)
    assert (await stage.ask("/svc/shop/v1")).status == 200
    upstream.script = answer(b"x" * 101)
    got = await stage.ask("/svc/shop/v1")
    assert (got.status, got.rule) == (502, "response_bytes")
    upstream.script = chunked(b"x" * 60, b"x" * 60)
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1"))
    try:
        assert (await client.answer()).rule == "response_bytes"
    except asyncio.IncompleteReadError as broken:
        assert len(broken.partial) <= 100
    entry = await stage.entry(3)
    assert entry["rule"] == "response_bytes" and entry["bytes_out"] <= 100


async def test_an_upstream_that_says_nothing_is_given_up(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", limited(upstream, "idle_s = 1"))
    upstream.scripts = {"/silent": silent(), "/half": held_back()}
    got = await stage.ask("/svc/shop/silent")
    assert (got.status, got.rule) == (502, "upstream_timeout")
    with pytest.raises(asyncio.IncompleteReadError):
        await stage.ask("/svc/shop/half")
    entry = await stage.entry(2)
    assert (entry["rule"], entry["status"]) == ("upstream_timeout", 200)
    for connection in upstream.connections:
        assert await asyncio.to_thread(connection.ended.wait, 5)


def held_back() -> Script:
    def script(request: Recorded, wire: Wire) -> None:
        wire.send(head(200, [("Content-Length", "9")]) + b"half")
        silent()(request, wire)

    return script


async def test_a_slow_body_and_a_reader_that_does_not_read(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", limited(upstream, "idle_s = 1"))
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1", "Content-Length: 10").replace(b"GET", b"POST") + b"x")
    got = await client.answer()
    assert (got.status, got.rule) == (408, "too_slow") and upstream.connections == []
    upstream.script = endless(1 << 30)
    client = await stage.dial()
    client.writer.transport.pause_reading()
    await client.send(stage.request("/svc/shop/v1"))
    await until(lambda: upstream.connections)
    assert await asyncio.to_thread(upstream.connections[0].ended.wait, 10)
    assert (await stage.entry(2))["rule"] == "upstream_timeout"


async def test_all_of_an_answer_has_a_deadline(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", limited(upstream, "total_s = 1"))

    def drip(request: Recorded, wire: Wire) -> None:
        wire.send(head(200))
        while not wire.wait_gone(0.05):
            wire.send(b"x")

    upstream.script = drip
    client = await stage.dial()
    await client.send(stage.request("/svc/shop/v1"))
    await until(stage.entries, 10)
    assert (await stage.entry())["rule"] == "upstream_timeout"


async def test_a_deadline_is_no_cancellation() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01, 60):
        await asyncio.sleep(60)
    with Deadline(60, 60):
        await asyncio.sleep(0)
    task = asyncio.get_running_loop().create_task(held())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def held() -> None:
    with Deadline(60, 60):
        await asyncio.sleep(60)
