"""What comes first."""

from __future__ import annotations

import pytest

from clawd.search import ranking
from clawd.search.document import Document

DAY = 86400.0


@pytest.mark.parametrize(
    ("trust", "age", "expected"),
    [(1.0, 3650 * DAY, 1.0), (0.7, 3650 * DAY, 1.0), (0.6, 0.0, 1.0), (0.6, -DAY, 1.0), (0.6, 30 * DAY, 0.75)],
)
def test_what_is_trusted_does_not_fade(trust: float, age: float, expected: float) -> None:
    assert ranking.recency(trust, 0.0, age) == pytest.approx(expected)


def test_trust_and_then_the_newer_one_decides_between_equals() -> None:
    documents = {
        1: Document("a", "fact", "x", at=1, trust=0.6),
        2: Document("b", "fact", "x", at=1, trust=1.0),
        3: Document("c", "fact", "x", at=2, trust=1.0),
    }
    hits = ranking.ranked(documents, {"lexical": {1: 1.0, 2: 1.0, 3: 1.0}}, now=2)
    assert [hit.document.id for hit in hits] == ["c", "b", "a"]
    assert hits[2].parts == {"lexical": 1.0, "recency": pytest.approx(1.0), "trust": pytest.approx(0.8)}


def test_words_weigh_more_than_meaning_and_what_has_neither_is_no_hit() -> None:
    documents = {row: Document(str(row), "fact", "x", at=1, trust=1.0) for row in (1, 2, 3)}
    hits = ranking.ranked(documents, {"lexical": {1: 1.0}, "dense": {1: 0.0, 2: 1.0, 3: 0.0}}, now=1)
    assert [(hit.document.id, hit.score) for hit in hits] == [("1", pytest.approx(0.7)), ("2", pytest.approx(0.3))]


@pytest.mark.parametrize(
    ("counts", "budget", "chosen"),
    [
        ([], 10, []),
        ([("common", 500)], 10, ["common"]),
        ([("common", 500), ("rare", 3), ("seldom", 7)], 10, ["rare", "seldom"]),
        ([("a", 5), ("none", 0), ("b", 6)], 10, ["none", "a"]),
    ],
)
def test_rare_words_choose_the_candidates(counts: list[tuple[str, int]], budget: int, chosen: list[str]) -> None:
    assert ranking.affordable(counts, budget) == chosen
