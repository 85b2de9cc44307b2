"""Model calls through the gateway: reserved before they are sent, settled from the answer, and never over a limit."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from clawd import faults
from clawd.clock import rfc3339
from clawd.gateway import metering
from clawd.gateway.caller import Road
from clawd.ledger import groups, money, turns
from clawd.ledger.db import Transaction
from clawd.trust import Role

from .conftest import CANARY, Answer, Stage, staged, until
from .test_answers import CHAT, MESSAGES, OLLAMA, RESPONSES
from .upstream import Script, Upstream, answer, chunked, silent, sse

pytestmark = pytest.mark.anyio

USAGE = {"input_tokens": 100, "output_tokens": 42}
REPLY = answer(json.dumps({"content": [], "usage": USAGE}).encode(), 200, [("Content-Type", "application/json")])
BODY = {"model": "claude-sonnet-4-6", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}
NANOS = 100 * 3000 + 42 * 15_000


@pytest.fixture
async def stage(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setenv("CANARY", CANARY)
    async with staged(counts=True) as made:
        yield made


def serve(stage: Stage, upstream: Upstream, budget: str = "", more: str = "", limits: str = "") -> None:
    """`main` has a model at `anthropic`; its group.toml also says `budget`."""
    stage.config = (
        f'[services.anthropic]\nbase_url = "{upstream.url}"\nallow_private = true\ncredential = "${{env:CANARY}}"\n'
        f"paths = []\n[services.anthropic.limits]\n{limits}\n{more}"
    )
    stage.group = f'grants = ["anthropic"]\n[model]\nengine = "messages"\n[budget]\n{budget}\n'


def body(**more: Any) -> bytes:
    return json.dumps({**BODY, **more}).encode()


async def call(stage: Stage, *headers: str, path: str = "/v1/messages", data: bytes | None = None) -> Answer:
    return await stage.ask(f"/svc/anthropic{path}", *headers, method="POST", body=body() if data is None else data)


def events(stream: bytes) -> Script:
    return chunked(stream, headers=[("Content-Type", "text/event-stream")])


async def test_a_call_is_entered_with_what_it_used(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream)
    upstream.script = REPLY
    stage.a.sessions = {"terminal:main": 7}
    got = await call(stage, "X-Clawd-Session: terminal:main")
    assert got.status == 200
    row = await stage.row()
    assert (row["grp"], row["service"], row["turn"], row["model"]) == ("main", "anthropic", 7, "claude-sonnet-4-6")
    assert (row["state"], row["input"], row["output"], row["tokens"]) == ("settled", 100, 42, 142)
    assert (row["nanos"], row["estimated"]) == (NANOS, 0)
    entry = await stage.entry()
    assert (entry["tokens"], entry["usd"]) == (142, NANOS / 1e9)
    assert upstream.requests[0].values("x-clawd-session") == [] and upstream.requests[0].body == body()
    stage.a.live = Road(Role.OWNER, None)
    await call(stage, "X-Clawd-Session: somebody:else")
    assert (await stage.row(2))["turn"] is None
    assert stage.a.spendings == [(7, None), (None, None)] and stage.a.taints == []


@pytest.mark.parametrize(
    ("path", "script", "used"),
    [
        ("/v1/messages", events(MESSAGES), (100, 42, 30)),
        ("/v1/chat/completions", events(CHAT), (100, 42, 30)),
        ("/v1/responses", events(RESPONSES), (100, 42, 30)),
        ("/api/chat", chunked(OLLAMA, headers=[("Content-Type", "application/x-ndjson")]), (100, 42, 0)),
        ("/v1/embeddings", answer(b'{"data": [], "usage": {"prompt_tokens": 100}}'), (100, 0, 0)),
    ],
)
async def test_every_dialect_is_read_and_passed_on_as_it_is(
    stage: Stage, upstream: Upstream, path: str, script: Script, used: tuple[int, ...]
) -> None:
    serve(stage, upstream)
    upstream.script = script
    got = await call(stage, path=path)
    row = await stage.row()
    assert (row["input"], row["output"], row["cached"], row["estimated"]) == (*used, 0)
    if path == "/v1/messages":
        assert got.body == MESSAGES


async def test_what_is_no_model_call_leaves_no_row(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream, "usd_per_day = 0.0")
    assert (await stage.ask("/svc/anthropic/v1/messages")).status == 200  # a GET
    assert (await call(stage, path="/v1/messages/count_tokens")).status == 200
    assert (await call(stage, path="/v1/models")).status == 200
    assert stage.rows() == []


async def test_fifty_at_once_never_pass_the_limit(stage: Stage, upstream: Upstream) -> None:
    size = len(body()) + 1024 + 50
    serve(stage, upstream, f"tokens_per_day = {size * 3 + 200}")
    gate = threading.Semaphore(0)
    upstream.script = chunked(b"", MESSAGES, headers=[("Content-Type", "text/event-stream")], gate=gate)
    asking = [asyncio.create_task(call(stage)) for _ in range(50)]
    await until(lambda: sum(task.done() for task in asking) == 47)
    assert len(upstream.requests) == 3
    gate.release(3)
    got = await asyncio.gather(*asking)
    assert Counter(each.status for each in got) == {200: 3, 403: 47}
    refused = next(each for each in got if each.status == 403)
    said = json.loads(refused.body)
    assert said["rule"] == said["error"] == "budget" and said["hint"] == "clawd budget raise main --tokens N --for day"
    assert "under way" in said["message"] and "it opens again at " in said["message"]
    await stage.row(3)
    assert stage.ledger is not None
    used = await stage.ledger.do(lambda tx: money.used(tx, group="main"))
    assert (used.tokens, used.reserved_tokens) == (3 * 142, 0)
    spendings = [reason for _, reason in stage.a.spendings]
    assert sum(reason is not None for reason in spendings) == 47
    upstream.script = REPLY
    assert (await call(stage)).status == 200  # what was not used is there again


async def test_a_spent_budget_refuses_before_the_call_and_opens_the_next_day(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream, "usd_per_day = 0.008\nusd_per_month = 100.0")
    upstream.script = REPLY
    for _ in range(5):
        await call(stage)
    asked = len(upstream.requests)
    got = await call(stage)
    assert (got.status, got.rule) == (403, "budget") and len(upstream.requests) == asked
    entry = (await stage.entry(6))["verdict"], stage.entries()[-1]["rule"], stage.entries()[-1]["tokens"]
    assert entry == ("deny", "budget", None)
    turn, spent = stage.a.spendings[-1]
    assert turn == 1 and spent is not None and "budget of group main is spent" in str(spent)
    assert stage.a.sentences == []  # its turn tells of it
    stage.clock.ahead = 86400
    assert (await call(stage)).status == 200


async def test_a_run_that_has_spent_its_own_budget_is_not_held(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream, "usd_per_day = 100.0")
    now = rfc3339(stage.clock.now())

    def queue(tx: Transaction) -> None:
        groups.add(tx, "main", now)
        session = groups.open_session(tx, "terminal:main", "main", now).id
        place = {"grp": "main", "session": session, **dict.fromkeys(("channel", "account", "chat", "thread"), "")}
        assert turns.queue(tx, place, Role.OWNER, 1.0, now, allowance='{"usd": 0.000001}') == 1

    assert stage.ledger is not None
    stage.ledger.tx(queue)
    got = await call(stage)
    assert (got.status, got.rule) == (403, "budget") and b"the budget of this run" in got.body
    assert stage.a.spendings == [] and not upstream.requests


async def test_what_a_service_may_cost_counts_over_all_groups(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream, limits="tokens_per_day = 2000")
    upstream.script = REPLY
    for caller in (stage.a, stage.b, stage.a, stage.b, stage.a, stage.b, stage.a):
        token = caller.token
        got = await stage.ask("/svc/anthropic/v1/messages", method="POST", body=body(), caller=caller, token=token)
    assert got.rule == "budget" and "service anthropic" in json.loads(got.body)["message"]
    assert {row["grp"] for row in stage.rows()} == {"main", "other"}


async def test_an_unknown_price_is_refused_where_dollars_are_limited(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream, "usd_per_day = 5.0")
    upstream.script = REPLY
    dearer = body(models=["claude-opus-4-5"])
    twice = (body()[:-1] + b', "model": "claude-haiku-4-5"}', body()[:-1] + b', "MODEL": "claude-haiku-4-5"}')
    for data in (body(model="llama3"), body(service_tier="priority"), b"{", dearer, *twice):
        got = await call(stage, data=data)
        assert (got.status, got.rule) == (403, "price")
    assert '[prices."llama3"]' in json.loads((await call(stage, data=body(model="llama3"))).body)["hint"]
    assert upstream.requests == [] and stage.rows() == [] and stage.a.spendings == []
    serve(stage, upstream, "usd_per_day = 5.0", "[prices.llama3]\ninput = 1\noutput = 2\n")
    assert (await call(stage, data=body(model="llama3"))).status == 200
    assert (await stage.row())["nanos"] == 184_000
    serve(stage, upstream, "tokens_per_day = 100000")
    assert (await call(stage, data=body(model="gpt-x"))).status == 200
    assert (await stage.row(2))["nanos"] is None and (await stage.entry(9))["usd"] is None


async def test_model_calls_of_a_minute_are_counted_beside_the_services_own(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream, "requests_per_minute = 2")
    got = [await call(stage) for _ in range(3)]
    assert [each.status for each in got] == [200, 200, 429]
    assert 0 < int(got[2].values("retry-after")[0]) <= 60 and got[2].rule == "rate"
    assert (await stage.ask("/svc/anthropic/v1/models")).status == 200


@pytest.mark.parametrize("status", [301, 400, 401, 429, 500, 529])
async def test_what_was_not_answered_is_given_back(stage: Stage, upstream: Upstream, status: int) -> None:
    serve(stage, upstream)
    upstream.script = answer(b'{"error": {}, "usage": {"input_tokens": 9, "output_tokens": 9}}', status)
    assert (await call(stage)).status == status
    row = await stage.row()
    assert (row["state"], row["tokens"], row["nanos"]) == ("released", 0, 0)


async def test_what_did_not_leave_is_given_back_and_what_may_have_counts(stage: Stage, upstream: Upstream) -> None:
    gone = Upstream()
    gone.close()
    serve(stage, gone)
    assert (await call(stage)).rule == "upstream"
    assert (await stage.row())["state"] == "released"
    serve(stage, upstream)
    stage.config = stage.config.replace("127.0.0.1", "inside.test").replace("allow_private = true\n", "")
    stage.config = stage.config.replace("http://", "https://")
    stage.names["inside.test"] = ["10.0.0.7"]
    assert (await call(stage)).rule == "address_not_allowed"
    assert (await stage.row(2))["state"] == "released"
    serve(stage, upstream)
    upstream.script = lambda request, wire: wire.cut()
    assert (await call(stage)).status == 502
    row = await stage.row(3)
    assert (row["state"], row["tokens"], row["estimated"]) == ("assumed", len(body()) + 1024 + 50, 1)
    upstream.script = silent()
    client = await stage.dial()
    await client.send(stage.request("/svc/anthropic/v1/messages", method="POST", body=body()))
    await until(lambda: len(upstream.requests) == 2)
    client.abort()
    assert (await stage.row(4))["state"] == "assumed"
    assert stage.ledger is not None
    busy, free = threading.Event(), threading.Event()
    ledger = asyncio.ensure_future(stage.ledger.do(lambda tx: busy.set() or free.wait(60)))
    await until(busy.is_set)
    client = await stage.dial()
    await client.send(stage.request("/svc/anthropic/v1/messages", method="POST", body=body()))
    await until(lambda: stage.ledger._waiting.qsize() > 0)  # its row is about to be made
    client.abort()
    await until(lambda: len(stage.entries()) == 5)
    free.set()
    assert await ledger and (await stage.row(5))["state"] == "released"


async def test_a_stream_that_is_cut_or_left_counts_with_what_is_known(
    stage: Stage, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with what it may have thought meanwhile; what is no stream was written whole."""
    serve(stage, upstream)
    now = [7.0]
    monkeypatch.setattr(stage.clock, "monotonic", lambda: now[0])
    start = json.dumps({"type": "message_start", "message": {"usage": {"input_tokens": 77, "output_tokens": 1}}})
    delta = json.dumps({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 30}})
    upstream.script = sse(start.encode(), delta.encode(), cut=True)
    with pytest.raises(asyncio.IncompleteReadError):
        await call(stage)
    row = await stage.row()
    assert (row["state"], row["input"], row["output"], row["estimated"]) == ("settled", 77, 10, 1)
    gate = threading.Semaphore(0)
    upstream.script = sse(start.encode(), delta.encode(), delta.encode(), gate=gate)
    client = await stage.dial()
    await client.send(stage.request("/svc/anthropic/v1/messages", method="POST", body=body()))
    gate.release()
    await client.until(b"xxx")
    client.abort()
    row = await stage.row(2)
    assert (row["state"], row["input"], row["output"], row["estimated"]) == ("settled", 77, 10, 1)
    assert {entry["tokens"] for entry in stage.entries()} == {87}
    for n, (script, kind) in enumerate(((sse, "text/event-stream"), (chunked, "application/json"))):
        head = {"headers": [("Content-Type", kind)]} if kind == "application/json" else {}
        upstream.script = script(start.encode(), b"", gate=threading.Semaphore(0), **head)
        client = await stage.dial()
        await client.send(stage.request("/svc/anthropic/v1/messages", method="POST", body=body(max_tokens=1000)))
        await client.until(b"message_start")
        now[0] += 3.5
        client.abort()
        row = await stage.row(3 + n)
        assert (row["state"], row["output"], row["estimated"]) == ("settled", (300, 1000)[n], 1)


