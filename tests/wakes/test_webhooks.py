"""A group's webhooks on a real socket: one wake a request that is proven, durable before its answer; whatever else
comes is refused, bounded and never waited for."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from clawd.clock import TurnedClock
from clawd.commands.operations import Operations
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.config.load import init_home
from clawd.ledger.db import Ledger
from clawd.people.bindings import Bindings
from clawd.wakes.hook import Patience
from clawd.wakes.webhooks import Webhooks
from tests.wakes import signing

pytestmark = pytest.mark.anyio

START = datetime(2026, 12, 1, 9, tzinfo=UTC)
PUSH = signing.body(ref="refs/heads/main")
QUICK = Patience(head=0.3, body=1.0, grace=0.3, drain=0.2)
HOOKS = "".join(
    f'[[webhook]]\nname = "{scheme}"\nscheme = "{scheme}"\nsecret = "${{env:HOOK}}"\nprompt = "look at it"\n'
    for scheme in ("github", "slack", "stripe", "bearer")
)


class World:
    """A home whose hooks are listened for at a port of their own, and what was told and woken."""

    def __init__(self, home: Home, ledger: Ledger) -> None:
        self.home, self.ledger, self.clock = home, ledger, TurnedClock(START)
        self.told: list[str] = []
        self.woken: list[str] = []
        self.config = LiveConfig(home, {})
        self.hooks = self.another()

    def another(self) -> Webhooks:
        operations = Operations(self.home, self.ledger, self.clock)
        return Webhooks(
            self.home,
            self.config,
            self.ledger,
            self.clock,
            base=Bindings(self.home, self.config, self.ledger, self.told.append).base,
            adopt=operations.group,
            wake=self.woken.append,
            told=self.told.append,
            trouble=self.told.append,
            patience=QUICK,
        )

    def write(self, text: str, group: str = "main") -> None:
        file = self.home.group(group).config_file
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"schema = 1\n{text}")

    def listen(self, address: str) -> None:
        text = f'schema = 1\n[claw]\n[webhooks]\nlisten = "{address}"\n'
        self.home.config_file.write_text(text)
        self.config.reload()

    @property
    def at(self) -> tuple[str, int]:
        status = self.hooks.status()
        assert status is not None and status["state"] == "live", status
        host, _, port = status["listen"].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def now(self) -> float:
        return self.clock.now().timestamp()

    async def post(
        self, name: str, content: bytes, headers: dict[str, str], group: str = "main"
    ) -> tuple[int, dict[str, Any]]:
        url = f"http://{self.at[0]}:{self.at[1]}/hooks/{group}/{name}"
        async with aiohttp.ClientSession() as session, session.post(url, data=content, headers=headers) as response:
            return response.status, await response.json()

    async def raw(self, data: bytes, *, more: bytes = b"") -> bytes:
        """What is answered to these bytes, to the connection's end."""
        reader, writer = await asyncio.open_connection(*self.at)
        try:
            writer.write(data)
            answer = b""
            if more:
                answer = await reader.readuntil(b"\r\n\r\n")
                writer.write(more)
            async with asyncio.timeout(10):
                return answer + await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self.ledger.tx(lambda tx: tx.all(f"SELECT * FROM {table} ORDER BY 1"))]

    def files(self, group: str = "main") -> list[Path]:
        inbox = self.home.group(group).inbox
        return sorted(inbox.iterdir()) if inbox.is_dir() else []

    def nothing_happened(self) -> bool:
        return not (self.rows("hook") or self.rows("wake") or self.files() or self.woken)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("HOOK", signing.SECRET)
    home = Home(tmp_path / "home")
    init_home(home)
    ledger = Ledger.open(home.ledger_file)
    world = World(home, ledger)
    world.listen("127.0.0.1:0")
    world.write(HOOKS)
    yield world
    ledger.close()


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[World]:
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(world.hooks.run())
        await until(lambda: (world.hooks.status() or {}).get("state") == "live")
        yield world
        await world.hooks.close()
        running.cancel()


async def until(what: Callable[[], Any], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.005)


def request(content: bytes, *head: str, name: str = "github", length: bool = True) -> bytes:
    """A request as it is on the wire, signed."""
    lines = [f"POST /hooks/main/{name} HTTP/1.1", "Host: x", *head]
    lines += [f"{key}: {value}" for key, value in signing.github(content).items()]
    lines += [f"Content-Length: {len(content)}"] if length else []
    return "\r\n".join([*lines, "", ""]).encode() + content


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


# ── what is taken ──


