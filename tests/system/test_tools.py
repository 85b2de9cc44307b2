"""The tools in a real sandbox: what they may write, what they reach through the gateway, and what ends with a turn."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.engine import Engine
from tests.gateway.upstream import answer, redirect
from tests.system.conftest import EACH, call, until
from tests.system.outside import Outside, outside

TOKEN = re.compile(rb"claw-[A-Za-z0-9_-]{43}")
HTML = [("Content-Type", "text/html; charset=utf-8")]
ONLY = "Nothing can be written there: only /group/work and /tmp are yours."


@pytest.fixture(scope="module", params=EACH)
def home(request: pytest.FixtureRequest) -> Iterator[Outside]:
    engine = request.getfixturevalue("engine") if request.param == "docker" else None
    assert engine is None or isinstance(engine, Engine)
    with outside(engine) as made:
        made.tls.script = answer(b'{"id": "tool"}', 200, [("Content-Type", "application/json")])
        made.tls.scripts = {
            "/page": answer("<h1>é</h1><script>x</script><a href='/b'>b</a>".encode(), 200, HTML),
            "/moved": redirect("https://two.one.example.com/page"),
        }
        made.http.script = answer(b"plain", 200, [("Content-Type", "text/plain")])
        yield made


def test_tools(home: Outside) -> None:
    calls = [
        ("write", {"path": "a/b.txt", "content": "one\ntwo\n"}, "wrote a/b.txt: 8 bytes"),
        ("edit", {"path": "/group/work/a/b.txt", "old": "two", "new": "three"}, "edited /group/work/a/b.txt: line 2"),
        ("read", {"path": "a/b.txt"}, "one\nthree\n"),
        ("grep", {"pattern": "^t"}, "a/b.txt:2:three"),
        ("read", {"path": "/group/CLAUDE.md"}, "the owner's\n"),
        ("edit", {"path": "/group/CLAUDE.md", "old": "the owner's", "new": "mine"}, ONLY),
        ("write", {"path": "/group/CLAUDE.md", "content": "mine"}, ONLY),
        ("write", {"path": "/etc/new/x", "content": "mine"}, "['/etc/new/x' cannot be written: "),
        ("write", {"path": "/opt/clawd/agent/tools/x.py", "content": ""}, "x.py' cannot be written: "),
        ("write", {"path": "/tmp/x", "content": "mine"}, "wrote /tmp/x: 4 bytes"),
        ("read", {"path": "/proc/self/environ"}, "cannot be read: "),
        ("fetch", {"url": "/svc/tool/v1/x"}, '\n\n{"id": "tool"}'),
        (
            "fetch",
            {"url": "https://one.example.com/moved"},
            "· https://two.one.example.com/page\n\n# é\n\nb (https://two.one.example.com/b)",
        ),
        ("fetch", {"url": "http://plain.example.org/x"}, "\n\nplain"),
        ("fetch", {"url": "https://evil.example.net/"}, "[the gateway refused it (403 not_granted): "),
        ("fetch", {"url": "/svc/openrouter/v1"}, "[the gateway refused it (403 not_granted): "),
        ("bash", {"command": "sleep 600 & echo $! >pid; wait", "background": True}, "runs until your turn ends"),
        ("bash", {"command": "until [ -s pid ]; do sleep 0.01; done; kill -0 $(cat pid) && echo lives"}, "lives"),
    ]
    end = [{"text": "first"}, call("bash", command="kill -0 $(cat pid) || echo gone; ls -A /tmp"), {"text": "second"}]
    home.script(*(call(name, **arguments) for name, arguments, _ in calls), *end, more=home.config())
    home.start()
    home.json("groups", "add", "main")
    home.grant("main", "tool", "wild", "plain")
    home.write("groups/main/CLAUDE.md", "the owner's\n", 0o644)
    assert home.reply("go") == "first"
    said = [content for role, content in home.said() if role == "tool"]
    for (name, arguments, part), result in zip(calls, said, strict=True):
        assert part in result, (name, arguments, result)
    assert home.reply("go on") == "second"
    result = [content for role, content in home.said() if role == "tool"][-1]
    assert "gone" in result and re.search(r"job-\d+-\d+\.log", result), result
    assert "mine" not in (home.root / "groups/main/CLAUDE.md").read_text()
    for upstream in home.upstreams:
        assert not TOKEN.search(upstream.received)
    assert home.evil.connections == [] and home.tls.requests
    assert {line["rule"] for line in until(lambda: home.audit("main"))} == {"granted", "not_granted"}