async def test_a_call_is_settled_before_its_end_is_passed_on(stage: Stage, upstream: Upstream) -> None:
    """What the sandbox does next is after it: a turn that ends at once has its usage."""
    serve(stage, upstream)
    gate = threading.Semaphore(0)
    upstream.script = sse(*(line[6:] for line in MESSAGES.splitlines() if line.startswith(b"data: ")), b"{}", gate=gate)
    client = await stage.dial()
    await client.send(stage.request("/svc/anthropic/v1/messages", method="POST", body=body()))
    gate.release(4)
    await client.until(b"message_stop")
    assert stage.ledger is not None
    state = await stage.ledger.do(lambda tx: [row["state"] for row in tx.all("SELECT state FROM reservation")])
    assert state == ["settled"]
    gate.release(9)


async def test_a_large_request_is_held_bounded_and_arrives_whole(
    stage: Stage, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(stage, upstream)
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 600_000}}
    data = body(messages=[{"role": "user", "content": [picture]}])
    most = 0

    def look(request: Any, wire: Any) -> None:
        nonlocal most
        most = max(most, metering.AT_ONCE - stage.gateway._metering.large._value)  # type: ignore[union-attr]
        REPLY(request, wire)

    upstream.script = look
    asked = stage.request("/svc/anthropic/v1/messages", method="POST", body=data)
    chunks = asked.replace(f"Content-Length: {len(data)}".encode(), b"Transfer-Encoding: chunked")[: -len(data)]
    clients = [await stage.dial() for _ in range(6)]
    whole = (asked, chunks + b"%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n")
    await asyncio.gather(*(client.send(whole[n % 2]) for n, client in enumerate(clients)))
    got = await asyncio.gather(*(client.answer() for client in clients))
    assert [each.status for each in got] == [200] * 6 and most <= metering.AT_ONCE
    assert all(request.body == data for request in upstream.requests)
    assert {request.values("content-length")[0] for request in upstream.requests} == {str(len(data))}
    await stage.row(6)
    monkeypatch.setattr(metering, "MOST_BODY", 1 << 20)
    for sent in whole:
        client = await stage.dial()
        await client.send(sent[: 3 << 19])
        assert (await client.answer()).rule == "too_large"
    assert len(stage.rows()) == 6


