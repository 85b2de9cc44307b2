from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.bridges import loose

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=12,
)
PIECES = st.sampled_from(
    ["{", "}", "[", "]", ",", ":", "'", '"', "\\", "//", "/*", "*/", "\n", "a", "1", ".5", "-", "null", "\\ud800", "#"]
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("// a comment\n{a: 1, /* and\nanother */ 'b': [1, 2,],}", {"a": 1, "b": [1, 2]}),
        ('# so, too\n{"llm": {"apiKey": "x"}, // here\n}', {"llm": {"apiKey": "x"}}),
        (
            "{url: 'http://x/#y', $k_1: \"it's\", non-Standard.key: true}",
            {"url": "http://x/#y", "$k_1": "it's", "non-Standard.key": True},
        ),
        ("[0xFF, -0x10, +1, .5, 5., -1e3, 1E-2]", [255, -16, 1, 0.5, 5.0, -1000.0, 0.01]),
        ("[Infinity, -Infinity]", [math.inf, -math.inf]),
        ("'a\\\nb\\x41\\u00e9\\v\\0\\'\\q'", "abAé\v\0'q"),
        (r"['\ud83d\ude00', '\ud83d', '\ude00x']", ["😀", "\ufffd", "\ufffdx"]),
        (r'["\ud83d\ude00", "\ud83d"]', ["😀", "\ufffd"]),
        ("{true: 1, null: 2, a: 1, a: 2}", {"true": 1, "null": 2, "a": 2}),
        ("\ufeff {\u00a0\u2028}", {}),
        ("null", None),
    ],
)
def test_it_is_read(text: str, value: Any) -> None:
    assert loose.read(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1 is not JSON"),
        ("{a: 1\n b: 2}", "line 2 has no comma where one is due"),
        ("{a\n: 1,\n'b' 2}", "line 3 has no colon after a key"),
        ("{,}", "line 1 has no key where one is due"),
        ("[,]", "line 1 is not JSON"),
        ("['open\n']", "line 1 has a text that does not end"),
        ("{} {}", "line 1 goes on after its end"),
        ("{a: secret-value}", "line 1 is not JSON"),
        ("/* open", "line 1 is not JSON"),
        ("[" * 100_000, "it is nested more than 64 deep"),
        ("{'a':" * 100_000, "it is nested more than 64 deep"),
        ("[" * 65 + "]" * 65, "it is nested more than 64 deep"),
        ("9" * 5_000, "line 1 is not JSON"),
    ],
)
def test_it_is_refused(text: str, why: str) -> None:
    with pytest.raises(loose.NotJson) as error:
        loose.read(text)
    assert error.value.message == why


@given(VALUES, st.booleans())
def test_json_is_read_as_json_is(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert loose.read(text) == value
    assert loose.read(f"// so\n{text}\n") == value


@given(st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join))
def test_nothing_but_its_own_error_comes_of_any_text(text: str) -> None:
    try:
        json.dumps(loose.read(text)).encode()
    except loose.NotJson as error:
        assert "\n" not in error.message
