"""Our own loop against a model that misbehaves in every way: each case ends in the right reply or in a sentence, and no
request is one that the real API would refuse."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent import calls, protocol, turn
from agent.engines import loop

from clawd.resources import shipped
from tests.agent.rehearsal import Rehearsal, model_of, wake
from tests.standin import Recorded, Reply, Standin
from tests.standin import chat as strict_chat
from tests.standin import messages as strict_messages

BOTH = pytest.mark.parametrize("dialect", ["messages", "chat"])
LS = ("bash", {"command": "ls"})


@pytest.fixture
def model() -> Iterator[Standin]:
    with Standin() as standin:
        yield standin


@pytest.fixture
def stage(tmp_path: Path, model: Standin, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rehearsal]:
    monkeypatch.setattr(loop, "FIRST_PAUSE_S", 0.001)
    with Rehearsal(tmp_path, model) as rehearsal:
        yield rehearsal
    assert model.problems == []


def refused(rule: str, message: str, hint: str | None = None, status: int = 403) -> Reply:
    """What the gateway does not let through."""
    raw = json.dumps({"schema": 1, "error": rule, "rule": rule, "message": message, "hint": hint}).encode()
    return Reply(status=status, raw=raw, headers={"X-Clawd-Rule": rule})


def marks(value: Any) -> int:
    return json.dumps(value).count("cache_control")


def test_the_loop_its_dialects_and_its_client_stay_small() -> None:
    engines = shipped("containers") / "agent" / "engines"
    files = ("loop.py", "messages.py", "chat.py", "stream.py", "conversation.py")
    assert sum(len((engines / name).read_text("utf-8").splitlines()) for name in files) < 600


@BOTH
def test_a_turn_without_tools(stage: Rehearsal, model: Standin, dialect: str) -> None:
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    usage = {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 5}
    if dialect == "chat":
        usage = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens": 5}  # type: ignore[dict-item]
    model.say("grüße 🎉", usage=usage, piece=1)
    answer = stage.respond("hi", dialect=dialect, history=history)
    assert (answer.text, answer.error, answer.stop_reason in ("end", "end_turn")) == ("grüße 🎉", None, True)
    assert answer.more == {
        "usage": {"input": 10, "output": 5, "cached": 3, "window": 15},
        "model": "standin-1",
        "notes": None,
    }
    request = model.requests[0]
    assert request.said == "hi" and request.headers["authorization"] == "Bearer the-token"
    assert request.headers["x-clawd-session"] == "main:1" and request.path == model_of(dialect)["path"]
    assert request.body["max_tokens"] == 1000 and len(request.body["tools"]) == 4
    assert marks(request.body) == (3 if dialect == "messages" else 0)
    assert stage.calls == ["more"]  # one request to the daemon, and the final


def test_a_connection_serves_one_call_after_another_until_it_ends(stage: Rehearsal, model: Standin) -> None:
    for count in (1, 1, 2):
        model.say("done")
        assert stage.respond("hi", session="gruppe:łódź 🎉").text == "done"
        assert model.requests[-1].headers["x-clawd-session"].encode("latin-1").decode() == "gruppe:łódź 🎉"
        assert len(stage.connections) == count
        if len(model.requests) == 2:  # as a daemon that goes away does; nothing was asked meanwhile
            stage.connections[0].shutdown(socket.SHUT_RDWR)


@BOTH
def test_a_round_of_parallel_calls(stage: Rehearsal, model: Standin, dialect: str) -> None:
    asked: list[Any] = [
        ("bash", {"command": "echo one"}),
        ("send_message", {"text": "x"}),
        ("bash", {"command": "echo two"}),
    ]
    model.say("one moment", calls=asked, piece=2)
    model.say("done")
    answer = stage.respond("hi", dialect=dialect)
    assert answer.text == "done" and model.requests[1].results == ["one", '{"ok": true}', "two"]
    assert [step["role"] for step in stage.steps] == ["assistant", "tool", "tool", "tool"]
    assert [call["id"] for call in stage.steps[0]["tool_calls"]] == ["call_7_0", "call_7_1", "call_7_2"]
    assert stage.said == "one moment"
    assert stage.shown == [[1]] * 4 and stage.tools[0]["arguments"] == {"text": "x"}
    assert marks(model.requests[1].body) == (3 if dialect == "messages" else 0)


@BOTH
@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Reply(status=429, headers={"retry-after": "0"}), ""),
        (Reply(status=529), ""),
        (Reply(status=500, raw=b"<html>oops</html>"), ""),
        (Reply(status=408), ""),
        (refused("no_turn", "m"), ""),
        (Reply("It is noon", words=1, cut=7), ""),
        (Reply("It was a long way", words=3, cut=5), "It was"),
        (Reply("It is", error="overloaded_error"), ""),
        (Reply(raw=b"data: {nonsense\n\n"), ""),
        (Reply(raw=b'data: {"type":"message_delta","delta":[],"choices":[5]}\n\n'), ""),
        (Reply(raw=b"this is no stream"), ""),
    ],
    ids=lambda value: value.error or str(value.status) if isinstance(value, Reply) else "",
)
def test_what_fails_in_passing_is_tried_again(
    stage: Rehearsal, model: Standin, dialect: str, trouble: Reply, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing that was shown already is shown again: where the second answer differs, its text decides."""
    monkeypatch.setattr(loop, "BATCH_S", 0)
    model.add(trouble, Reply("It is noon", [LS]), Reply("end"))
    answer = stage.respond("hi", dialect=dialect)
    assert (answer.text, answer.error) == ("end", None)
    assert len(model.requests) == 3 and model.requests[0].body == model.requests[1].body
    if said:
        assert stage.said.startswith(said) and stage.said.endswith("end") and "noon" not in stage.said
    else:
        assert stage.said == "It is noonend"


