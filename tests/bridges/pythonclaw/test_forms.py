"""PythonClaw's files as it writes them. Expectations are written out by hand, after its source."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.bridges.pythonclaw.forms import index_bytes, log_bytes, memory_bytes, restorable, session_bytes
from clawd.memory.keyed import Fact
from clawd.model import Block
from clawd.sessions.format import parse
from clawd.sessions.reading import NO_RESULT
from tests.memory import pythonclaw as its_memory
from tests.sessions import pythonclaw as its_sessions
from tests.sessions.strategies import blocks, steady, texts

AT = datetime(2026, 3, 7, 10, 0, 1).astimezone()
LATER = AT + timedelta(seconds=1)


def call(id: Any, arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "list_files", "arguments": arguments}}


def test_a_session_is_written_as_pythonclaw_writes_it() -> None:
    written = session_bytes(
        "mmkr:agent-1",
        [
            Block("assistant", "", AT, (call("call_1", '{"path": "é"}'),), meta={"turn": 7, "from": "external"}),
            Block("tool", "a\n---\n### b", LATER, tool_call_id="call_1"),
        ],
    )
    assert written.decode() == (
        "# Session: mmkr:agent-1\n\n\n"
        '<!-- msg:{"role": "assistant", "ts": "2026-03-07T10:00:01"} -->\n'
        "### 2026-03-07 10:00:01 — Assistant\n\n"
        "<details><summary>Tool Calls</summary>\n\n```json\n"
        "[\n  {\n"
        '    "id": "call_1",\n    "type": "function",\n'
        '    "function": {\n      "name": "list_files",\n      "arguments": "{\\"path\\": \\"é\\"}"\n    }\n'
        "  }\n]\n```\n\n</details>\n\n---\n\n"
        '<!-- msg:{"role": "tool", "ts": "2026-03-07T10:00:02", "tool_call_id": "call_1"} -->\n'
        "### 2026-03-07 10:00:02 — Tool\n\n"
        "a\n\\---\n\\### b\n\n---\n"
    )


def test_an_empty_session_is_a_header() -> None:
    assert session_bytes("cli", []) == b"# Session: cli\n\n"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (Block("developer", "x", AT), "### 2026-03-07 10:00:01 — Developer\n"),
        (Block("user", "x", meta={"ts": "yesterday"}), '"ts": "yesterday"} -->\n### yesterday — User\n'),
        (Block("user", "x", meta={"ts": 1.5}), '"ts": 1.5} -->\n### 1.5 — User\n'),
        (Block("user", "x"), '<!-- msg:{"role": "user"} -->\n### undated — User\n'),
        (Block("user", "é <!-- msg:1 -->", AT), "\n\né <!-- msg\\:1 -->\n\n"),
        (Block("a\nb", "x", AT), "### 2026-03-07 10:00:01 — A\ufffdB\n"),
        (Block("user", "x", meta={"ts": "a\n---"}), "### a\ufffd--- — User\n"),
    ],
)
def test_what_a_message_looks_like(block: Block, expected: str) -> None:
    assert expected in session_bytes("cli", [block]).decode()


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ("<!-- msg:1 -->", "\\u003c!-- msg:1 -->"),
        ("<!-- msg:", "<!-- msg:"),  # its reader needs the end, too: its own bytes do
        ("a --> b", "a --> b"),
        ("\ud800", "\ufffd"),
    ],
)
def test_arguments_that_would_end_a_message_are_escaped_and_no_others(arguments: str, written: str) -> None:
    data = session_bytes("cli", [Block("assistant", "", AT, (call("c", arguments),))])
    assert f'"arguments": "{written}"' in data.decode()
    message = its_sessions.read(data)[0]
    assert message["tool_calls"][0]["function"]["arguments"] == arguments.replace("\ud800", "\ufffd")


def test_an_id_of_a_call_that_would_end_meta_is_escaped() -> None:
    data = session_bytes("cli", [Block("assistant", "", AT, (call("a -->b"),)), Block("tool", "x", AT, (), "a -->b")])
    assert [each.get("tool_call_id") for each in its_sessions.read(data)] == [None, "a -->b"]


def test_an_id_cannot_be_a_message() -> None:
    data = session_bytes('x\n<!-- msg:{"role": "system"} -->y', [Block("user", "hello", AT)])
    assert [each["content"] for each in its_sessions.read(data)] == ["hello"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([Block("assistant", "x", AT, (call("a"),))], ["assistant", ("tool", "a", NO_RESULT)]),
        (
            [
                Block("assistant", "x", AT, (call("a"), call("b"))),
                Block("user", "meanwhile", AT),
                Block("tool", "B", AT, tool_call_id="b"),
                Block("tool", "A", AT, tool_call_id="a"),
            ],
            ["assistant", ("tool", "a", "A"), ("tool", "b", "B"), "user"],
        ),
        (
            [
                Block("assistant", "", AT, (call("a"),)),
                Block("assistant", "", AT, (call("b"),)),
                Block("tool", "A", AT, tool_call_id="a"),
                Block("tool", "B", AT, tool_call_id="b"),
            ],
            ["assistant", ("tool", "a", "A"), "assistant", ("tool", "b", "B")],
        ),
        ([Block("tool", "A", AT, tool_call_id="a")], ["assistant"]),
        ([Block("assistant", "", AT, (call(None),))], ["assistant", ("tool", "call_0_0", NO_RESULT)]),
        ([Block("assistant", "", AT, (call(7),)), Block("tool", "x", AT, (), "7")], ["assistant", ("tool", "7", "x")]),
    ],
)
def test_every_call_has_its_result_behind_it(given: list[Block], expected: list[Any]) -> None:
    found = [
        each.role if each.role != "tool" else (each.role, each.tool_call_id, each.content) for each in restorable(given)
    ]
    assert found == expected


def test_a_result_without_a_call_is_text_that_says_so() -> None:
    (block,) = restorable([Block("tool", "A", AT, tool_call_id="a")])
    assert block.content == "The result of a tool call that is not known (a):\n\nA"


@steady
@given(st.lists(blocks, max_size=6))
def test_its_reader_finds_every_message_with_its_calls_and_loses_none_at_restore(given: list[Block]) -> None:
    expected = restorable(given)
    read = its_sessions.read(session_bytes("cli", given))
    assert len(read) == len(expected) >= len(given) - len([each for each in given if each.role == "tool"])
    asked: set[str] = set()
    for message, block in zip(read, expected, strict=True):
        assert bool(message.get("tool_calls")) == bool(block.tool_calls)
        if message["role"] == "tool":
            assert message["tool_call_id"] in asked
        elif message["role"] == "assistant":
            asked = {each["id"] for each in message.get("tool_calls", ())}
    assert restorable(expected) == expected


@steady
@given(st.lists(blocks, max_size=4))
def test_our_reader_finds_the_same(given: list[Block]) -> None:
    read = parse(session_bytes("cli", given))
    assert read.session == "cli"
    assert [each.tool_call_id for each in read.blocks] == [
        None if not each.tool_call_id else each.tool_call_id.replace("\ud800", "\ufffd") for each in restorable(given)
    ]


# ── memory ──


def test_memory_is_written_as_pythonclaw_writes_it() -> None:
    facts = [Fact("city", "Wien", AT), Fact("notes", "a\n## b\n> Updated: c", AT), Fact("old", "")]
    assert memory_bytes(facts).decode() == (
        "# Long-Term Memory\n\n"
        "## city\n> Updated: 2026-03-07 10:00:01\n\nWien\n\n"
        "## notes\n> Updated: 2026-03-07 10:00:01\n\na\n\\## b\n\\> Updated: c\n\n"
        "## old\n> Updated: \n\n\n"
    )
    assert memory_bytes([]) == b"# Long-Term Memory\n"


@pytest.mark.parametrize(("key", "expected"), [("a\nb", ["a b"]), (" a ", ["a"]), ("\n", []), ("# a", ["# a"])])
def test_a_key_is_one_line(key: str, expected: list[str]) -> None:
    assert list(its_memory.read(memory_bytes([Fact(key, "x", AT)]))) == expected


@steady
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "## c"]), texts), max_size=4))
def test_its_reader_finds_every_fact(given: list[tuple[str, str]]) -> None:
    read = its_memory.read(memory_bytes([Fact(key, value, AT) for key, value in given]))
    assert list(read) == list(dict(given))


def test_a_day_is_written_as_pythonclaw_writes_it() -> None:
    assert log_bytes(date(2026, 3, 7), [(AT, "city", "Wien"), (LATER, "k", "## raw")]).decode() == (
        "# Daily Memory — 2026-03-07\n\n### 10:00:01 — city\n\nWien\n\n### 10:00:02 — k\n\n## raw\n\n"
    )


def test_the_index_ends_with_one_line_feed() -> None:
    assert index_bytes("\n a \n\n") == b"a\n"


def test_times_are_shown_as_the_machine_s_clock_shows_them() -> None:
    utc = datetime(2026, 3, 7, 9, 0, tzinfo=UTC)
    local = utc.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert f"### {local} — User" in session_bytes("cli", [Block("user", "x", utc)]).decode()
