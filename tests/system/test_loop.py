"""Our own loop in a whole daemon: real sandbox, real gateway, a model on loopback that must be shown the key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.canary import CANARY
from tests.standin import Reply, Standin
from tests.system.conftest import until
from tests.system.ground import Ground, ground

CONFIG = """schema = 1
[model]
engine = "messages"
service = "anthropic"
model = "first"
fallbacks = ["openai/second"]
[sandbox]
backend = "bubblewrap"
[services.anthropic]
base_url = "{url}"
allow_private = true
credential = "${{file:{key}}}"
[services.openai]
base_url = "{url}"
allow_private = true
credential = "${{file:{key}}}"
"""
DIALECT = 'schema = 1\ngrants = ["anthropic", "openai"]\n[model]\nengine = "chat"\nservice = "openai"\nmodel = "only"\n'


@pytest.fixture
def model() -> Iterator[Standin]:
    with Standin(key=CANARY) as standin:
        yield standin
    assert standin.problems == []


@pytest.fixture
def home(model: Standin) -> Iterator[Ground]:
    with ground() as made:
        key = made.layout.root / "key"
        made.write("key", f"{CANARY}\n")
        made.write("config.toml", CONFIG.format(url=model.url, key=key))
        made.write("groups/main/group.toml", 'schema = 1\ngrants = ["anthropic", "openai"]\n')
        made.start()
        yield made


def test_turns_of_the_loop(home: Ground, model: Standin) -> None:
    """One conversation, in which each turn goes on from the file that the last ones left."""
    work = home.layout.root / "groups" / "main" / "work"

    # A tool round: the key is at the model and nowhere inside.
    look = f"cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c {CANARY[:12]}"
    model.say("let me see", calls=[("bash", {"command": look})])
    model.say("nothing there")
    said = home.answer("is there a key?")
    assert (said["reply"], said["error"], said["model"]) == ("nothing there", None, "first")
    assert model.requests[1].results == ["0\n[exit code 1]"] and said["usage"]["input"] > 0
    assert [role for role, _ in home.said()] == ["user", "assistant", "tool", "assistant"]
    assert "x-clawd-session" not in model.requests[0].headers

    # A fallback of the other dialect, which takes the same history.
    busy = Reply(status=529, headers={"retry-after": "0"})
    model.decide = lambda request: busy if request.dialect == "messages" else None
    said = home.answer("and now?")
    assert (said["reply"], said["model"]) == ("ok", "second")
    assert "529 overloaded_error" in home.blocks()[-1].meta["fallback"]
    model.decide = None

    # What would be refused again is one call, one attempt and one notice.
    before, count = len(home.deliveries()), len(model.requests)
    model.fail(401)
    assert home.answer("with which key?", code=1)["attempt"] == 1 and len(model.requests) == count + 1
    key = home.layout.root / "key"
    key.rename(f"{key}.away")
    said = home.answer("and without one?", code=1)
    assert said["attempt"] == 1 and "cannot be read" in said["error"] and len(home.deliveries()) == before + 2
    Path(f"{key}.away").rename(key)

    # What is said while a tool runs is answered in the same turn; what comes before its end, too.
    model.say("working", calls=[("bash", {"command": "touch began; while [ ! -e go ]; do sleep 0.02; done"})])
    model.say("both")
    waiting = home.chat("-m", "question one")
    until(lambda: (work / "began").exists())
    home.say("question two")
    until(lambda: len(home.messages()) == 6)
    (work / "go").touch()
    out, _ = waiting.communicate(timeout=60)
    assert "both" in out and "question two" in model.requests[-1].said
    home.settled(6, states=("recorded", "failed"))
    kept = [(role, text) for role, text in home.said()[-5:]]
    assert kept[:1] + kept[3:] == [("user", "question one"), ("user", "question two"), ("assistant", "both")]

    # A stop ends a stream that would never end.
    model.add(Reply("never", hold=True))
    waiting = home.chat("-m", "for ever?")
    model.wait(len(model.requests) + 1)
    home.say("/stop")
    waiting.communicate(timeout=60)
    assert home.reply("still there?") == "ok"

    # A daemon that is killed in mid-stream: one answer.
    model.add(Reply("half of it", hold=True))
    before, count = len(home.deliveries()), len(model.requests)
    home.say("and after this?")
    model.wait(count + 1)
    home.kill()
    home.start()
    until(lambda: len(home.deliveries()) > before)
    until(lambda: home.said()[-2:] == [("user", "and after this?"), ("assistant", "ok")])
    assert len(home.deliveries()) == before + 1

    # The same conversation over chat completions.
    home.write("groups/main/group.toml", DIALECT)
    assert home.answer("in another tongue?")["model"] == "only"
    assert len(model.requests[-1].body["messages"]) > 10 and model.requests[-1].dialect == "chat"
