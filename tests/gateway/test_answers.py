"""What an answer used, however its bytes are cut, and whatever its provider says."""

from __future__ import annotations

import json
import math
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.gateway.answers import MOST_HELD, Answer
from clawd.usage.prices import Tokens

PARTS = {"cache_read_input_tokens": 30, "cache_creation_input_tokens": 20}
HOUR = {"cache_creation": {"ephemeral_5m_input_tokens": 15, "ephemeral_1h_input_tokens": 5}}


def lines(*events: Any, end: str = "\n\n") -> bytes:
    return "".join(f"data: {each if isinstance(each, str) else json.dumps(each)}{end}" for each in events).encode()


MESSAGES = (
    b"event: message_start\n"
    + lines({"type": "message_start", "message": {"usage": {"input_tokens": 50, "output_tokens": 1, **PARTS, **HOUR}}})
    + lines({"type": "ping"}, end="\r\n\r\n")
    + lines({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grüße"}})
    + lines({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 42}}, end="\r\r")
    + lines({"type": "message_stop"})
)
CHAT = lines(
    {"choices": [{"delta": {"content": 'a "usage": {"prompt_tokens": 9} b'}}], "usage": None},
    {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    {
        "choices": [],
        "usage": {"prompt_tokens": 100, "completion_tokens": 42, "prompt_tokens_details": {"cached_tokens": 30}},
    },
    "[DONE]",
)
USED = {"input_tokens": 100, "output_tokens": 42, "input_tokens_details": {"cached_tokens": 30}}
RESPONSES = lines(
    {"type": "response.created", "response": {"usage": None}},
    {"type": "response.output_text.delta", "delta": "hello"},
    {"type": "response.completed", "response": {"output": [{"content": [{"text": "hello"}]}], "usage": USED}},
)
OLLAMA = b"".join(
    json.dumps(each).encode() + b"\n"
    for each in (
        {"message": {"content": "hel"}, "done": False},
        {"message": {"content": "lo"}, "done": True, "prompt_eval_count": 100, "eval_count": 42},
    )
)
STREAMS: dict[str, tuple[Any, bytes, Tokens]] = {
    "messages": ("messages", MESSAGES, Tokens(100, 42, 30, 15, 5)),
    "chat": ("openai", CHAT, Tokens(100, 42, 30)),
    "responses": ("openai", RESPONSES, Tokens(100, 42, 30)),
    "ollama": ("ollama", OLLAMA, Tokens(100, 42)),
}
WHOLE: list[tuple[Any, Any, Tokens]] = [
    ("messages", {"content": [], "usage": {"input_tokens": 50, "output_tokens": 42, **PARTS}}, Tokens(100, 42, 30, 20)),
    ("openai", {"usage": {"prompt_tokens": 100, "completion_tokens": 42}}, Tokens(100, 42)),
    ("openai", {"object": "response", "usage": USED}, Tokens(100, 42, 30)),
    ("ollama", {"response": "hi", "done": True, "prompt_eval_count": 100, "eval_count": 42}, Tokens(100, 42)),
    ("embeddings", {"data": [], "usage": {"prompt_tokens": 100, "total_tokens": 100}}, Tokens(100)),
    ("embeddings", {"embeddings": [[0.1]], "prompt_eval_count": 100}, Tokens(100)),
]


def read(speaks: Any, *pieces: bytes, events: bool = True) -> Answer:
    answer = Answer(speaks, events)
    for piece in pieces:
        answer.feed(piece)
    answer.end()
    return answer


def used(answer: Answer, *, input: int = 1000, output: int = 500, text: int = 300) -> tuple[Tokens, bool]:
    return answer.used(input, output, text, 0)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_read_wherever_it_is_cut(name: str) -> None:
    speaks, data, tokens = STREAMS[name]
    for at in range(len(data) + 1):
        answer = read(speaks, data[:at], data[at:])
        assert used(answer) == (tokens, False) and answer.complete and answer.ended, at
    assert used(read(speaks, *(bytes([byte]) for byte in data))) == (tokens, False)


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 2000), max_size=8))
def test_a_stream_that_breaks_off_is_bounded_and_flagged(name: str, cuts: list[int]) -> None:
    speaks, data, tokens = STREAMS[name]
    where = sorted({0, *(cut % len(data) for cut in cuts)})
    found, guessed = used(read(speaks, *(data[a:b] for a, b in pairwise(where))), output=40)
    assert 0 < found.input <= 1000 and 0 <= found.output <= 40
    assert guessed or found.input == tokens.input