@BOTH
def test_a_server_that_does_not_stream(stage: Rehearsal, model: Standin, dialect: str) -> None:
    """And one whose stream ends without the word for why."""
    api = strict_messages if dialect == "messages" else strict_chat
    body, json_type = {"model": "m", "messages": []}, {"content-type": "application/json"}
    for reply in (Reply("let me see", [("bash", {"command": "echo whole"})]), Reply("noon")):
        model.add(Reply(raw=json.dumps(api.whole(body, reply)).encode(), headers=json_type))
    answer = stage.respond("hi", dialect=dialect)
    assert (answer.text, answer.error, len(model.requests)) == ("noon", None, 2)
    assert "whole" in model.requests[1].results[0] and answer.more["usage"]["output"] > 0
    if dialect == "chat":
        model.add(
            Reply(raw=b'data:{"choices":[{"delta":{"content":[{"type":"text","text":"hm"}]}}]}\n\ndata: [DONE]\n\n')
        )
        stage.forget()
        assert stage.respond("hi", dialect=dialect).text == "hm" and len(model.requests) == 3


@BOTH
def test_what_breaks_after_the_answer_was_whole_costs_no_second_one(
    stage: Rehearsal, model: Standin, dialect: str
) -> None:
    model.say("noon", cut=100)
    assert stage.respond("hi", dialect=dialect).text == "noon" and len(model.requests) == 1


