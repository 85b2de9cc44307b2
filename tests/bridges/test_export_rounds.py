"""What is written into a PythonClaw home is what PythonClaw 0.7 would have written, and it restores all of it."""

from __future__ import annotations

import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.bridges.pythonclaw.forms import index_bytes, log_bytes, memory_bytes, restorable, session_bytes, whole
from clawd.memory.keyed import INDEX, Fact
from clawd.memory.record import settled
from clawd.model import Block
from clawd.sessions.format import parse
from tests.bridges.real_pythonclaw import ESC, RAW, claw
from tests.bridges.test_memory_rounds import KEYS, TEXTS, loaded, saved
from tests.bridges.test_session_rounds import NOON, TOLD, asked, call, gist, given_back, histories, message
from tests.memory.conftest import FAST
from tests.sessions.strategies import blocks, ids

steady = settings(deadline=None, max_examples=80)
SHOWN = ids.filter(lambda id: id.isprintable() and "<!-- msg:" not in id)


def gist_of(given: list[Block]) -> list[tuple[Any, ...]]:
    return [(block.role, list(block.tool_calls), block.tool_call_id or None) for block in given]


@steady
@given(SHOWN, histories(TOLD))
def test_its_bytes_but_where_they_would_break_its_loader(session: str, history: list[Block]) -> None:
    ours, its = session_bytes(session, history), claw().writes(session, [message(block) for block in history])
    if its and loads(its) == gist_of(history) and not any("\r" in block.content for block in history):
        assert ours == its
    elif "\\ud800" not in repr(history):  # which it could never save again
        assert loads(ours) == gist_of(history)
        # And no more than an escape is other than its own.
        assert re.sub(rb"\\u003[ce]|[<>\\]", b"", ours) == re.sub(rb"\\u003[ce]|[<>\\]", b"", its)


def loads(data: bytes) -> list[tuple[Any, ...]] | None:
    """What it loads, None where it raises."""
    try:
        return gist(claw().reads(data))
    except AttributeError:
        return None


@pytest.mark.parametrize(
    "ts", ["noon", "2026-03-07T10:00:01Z", "2026-03-07T10:00:01.5+09:00", "2026-03-07", 1772877600.5]
)
def test_any_time_that_others_gave_stands_as_it_stands(ts: Any) -> None:
    messages = [{"role": "user", "content": "hi", "_ts": ts}]
    assert session_bytes("s", [Block("user", "hi", meta={"ts": ts})]) == claw().writes("s", messages)


@pytest.mark.parametrize("version", [ESC, RAW])
@steady
@given(SHOWN, st.lists(blocks, max_size=6))
def test_whatever_the_history_it_restores_every_message(version: str, session: str, history: list[Block]) -> None:
    data = session_bytes(session, history)
    written = restorable(history)
    restored = claw(version).restores(data)
    assert [each["role"] for each in restored] == [whole(block.role) for block in written]
    calling = [block for block in history if block.role == "assistant" and block.tool_calls]
    kept = [each for each in restored if each["role"] == "assistant" and each.get("tool_calls")]
    assert [len(each["tool_calls"]) for each in kept] == [len(block.tool_calls) for block in calling]
    assert len(restored) >= len(history)


@steady
@given(st.lists(blocks, max_size=6))
def test_what_we_exported_we_read_again(history: list[Block]) -> None:
    read = parse(session_bytes("mmkr:agent-1", history))
    assert read.session == "mmkr:agent-1"
    written = restorable(history)
    assert [each.role for each in read.blocks] == [whole(each.role) for each in written]
    assert [len(each.tool_calls) for each in read.blocks] == [len(each.tool_calls) for each in written]


@pytest.mark.parametrize(
    ("history", "restored"),
    [
        ([asked("a", "b"), given_back("b", "B"), given_back("a", "A")], ["", "B", "A"]),
        ([asked("a"), Block("system", "s"), given_back("a", "A")], ["", "A", "s"]),
        ([asked("a"), Block("user", "u"), given_back("a", "A")], ["", "A", "u"]),
        ([asked("a"), given_back("a", "1"), asked("a"), given_back("a", "2")], ["", "1", "", "2"]),
        ([asked("a"), asked("a"), given_back("a", "1"), given_back("a", "2")], None),
        ([asked("a", "a"), given_back("a", "1"), given_back("a", "2")], ["", "1", "2"]),
        ([given_back("a", "A")], None),
        ([asked("a")], None),
        ([Block("assistant", "", at=NOON, tool_calls=(call(""),)), given_back("", "A")], None),
        ([Block("assistant", "", at=NOON, tool_calls=({"function": {"name": "f"}},)), Block("tool", "A")], None),
    ],
)  # fmt: skip
def test_calls_that_its_restore_step_would_drop(history: list[Block], restored: list[str] | None) -> None:
    kept = claw().restores(session_bytes("s", history))
    if restored is not None:
        assert [each["content"] for each in kept] == restored
    assert sum(len(each.get("tool_calls", [])) for each in kept) == sum(len(block.tool_calls) for block in history)
    for block in history:
        assert any(block.content in each["content"] for each in kept)


# -- memory --


def facts_of(facts: dict[str, str]) -> list[Fact]:
    return [Fact(key, value, datetime(2026, 3, 7, 10).astimezone()) for key, value in facts.items()]


@steady
@given(st.dictionaries(KEYS, TEXTS.map(settled), max_size=5))
def test_facts_are_as_it_writes_them_and_it_knows_them_all(facts: dict[str, str]) -> None:
    data = memory_bytes(facts_of(facts))
    assert data == saved(facts) and list(loaded(data)) == list(facts)


@steady
@given(st.dictionaries(st.text(max_size=5) | st.sampled_from(["a\n## b", " a", "a\rb", "\u2028"]), TEXTS, max_size=4))
def test_whatever_the_keys_nothing_is_forged(facts: dict[str, str]) -> None:
    theirs = loaded(memory_bytes(facts_of(facts)))
    assert len(theirs) <= len(facts) and all(key and key == key.strip() for key in theirs)


@steady
@given(st.lists(st.tuples(KEYS, TEXTS), min_size=1, max_size=4))
def test_a_log_is_as_it_writes_it(entries: list[tuple[str, str]]) -> None:
    now = datetime.now(UTC)
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        theirs = claw().memory(Path(folder))
        for key, value in entries:
            theirs._append_daily_log(key, value)
        (name,) = theirs.list_memory_files()
        its = Path(folder, name).read_bytes()
    times = re.compile(rb"^### [0-9:]{8} \xe2\x80\x94 ", re.MULTILINE)
    ours = log_bytes(now.astimezone().date(), [(now, key, value) for key, value in entries])
    assert times.sub(b"### ", ours) == times.sub(b"### ", its)


@steady
@given(TEXTS)
def test_the_index_is_as_it_writes_it(text: str) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        try:
            claw().memory(Path(folder)).write_index(text)
        except UnicodeEncodeError:
            return
        assert index_bytes(text) == Path(folder, INDEX).read_bytes()
