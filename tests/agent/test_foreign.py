"""What foreign engines share: the conversation as they are told it, and whether it is still the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from agent import protocol
from agent.engines import claude_code, exec, foreign
from agent.engines.claude_stream import DENIED, Stream
from agent.turn import Answer, GivenUp

from tests.agent.rehearsal import Rehearsal
from tests.standin import Standin

Message = dict[str, Any]


def call(id: str, name: str = "bash", arguments: str = "{}") -> Message:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: Message, text: str = "") -> Message:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


class Turn:
    def __init__(self, history: list[Message], steps: list[Message], *wakes: tuple[str, int]) -> None:
        self.context, self.steps = {"history": history}, steps
        self.wakes = [{"text": text, "joined": joined} for text, joined in wakes]


USER: Message = {"role": "user", "content": "one"}
DONE: Message = {"role": "tool", "tool_call_id": "a", "content": "out", "at": "now"}


def test_the_whole_conversation_has_wakes_where_they_joined_and_a_result_for_each_call() -> None:
    turn: Any = Turn([USER], [asks(call("a"), call("b")), DONE], ("two", 0), ("three", 2))
    found = foreign.whole(turn)
    assert [(each["role"], each.get("content")) for each in found] == [
        ("user", "one"),
        ("user", "two"),
        ("assistant", ""),
        ("tool", foreign.UNANSWERED),
        ("tool", "out"),
        ("user", "three"),
    ]
    rows = claude_code.session_rows(found, "id", "/group")
    assert [row["parentUuid"] for row in rows] == [None, *(row["uuid"] for row in rows[:-1])]
    assert [row["type"] for row in rows] == ["user", "user", "assistant", "user", "user", "user"]
    assert rows[2]["message"]["content"] == [
        {"type": "tool_use", "id": id, "name": "bash", "input": {}} for id in ("a", "b")
    ]
    assert claude_code.session_rows([{"role": "assistant", "content": " "}], "id", "/group") == []


def test_a_session_is_known_by_what_the_next_turn_is_told_until_memory_forgot_something() -> None:
    turn: Any = Turn([USER], [asks(call("a")), DONE], ("<memory-1>\n{}\n</memory-1>\n\ntwo", 0), ("three", 2))
    turn.context |= {"memories": "<memory-1>\n{}\n</memory-1>", "forgot": ""}
    told = [USER, {"role": "user", "content": "two"}, asks(call("a")), DONE, {"role": "user", "content": "three"},
            {"role": "assistant", "content": "done"}]  # fmt: skip
    then: Any = Turn(told, [], ("four", 0))
    then.context["forgot"] = ""
    assert "<memory-1>" in foreign.whole(turn)[1]["content"]  # a later attempt has it still
    assert foreign.same(turn, foreign.after(turn, "done")) == foreign.same(then, told)
    then.context["forgot"] = "2026-12-01T09:00:00.000+00:00"
    assert foreign.same(turn, foreign.after(turn, "done")) != foreign.same(then, told)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ([USER, {"role": "user", "content": "two"}], False),
        ([{"role": "user", "content": " one\n"}], True),
        ([USER, {"role": "assistant", "content": ""}], True),
        ([{"role": "assistant", "content": "one"}], False),
        ([{"role": "user", "content": "One"}], False),
        ([], False),
    ],
)
def test_a_conversation_is_known_again(other: list[Message], same: bool) -> None:
    assert (foreign.digest([USER]) == foreign.digest(other)) is same
    assert foreign.digest([USER], "a") != foreign.digest([USER], "b")
    joined = foreign.digest([{"role": "user", "content": "one\n\ntwo"}])
    assert joined == foreign.digest([USER, {"role": "user", "content": "two"}])
    assert foreign.digest([asks(call("a"))]) == foreign.digest([asks(call("b"))])
    assert foreign.digest([asks(call("a"))]) != foreign.digest([asks(call("a", arguments='{"x":1}'))])


def test_what_is_remembered_counts_once_and_only_as_it_was_written(tmp_path: Path) -> None:
    path = foreign.memory_of(str(tmp_path / "state"), "terminal:main")
    assert foreign.recall(path, "d") is None
    foreign.remember(path, "s-1", "d")
    assert foreign.recall(path, "d") == "s-1"
    assert foreign.recall(path, "d") is None
    for hostile in ("[]", "{", '{"id": 1, "digest": "d"}', '{"id": "../x y", "digest": "d"}', "x" * 100_000):
        Path(path).write_text(hostile)
        assert foreign.recall(path, "d") is None
    os.mkfifo(path)  # nobody writes to it, and nobody waits
    assert foreign.recall(path, "d") is None
    Path(path).symlink_to("/etc/passwd")
    assert foreign.recall(path, "d") is None


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("type=m message.role=assistant message.content", {"value": [{"text": "x"}]}),
        ("type=m id:message.id name:type", {"id": None, "name": "m"}),
        ("id:message.id|type|message name:a|b", {"id": "m", "name": None}),
        ("type=other message", None),
        ("message.role.deep=1 message", None),
        ("", None),
    ],
)
def test_a_pattern_takes_what_it_names(pattern: str, found: Any) -> None:
    event = {"type": "m", "message": {"role": "assistant", "content": [{"text": "x"}]}}
    assert exec.matched(pattern, event) == found


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"input_tokens": 3, "output_tokens": 2, "cached_input_tokens": 1}, [3, 2, 1]),
        ({"input": 3, "output": 2, "cache": {"read": 1, "write": 9}}, [3, 2, 1]),
        ({"inputTokens": -3, "output": True, "cacheRead": 1e400}, [0, 0, 0]),
        ({"prompt_tokens": "3", "completion_tokens": None}, [0, 0, 0]),
    ],
)
def test_usage_by_any_of_its_names(usage: Any, counts: list[int]) -> None:
    assert exec.counts_of(usage) == counts


class Poster:
    def __init__(self) -> None:
        self.did: list[Any] = []

    def calls(self, text: str, calls: list[tuple[str, str, Any]]) -> None:
        self.did.append((text, [id for id, _, _ in calls]))

    def result(self, id: str, text: str) -> None:
        self.did.append((id, text))

    def say(self, text: str) -> None:
        self.did.append(text)

    def answer(self, event: Message, denied: str | None) -> None:
        self.did.append(("allowed" if denied is None else denied, event["request_id"]))


def played(*events: Message) -> tuple[list[Any], Answer | None]:
    poster: Any = Poster()
    stream, answer = Stream(poster, poster), None
    for event in events:
        answer = stream.take(event) or answer
    return poster.did, answer


def piece(kind: str, **more: Any) -> Message:
    return {"type": "stream_event", "event": {"type": kind, **more}}


def block(*blocks: Message, **more: Any) -> Message:
    return {"type": "assistant", "message": {"model": "m", "content": list(blocks)}, **more}


def use(id: str, name: str = "Bash") -> Message:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def result(id: str, content: Any) -> Message:
    return {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "tool_use_id": id, "content": content}]},
    }


def may(id: str, name: str = "Bash") -> Message:
    return {
        "type": "control_request",
        "request_id": id,
        "request": {"subtype": "can_use_tool", "tool_name": name, "input": {}},
    }


def test_a_tool_gets_its_yes_once_its_whole_message_is_posted() -> None:
    did, answer = played(
        piece("message_start"),
        block({"type": "text", "text": "I look"}),
        piece("content_block_delta", delta={"text": "I look"}),
        block(use("a")),
        may("r1"),  # the CLI does not wait for the rest of the message
        block(use("b", "WebFetch")),
        may("r2", "WebFetch"),
        piece("message_stop"),
        block(use("deep"), parent_tool_use_id="a"),  # a subagent's own
        result("a", [{"type": "text", "text": "x"}, {"type": "image"}]),
        {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "usage": {"input_tokens": 1}},
    )
    assert did == [
        "I look",
        ("I look", ["a", "b"]),
        ("allowed", "r1"),
        (DENIED["WebFetch"], "r2"),
        ("a", "x\n[image]"),
    ]
    assert answer is not None and (answer.text, answer.error, answer.more["model"]) == ("Done.", None, "m")


def test_a_message_that_was_cut_off_leaves_no_calls_and_one_without_a_stream_is_posted() -> None:
    did, _ = played(piece("message_start"), block(use("lost")), piece("message_start"), piece("message_stop"))
    assert did == []
    did, _ = played(block(use("a")), result("a", "x"))
    assert did == [("", ["a"]), ("a", "x")]


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ({"subtype": "success", "is_error": True, "result": "API Error: 403"}, "could not answer: API Error: 403"),
        (
            {"is_error": True, "result": 'Sorry. API Error: 403 {"rule":"placeholder_misuse","message":"THEIRS"}'},
            "could not answer: Sorry. API Error: 403 (placeholder_misuse)",
        ),
        (
            {"is_error": True, "result": "API Error: 403 the run's token was about to leave with a request"},
            "could not answer: API Error: 403 (placeholder_misuse)",
        ),
        ({"is_error": True, "result": 'API Error: {"message":"THEIRS"}'}, "could not answer: API Error"),
        ({"subtype": "error_during_execution", "is_error": True, "errors": ["no session"]}, "no session"),
        ({"subtype": "success", "is_error": False, "result": " "}, "ended without an answer"),
    ],
)
def test_what_it_calls_success_may_be_none(event: Message, sentence: str) -> None:
    _, answer = played({"type": "result", **event})
    assert answer is not None and sentence in (answer.error or "") and answer.more["usage"] is None
    assert "THEIRS" not in (answer.error or "")


@pytest.mark.parametrize("engine", [claude_code, exec])
def test_a_program_that_is_not_there_is_told_with_what_to_do(tmp_path: Path, engine: Any) -> None:
    with Standin() as model, Rehearsal(tmp_path, model) as stage:
        try:
            answer = engine.respond(stage.turn("hi", exec={"name": "gone", "command": ["/nowhere/gone"]}))
        except GivenUp as reason:
            answer = Answer(error=str(reason), stop_reason=protocol.GIVEN_UP)
    assert answer.stop_reason == protocol.GIVEN_UP
    assert "/nowhere/gone" in answer.error and "[engines." in answer.error and "on this machine" in answer.error
