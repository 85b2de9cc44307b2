"""A text that is to be gone is found however it was written, and nothing else is torn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.context.fence import json_line
from clawd.memory.forgotten import HIDDEN, Forgotten
from clawd.memory.text import defanged

TEXT = 'The "vault" at Åbo/Turku:\n- code is 4711 \\ 😀\nSee https://vault.example/a'


def wrapped(text: str) -> str:
    return "\n\n  ".join(text.split())


@pytest.mark.parametrize(
    "form",
    [
        str,
        wrapped,
        defanged,
        json.dumps,
        lambda text: json.dumps(json.dumps({"deep": [text]})),
        lambda text: json_line({"text": text}),
        lambda text: f"> before {text}. After\n",
    ],
)
def test_it_is_found_in_every_form(form: Any) -> None:
    told = f"kept {form(TEXT)} kept"
    left = Forgotten([TEXT + "."]).out_of(told)
    assert HIDDEN in left and left.startswith("kept ") and left.endswith(" kept")
    assert not any(word in left for word in ("vault", "4711", "Turku", "code"))


def test_a_line_or_a_sentence_alone_is_found_and_words_of_it_are_not() -> None:
    text = "The first sentence is about bees and honey. The second one is about the garden.\nAnd a short one."
    forgotten = Forgotten([text])
    assert forgotten.out_of("x The second one is about the garden. y") == f"x {HIDDEN}. y"
    kept = "bees and honey, and a short one, and THE SECOND ONE IS ABOUT THE GARDEN"
    assert forgotten.out_of(kept) == kept


def test_short_texts_are_counted_and_not_looked_for() -> None:
    forgotten = Forgotten(["yes", " ", "pass: 1", "long enough"])
    assert forgotten.short == 2 and forgotten and not Forgotten(["yes"])
    assert forgotten.out_of("yes, long\nenough") == f"yes, {HIDDEN}"


def test_what_tells_how_to_read_a_value_stays() -> None:
    value = {"role": "assistant", "content": "the assistant", "tool_calls": [{"name": "assistant", "arguments": {
        "name": "assistant", "role": ["assistant"]}}]}  # fmt: skip
    assert Forgotten(["assistant"]).out_of_value(value, frozenset(("role", "name"))) == {
        "role": "assistant",
        "content": f"the {HIDDEN}",
        "tool_calls": [{"name": "assistant", "arguments": {"name": HIDDEN, "role": [HIDDEN]}}],
    }


def test_a_very_long_text_leaves_by_its_lines() -> None:
    lines = [f"line {n} of a very long text about many things" for n in range(2000)]
    assert (
        Forgotten(["\n".join(lines)]).out_of("a\n" + "\n".join(lines[5:9]) + "\nb") == "a\n" + f"{HIDDEN}\n" * 4 + "b"
    )


def test_a_part_that_a_search_has_shown_leaves_but_for_its_last_words() -> None:
    words = [f"word{n}" for n in range(300)]
    left = Forgotten([" ".join(words)]).out_of(f"… {' '.join(words[100:140])} …")
    assert len([each for each in left.split() if each.startswith("word")]) < 12
    wide = "".join(chr(0x4E00 + n) for n in range(600))
    assert len(Forgotten([wide]).out_of(wide[100:400]).replace(HIDDEN, "")) < 80


@given(st.text(min_size=1), st.text(), st.text())
def test_json_stays_json_and_what_it_said_is_gone(text: str, before: str, after: str) -> None:
    forgotten = Forgotten([text])
    left = forgotten.out_of(json.dumps([before, text, after], ensure_ascii=False))
    assert isinstance(json.loads(left), list)
    if forgotten:
        assert HIDDEN in json.loads(left)[1]
