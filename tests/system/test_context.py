"""What a model is told, seen by the model: a daemon, a sandbox, and a stand-in for the provider."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from clawd.commands import looking
from clawd.errors import UsageError
from tests.standin import Recorded, Standin
from tests.system.conftest import Home, until

pytestmark = pytest.mark.timeout(120)

SERVICES = """
[services.anthropic]
base_url = "{url}"
allow_private = true
credential = "${{env:STANDIN_KEY}}"
[services.openai]
base_url = "{url}/v1"
allow_private = true
credential = "${{env:STANDIN_KEY}}"
"""
GROUP = '# mine\ngrants = ["anthropic", "openai"]\n\n[model]\nmodel = "first"  # cheap\n'


def answered(home: Home, text: str, **opening: Any) -> str:
    """Say something; gives what was answered, or why nothing was."""
    seq = home.say(text, **opening)["message"]
    states = ("recorded", "delivered", "failed")
    row = until(lambda: next(iter(each for each in home.messages(id=seq) if each["state"] in states), None))
    return str(row["reason"] or looking.message(home.layout, seq)["reply"])


def system(request: Recorded) -> list[str]:
    """The system parts as the provider was sent them."""
    return [part["text"] for part in request.body["system"]]


def said(request: Recorded, at: int) -> str:
    """The text of the message with this place."""
    content = request.body["messages"][at]["content"]
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def bare(value: Any) -> Any:
    """Without marks for a provider's cache, and without times."""
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items() if key != "cache_control"}
    return [bare(item) for item in value] if isinstance(value, list) else value


def notices(home: Home) -> list[str]:
    with closing(sqlite3.connect(f"{home.layout.ledger_file.as_uri()}?mode=ro", uri=True)) as ledger:
        return [text for (text,) in ledger.execute("SELECT text FROM delivery WHERE kind = 'notice'")]


def test_the_model_is_told_what_stands_in_the_files_now(home: Home) -> None:
    with Standin(key="sk-real") as model:
        home.configure("messages", more=SERVICES.format(url=model.url))
        home.cli("groups", "add", "main")
        group = home.layout.group("main")
        group.config_file.write_text(GROUP)
        parts = {part["name"]: part["text"] for part in home.json("context", "show", "--wake", "hello")["parts"]}
        home.start(STANDIN_KEY="sk-real")

        assert answered(home, "hello") == "ok"
        hello = model.requests[0]
        assert system(hello) == [parts[name] for name in ("identity", "CLAUDE.md", "user_profile.md")]
        assert bare(hello.body["tools"]) == json.loads(parts["tools"])
        wake, shown = (re.sub('"at":"[^"]*"', "", text) for text in (said(hello, 0), parts["wake"]))
        assert wake == shown
        assert len(hello.raw) <= 8 << 10
        assert len(parts["identity"].encode()) + len(parts["tools"].encode()) <= 6100

        edit = b"\xef\xbb\xbf# Rules\r\n\r\n@notes.md \xe2\x80\xa8 [owner]: </said> \t\r\n@work/x.md"
        group.claude_md.write_bytes(edit)
        (group.root / "notes.md").write_text("be brief")
        answered(home, "again")
        again = model.requests[1]
        assert [text.encode() for text in system(again)].count(edit) == 1
        assert "notes.md, imported:\n\nbe brief" in system(again)
        assert said(again, 0) == said(hello, 0)  # as it was said, so it stands in the history
        assert sum("@work/x.md in CLAUDE.md is not imported" in text for text in notices(home)) == 1

        home.cli("chat", "-m", "once", "--model", "openai/second", "--effort", "low").check_returncode()
        once = model.requests[2]
        assert (once.dialect, once.body["model"]) == ("chat", "second")
        assert home.json("groups", "list")[0]["taint"] == 1.0  # its answer is a model's own
        with pytest.raises(UsageError, match="only the owner chooses"):
            home.say("no", **{"as": "member:bob"}, choice={"engine": "chat"})
        with pytest.raises(UsageError, match="offline, scripted, messages, chat"):
            home.say("no", choice={"engine": "codex"})

        assert "model: third" in answered(home, "/model third")
        assert group.config_file.read_text() == GROUP.replace('"first"', '"third"')
        assert "for the owner alone" in answered(home, "/model fourth", **{"as": "admin:eve"})
        assert "not granted" in answered(home, "/model ollama/x")
        answered(home, "now")
        assert model.requests[3].body["model"] == "third"

        group.config_file.write_text('grants = ["anthropic"]\n')
        assert "/model NAME" in answered(home, "broken")
        assert model.problems == [] and len(model.requests) == 4
