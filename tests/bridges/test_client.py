"""Many pieces in one call, under the home's lock: the same as one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bridges.client import MOST, Client, Message
from clawd.commands import handed
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.errors import Refused, UsageError
from clawd.ledger.db import Ledger
from clawd.sessions.reading import load

SESSION = "mmkr:agent-1"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    init_home(home)
    Ledger.open(home.ledger_file).close()
    home.group("main").config_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.group("main").config_file.write_text('schema = 1\nexternal = ["mmkr:*"]\n')
    return home


def said(*texts: str) -> list[Message]:
    return [{"role": "user", "content": text} for text in texts]


def contents(home: Home) -> list[str]:
    return [block.content for block in load(home.group("main").sessions / "mmkr_agent-1.md").blocks]


def test_each_piece_has_its_key_and_what_is_known_is_not_added(home: Home) -> None:
    client = Client(home.root)
    assert client.inject(SESSION, said("b"), "2")["state"] == "recorded"
    pieces = [(said("a", "a, too"), "1"), (said("b"), "2"), (said("c"), "3"), (said("c, again"), "3")]
    done = client.inject_many(SESSION, pieces)
    assert [(each["key"], each["state"]) for each in done] == [
        ("1", "recorded"), ("2", "known"), ("3", "recorded"), ("3", "known")
    ]  # fmt: skip
    assert contents(home) == ["b", "a", "a, too", "c"] and {each["group"] for each in done} == {"main"}


def test_a_call_in_one_piece_waits_for_its_result_in_the_next(home: Home) -> None:
    call: Message = {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "x", "arguments": "{}"}}],
    }
    result: Message = {"role": "tool", "content": "done", "tool_call_id": "c1"}
    done = Client(home.root).inject_many(SESSION, [([call], "1"), ([result], "2"), (said("over"), "3")])
    assert [each["waits"] for each in done] == [["c1"], [], []]
    assert contents(home) == ["", "done", "over"]


def test_of_pieces_of_which_one_is_wrong_none_is_put_in(home: Home) -> None:
    client = Client(home.root)
    for wrong in ({"role": "owner", "content": "x"}, {"role": "tool", "content": "x", "tool_call_id": "none"}):
        with pytest.raises(UsageError):
            client.inject_many(SESSION, [(said("a"), "1"), ([wrong], "2")])  # type: ignore[list-item]
    with pytest.raises(Refused):
        client.inject_many("other:1", [(said("a"), "1")])
    assert contents(home) == [] and client.inject_many(SESSION, []) == []


def test_more_than_one_call_takes(home: Home) -> None:
    pieces = [(said(str(n)), str(n)) for n in range(MOST + 1)]
    assert len(Client(home.root).inject_many(SESSION, pieces)) == MOST + 1
    assert contents(home) == [str(n) for n in range(MOST + 1)]


@pytest.mark.parametrize("name", ["blocks", "pieces", "entries"])
def test_what_is_handed_over_in_a_file_has_a_line_for_each(home: Home, name: str) -> None:
    params = {"session": SESSION, name: [{"content": "x" * 300_000}] * 5}
    with handed.handed(home, params) as sent:
        lines = (home.state / "injected" / sent["file"]).read_bytes().splitlines()
        assert len(lines) == 6
        assert handed.taken(home, sent) == params


def test_who_is_told_why_it_comes_later_is_shown_no_stack(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    client, file = Client(home.root), home.group("main").sessions / "mmkr_agent-1.md"
    assert client.inject(SESSION, said("a"), "1")["state"] == "recorded"
    file.rename(file.with_name("away.md"))
    file.symlink_to("away.md")
    done = client.inject(SESSION, said("b"), "2")
    assert done["state"] == "later" and "is a link" in done["why"] and caplog.records == []
    file.unlink()
    file.with_name("away.md").rename(file)
    assert client.inject(SESSION, said("c"), "3")["state"] == "recorded" and contents(home) == ["a", "b", "c"]
