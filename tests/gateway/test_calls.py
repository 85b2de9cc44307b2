"""Which requests are model calls, and what one can take at most."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.gateway.calls import DOCUMENT, IMAGE, bound, dialect, is_uncounted


@pytest.mark.parametrize(
    ("path", "own", "speaks"),
    [
        ("/v1/messages", False, "messages"),
        ("/anthropic/v1/messages/", False, "messages"),
        ("/v1/mess%61ges", False, "messages"),
        ("/v1/Messages;x=1", False, "messages"),
        ("/messages", True, "messages"),
        ("/v1/chat/completions", False, "openai"),
        ("/openai/deployments/mine/chat/completions", False, "openai"),
        ("/openai/deployments/mine/completions", False, "openai"),
        ("/v1/completions", False, "openai"),
        ("/v1/responses", False, "openai"),
        ("/api/chat", False, "ollama"),
        ("/api/generate", False, "ollama"),
        ("/v1/embeddings", False, "embeddings"),
        ("/api/embed", False, "embeddings"),
        ("/v1/messages/count_tokens", True, None),
        ("/v1/models", True, None),
        ("/", True, None),
        ("/api/v10/channels/7/messages", False, None),  # letters of a chat
        ("/v1.0/me/messages", False, None),
        ("/responses", False, None),
    ],
)
def test_a_path(path: str, own: bool, speaks: str | None) -> None:
    assert dialect(path, own=own) == speaks


@pytest.mark.parametrize(
    ("path", "uncounted"),
    [
        ("/v1/messages/batches", True),
        ("/v1/batches", True),
        ("/v1/images/generations", True),
        ("/v1/realtime", True),
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent", True),
        ("/v1/messages/count_tokens", False),
        ("/v1/files", False),
        ("/v1/messages", False),
    ],
)
def test_what_cannot_be_counted(path: str, uncounted: bool) -> None:
    assert is_uncounted(path) is uncounted


PNG, PDF = "A" * 40_000, "data:application/pdf;base64," + "B" * 40_000
URL = "data:image/png;base64," + PNG


def message(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def base64(kind: str) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": "x", "data": PNG}}


@pytest.mark.parametrize(
    ("request_", "fixed", "counted"),
    [
        (message(base64("image")), IMAGE, False),
        (message(base64("document"), base64("image")), DOCUMENT + IMAGE, False),
        (message({"type": "tool_result", "content": [base64("image")]}), IMAGE, False),
        (message({"type": "image_url", "image_url": {"url": URL}}), IMAGE, False),
        (message({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}), IMAGE, False),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]}, IMAGE, False),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_data": PDF}]}]}, DOCUMENT, False),
        (message({"type": "file", "file": {"file_data": PDF}}), DOCUMENT, False),
        (message({"type": "document", "source": {"type": "file", "file_id": "f"}}), DOCUMENT, False),
        ({"messages": [{"role": "user", "content": "x", "images": [PNG, PNG]}]}, 2 * IMAGE, False),
        ({"previous_response_id": "r", "input": "x"}, DOCUMENT, False),
        # What only looks like a picture is text, and is read as such.
        (message({"type": "text", "text": PNG}), 0, True),
        (message({"type": "document", "source": {"type": "text", "data": PNG}}), 0, True),
        (message({"type": "tool_use", "input": base64("image")}), 0, True),
        (message({"type": "image_url", "image_url": {"url": "data:text/plain," + PNG}}), IMAGE, True),
        ({"system": PNG}, 0, True),
        ({"messages": [{"role": "user", "content": base64("image")}]}, 0, True),
    ],
)
def test_pictures_and_papers_count_as_such(request_: dict[str, Any], fixed: int, counted: bool) -> None:
    text = json.dumps(request_, separators=(",", ":"))
    found = bound(text.encode(), "openai")
    assert found.fixed == fixed and (found.text > 40_000) is counted
    for other in (text.replace("e", "\\u0065").encode(), text.encode("utf-16")):
        assert bound(other, "openai").fixed == fixed


@pytest.mark.parametrize(
    ("request_", "speaks", "output", "answers"),
    [
        ({"max_tokens": 100}, "messages", 100, 1),
        ({"max_tokens": 100.0, "max_completion_tokens": 300}, "openai", 300, 1),
        ({"max_output_tokens": 7}, "openai", 7, 1),
        ({"max_tokens": 10, "n": 3}, "openai", 10, 3),
        ({"max_tokens": 10, "n": -3}, "openai", 10, 1),
        ({"max_tokens": -1}, "openai", None, 1),
        ({"max_tokens": "many"}, "openai", None, 1),
        ({}, "openai", None, 1),
        ({"options": {"num_predict": 9}}, "ollama", 9, 1),
        ({"options": {"num_predict": -1}}, "ollama", None, 1),
        ({"options": 7}, "ollama", None, 1),
        ({"max_tokens": 10}, "embeddings", 0, 1),
    ],
)
def test_the_most_that_is_answered(request_: dict[str, Any], speaks: Any, output: int | None, answers: int) -> None:
    found = bound(json.dumps({"model": "m", **request_}).encode(), speaks)
    assert (found.model, found.output, found.answers) == ("m", output, answers)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[1]", b'"x"', b"\xff\xfe", b'{"model": 7}', b"[" * 200_000, b"[" + b"[]," * 600_000 + b"[]]"),
        *(b'{"max_tokens": 9, "max_tokens": 1}', b'{"n": 1, "N": 9}', b'{"tools": [{"type": "x", "type": "custom"}]}'),
    ],
)
def test_what_is_no_request_counts_by_its_size_for_nobody(body: bytes) -> None:
    found = bound(body, "messages")
    assert (found.model, found.text, found.fixed, found.output) == ("", len(body), 0, None)


def test_a_dearer_tier_and_a_cache_for_an_hour_are_seen() -> None:
    plain = bound(b'{"service_tier": "auto"}', "openai")
    assert plain.listed and not plain.hour
    assert not bound(b'{"service_tier": "priority"}', "openai").listed
    assert not bound(b'{"speed": "fast"}', "messages").listed
    assert not bound(b'{"inference_geo": "us"}', "messages").listed
    assert bound(b'{"system": [{"cache_control": {"ttl": "1h"}}]}', "messages").hour
    assert bound(b'{"system": [{"cache_control": {"ttl": "1\\u0068"}}]}', "messages").hour


@pytest.mark.parametrize(
    ("request_", "beside"),
    [
        ({"background": False, "tools": [{"name": "mine"}, {"type": "function"}, {"type": "custom"}]}, None),
        ({"tools": [{"type": "bash_20250124"}, {"type": "text_editor_20250728"}, {"type": "local_shell"}]}, None),
        ({"background": True}, "background"),
        ({"deferred": 1}, "deferred"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"plugins": [{"id": "web"}]}, "plugins"),
        ({"tools": [{"type": "function"}, {"type": "code_interpreter"}]}, "code_interpreter"),
        ({"tools": [{"type": ["function"]}]}, "['function']"),
    ],
)
def test_what_is_billed_beside_the_tokens_is_named(request_: dict[str, Any], beside: str | None) -> None:
    assert bound(json.dumps(request_).encode(), "openai").beside == beside


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "content", "source", "data", "messages", "image_url", "images", "n", "file"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["messages", "input", "n", "max_tokens", "service_tier"]), JSON))
def test_any_request_has_a_bound(request_: dict[str, Any]) -> None:
    body = json.dumps(request_).encode()
    found = bound(body, "openai")
    assert 0 <= found.text <= len(body) and found.fixed >= 0 and found.answers >= 1
