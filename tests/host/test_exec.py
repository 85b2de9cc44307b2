"""Engine "exec" in the real runner: small programs in the place of agents, and how each of them may end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawd.config.engines import EngineTable
from clawd.turns.desk import Final

from .conftest import Stage, eventually
from .memory_desk import HeldTurn

pytestmark = pytest.mark.anyio

EVENTS = [
    {"type": "begin", "id": "s-1"},
    {"type": "tool", "id": "t1", "name": "shell", "args": {"command": "ls"}},
    {"type": "done", "id": "t1", "out": [{"text": "a"}, {"text": "b"}]},
    {"type": "message", "role": "assistant", "text": "first", "usage": {"input_tokens": 5, "output_tokens": 1}},
    {"type": "message", "role": "user", "text": "not this"},
    {"type": "message", "role": "assistant", "text": "last", "usage": {"input": 7, "output": 2, "cache": {"read": 3}}},
]
TALKS = {
    "output": "stream-json",
    "answer": "type=message role=assistant text",
    "session": "type=begin id",
    "usage": "type=message role=assistant usage",
    "error": "type=failed error.message",
    "calls": "type=tool id:id name:name arguments:args",
    "results": "type=done id:id output:out",
}


def submit(stage: Stage, script: str, text: str = "hello", **entry: Any) -> HeldTurn:
    """A turn that is answered by a shell script."""
    context = entry.pop("context", {})
    table = EngineTable.model_validate({"command": ["sh", "-c", script], **entry})
    turn = stage.desk.submit(
        text, engine="exec", session="terminal:main", exec={"name": "it", **table.model_dump()}, **context
    )
    for wake in turn.wakes:
        wake |= {"text": text, "joined": 0}
    return turn


async def ends(stage: Stage, script: str, **entry: Any) -> Final:
    return await stage.desk.done(submit(stage, script, **entry))


def said(*events: dict[str, Any]) -> str:
    return "cat >/dev/null; cat <<'END'\nnoise\n" + "\n".join(map(json.dumps, events)) + "\nEND\n"


async def test_how_it_may_end(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        final = await ends(stage, "cat")
        assert (final.text, final.error, final.model) == ("hello", None, "it")
        assert final.usage is not None and final.usage.estimated and final.usage.input == 1
        for script, entry, sentence in (
            ("echo broken >&2; exit 3", {}, "it ended with exit code 3: broken"),
            ("cat >/dev/null", {}, "it ended without an answer."),
            ("echo nothing here", {**TALKS}, "it ended without an answer."),
            ("kill -9 $$", {}, "it was ended by SIGKILL."),
            (
                "echo 'permission requested: bash; auto-rejecting' >&2",
                {},
                "it was stopped by its own permission rules (permission requested), which [engines.it] can change:"
                " permission requested: bash; auto-rejecting",
            ),
            ("echo needs a nod >&2; exit 1", {"blocked": ["a nod"]}, "its own permission rules (a nod)"),
            (said({"type": "failed", "error": {"message": "overloaded"}}), {**TALKS}, "without an answer: overloaded"),
            ("", {"command": ["/no/such/agent"]}, "it could not be started: /no/such/agent: No such file"),
        ):
            final = await ends(stage, script, **entry)
            assert sentence in (final.error or "") and final.usage is None, (script, final)
        final = await ends(stage, "head -c 10000000 /dev/zero | tr '\\0' x")
        assert final.error is None and len(final.text) <= 256 << 10 and "cut: longer than" in final.text
        final = await ends(stage, 'cat >/dev/null; echo \'{"a": {"b": "found"}}\'', output="json", answer="a.b")
        assert final.text == "found"


async def test_what_it_says_becomes_steps_usage_and_a_session_that_is_resumed(stage: Stage) -> None:
    resume = ["sh", "-c", 'printf \'{"type":"message","role":"assistant","text":"%s: \' "$1"; cat; echo \'"}\'', "sh"]
    entry = {**TALKS, "resume": [*resume, "{session}"]}
    async with stage.server():
        stage.runner()
        turn = submit(stage, said(*EVENTS), **entry)
        final = await stage.desk.done(turn)
        assert (final.text, final.error) == ("last", None)
        assert final.usage is not None
        assert (final.usage.input, final.usage.output, final.usage.cached) == (12, 3, 3)
        assert [step["role"] for step in turn.steps] == ["assistant", "tool"]
        assert turn.steps[0]["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"command": "ls"}'}
        assert turn.steps[1]["content"] == "a\nb"
        assert [event["phase"] for event in turn.events if event["type"] == "tool"][:1] == ["start"]

        history = [{"role": "user", "content": "hello"}, *turn.steps, {"role": "assistant", "content": "last"}]
        final = await ends(stage, said(*EVENTS), text="more", context={"history": history}, **entry)
        assert final.text == "s-1: more"
        # A person's edit, or a session of which nothing is known: told in words, from the start.
        history[0] = {"role": "user", "content": "edited"}
        told = await ends(
            stage,
            "cat",
            text="and now",
            context={"history": history, "system": [{"name": "identity", "text": "Be kind."}]},
        )
        assert told.text.startswith("Be kind.") and told.text.endswith("and now")
        assert '{"role": "user", "content": "edited"}' in told.text


async def test_what_it_is_given(stage: Stage) -> None:
    model = {"service": "s", "model": "m-1", "path": "/svc/s/v1/chat/completions", "max_output": 9, "effort": None}
    async with stage.server():
        stage.runner()
        final = await ends(
            stage,
            'cat .it/conf; echo "$BASE $1"',
            text="a {token} b",
            command=["sh", "-c", 'cat .it/conf; echo "$BASE $1"', "sh", "{prompt}"],
            prompt="argument",
            environment={"BASE": "{base_url} {service_url}"},
            files={".it/conf": "{model} {max_output} {conversation}\n"},
            context={"models": [model]},
        )
        at = f"http://127.0.0.1:{stage.port}/svc/s"
        assert final.text == f"m-1 9 terminal:main\n{at}/v1 {at} a {{token}} b"  # what was said is not filled in
        final = await ends(stage, "", text="x" * (128 << 10), command=["echo", "{prompt}"], prompt="argument")
        assert "so long a conversation as an argument" in (final.error or "")


async def test_a_second_attempt_is_told_what_was_done(stage: Stage) -> None:
    async with stage.server():
        runner = stage.runner()
        turn = submit(stage, said(*EVENTS[:2]) + "sleep 600", **TALKS)
        await eventually(lambda: len(turn.steps) == 1)
        stage.kill(runner)
    async with stage.server("r2"):
        stage.runner()
        turn.context["exec"] |= {"command": ["cat"], "output": "plain"}
        turn.context["effects"] = [{"tool": "send_message", "said": "Halfway.", "result": {}}]
        stage.desk.requeue(turn)
        final = await stage.desk.done(turn)
    assert '"arguments": "{\\"command\\": \\"ls\\"}"' in final.text
    assert "is not known" in final.text and "do not do it again" in final.text
    assert '"said": "Halfway."' in final.text.partition("are not to be done again")[2]  # of which no step told


async def test_a_stop_ends_it_and_what_it_started(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        turn = submit(stage, "setsid sleep 601 & sleep 602")
        await eventually(lambda: len(stage.processes()) >= 3)
        stage.desk.stop(turn)
        final = await stage.desk.done(turn, 10)
        assert final.stop_reason == "stopped"
        assert stage.processes() == []