async def test_what_cannot_be_counted_is_refused(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream, more="")
    assert (await call(stage, path="/v1/messages/batches")).status == 200  # nothing is limited
    got = await call(stage, "Content-Encoding: gzip")
    assert (got.status, got.rule) == (403, "uncounted")
    assert (await call(stage, data=body(n=10**30, max_tokens=1e300))).status == 200
    assert (await stage.row(1))["state"] == "settled"
    serve(stage, upstream, "tokens_per_month = 100000")
    for path in ("/v1/messages/batches", "/v2/chat", "/completion"):
        assert (await call(stage, path=path)).rule == "uncounted", path
    for more in ({"background": True}, {"Background": True}, {"tools": [{"type": "web_search_20250305", "name": "w"}]}):
        assert (await call(stage, path="/v1/responses", data=body(**more))).rule == "uncounted", more
    assert (await call(stage, path="/v1/files")).status == 200
    stage.config = stage.config.replace("paths = []", "paths = []\nwebsocket = true")
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg=="
    for path in ("/v1/responses", "/v1/realtime"):
        assert (await stage.ask(f"/svc/anthropic{path}", *upgrade, key)).rule == "uncounted"


async def test_a_job_reaches_its_model_alone(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream, more=f'[services.shop]\nbase_url = "{upstream.url}"\nallow_private = true\n')
    stage.group = stage.group.replace('["anthropic"]', '["anthropic", "shop"]')
    upstream.script = REPLY
    stage.a.live = Road(Role.OWNER, 1, jobs=True)
    assert (await call(stage)).status == 200
    assert (await stage.ask("/svc/shop/x")).rule == "job"
    stage.a.live = Road(Role.OWNER, 1)
    assert (await stage.ask("/svc/shop/x")).status == 200


