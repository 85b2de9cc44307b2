"""Lines of a trace: fields wherever a dialect puts them, and nothing lost of any JSON."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.bridges.mmkr.events import Broken, Event, Reader, lines_of
from clawd.bridges.mmkr.messages import Telling
from clawd.bridges.mmkr.words import tell

steady = settings(deadline=None, max_examples=80)
TEN = datetime(2026, 3, 7, 10, tzinfo=UTC)


def event(**fields: Any) -> Event:
    (found,) = Reader().read(json.dumps(fields).encode())
    assert isinstance(found, Event)
    return found


@pytest.mark.parametrize(
    ("stamp", "moment"),
    [
        ({"ts": 1772877600.0}, TEN),
        ({"ts": 1772877600000}, TEN),
        ({"ts": "1772877600"}, TEN),
        ({"ts": "2026-03-07T10:00:00Z"}, TEN),
        ({"timestamp": "2026-03-07T11:00:00+01:00"}, TEN),
        ({"ts": "soon"}, None),
        ({"ts": True}, None),
        ({"ts": 1e300}, None),
        ({"ts": "nan"}, None),
        ({}, None),
    ],
)
def test_times(stamp: dict[str, Any], moment: datetime | None) -> None:
    assert event(event="decision", **stamp).at == moment


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"args": {"a": "é"}}, '{"a": "é"}'),
        ({"args": '{"a":1}'}, '{"a":1}'),
        ({"args": "ls -l"}, '{"args": "ls -l"}'),
        ({"args": [1]}, '{"args": [1]}'),
        ({"args": '{"a": NaN}'}, '{"args": "{\\"a\\": NaN}"}'),
        ({"metadata": {"args": {"b": 2}}}, '{"b": 2}'),
        ({"target": "a/b"}, '{"target": "a/b"}'),
        ({}, "{}"),
    ],
)
def test_arguments_are_json_of_an_object(args: dict[str, Any], text: str) -> None:
    assert event(event="tool_call", tool="t", **args).args == text


def test_tick_and_time_are_carried() -> None:
    reader = Reader()
    lines = [b'{"event":"a"}', b'{"event":"b","tick":"7","ts":1772877600}', b"", b'{"event":"c","tick":"seven"}']
    first, second, third = (each for line in lines for each in reader.read(line))
    assert isinstance(first, Event) and (first.tick, first.at) == (None, None)
    assert isinstance(second, Event) and (second.tick, second.at) == (7, TEN)
    assert isinstance(third, Event) and (third.tick, third.at, third.line) == (7, TEN, 4)
    assert third.more == (("tick", "seven"),)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "it is no JSON (Expecting property name enclosed in double quotes)"),
        (b"[]", "it is JSON, but no object"),
        (b"null", "it is JSON, but no object"),
        (b'{"a":' * 100_000, "it is nested too deep"),
        (b'{"a":' + b"9" * 5000 + b"}", "it is no JSON (a number is too long)"),
        (None, "it is longer than 16 MB"),
    ],
)
def test_broken_lines_say_why(line: bytes | None, why: str) -> None:
    assert Reader().read(line) == [Broken(1, why)]


def test_invalid_utf_8_is_mended_and_told() -> None:
    mended, found = Reader().read(b'{"event":"decision","message":"a\xffb"}')
    assert isinstance(mended, Broken) and mended.kept and "byte 32" in mended.why
    assert isinstance(found, Event) and found.text == "a\ufffdb"


def test_a_line_without_end_is_not_held_in_memory() -> None:
    file = io.BytesIO(b"x" * 50 + b"\nshort\n" + b"y" * 30)
    assert list(lines_of(file, longest=10)) == [(None, 51), (b"short\n", 6), (None, 30)]


def told(lines: list[bytes]) -> str:
    """All that is said of these lines, with the arguments as they are."""
    reader, telling, texts = Reader(), Telling(), list[str]()
    for line in lines:
        for each in reader.read(line):
            if isinstance(each, Event):
                tell(each, telling)
    telling.close()
    for piece in telling.ready():
        for block in piece.blocks:
            texts += [block.content, str(block.meta.get("phase", ""))]
            texts += [text for call in block.tool_calls for text in call["function"].values()]
    texts += [text for kept in telling.kept() for text in (kept.content, kept.category, kept.topic)]
    return "\n".join(texts)


_NAMES = (
    "event event_type tick ts timestamp tool tool_name args target result outcome error summary message metadata data "
    "content category key phase type description succeeded success goals actions prompt response reasoning"
)
_KINDS = (
    "tick_start mmkr:tick_end tick_complete tool_call tool_result memory_write decision error action llm_prompt "
    "llm_response llm_call phase_start phase_complete wealth_update memory_read new"
)
NAMES, KINDS = st.text(max_size=8) | st.sampled_from(_NAMES.split()), st.sampled_from(_KINDS.split())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
# A text that no number, word or template of ours can hold by accident.
MARK = st.text(st.characters(codec="utf-8"), max_size=6).map(lambda text: f"«{text}»")


@steady
@given(
    st.lists(st.builds(lambda kind, more: {"event": kind, **more}, KINDS, st.dictionaries(NAMES, VALUES)), max_size=5)
)
def test_no_object_raises(events: list[dict[str, Any]]) -> None:
    told([json.dumps(each).encode() for each in events])


@steady
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_raise(lines: list[bytes]) -> None:
    told(lines)


@steady
@given(KINDS, st.dictionaries(NAMES.filter(lambda name: name not in ("event", "tick", "ts", "timestamp")), MARK))
def test_no_text_is_lost(kind: str, fields: dict[str, str]) -> None:
    said = told([json.dumps({"event": kind, "tick": 1, **fields}).encode()])
    for name, mark in fields.items():
        # A call's arguments hold a text that is no JSON as a JSON string.
        assert (
            name in ("agent_id", "session_id", "call_id")
            or mark in said
            or json.dumps(mark)[1:-1] in said
            or (json.dumps(mark, ensure_ascii=False)[1:-1] in said)
        )
