"""Words of texts and of queries."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.search import terms


@pytest.mark.parametrize(
    ("query", "spaced", "runs"),
    [
        ("What does Alice like?", ["alice", "like"], []),
        ("the", ["the"], []),  # nothing else is asked
        ("", [], []),
        ('"a" OR NEAR(b c) * -d ^e {own}: \x00 😀', ["near", "b", "c", "e"], []),
        ("on 2026-03-07, or in 2026-03", ["2026-03-07", "2026-03"], []),
        ("Wo ist Müllers Büro", ["mullers", "buro"], []),
        ("ПРИВЕТ мир", ["привет", "мир"], []),
        ("مُحَمَّد", ["محمد"], []),
        ("Python大好き", ["python"], ["大好き", "大好", "好き", "大", "好"]),
        ("猫", [], ["猫"]),
        ("東京", [], ["東京", "東", "京"]),
    ],
)
def test_a_query(query: str, spaced: list[str], runs: list[str]) -> None:
    assert terms.words(query) == (spaced, runs)


def test_a_query_is_bounded() -> None:
    spaced, runs = terms.words(" ".join(f"w{n}" for n in range(5000)) + "猫" * 100)
    assert len(spaced) + len(runs) == terms.LONGEST


@given(st.text())
def test_nothing_of_a_query_is_an_operator(query: str) -> None:
    for word in [each for found in terms.words(query) for each in found]:
        assert '"' not in word and "\x00" not in word and word


def test_a_day_is_named_as_people_name_it() -> None:
    assert terms.day(datetime(2026, 3, 7, 12).timestamp()) == "2026-03-07 7 March 2026 Saturday"
    assert terms.day(1e300) == ""
