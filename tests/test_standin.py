"""The stand-in itself: a vendor's own client reads its streams, and it refuses what the real one would."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.standin import Standin


def post(model: Standin, path: str, body: dict[str, Any]) -> int:
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(f"{model.url}{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_vendors_client_reads_its_streams() -> None:
    """OpenAI's; Claude Code reads the others in the tests of foreign engines."""
    import openai

    with Standin(key="k") as model:
        for piece in (0, 3):
            model.say("grüße", calls=[("bash", {"command": "ls"})], piece=piece)
            with openai.OpenAI(api_key="k", base_url=f"{model.url}/v1").chat.completions.stream(
                model="m", messages=[{"role": "user", "content": "hi"}]
            ) as chunks:
                choice = chunks.get_final_completion().choices[0]
            assert choice.message.content == "grüße" and choice.finish_reason == "tool_calls"
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(api_key="x", base_url=f"{model.url}/v1").chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}]
            )
        assert model.requests[0].said == "hi" and len(model.problems) == 1


USE = {"type": "tool_use", "id": "a", "name": "bash", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
CALL = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("path", "messages", "status"),
    [
        ("/v1/messages", [HI], 200),
        ("/v1/messages", [], 400),
        ("/v1/messages", [HI, HI], 400),
        ("/v1/messages", [{"role": "assistant", "content": "a"}, HI], 400),
        ("/v1/messages", [HI, {"role": "assistant", "content": "a"}], 400),
        ("/v1/messages", [{"role": "user", "content": " "}], 400),
        ("/v1/messages", [HI, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}], 200),
        ("/v1/messages", [HI, {"role": "assistant", "content": [USE]}, HI], 400),
        ("/v1/messages", [{"role": "user", "content": [RESULT]}], 400),
        ("/v1/messages", [{**HI, "name": "x"}], 400),
        ("/v1/chat/completions", [HI], 200),
        ("/v1/chat/completions", [HI, {"role": "assistant", "content": None}, HI], 400),
        ("/v1/chat/completions", [HI, {"role": "assistant", "tool_calls": [CALL]}, HI], 400),
        (
            "/v1/chat/completions",
            [HI, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "a", "content": ""}],
            200,
        ),
        ("/v1/other", [HI], 404),
    ],
)
def test_it_refuses_what_the_real_one_would(path: str, messages: list[Any], status: int) -> None:
    with Standin() as model:
        assert post(model, path, {"model": "m", "max_tokens": 9, "messages": messages}) == status
        assert len(model.problems) == (status != 200)
