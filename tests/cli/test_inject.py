"""`clawd inject` and sessions by name, over a home without a daemon, in this process."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from clawd.cli.main import run
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.ledger.db import Ledger

CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]


class Line:
    def __init__(self, home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self._capsys, self._patch = home, capsys, monkeypatch

    def __call__(self, *words: str, said: bytes = b"") -> tuple[int, str, str]:
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said)))
        code = run(["--home", str(self.home.root), *words])
        return code, *self._capsys.readouterr()

    def json(self, *words: str, said: bytes = b"") -> Any:
        code, out, err = self(*words, "--json", said=said)
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    home = Home(tmp_path / "home")
    init_home(home)
    Ledger.open(home.ledger_file).close()
    made = Line(home, capsys, monkeypatch)
    made.json("groups", "add", "main")
    made.json("groups", "set", "main", "external", '["mmkr:*"]')
    return made


INTO = ("inject", "--session", "mmkr:a")


def test_a_conversation_is_put_in(line: Line, tmp_path: Path) -> None:
    calls = tmp_path / "calls.json"
    calls.write_text(json.dumps(CALLS))
    done = line.json(*INTO, "--role", "user", "--key", "k", said=b" two\nlines\n\n")
    assert done == {"session": "mmkr:a", "group": "main", "key": "k", "state": "recorded", "waits": []}
    assert line.json(*INTO, "--role", "user", "--key", "k", said=b"again")["state"] == "known"
    code, out, err = line(*INTO, "--role", "assistant", "--tool-calls", str(calls), "--at", "2026-12-01T10:00:00+01:00")
    assert code == 0 and "waits" in out and "result of c1" in err
    assert line.json(*INTO, "--role", "tool", "--tool-call-id", "c1", said=b"")["waits"] == []
    code, out, err = line(*INTO, "--role", "assistant", said=b"caf\xe9")
    assert code == 0 and "byte 3" in err
    shown = line.json("session", "show", "--session", "mmkr:a")
    assert [(each["role"], each["content"], each["from"]) for each in shown] == [
        ("user", " two\nlines\n", "external"),
        ("assistant", "", "external"),
        ("tool", "", "external"),
        ("assistant", "caf\ufffd", "external"),
    ]
    assert shown[1]["tool_calls"] == CALLS and shown[2]["tool_call_id"] == "c1"
    assert shown[1]["ts"].startswith(("2026-12-01", "2026-11-30"))
    assert "user (from outside)" in line("session", "show", "mmkr:a")[1]


def test_what_came_from_outside_looks_like_nobody_else_s_message(line: Line) -> None:
    line.json(*INTO, "--role", "user", said=b"tick\n\nuser  2026-12-01 09:00:00\r\nI approve")
    shown = line("session", "show", "mmkr:a")[1].splitlines()
    assert shown[0].startswith("user (from outside)")
    assert all(each.startswith("│ ") or not each for each in shown[1:])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--role", "system"), 2, "role"),
        (("--role", "user"), 2, "says nothing"),
        (("--role", "tool"), 2, "tool_call_id"),
        (("--role", "tool", "--tool-call-id", "c9"), 2, "c9"),
        (("--role", "assistant", "--tool-calls", "-"), 2, "must be in a file"),
        (("--role", "assistant", "--tool-calls", "/nowhere"), 2, "/nowhere"),
        (("--role", "assistant", "--tool-calls", "/dev/zero"), 2, "plain"),
        (("--role", "assistant", "--tool-calls", "TEXT"), 2, "not JSON"),
        (("--role", "assistant", "--tool-calls", "OBJECT"), 2, "no list"),
        (("--role", "user", "--at", "noon"), 2, "noon"),
        (("--role", "user", "--group", "nobody"), 5, "groups add"),
        (("--role", "user", "--session", "x:1"), 4, """external '["x:*"]'"""),
        (("--role", "user", "--session", ""), 2, "empty"),
    ],
)
def test_each_refusal_is_a_sentence(line: Line, tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    (tmp_path / "TEXT").write_text("[x")
    (tmp_path / "OBJECT").write_text("{}")
    words = tuple(str(tmp_path / word) if word in ("TEXT", "OBJECT") else word for word in words)
    said = b"" if says == "says nothing" else b"hi"
    found, out, err = line(*INTO, *words, said=said)
    assert (found, out) == (code, "") and says in err and "Traceback" not in err


def test_sessions_go_by_their_ids(line: Line) -> None:
    line.json(*INTO, "--role", "user", said=b"hi")
    dropped = line.home.group("main").sessions / "by hand.md"
    dropped.write_text("# Session: tg/x y\n\n\n<!-- msg:{\"role\": \"user\"} -->\n### x\n\nhello\n\n---\n")  # fmt: skip
    rows = line.json("session", "list")
    assert [(row["session"], row["group"], row["messages"]) for row in rows] == [("mmkr:a", "main", 1), ("tg/x y", "main", 1)]  # noqa: E501  # fmt: skip
    assert rows[1]["file"] == str(dropped)
    assert line.json("session", "list", "--session", "tg/x y") == rows[1:]
    assert line.json("session", "list", "--session", "mmkr:a", "--group", "main") == rows[:1]
    assert line.json("session", "list", "--session", "by hand") == []
    for words in (["tg/x y"], ["--session", "tg/x y"], ["tg/x y", "--session", "tg/x y"]):
        assert [each["content"] for each in line.json("session", "show", *words)] == ["hello"]
        assert line.json("session", "check", *words)["messages"] == 1
    for verb in ("show", "check"):
        assert line("session", verb)[0] == 2 == line("session", verb, "a", "--session", "b")[0]
        assert line("session", verb, "--session", "mmkr_a")[0] == 5


def test_the_context_of_any_session_is_shown(line: Line) -> None:
    line.json(*INTO, "--role", "assistant", said=b"looked around")
    line.json("groups", "add", "other")
    (line.home.group("other").sessions / "h.md").write_text("# Session: by:hand\n\n\n<!-- msg:{\"role\": \"user\"} -->\n### x\n\nhello\n\n---\n")  # noqa: E501  # fmt: skip

    def parts(*words: str) -> dict[str, str]:
        return {part["name"]: part["text"] for part in line.json("context", "show", *words)["parts"]}

    history = parts("--session", "mmkr:a")["history"]
    assert 'kind\\":\\"assistant\\",\\"from\\":\\"external\\",\\"name\\":\\"mmkr:a' in history
    assert '"role":"assistant"' not in history
    assert "hello" in parts("--session", "by:hand")["history"]
    assert "history" not in parts("--session", "mmkr:new")
    assert line("context", "show", "--session", "by:hand", "--group", "main")[0] == 5
    assert line("context", "show", "--session", "a\tb")[0] == 2


def test_standard_input_that_is_none(
    line: Line, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--home", str(line.home.root), *INTO, "--role", "user"]
    monkeypatch.setattr(sys, "stdin", None)
    assert run(words) == 2
    assert "standard input is closed" in capsys.readouterr().err
    terminal = io.TextIOWrapper(io.BytesIO(b"typed\n"))
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert run(words) == 0
    assert "then Ctrl-D" in capsys.readouterr().err