async def test_a_fallbacks_service_is_the_models_own(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream, more=f'[services.local]\nbase_url = "{upstream.url}"\nallow_private = true\n')
    stage.group = stage.group.replace('["anthropic"]', '["local"]').replace(
        'engine = "messages"', 'engine = "messages"\nfallbacks = ["local/llama3"]'
    )
    upstream.script = REPLY
    stage.a.live = Road(Role.MEMBER, 1)
    got = await stage.ask("/svc/local/messages", method="POST", body=body(model="llama3"))
    assert got.status == 200 and stage.a.taints == [] and (await stage.row())["service"] == "local"


async def test_a_crash_between_reserve_and_settle_counts_what_was_reserved(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream)
    faults.load("raise@reserved")
    try:
        assert (await call(stage)).status == 500
    finally:
        faults.load(None)
    assert (await stage.row())["state"] == "assumed" and upstream.requests == []
    assert stage.ledger is not None and stage.books is not None
    day = stage.books.period("main").day
    await stage.ledger.do(
        lambda tx: money.reserve(
            tx,
            group="main",
            service="anthropic",
            turn=None,
            model="m",
            day=day,
            month=day[:7],
            input=700,
            output=30,
            nanos=5,
            now=rfc3339(stage.clock.now()),
        )
    )
    await stage.books.open()
    row = stage.rows()[-1]
    assert (row["state"], row["input"], row["output"], row["nanos"], row["estimated"]) == ("assumed", 700, 30, 5, 1)


async def test_an_answer_without_end_is_passed_on_as_it_comes(stage: Stage, upstream: Upstream) -> None:
    serve(stage, upstream)
    gate = threading.Semaphore(0)
    upstream.script = sse(b'{"a": 1}', b'{"b": 2}', gate=gate)
    client = await stage.dial()
    await client.send(stage.request("/svc/anthropic/v1/messages", method="POST", body=body()))
    await client.until(b'"a"')  # before the rest is written
    gate.release(9)
    await client.until(b'"b"')
    assert (await stage.row())["estimated"] == 1