@pytest.mark.parametrize(("speaks", "answer", "tokens"), WHOLE)
def test_a_whole_answer(speaks: Any, answer: Any, tokens: Tokens) -> None:
    text = json.dumps(answer, indent=1).encode()
    most = 0 if speaks == "embeddings" else 500
    for at in (0, 1, len(text) // 2, len(text)):
        assert used(read(speaks, text[:at], text[at:], events=False), output=most) == (tokens, False)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({}, Tokens(100, 20)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Tokens(100, 20)),
        ({"prompt_tokens": -5, "completion_tokens": -1}, Tokens(100, 20)),
        ({"prompt_tokens": math.nan, "completion_tokens": math.inf}, Tokens(100, 20)),
        ({"prompt_tokens": "7", "completion_tokens": None}, Tokens(100, 20)),
        ({"prompt_tokens": True, "completion_tokens": [1]}, Tokens(100, 20)),
        ({"prompt_tokens": 10**30, "completion_tokens": 1e300}, Tokens(1000, 500)),
        ({"prompt_tokens": 1001, "completion_tokens": 501}, Tokens(1000, 500)),
        ({"prompt_tokens": 7, "completion_tokens": -3}, Tokens(7, 20)),
        ({"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}, Tokens(7, 5)),
    ],
)
def test_absurd_usage_is_estimated_and_flagged(usage: dict[str, Any], tokens: Tokens) -> None:
    said = {"choices": [{"delta": {"content": "x" * 60}}]}
    assert used(read("openai", lines(said, {"usage": usage}, "[DONE]"))) == (tokens, True)


def test_parts_that_cannot_be_are_left_out() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}}
    assert used(read("openai", lines({"usage": usage}))) == (Tokens(7, 5), False)
    assert used(read("messages", json.dumps({"usage": {**PARTS, "output_tokens": 5}}).encode(), events=False)) == (
        Tokens(100, 5),
        True,
    )


def test_a_stream_without_usage_is_estimated_by_what_it_wrote() -> None:
    pieces = [{"choices": [{"delta": {"content": "word "}}]}] * 12
    assert used(read("openai", lines(*pieces, "[DONE]"))) == (Tokens(100, 20), True)
    cut = MESSAGES.partition(b"event: ping")[0].partition(b'data: {"type": "message_delta"')[0]
    assert used(read("messages", cut)) == (Tokens(100, 2, 30, 15, 5), True)  # what the head said of the input


@given(st.binary(max_size=300), st.booleans(), st.sampled_from(["messages", "openai", "ollama", "embeddings"]))
def test_whatever_comes_is_bounded(data: bytes, events: bool, speaks: Any) -> None:
    found, guessed = used(read(speaks, b"data: {", data, b"\n", data, events=events))
    assert guessed and 0 <= found.input <= 1000 and 0 <= found.output <= 500


def test_little_is_held_of_what_is_long() -> None:
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 7}}
    filler = b'"' + b"x" * 65_530 + b'", '
    tracemalloc.start()
    try:
        long = Answer("openai", False)
        long.feed(b'{"data": [')
        for _ in range(400):
            long.feed(filler)
        long.feed(b'"\\"usage\\": {}"], ' + json.dumps(usage).encode()[1:])
        long.end()
        events = Answer("openai", True)
        events.feed(b"data: ")
        for _ in range(400):
            events.feed(filler)
        events.feed(b"\n\n")
        for n in range(400):  # a provider that makes up counts
            events.feed(lines({"usage": {f"made_up_{n}": "x" * 65_536}}))
        events.feed(lines(usage, "[DONE]"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert used(long) == used(events) == (Tokens(5, 7), False) and peak < 8 * MOST_HELD
