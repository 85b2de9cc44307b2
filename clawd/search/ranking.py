"""What comes first: how words, meaning, trust and age make one number. Pure.

The figures are those of specs that were measured on LoCoMo: words weigh .7, a neighbour lends .4 of its meaning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from clawd.search.document import Document, Hit

LEXICAL = 0.7
NEAR = 0.4
STEADY = 0.7  # trust from which on nothing fades
HALF_LIFE = 30 * 86400.0  # seconds
VOUCHED = 0.5  # trust below which documents are searched apart: they move nothing above


def recency(trust: float, at: float, now: float) -> float:
    """1 for what is trusted; else from 1 down to .5, halfway there after 30 days."""
    if trust >= STEADY:
        return 1.0
    return 0.5 + 0.5 * math.exp2(-max(0.0, now - at) / HALF_LIFE)


def standing(trust: float) -> float:
    """1 for what is wholly trusted, .5 for what is not at all."""
    return 0.5 + 0.5 * min(1.0, max(0.0, trust))


def within(scores: Mapping[int, float], lowest: float = 0.0, highest: float | None = None) -> dict[int, float]:
    """Scores on a scale from 0, the lowest of all, to 1."""
    highest = max(scores.values(), default=1.0) if highest is None else highest
    span = highest - lowest
    if span <= 1e-6 * abs(highest):  # all are alike
        return {row: float(score > 0) for row, score in scores.items()}
    return {row: (score - lowest) / span for row, score in scores.items()}


def ranked(documents: Mapping[int, Document], lanes: Mapping[str, Mapping[int, float]], now: float) -> list[Hit]:
    """The hits, the best first, of two alike the newer. `lanes`: of "lexical", "dense" or both the scores, 0…1."""
    weights = {"lexical": LEXICAL, "dense": 1 - LEXICAL} if len(lanes) > 1 else dict.fromkeys(lanes, 1.0)
    hits = []
    for row, document in documents.items():
        parts = {lane: scores[row] for lane, scores in lanes.items() if row in scores}
        fresh, trust = recency(document.trust, document.at, now), standing(document.trust)
        score = sum(weights[lane] * part for lane, part in parts.items()) * fresh * trust
        if score > 0:
            hits.append(Hit(document, score, {**parts, "recency": fresh, "trust": trust}))
    return sorted(hits, key=lambda hit: (-hit.score, -hit.document.at, hit.document.id, hit.document.piece))


def affordable(counts: Sequence[tuple[str, int]], budget: int) -> list[str]:
    """The rarest words of those counted, as long as the documents that have them are no more than `budget`; one at
    least."""
    chosen: list[str] = []
    for word, count in sorted(counts, key=lambda each: each[1]):
        if chosen and count > budget:
            break
        chosen.append(word)
        budget -= count
    return chosen
