"""What is sent is a conversation that the real API takes, whatever a history, an attempt or a person's edit left; what
comes is read however its bytes are split."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from agent import protocol
from agent.engines import chat, messages
from agent.engines.conversation import conversation
from agent.engines.stream import Events, Failure
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.rehearsal import TOOLS, model_of, wake
from tests.standin import chat as strict_chat
from tests.standin import messages as strict_messages

TEXT = st.sampled_from(["", " ", "\n\t", "hi", "a\ud800b", "c\0d", "  spaced  "]) | st.text(max_size=5)
ID = st.sampled_from(["a", "b", "c", "call 1!", ""])
CALL = st.fixed_dictionaries(
    {
        "id": ID,
        "function": st.fixed_dictionaries(
            {
                "name": st.sampled_from(["bash", "", "rm -rf", "é" * 90]),
                "arguments": st.sampled_from(["{}", '{"a": 1}', "", "[1]", '{"a": ', '{"a": NaN}']),
            }
        ),
    }
)
SPOKEN = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": TEXT | st.none()})
CALLING = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": TEXT, "tool_calls": st.lists(CALL, max_size=3)}
)
RESULT = st.fixed_dictionaries({"role": st.just("tool"), "content": TEXT, "tool_call_id": ID})
MESSAGES = st.lists(SPOKEN | CALLING | RESULT, max_size=10)
WAKES = st.lists(st.builds(lambda text, joined: wake(text, joined=joined), TEXT, st.integers(0, 9)), max_size=3)


@settings(max_examples=60)
@given(MESSAGES, WAKES, MESSAGES, st.booleans())
def test_every_conversation_is_one_that_the_apis_take(
    history: list[Any], wakes: list[Any], steps: list[Any], bare: bool
) -> None:
    context: dict[str, Any] = {"history": history, "system": [] if bare else [{"name": "a", "text": "b"}]}
    context["tools"] = [] if bare else TOOLS
    talk = conversation(SimpleNamespace(context=context, wakes=wakes, steps=steps))  # type: ignore[arg-type]
    for dialect, strict in ((messages, strict_messages), (chat, strict_chat)):
        model = model_of("chat" if dialect is chat else "messages", effort=None if bare else "low")
        body = protocol.clean(dialect.request(model, context, talk, set()))
        strict.check(json.loads(json.dumps(body, ensure_ascii=False).encode()), dict(dialect.HEADERS), True)
        sent = json.dumps(body, ensure_ascii=False)
        said = [each["text"] for each in wakes] + [each["content"] for each in history if each["role"] == "user"]
        assert all(
            json.dumps(protocol.clean(text), ensure_ascii=False)[1:-1] in sent for text in said if text and text.strip()
        )


def test_the_same_beginning_gives_the_same_bytes() -> None:
    """What a provider keeps of the last turn is found again in the next one."""
    call = {"id": "call_1_0", "function": {"name": "bash", "arguments": "{}"}}
    steps = [
        {"role": "assistant", "content": "x", "tool_calls": [call]},
        {"role": "tool", "content": "y", "tool_call_id": "call_1_0"},
    ]
    context: dict[str, Any] = {"history": [], "system": [], "tools": []}
    first = SimpleNamespace(context=context, wakes=[wake("hi")], steps=steps)
    past = [{"role": "user", "content": "hi"}, *steps, {"role": "assistant", "content": "done"}]
    later = SimpleNamespace(context={**context, "history": past}, wakes=[wake("more")], steps=[])
    one, two = (conversation(turn) for turn in (first, later))  # type: ignore[arg-type]
    assert one == two[: len(one)]


LINES = st.lists(
    st.sampled_from(
        [b"data: a", b"data:b", b"data:  c", "data: é🎉".encode(), b"data", b": note", b"event: x", b"id: 1", b""]
    )
)


@given(LINES, st.sampled_from([b"\n", b"\r", b"\r\n"]), st.lists(st.integers(1, 7), min_size=1))
def test_events_are_read_however_they_are_split(lines: list[bytes], end: bytes, sizes: list[int]) -> None:
    expected: list[bytes] = []
    data: list[bytes] = []
    for line in [*lines, b"", b"data: last", b"", b": end"]:
        if line.startswith(b"data"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            expected.append(b"\n".join(data))
            data = []
    stream = end.join([*lines, b"", b"data: last", b"", b": end"]) + end
    parser, found, at, turn = Events(), list[bytes](), 0, 0
    while at < len(stream):
        found += parser.feed(stream[at : at + sizes[turn % len(sizes)]])
        at, turn = at + sizes[turn % len(sizes)], turn + 1
    assert found == expected


KEYS = """type delta message content_block usage index choices error tool_calls function text content name arguments
partial_json finish_reason stop_reason id input_tokens prompt_tokens prompt_tokens_details cached_tokens code"""
KINDS = "content_block_start content_block_delta message_delta tool_use text_delta input_json_delta"
JSON = st.recursive(
    st.none() | st.integers() | st.floats() | st.sampled_from(KINDS.split()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.lists(JSON.filter(lambda value: isinstance(value, dict)), max_size=4))
def test_any_event_is_taken_or_a_failure(events: list[Any]) -> None:
    for dialect in (messages, chat):
        reply = dialect.Answer()
        try:
            for event in events:
                reply.take(event)
        except (Failure, AttributeError, TypeError, ValueError, LookupError):
            pass  # the loop asks again
        assert all(type(count) is int and 0 <= count <= 3e9 for count in reply.usage())
        assert isinstance(reply.text(), str) and all(isinstance(raw, str) for _, raw in reply.asked())


def piece(index: Any, id: Any = None, name: Any = None, arguments: Any = "") -> dict[str, Any]:
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([piece(0, "a", "x"), piece(0, arguments='{"a"'), piece(0, arguments=":1}")], [("x", '{"a":1}')]),
        ([piece(0, "a", "x"), piece(1, "b", "y", "{}"), piece(0, arguments="{}")], [("x", "{}"), ("y", "{}")]),
        ([piece(0, "a", "x", "{}"), piece(0, "b", "y", "{}")], [("x", "{}"), ("y", "{}")]),  # all the same index
        ([piece(None, None, "x", "{}"), piece(None, None, "y", "{}")], [("x", "{}"), ("y", "{}")]),  # none at all
        ([piece(None, "a", "x", '{"a'), piece(None, "a", None, '":1}')], [("x", '{"a":1}')]),
        ([piece(0, "a", "x")], [("x", "{}")]),
        ([piece(0, "a", "x", {"a": 1})], [("x", '{"a": 1}')]),
    ],
)
def test_calls_of_servers_that_count_in_their_own_way(pieces: list[Any], calls: list[Any]) -> None:
    reply = chat.Answer()
    for each in pieces:
        reply.take({"choices": [{"delta": {"tool_calls": [each]}}]})
    assert reply.asked() == calls
