"""What a turn's record says: each answer once, and which model it is from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawd.turns.record import blocks_of

WAKES = [
    {
        "kind": "message",
        "parts": [{"kind": "typed", "origin": "owner", "text": text}],
        "at": None,
        "role": "owner",
        "sender": None,
        "joined": joined,
        "recorded": None,
    }
    for text, joined in (("a?", 0), ("b?", 1))
]


def recorded(text: str, notes: Any = None, *steps: dict[str, Any]) -> list[Any]:
    final = json.dumps({"text": text, "files": [], "notes": notes})
    turn: Any = {"retry_of": None, "base_steps": 0, "ended_at": None, "state": "answered", "final": final, "model": "m"}
    return blocks_of(turn, WAKES, list(steps))


@pytest.mark.parametrize(
    ("said", "final", "last"),
    [
        ("a", "a\n\nb", ["b"]),  # an answer that something joined after begins the final
        ("a", "a", []),
        ("a", "and b", ["and b"]),  # no answer, only the same beginning
        ("", "b", ["b"]),
    ],
)
def test_an_answer_is_recorded_once(said: str, final: str, last: list[str]) -> None:
    blocks = recorded(final, None, {"role": "assistant", "content": said})
    assert [block.content for block in blocks] == ["a?", said, "b?", *last]


def test_a_fallback_is_named() -> None:
    notes = {"fallback": [{"from": "x", "to": "m", "why": "529 overloaded_error"}, "hostile"]}
    assert recorded("b", notes)[-1].meta == {"model": "m", "fallback": "x 529 overloaded_error"}
    assert recorded("b", {"fallback": "hostile"})[-1].meta == {"model": "m"}
