"""The scripted engine: groups, placeholders, and what it says of a script that it cannot play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent.engines import scripted

from tests.agent.standin import StandInTurn

CALL = {"tool_calls": [{"name": "bash", "arguments": {"command": "true"}}]}


def play(tmp_path: Path, steps: Any, ordinal: int = 0, text: str = "hi") -> tuple[Any, StandInTurn]:
    turn = StandInTurn(tmp_path, text, script={"steps": steps}, ordinal=ordinal)
    return scripted.respond(turn), turn  # type: ignore[arg-type]


@pytest.mark.parametrize(("ordinal", "text"), [(0, "one"), (1, "two"), (2, "one"), (7, "two")])
def test_a_turn_plays_the_group_of_its_ordinal(tmp_path: Path, ordinal: int, text: str) -> None:
    answer, turn = play(tmp_path, [CALL, {"text": "one"}, {"text": "two"}], ordinal)
    assert (answer.text, answer.error) == (text, None)
    assert len(turn.rounds) == (1 if text == "one" else 0)


def test_the_message_is_filled_in(tmp_path: Path) -> None:
    steps = [
        {"text": "{message}?", "tool_calls": [{"name": "x", "arguments": {"a": ["{message}"]}}]},
        {"text": "{message}!"},
    ]
    answer, turn = play(tmp_path, steps, text="milk")
    assert answer.text == "milk!" and turn.rounds == [("milk?", [("x", {"a": ["milk"]})])]


def test_what_joins_is_filled_in_from_then_on(tmp_path: Path) -> None:
    turn = StandInTurn(tmp_path, "one", script={"steps": [{"text": "{message}?", **CALL}, {"text": "{message}!"}]})
    turn.coming = [{"id": 9, "parts": [{"kind": "typed", "text": word}]} for word in ("two", "three")]
    assert scripted.respond(turn).text == "one\ntwo\nthree!"  # type: ignore[arg-type]
    assert turn.rounds[0][0] == "one?"


def test_an_error_ends_its_group(tmp_path: Path) -> None:
    steps = [{"error": "no", **CALL}, {"text": "next"}]
    answer, turn = play(tmp_path, steps)
    assert answer.error == "no" and turn.rounds == []
    assert play(tmp_path, steps, 1)[0].text == "next"


def test_a_last_group_without_an_end_says_its_last_text(tmp_path: Path) -> None:
    assert play(tmp_path, [{"text": "a", **CALL}])[0].text == "a"


def test_delay_usage_and_notes(tmp_path: Path) -> None:
    steps = [
        {**CALL, "delay_s": 1.5, "usage": {"input": 1}, "notes": {"goal": "a"}},
        {"text": "x", "usage": {"input": 2, "cached": 3}, "notes": {"goal": "b"}},
    ]
    answer, turn = play(tmp_path, steps)
    assert turn.paused == 1.5
    assert answer.more == {
        "usage": {"input": 3, "output": 0, "cached": 3, "window": 2},
        "notes": {"goal": "b"},
        "model": "scripted",
    }
    assert play(tmp_path, [{"text": "x"}])[0].more["usage"] is None


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        (None, '{"steps": [...]}'),
        ([], '{"steps": [...]}'),
        ({"steps": []}, "no steps"),
        ({"steps": [5]}, "step 1 is no object"),
        ({"steps": [{"text": "a"}, {"texts": "b"}]}, "step 2 has the unknown key 'texts'"),
        ({"steps": [{"text": 5}]}, "step 1: text must be a text"),
        ({"steps": [{"notes": {}}]}, "neither text, tool_calls nor error"),
        ({"steps": [{"text": "", "delay_s": -1}]}, "delay_s must be a number"),
        ({"steps": [{"text": "", "delay_s": float("nan")}]}, "delay_s must be a number"),
        ({"steps": [{"text": "", "usage": {"input": -1}}]}, "usage holds"),
        ({"steps": [{"tool_calls": [{"name": 5}]}]}, "{name, arguments}"),
        ({"steps": [{"tool_calls": [{"name": "x", "arguments": []}]}]}, "arguments of x must be an object"),
    ],
)
def test_a_malformed_script_is_named(tmp_path: Path, script: Any, wrong: str) -> None:
    answer = scripted.respond(StandInTurn(tmp_path, "hi", script=script))  # type: ignore[arg-type]
    assert str(answer.error).startswith("The script cannot be played: ") and wrong in str(answer.error)