@BOTH
@pytest.mark.parametrize(
    ("reply", "asked", "sentence"),
    [
        (Reply(status=401), 1, "did not accept the credential"),
        (Reply(status=403), 1, "does not let this credential use standin-1"),
        (Reply(status=404), 1, "does not know the model standin-1"),
        (Reply("prompt is too long: 5 > 4", status=400), 1, "longer than standin-1 can read"),
        (Reply("Your credit balance is too low", status=400), 1, "has no credit left"),
        (Reply("SECRET words of theirs", status=400), 1, "refused the request (400 api_error)"),
        (Reply(status=400, error="x y <b>"), 1, "refused the request (400)."),
        (Reply(status=429, headers={"retry-after": "0"}), 3, "is asked too much just now"),
        (Reply(status=429, headers={"retry-after": "3600"}), 1, "is asked too much just now"),
        (Reply(status=529), 3, "is overloaded"),
        (Reply(status=503), 3, "failed, and stayed so (503 api_error)"),
        (Reply("half of it", words=1, cut=4), 3, "broke off again and again"),
        (Reply("half", error="invalid_request_error"), 1, "refused the request (400 invalid_request_error)"),
        (Reply(calls=[LS] * 501), 3, "failed, and stayed so (500 too_many_calls)"),
        (refused("budget", "Spent.", "Wait."), 1, "Spent. (Wait.)"),
        (refused("no_grant", "Not granted."), 1, "Not granted."),
        (refused("no_credential", "No key.", status=503), 1, "No key."),
        (Reply(status=403, raw=b'{"rule":"budget","message":"SECRET"}'), 1, "does not let this credential use"),
        (Reply(raw=b'data: {"type":"error","error":{"a":1},"rule":"x","message":"SECRET"}\n\n'), 3, "stayed so (500)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_stays_so_is_a_sentence(
    stage: Rehearsal, model: Standin, dialect: str, reply: Reply, asked: int, sentence: str
) -> None:
    model.decide = lambda request: reply
    answer = stage.respond("hi", dialect=dialect, limits={"retries": 2})
    stop = protocol.OVERFLOW if "longer than" in sentence else protocol.GIVEN_UP
    assert (answer.text, answer.stop_reason) == ("", stop) and sentence in str(answer.error)
    assert len(model.requests) == asked
    assert "SECRET" not in str(answer.error) and "scripted" not in str(answer.error)


@pytest.mark.parametrize(
    ("trouble", "tries", "why"),
    [
        (Reply(status=529), 2, "529 overloaded_error"),
        (Reply("It is", words=1, cut=4), 2, "connection cut"),
        (refused("budget", "Spent."), 1, "403 budget"),
        (Reply("quota", status=429, error="insufficient_quota"), 1, "429 insufficient_quota"),
    ],
)
def test_the_next_model_takes_over(
    stage: Rehearsal, model: Standin, trouble: Reply, tries: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "BATCH_S", 0)
    models = [model_of("messages", "first", effort="low"), model_of("chat", "second"), model_of("messages", "third")]
    model.say("It is noon", calls=[LS])
    model.add(*[trouble] * tries)
    model.say("It is noon.")
    answer = stage.respond("hi", models=models, limits={"retries": 1})
    assert answer.text == "It is noon." and answer.more["model"] == "second"
    assert answer.more["notes"] == {"fallback": [{"from": "first", "to": "second", "why": why}]}
    assert [request.dialect for request in model.requests] == ["messages"] * (tries + 1) + ["chat"]
    assert model.requests[-1].results and stage.said.startswith("It is noon")


def test_the_longest_pause_that_is_asked_for_is_made(
    stage: Rehearsal, model: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LONGEST_PAUSE_S", 0.05)
    model.add(Reply(status=429, headers={"retry-after": "0.05"}), Reply("noon"))
    assert stage.respond("hi").text == "noon"


def test_models_are_not_changed_for_a_refused_request(stage: Rehearsal, model: Standin) -> None:
    model.fail(401)
    assert stage.respond("hi", models=[model_of("messages"), model_of("chat")]).error
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("dialect", "refuse", "kept"),
    [
        ("messages", {"output_config": "This model does not support the effort parameter."}, {"max_tokens": 1000}),
        (
            "chat",
            {
                "max_tokens": "Unsupported parameter: 'max_tokens' is not supported; use 'max_completion_tokens'.",
                "reasoning_effort": "Unrecognized request argument supplied: reasoning_effort",
                "stream_options": "stream_options: unknown",
            },
            {"max_completion_tokens": 1000},
        ),
    ],
)
def test_a_parameter_that_a_model_does_not_know_is_left_out(
    stage: Rehearsal, model: Standin, dialect: str, refuse: dict[str, str], kept: dict[str, Any]
) -> None:
    model.refuse = refuse
    model.add(Reply("a", [LS]), Reply("b"))
    answer = stage.respond("hi", models=[model_of(dialect, effort="high")])
    assert answer.text == "b" and len(model.requests) == len(refuse) + 2
    assert kept.items() <= model.requests[-1].body.items() and not refuse.keys() & model.requests[-1].body.keys()
    assert model.problems.copy() and len(model.problems) == len(refuse)
    model.problems.clear()


def test_effort_and_the_long_name_of_the_limit(stage: Rehearsal, model: Standin) -> None:
    stage.respond("hi", models=[model_of("messages", effort="high")])
    stage.respond("hi", models=[model_of("chat", effort="low", service="openai")])
    first, second = (request.body for request in model.requests)
    assert first["output_config"] == {"effort": "high"} and second["reasoning_effort"] == "low"
    assert second["max_completion_tokens"] == 1000 and "max_tokens" not in second


@BOTH
@pytest.mark.parametrize(
    ("name", "arguments", "taught"),
    [
        ("bash", '{"command": "l', "not one JSON object"),
        ("bash", "[1]", "they are no object"),
        ("bash", '{"timeout": NaN}', "NaN is no JSON"),
        ("bash", "[" * 100_000, "not one JSON object"),
        ("bash", json.dumps({"command": "x" * 500_000}), "not one JSON object"),
        ("bash", "", "'command' is missing"),
        ("bash", {"comand": "ls"}, "'command' is missing"),
        ("sudo rm!", {}, "There is no tool 'sudo rm!'. There are: bash, read, write, send_message."),
        ("jot", {"line": "x"}, "There is no tool 'jot'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_wrong_call_gets_a_result_that_teaches(
    stage: Rehearsal, model: Standin, dialect: str, name: str, arguments: Any, taught: str
) -> None:
    model.add(Reply(calls=[(name, arguments), LS], words=100_000), Reply("end"))
    assert stage.respond("hi", dialect=dialect).text == "end"
    first, second = model.requests[1].results
    assert taught in first and len(first) < 1000 and second == "[no output]"
    assert len(json.dumps(stage.steps[0])) < 1 << 20


@BOTH
@pytest.mark.parametrize(
    ("stop", "text", "end"),
    [
        ("max_tokens", "a b", "a b\n\n[The answer was cut off: it may have 1000 tokens ([model] max_output).]"),
        ("max_tokens", "", "[The answer was cut off: it may have 1000 tokens ([model] max_output).]"),
        ("refusal", "a", "a\n\n[standin-1 declined to answer this (refusal).]"),
        ("refusal", "", "[standin-1 declined to answer this (refusal).]"),
        ("strange", "a", "a"),
        ("end", "", ""),  # which the daemon calls an error
        ("end", " \n", ""),
    ],
)
def test_how_an_answer_ended_is_said(
    stage: Rehearsal, model: Standin, dialect: str, stop: str, text: str, end: str
) -> None:
    theirs = {"max_tokens": "length", "refusal": "content_filter"} if dialect == "chat" else {}
    model.say(text, stop=theirs.get(stop, stop))
    answer = stage.respond("hi", dialect=dialect)
    assert (answer.text.strip(), answer.error) == (end, None) and len(answer.stop_reason) < 40


def test_a_call_that_the_limit_cut_off_is_not_run(stage: Rehearsal, model: Standin) -> None:
    model.add(Reply("a", [("bash", "")], stop="max_tokens"), Reply("end"))
    assert stage.respond("hi").text == "end" and "not one JSON object" in model.requests[1].results[0]


def test_a_paused_answer_goes_on_and_a_full_one_says_so(stage: Rehearsal, model: Standin) -> None:
    model.add(Reply("one", stop="pause_turn"), Reply("two", stop="model_context_window_exceeded"))
    answer = stage.respond("hi")
    assert answer.text.startswith("one\n\ntwo\n\n[The answer was cut off: the conversation fills")
    assert model.requests[1].said == "[Go on.]" and stage.steps[0]["content"] == "one"


ABSURD = [math.nan, -5, 1e18, "many", None, [], True, 10**30]


@BOTH
def test_absurd_usage_counts_as_none(stage: Rehearsal, model: Standin, dialect: str) -> None:
    for value in ABSURD:
        names = ["input_tokens", "output_tokens", "cache_read_input_tokens", "prompt_tokens", "completion_tokens"]
        model.say("a", usage={**dict.fromkeys(names, value), "prompt_tokens_details": value})
        answer = stage.respond("hi", dialect=dialect)
        usage = answer.more["usage"]
        assert answer.text == "a" and (usage is None or set(usage.values()) == {0} or value is None)
    model.say("a", usage=None)
    assert stage.respond("hi", dialect=dialect).more["usage"] is None
    model.say("a", usage={"output_tokens": math.nan, "completion_tokens": math.nan})
    usage = stage.respond("hi", dialect=dialect).more["usage"]
    assert usage["output"] == 0 and usage["input"] > 0


@BOTH
def test_ten_megabytes_of_a_tool_are_cut(stage: Rehearsal, model: Standin, dialect: str) -> None:
    model.add(Reply(calls=[("bash", {"command": "yes | head -c 10000000"})]), Reply("end"))
    assert stage.respond("hi", dialect=dialect).text == "end"
    assert len(model.requests[1].results[0]) < 31_000 and "left out" in model.requests[1].results[0]


def test_limits(stage: Rehearsal, model: Standin) -> None:
    def count(request: Recorded) -> Reply:
        return Reply("x", [("bash", {"command": f"echo {len(model.requests)}"})])

    model.decide = count
    answer = stage.respond("hi", limits={"steps": 3})
    assert "took 3 steps" in str(answer.error) and len(model.requests) == 3  # asked before, not after
    model.decide = lambda request: Reply("x", [LS])
    stage.forget()
    answer = stage.respond("hi")
    assert "bash 3 times in a row" in str(answer.error) and len(stage.steps) == 5
    count = len(model.requests)
    answer = stage.respond("hi", steps=list(stage.steps))  # messages retry: asked once more
    assert "bash 4 times" not in str(answer.error) and len(model.requests) == count + 1
    model.decide = lambda request: Reply("never", hold=True)
    assert "worked for" in str(stage.respond("hi", limits={"wall_s": 0.3}).error)


STEER = [{"turn": 7, "action": "steer", "wakes": [wake("and this?", 2)]}]


@BOTH
def test_a_follow_up_joins_at_a_tool_boundary(stage: Rehearsal, model: Standin, dialect: str) -> None:
    model.add(Reply("a", [LS]), Reply("b", [("bash", {"command": "date"})]), Reply("both"))
    stage.control = [STEER, STEER]
    assert stage.respond("hi", dialect=dialect).text == "both"
    assert model.requests[1].said == "and this?" and len(model.requests) == 3
    assert stage.shown == [[1], [1], [1, 2], [1, 2]]  # shown with the reply that has seen it


def test_a_follow_up_before_the_end_is_answered_too(stage: Rehearsal, model: Standin) -> None:
    model.add(Reply("first"), Reply("second"))
    stage.control = [STEER]
    live = stage.turn("hi")
    assert loop.respond(live).text == "first\n\nsecond"
    assert stage.steps[0]["content"] == "first" and "tool_calls" not in stage.steps[0] and stage.shown == [[1]]
    assert [(each["id"], each["joined"]) for each in live.wakes] == [(1, 0), (2, 1)]
    live.final(turn.Answer("x"))
    assert stage.calls[-1] == "final" and stage.said == "first" and len(model.requests[1].body["messages"]) == 3


def test_a_follow_up_that_the_model_never_saw_is_not_shown(stage: Rehearsal, model: Standin) -> None:
    model.add(Reply("a", [LS]), Reply(status=401))
    stage.control = [STEER]
    live = stage.turn("hi")
    answer = loop.respond(live)
    assert answer.error and live._seen() == [1] and len(live.wakes) == 2


@BOTH
def test_a_later_attempt_goes_on_after_the_last_step(stage: Rehearsal, model: Standin, dialect: str) -> None:
    """With what joined where it joined, what was left open answered, and nothing run twice."""
    call = {"type": "function", "function": {"name": "bash", "arguments": '{"command": "touch ran"}'}}
    steps = [
        {"role": "assistant", "content": "first", "at": "x"},
        {"role": "assistant", "content": "", "tool_calls": [{**call, "id": "call_7_0"}, {**call, "id": "call_7_1"}]},
        {"role": "tool", "tool_call_id": "call_7_0", "content": "gave this"},
    ]
    model.say("end")
    stage.control = [STEER]  # nobody asks for it before all steps are there
    answer = stage.respond(wake("hi"), wake("and?", 3, joined=1), dialect=dialect, steps=steps)
    assert answer.text == "first\n\nend\n\nok" and model.requests[0].results[0] == "gave this"
    assert "was not run again" in model.requests[0].results[1] and not (stage.work / "ran").exists()
    texts = json.dumps(model.requests[0].body["messages"])
    assert texts.index("hi") < texts.index("first") < texts.index("and?") < texts.index("gave this")
    assert len(stage.steps) == 5 and stage.steps[3]["tool_call_id"] == "call_7_1"


def test_a_stop_closes_the_stream(stage: Rehearsal, model: Standin) -> None:
    for reply in (Reply("x" * 100, hold=True), Reply(gate=threading.Event())):
        model.requests.clear()
        model.add(reply)
        live, ended = stage.turn("hi"), threading.Event()

        def respond(live: Any = live, ended: threading.Event = ended) -> None:
            with pytest.raises(turn.Stopped):
                loop.respond(live)
            ended.set()

        threading.Thread(target=respond, daemon=True).start()
        model.wait(1)
        live.interrupt("stop")
        assert ended.wait(10)
        if reply.gate:
            reply.gate.set()


def test_a_stop_at_a_tool_boundary(stage: Rehearsal, model: Standin) -> None:
    model.add(Reply("a", [LS]))
    stage.control = [[{"turn": 7, "action": "stop", "wakes": []}]]
    with pytest.raises(turn.Stopped):
        stage.respond("hi")
    assert len(model.requests) == 1


def test_a_daemon_that_is_away_is_waited_for(stage: Rehearsal, model: Standin) -> None:
    stage.shut()  # it is back once somebody has waited for it
    assert stage.respond("hi", limits={"retries": 0}).text == "ok"
    assert stage.calls[0] == "events"


def test_a_job_has_no_tools(stage: Rehearsal, model: Standin) -> None:
    assert stage.respond("sum up", tools=[], job={"schema": {"type": "object"}}).text == "ok"
    assert "tools" not in model.requests[0].body


def test_a_fast_stream_does_not_cost_a_call_a_token(stage: Rehearsal, model: Standin) -> None:
    model.add(Reply("word " * 2000, words=1), Reply("slow", delay=0.03, words=1))
    assert len(stage.respond("hi").text) == 10_000
    assert stage.calls.count("events") < 200
    stage.forget()
    assert stage.respond("hi").text == "slow" and stage.calls.count("events") >= 1


def test_what_only_reads_runs_side_by_side(stage: Rehearsal) -> None:
    barrier = threading.Barrier(2, timeout=10)
    assert calls.side_by_side([lambda: str(barrier.wait() >= 0)] * 2) == ["True", "True"]
    with pytest.raises(turn.Stopped):
        calls.side_by_side([lambda: "a", lambda: (_ for _ in ()).throw(turn.Stopped("stop"))])
    live = stage.turn("hi")
    names = ["read", "read", "bash", "read", "bash"]
    made = [
        calls.Call({"id": "x", "function": {"name": name, "arguments": json.dumps({"n": n})}}, live)
        for n, name in enumerate(names)
    ]
    batches = []
    while made:
        batch = calls.batch_of(made)
        batches.append([call.name for call in batch])
        made = made[len(batch) :]
    assert batches == [["read", "read"], ["bash"], ["read"], ["bash"]]


@pytest.mark.parametrize(("tried", "after", "least", "most"), [(0, None, 0.25, 0.5), (4, None, 4, 8), (3, 2.0, 2, 2.5)])
def test_pauses(tried: int, after: float | None, least: float, most: float) -> None:
    assert all(least <= loop.pause_before(tried, after) <= most for _ in range(50))
