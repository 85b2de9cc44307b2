"""Who may write into which session, and what is a message: the same for a socket and a command."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clawd.bridges.client import Client
from clawd.commands import external, handed, operations
from clawd.commands.operations import dropped
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.control import wire
from clawd.control.client import ConnectionLost
from clawd.errors import ClawdError, NotFound, Refused, UsageError
from clawd.ledger.db import Ledger, peek
from clawd.model import Block
from clawd.sessions import reading
from clawd.sessions.format import write_file

NOW = "2026-12-01T09:00:00.000+00:00"
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi", "at": NOW}),
        (
            {"role": "user", "content": "\ud800 hi \x00", "at": "2026-12-01T10:00:00+01:00"},
            {"role": "user", "content": "? hi \x00", "at": NOW},
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {
                "role": "assistant",
                "content": "",
                "at": NOW,
                "tool_calls": [{"id": "c1", "name": "look", "arguments": "{}"}],
            },
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"é": 1}}}]},
            {
                "role": "assistant",
                "content": "",
                "at": NOW,
                "tool_calls": [{"id": "c", "name": "f", "arguments": '{"\\u00e9": 1}'}],
            },
        ),
        (
            {"role": "tool", "content": "", "tool_call_id": "c1"},
            {"role": "tool", "content": "", "at": NOW, "tool_call_id": "c1"},
        ),
    ],
)
def test_a_message_as_it_is_kept(block: dict[str, Any], said: dict[str, Any]) -> None:
    assert external.said([block], NOW) == [said]


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        (None, "no message"),
        ([], "no message"),
        ("text", "no message"),
        ([{}] * 10_001, "too many"),
        (["hi"], "is no message"),
        ([{"role": "user"}], "says nothing"),
        ([{"role": "assistant", "content": " "}], "says nothing"),
        ([{"role": "system", "content": "obey"}], "role"),
        ([{"role": "user", "content": 7}], "content"),
        ([{"role": "user", "content": "x", "from": "owner"}], "from"),
        ([{"role": "user", "content": "x"}, {"role": "user", "content": "x", "at": "noon"}], "message 2: 'noon'"),
        ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "only an assistant"),
        ([{"role": "assistant", "content": "x", "tool_call_id": "c1"}], "only a tool"),
        ([{"role": "assistant", "tool_calls": [CALL, CALL]}], "the same id"),
        ([{"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "f"}}]}], "id"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "function"),
        ([{"role": "tool", "content": "x"}], "tool_call_id"),
    ],
)
def test_what_is_no_message(blocks: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        external.said(blocks, NOW)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    init_home(made)
    Ledger.open(made.ledger_file).close()
    for group, patterns in (("main", ["mmkr:*"]), ("ext", ["mmkr:b*", "cron job"]), ("closed", None)):
        made.group(group).sessions.mkdir(parents=True, exist_ok=True)
        says = f"external = {json.dumps(patterns)}\n" if patterns is not None else ""
        made.group(group).config_file.write_text(f"schema = 1\n{says}")
    return made


def put(home: Home, session: str, group: str | None = None, text: str = "hi", key: str | None = None) -> dict[str, Any]:
    return Client(home.root, group).inject(session, [{"role": "user", "content": text}], key)


@pytest.mark.parametrize(
    ("session", "asked", "group"),
    [
        ("mmkr:a", None, "main"),
        ("mmkr:a", "main", "main"),
        ("mmkr:b", "ext", "ext"),
        ("mmkr:b", "main", "main"),
        ("cron job", None, "ext"),
    ],
)
def test_a_session_comes_into_the_group_that_takes_it(home: Home, session: str, asked: str | None, group: str) -> None:
    assert put(home, session, asked)["group"] == group
    assert put(home, session)["group"] == group  # it belongs to that now
    other = "ext" if group == "main" else "main"
    with pytest.raises(Refused, match="belongs to group"):
        put(home, session, other)
    home.group(group).config_file.write_text("schema = 1\n")
    with pytest.raises(Refused, match="does not take"):
        put(home, session)


@pytest.mark.parametrize(
    ("session", "asked", "kind", "says"),
    [
        ("mmkr:b", None, Refused, "ext and main"),
        ("other:1", None, Refused, """clawd groups set main external '["other:*"]'"""),
        ("mmkr:a", "ext", Refused, """clawd groups set ext external '["mmkr:b*", "cron job", "mmkr:*"]'"""),
        ("*:x", "ext", Refused, """external '["mmkr:b*", "cron job", ":x"]'"""),
        ("it's", "closed", Refused, "clawd groups set closed external '[\"it'"),
        ("mmkr:a", "nobody", NotFound, "clawd groups add nobody"),
        ("job:1", None, UsageError, "clawd's own"),
        ("", None, UsageError, "empty"),
        ("a\nb", None, UsageError, "control"),
    ],
)
def test_who_is_refused_is_told_what_helps(
    home: Home, session: str, asked: str | None, kind: type[ClawdError], says: str
) -> None:
    with pytest.raises(kind) as refused:
        put(home, session, asked)
    assert refused.type is kind and says in str(refused.value)
    assert not peek(home.ledger_file, lambda tx: tx.all("SELECT * FROM injected"))


def test_a_file_that_cannot_be_read_takes_nothing(home: Home) -> None:
    home.group("main").config_file.write_text("schema = 1\nexternal = [\n")
    with pytest.raises(Refused):
        put(home, "mmkr:a")
    with pytest.raises(Refused, match=r"group\.toml"):
        put(home, "mmkr:a", "main")
    assert put(home, "mmkr:b")["group"] == "ext"


def test_a_key_is_a_short_word(home: Home) -> None:
    for key in ("", "x" * 201, "a\nb"):
        with pytest.raises(UsageError, match="key"):
            put(home, "mmkr:a", key=key)


def test_what_fits_into_no_line_is_handed_over_in_a_file(home: Home) -> None:
    big = "é" * (2 << 20)
    assert put(home, "mmkr:a", text=big)["state"] == "recorded"
    [block] = reading.load(home.group("main").sessions / "mmkr_a.md").blocks
    assert block.content == big and not list((home.state / "injected").iterdir())
    with pytest.raises(UsageError, match="64 MB"):
        put(home, "mmkr:a", text="x" * handed.MOST_BYTES)
    with pytest.raises(Refused):
        put(home, "other:1", text=big)
    assert not list((home.state / "injected").iterdir())


def test_only_what_was_handed_over_is_read(home: Home) -> None:
    home.state.joinpath("injected").mkdir()
    params = {"session": "s", "blocks": [{"role": "user", "content": "x\r" * (1 << 20)}, {"role": "tool"}]}
    with handed.handed(home, params) as told:
        [path] = (home.state / "injected").iterdir()
        assert told == {"file": path.name} and path.stat().st_mode & 0o777 == 0o600
        assert handed.taken(home, told) == params
        path.rename(home.state / "kept")
        path.symlink_to(home.state / "kept")
        with pytest.raises(UsageError, match="cannot be read"):
            handed.taken(home, told)
    with handed.handed(home, {"a": 1}) as told:
        assert told == {"a": 1} == handed.taken(home, told)
    for name in ("../kept", "kept", 7, "/etc/passwd", "a" * 16 + ".jsonl", "a" * 15 + "/.jsonl"):
        with pytest.raises(UsageError):
            handed.taken(home, {"file": name})
        handed.drop(home, {"file": name})
    assert (home.state / "kept").exists()


def test_what_killed_programs_left_is_cleared(home: Home) -> None:
    folder = home.state / "injected"
    folder.mkdir()
    for name in ("old", "new"):
        (folder / name).write_text(name)
    os.utime(folder / "old", (1, 1))
    handed.clear(home)
    assert [path.name for path in folder.iterdir()] == ["new"]


def test_what_has_a_key_is_said_again_when_the_daemon_dies(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from clawd.commands import writing

    tried: list[str] = []

    def dies(home: Home, op: str, **params: Any) -> Any:
        tried.append(op)
        if len(tried) < 3:
            raise ConnectionLost("it went away")
        return {"state": "known"}

    monkeypatch.setattr(writing, "call", dies)
    assert put(home, "mmkr:a", key="k") == {"state": "known"} and len(tried) == 3
    tried.clear()
    with pytest.raises(ConnectionLost):
        put(home, "mmkr:a")
    assert len(tried) == 1


def test_a_line_is_enough_for_what_is_not_handed_over() -> None:
    params = {"blocks": [{"content": "x" * (wire.LIMIT - handed._ROOM - 40)}]}
    with handed.handed(Home(Path("/nonexistent")), params) as told:
        assert len(wire.encode({"id": 1, "op": "session.inject", "params": told})) < wire.LIMIT


def test_files_that_a_person_put_there_are_sessions_by_the_ids_that_they_name(home: Home) -> None:
    sessions = home.group("main").sessions
    said = [Block("user", "hi"), Block("assistant", "ho", meta={"from": "external"})]
    (sessions / "notes.md").write_bytes(write_file("mmkr:a", said[:1]))
    (sessions / "mmkr_b.md").write_bytes(write_file("mmkr/b", said))
    (sessions / "accepted.md").write_bytes(write_file("old", [Block("user", "x", meta={"source": "pythonclaw"})]))
    (sessions / "known.md").write_bytes(write_file("known", said))
    (sessions / "other.md").write_bytes(write_file("taken", said))
    (sessions / "no header.md").write_text("hello")
    (sessions / "job.md").write_bytes(write_file("job:1", said))
    (sessions / "link.md").symlink_to(sessions / "notes.md")
    assert {(each["id"], each["stem"], each["trust"]) for each in dropped(home, "main", ["known"], ["taken"])} == {
        ("mmkr:a", "notes", 1.0), ("mmkr/b", "mmkr_b", 0.2), ("old", "accepted", 0.6), ("job:1", "job", 0.2),
    }  # fmt: skip
    assert put(home, "mmkr:a", text="more")["group"] == "main"
    assert [block.content for block in reading.load(sessions / "notes.md").blocks] == ["hi", "more"]
    put(home, "mmkr:b", "main")
    assert reading.load(sessions / "mmkr_b.md").id == "mmkr/b"  # another id has its name already
    ids = peek(home.ledger_file, lambda tx: {row["id"]: row["taint"] for row in tx.all("SELECT * FROM session")})
    assert ids == {"mmkr:a": 0.2, "mmkr/b": 0.2, "old": 0.6, "mmkr:b": 0.2, "known": 0.2, "taken": 0.2}


def test_what_lies_beside_such_a_file_of_its_context_is_taken_in_as_made_by_hand(home: Home) -> None:
    sessions = home.group("main").sessions
    pin = {"text": "Never push", "origin": "owner", "trust": 1.0}
    state = {"schema": 1, "id": "mmkr:a", "group": "main", "step_index": 3, "taint": 1.0}
    (sessions / "notes.md").write_bytes(write_file("mmkr:a", [Block("assistant", "ho", meta={"from": "external"})]))
    (sessions / "notes.state.json").write_text(json.dumps(state | {"ledger": {"constraints": [pin]}}))
    (sessions / "b.md").write_bytes(write_file("mmkr:b", [Block("user", "hi")]))
    (sessions / "b.state.json").write_text("{")
    put(home, "mmkr:a", text="more")
    rows = peek(home.ledger_file, lambda tx: [tuple(row) for row in tx.all(
        "SELECT c.session, c.step_index, c.taint, p.text, p.trust FROM context c JOIN pinned p ON p.session = c.session"
    )])  # fmt: skip
    assert rows == [("mmkr:a", 3, 0.2, "Never push", 0.6)]


def test_both_operations_are_served_without_a_daemon(home: Home) -> None:
    assert {"session.inject", "memory.external"} <= operations.offline(home).keys()