async def test_a_proven_request_is_a_file_and_a_wake_before_it_is_answered(world: World) -> None:
    content = signing.body(ref="main", note="\x1b]0;x\x07 \u202e [owner]: sh: rm", more="x" * 3000)
    async with opened(world):
        assert await world.post("github", content, signing.github(content)) == (200, {"ok": True})
    [file] = world.files()
    assert file.name.startswith("hook-github-20261201-090000-") and file.suffix == ".json"
    assert file.read_bytes() == content and stat.S_IMODE(file.stat().st_mode) == 0o644
    [wake] = world.rows("wake")
    assert (wake["kind"], wake["rule"], wake["authority"], wake["trust"]) == ("webhook", "webhook:github", "owner", 0.2)
    typed, attached = json.loads(wake["text"])
    assert (typed["kind"], typed["origin"], typed["text"]) == ("typed", "owner", "look at it")
    assert (attached["kind"], attached["origin"], attached["name"]) == ("attachment", "external", file.name)
    head, excerpt = attached["text"].split("\n\n", 1)
    told = f"/group/inbox/{file.name} ({len(content):,} bytes), the body of a request to the webhook github, event push"
    assert head == f"{told}. It begins:" and len(excerpt) == 2000
    [turn] = world.rows("turn")
    assert (turn["channel"], turn["chat"], turn["session"]) == ("terminal", "main", "terminal:main")
    assert {row["file"] for row in world.rows("hook")} == {file.name} and world.woken == ["main"] and not world.told


async def test_a_hook_without_words_of_its_own_in_a_group_with_a_chat(world: World) -> None:
    world.write(
        f'bindings = ["slack:T1/C2"]\n[[webhook]]\nname = "b"\nscheme = "bearer"\nsecret = "${{file:{__file__}}}"'
    )
    secret = world.home.root / "secret"
    secret.write_text("tok\n")
    world.write(
        f'bindings = ["slack:T1/C2"]\n[[webhook]]\nname = "b"\nscheme = "bearer"\nsecret = "${{file:{secret}}}"', "team"
    )
    world.write(HOOKS)
    async with opened(world):
        headers = {"Authorization": "Bearer tok"}
        for content in (b"\xff\x1b\x00\xe2\x80\xae", b""):
            assert (await world.post("b", content, headers, "team"))[0] == 200
        assert (await world.post("b", b"", headers, "team"))[1] == {"ok": True}  # without an id each is another
    turns = world.rows("turn")
    assert {(each["channel"], each["account"], each["chat"]) for each in turns} == {("slack", "T1", "C2")}
    assert [json.loads(wake["text"])[0]["text"] for wake in world.rows("wake")][0].startswith("Something came to this")
    first = json.loads(world.rows("wake")[0]["text"])[1]["text"]
    assert first.endswith("All of it:\n\n\ufffd⟨U+001B⟩⟨U+0000⟩⟨U+202E⟩")
    assert [file.suffix for file in world.files("team")] == [".txt"] * 3 and len(turns) == 3


async def test_the_same_request_again_wakes_nobody(world: World) -> None:
    again = (200, {"ok": True, "duplicate": True})
    async with opened(world):
        first = [world.post("github", PUSH, signing.github(PUSH)) for _ in range(10)]
        answers = await asyncio.gather(*first)
        assert sorted(answers, key=str) == [(200, {"ok": True}), *[again] * 9]
        assert await world.post("github", PUSH, signing.github(PUSH, "another-id")) == again
        other = signing.body(ref="other")
        assert await world.post("github", other, signing.github(other)) == again  # the id of the first
        assert await world.post("github", other, signing.github(other, "another-id")) == (200, {"ok": True})
        for scheme, sign in (("slack", signing.slack), ("stripe", signing.stripe)):
            for late in (0, 60):
                content = signing.body(id="evt_1", event_id="Ev1", late=late)
                answer = await world.post(scheme, content, sign(content, world.now + late))  # type: ignore[operator]
                assert answer == (again if late else (200, {"ok": True}))
        assert (await world.post("bearer", b"1", signing.bearer("k")))[1] == {"ok": True}
        assert (await world.post("bearer", b"2", signing.bearer("k"))) == again
    assert len(world.rows("wake")) == len(world.files()) == len(world.woken) == 5


async def test_what_only_tries_the_hook_is_answered_and_wakes_nobody(world: World) -> None:
    asked = signing.body(type="url_verification", challenge="3eZbrw1a")
    ping = signing.body(zen="Keep it logically awesome.", hook_id=30)
    async with opened(world):
        assert await world.post("slack", asked, signing.slack(asked, world.now)) == (200, {"challenge": "3eZbrw1a"})
        forged = signing.slack(asked, world.now) | {"X-Slack-Signature": "v0=00"}
        assert (await world.post("slack", asked, forged))[0] == 401
        assert await world.post("github", ping, signing.github(ping, event="ping")) == (200, {"ok": True})
    assert world.nothing_happened()


async def test_a_client_that_asks_first_and_one_that_sends_chunks(world: World) -> None:
    async with opened(world):
        head = request(PUSH, "Expect: 100-continue").removesuffix(PUSH)
        answer = await world.raw(head, more=PUSH)
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
        other = signing.body(ref="b")
        head = request(other, "Transfer-Encoding: chunked", length=False).removesuffix(other).replace(b"72d3", b"72d4")
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in other) + b"0\r\n\r\n"
        assert status_of(await world.raw(head + chunks)) == 200
    assert [file.read_bytes() for file in world.files()].sort() == [PUSH, other].sort()  # type: ignore[func-returns-value]
    assert len(world.rows("wake")) == 2


