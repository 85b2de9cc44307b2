"""The daemon is killed in the middle of every kind of request: what left has its line, once, and all goes on."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.upstream import Authority, Gone, Recorded, Upstream, Wire, answer, chunk, head, websocket
from tests.system.conftest import BOTH, Home, until

KEEP = {"CLAWD_SANDBOX__KEEP": "true"}
KEY = "sk-the-real-one-of-tool"
POINTS = ("replacing-authority.pem", "let_through", "tainted", "written")
KINDS = ("stream", "upload", "idle", "busy", "talk")


class Stage:
    """A home whose group may use `tool` and, in tunnels, `secure`; each kind of answer stands still until it is let
    `go`."""

    def __init__(self, home: Home) -> None:
        self.home, self.going = home, {kind: threading.Event() for kind in KINDS}
        authority = self.authority = Authority()
        self.upstreams = Upstream(self.script), Upstream(self.script, tls=authority.context("127.0.0.1"))
        plain, secure = self.upstreams
        key = home.root.parent / "key"
        key.write_text(KEY)
        more = f'allow_private = true\ncredential = "${{file:{key}}}"\n'
        home.configure(
            more=f'[services.tool]\nbase_url = "{plain.url}"\nwebsocket = true\n{more}'
            f'[services.secure]\nhosts = ["127.0.0.1:{secure.port}"]\nca = "{authority.pem}"\n{more}'
        )
        group = home.layout.group("main")
        group.inbox.mkdir(parents=True)
        group.config_file.write_text('grants = ["tool", "secure"]\n')
        (group.inbox / "again.py").write_text((Path(__file__).parent / "hostile/again.py").read_text())
        (group.inbox / "again.py").chmod(0o644)
        self.work = group.work

    def script(self, request: Recorded, wire: Wire) -> None:
        kind = request.path.split("/")[1]
        if kind == "talk":
            return websocket()(request, wire)
        if kind in ("stream", "busy"):
            wire.send(head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"o"))
            while not self.going[kind].is_set():
                if wire.wait_gone(0.02):
                    raise Gone
            return wire.send(chunk(b"k") + b"0\r\n\r\n")
        return answer(b"ok")(request, wire)

    def asks(self, *, every: bool) -> str:
        """A turn that asks for `get`, and then for each other kind at a time."""
        ask = f"SECURE=127.0.0.1:{self.upstreams[1].port} python3 /group/inbox/again.py"
        return f"sh:{ask} get" + (f"; for kind in {' '.join(KINDS)}; do {ask} $kind & done; wait" if every else "")

    def let_go(self, kind: str) -> None:
        self.going[kind].set()
        (self.work / kind).touch()

    def arrived(self, kind: str = "") -> list[str]:
        """The paths of the requests that upstreams received."""
        paths = [each.path for upstream in self.upstreams for each in upstream.requests]
        return [path for path in paths if path.startswith(f"/{kind}")]

    def lines(self) -> list[dict[str, Any]]:
        lines = self.home.json("gateway", "audit")
        return [each for each in lines if each["verdict"] == "allow" and each["method"] != "CONNECT"]

    def judge(self) -> None:
        lines = self.lines()
        assert Counter(self.arrived()) <= Counter(each["path"] for each in lines), self.arrived()
        assert max(Counter(each["path"] for each in lines).values()) == 1
        rules = Counter((each["path"].split("/")[1], each["rule"]) for each in lines)
        assert rules["get", "interrupted"] >= 2, rules
        assert all(rules[kind, "interrupted"] >= 1 for kind in KINDS if kind != "idle"), rules
        assert {each["rule"] for each in lines} <= {"granted", "interrupted", "aborted"}
        assert all(b"claw-" not in each.received for each in self.upstreams)
        for path in (*self.home.layout.state.rglob("*"), *self.work.rglob("*")):
            assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
        left = [path.name for path in (self.home.layout.state / "gateway").iterdir()]
        assert left == ["authority.pem"]


@pytest.fixture
def stage(home: Home) -> Iterator[Stage]:
    made = Stage(home)
    try:
        yield made
    finally:
        for each in made.upstreams:
            each.close()


@BOTH
@pytest.mark.timeout(300)
def test_what_a_kill_cuts_off_has_its_line_and_is_begun_again(stage: Stage) -> None:
    home, adopts = stage.home, stage.home.engine is not None
    points = POINTS if adopts else POINTS[:-1]
    said = [stage.asks(every=True)] if adopts else [stage.asks(every=n > 1) for n in range(4)]
    home.start(f"kill@{points[0]}", **KEEP)
    home.say(said[0])
    for n in range(len(points)):
        if n > 1 and not adopts:  # the first two are of one turn
            home.say(said[n - 1])
        assert home.wait() == -signal.SIGKILL
        home.start(*(f"kill@{each}" for each in points[n + 1 : n + 2]), **KEEP)
    if not adopts:
        home.say(said[-2])
    until(lambda: all(stage.arrived(kind) for kind in KINDS))
    home.kill()
    until(lambda: adopts or not home.sandboxed())
    arrived = stage.arrived()
    home.start(**KEEP)
    assert adopts or stage.arrived() == arrived
    for kind in KINDS:
        stage.let_go(kind)
    if not adopts:
        home.say(said[-1])
    home.settled(len(said))
    stage.judge()
    replies = home.deliveries(kind="text")
    assert [(each["turn"], each["state"]) for each in replies] == [(n, "sent") for n in range(1, len(said) + 1)]
    tools = [text for role, text in home.said() if role == "tool"]
    assert sorted(tools[-1].split("\n")) == sorted(f"{kind} ok" for kind in ("get", *KINDS))
    assert all("interrupted" in text for text in tools[:-1])
    assert [text for role, text in home.said() if role == "user"] == said
    assert all(row["attempt"] == 1 for row in home.messages())
    for row in home.ask("sandbox.list"):
        home.ask("sandbox.stop", group=row["group"])
    assert home.stop() == 0
    assert not home.left_over()
