"""Which sessions a group takes from other programs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.config.external import allows


@pytest.mark.parametrize(("patterns", "session", "taken"), [
    ([], "mmkr:agent-1", False),
    (["mmkr:*"], "mmkr:agent-1", True),
    (["mmkr:*"], "mmkr:", True),
    (["mmkr:*"], "MMKR:agent-1", False),
    (["mmkr:*"], "xmmkr:agent-1", False),
    (["mmkr:agent-1"], "mmkr:agent-1", True),
    (["mmkr:agent-1"], "mmkr:agent-12", False),
    (["other", "mmkr:agent-?"], "mmkr:agent-1", False),
    (["*"], "", True),
    (["*:x:*"], "a:x:b", True),
    (["*:x:*"], "a:x", False),
    (["a*a"], "a", False),
    (["a*a"], "aa", True),
    (["a*b*c"], "a-b-b-c", True),
    (["m.*"], "mmkr:agent-1", False),
    (["[a-z]*"], "mmkr", False),
    (["**"], "x", True),
    ([""], "", True),
    ([""], "x", False),
])  # fmt: skip
def test_a_star_is_any_text_and_all_else_is_itself(patterns: list[str], session: str, taken: bool) -> None:
    assert allows(patterns, session) is taken


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_it_is_what_a_regular_expression_of_dots_would_say(pattern: str, session: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), session) is not None
    assert allows([pattern], session) is expected


def test_many_stars_take_no_time() -> None:
    assert not allows(["a*" * 200 + "b"], "a" * 5000)