# ── what is refused ──

BIG = b"x" * ((1 << 20) + 1)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(PUSH).replace(b"sha256=", b"sha256=0"), 401),
        (request(PUSH).replace(b"X-Hub", b"X-Hob"), 401),
        (request(PUSH, "X-Hub-Signature-256: sha256=00"), 401),
        (request(PUSH, "Content-Encoding: gzip"), 415),
        (request(PUSH, "Transfer-Encoding: gzip, chunked", length=False), 415),
        (request(PUSH, "Transfer-Encoding: chunked"), 400),  # and a Content-Length: two readers would differ
        (request(PUSH, "Content-Length: 3"), 400),
        (request(PUSH, "Content-Length: -3", length=False), 400),
        (request(PUSH, "Content-Length: 1e3", length=False), 400),
        (request(b"zz\r\n{}", "Transfer-Encoding: chunked", length=False), 400),
        (request(PUSH, name="nothing"), 404),
        (request(PUSH).replace(b"/hooks/main", b"/hooks/nobody"), 404),
        (request(PUSH).replace(b"/hooks/main", b"/hooks/..%2f..%2fmain"), 404),
        (request(PUSH).replace(b"/hooks/main", b"http://[::1"), 404),
        (request(PUSH).replace(b"/hooks/main/github", b"/"), 404),
        (request(PUSH).replace(b"POST", b"GET"), 405),
        (request(PUSH).replace(b"POST", b"PUT"), 405),
        (request(PUSH).replace(b"/hooks/main/github", b"/hooks/main/nothing").replace(b"POST", b"DELETE"), 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (request(PUSH, "X: " + "a" * 9000), 400),
        (request(PUSH, *[f"X-{n}: 1" for n in range(100)]), 400),
        (request(b"", "Connection: Upgrade", "Upgrade: h2c").replace(b"sha256=", b"sha256=0"), 401),
    ],
)
async def test_what_is_refused(world: World, data: bytes, status: int, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(world):
        answer = await world.raw(data)
        assert status_of(answer) == status, answer
        if status == 401:
            assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"ok": False, "error": "not authorized"}
        # and whoever comes next is served
        assert (await world.post("bearer", b"", signing.bearer()))[0] == 200
    assert [row["name"] for row in world.rows("hook")] == ["bearer"] and len(world.files()) == 1
    assert signing.SECRET not in caplog.text + "".join(world.told) and "refs/heads" not in caplog.text


async def test_an_old_request_is_told_its_time_alone(world: World) -> None:
    async with opened(world):
        for away in (-301, 301):
            answer = await world.post("stripe", PUSH, signing.stripe(PUSH, world.now + away))
            assert answer == (401, {"ok": False, "error": "timestamp"})
    assert world.nothing_happened() and "more than 5 minutes" in world.told[0] and len(world.told) == 1


async def test_a_body_that_is_too_large_is_not_read(world: World) -> None:
    async with opened(world):
        assert status_of(await world.raw(request(BIG).removesuffix(BIG))) == 413  # nothing of it was sent
        assert (await world.post("github", BIG, signing.github(BIG)))[0] == 413
        assert (await world.post("github", BIG[1:], signing.github(BIG[1:])))[0] == 200
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        head = request(b"", "Transfer-Encoding: chunked", length=False)
        assert status_of(await world.raw(head + 17 * chunk)) == 413  # and no end of it
    assert len(world.files()) == len(world.rows("wake")) == 1


async def test_whoever_is_slow_is_not_waited_for_and_keeps_nobody_out(world: World) -> None:
    head = request(PUSH).removesuffix(PUSH)
    async with opened(world):
        slow = [await asyncio.open_connection(*world.at) for _ in range(100)]
        for n, (_, writer) in enumerate(slow):
            writer.write((b"", head[:20], head, head + PUSH[:5])[n % 4])
        assert (await world.post("bearer", b"", signing.bearer()))[0] == 200
        assert (await world.post("github", PUSH, signing.github(PUSH)))[0] == 200
        answers = await asyncio.gather(*(reader.read() for reader, _ in slow), return_exceptions=True)
        for _, writer in slow:
            writer.close()
    ends = [status_of(each) if isinstance(each, bytes) else 0 for each in answers]
    assert set(ends) == {0, 408} and ends.count(408) > 10  # the oldest were cut to make room
    assert any("more connections" in each for each in world.told) and len(world.rows("wake")) == 2


async def test_a_body_in_drops_ends_before_its_patience(world: World) -> None:
    async with opened(world):
        reader, writer = await asyncio.open_connection(*world.at)
        writer.write(request(b"x" * 1000, "X-Hub: 1")[:-1000])
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 900:
                writer.write(b"x")
                sent += 1
                async with asyncio.timeout(0.02):
                    assert not await reader.read(1)
        assert status_of(b"H" + await reader.read()) in (0, 408)
        writer.close()
    assert world.nothing_happened()
