"""Whether a summary says what the session holds on to. Deterministic, offline, and bounded in time. Pure.

An item is recalled when the summary has its words one after the other and no negation beside them, or says each of its
sentences in one of its own: at least 0.8 of the words that carry meaning, every number, path and identifier exactly,
and as many negations. What only looks alike is not recalled: a summary that fails costs a handover, one that passes
wrongly costs what the owner said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from clawd.lifecycle.pinned import Class, Pinned
from clawd.lifecycle.wording import EXACT, Token, tokens

WEIGHTS: dict[Class, int] = {"goal": 3, "constraints": 3, "blockers": 2, "verified": 2}
"""Tenths."""
PASS, SHARE = 0.85, 0.8
_NEAR = 3  # words beside a match in which a negation is looked for
_CANDIDATES, _TRIES = 500, 50  # sentences of a summary that are compared with one of an item; matches looked at
_BETWEEN = "\x1f"


@dataclass(frozen=True, slots=True)
class Recall:
    """`score` is between 0 and 1, None where nothing is pinned that could be looked for (`unverifiable`). `lost` is
    what the summary does not say."""

    score: float | None
    passed: bool
    lost: Sequence[tuple[Class, str]] = ()

    @property
    def unverifiable(self) -> bool:
        return self.score is None


def recall(summary: str, pinned: Pinned, goal: str = "") -> Recall:
    """How much of `pinned` a summary says. It passes with a score of 0.85 when goal, every constraint and every blocker
    are recalled. Where nothing is pinned it passes only if there is a `goal` (the session's own) and that is."""
    said = _Said(summary)
    classes: dict[Class, list[str]] = {cls: pinned.of(cls) for cls in WEIGHTS}
    classes["goal"] = [pinned.goal] if pinned.goal.strip() else []
    if not any(classes.values()):
        return Recall(None, bool(goal.strip()) and said.says(goal))
    lost = [(cls, text) for cls, texts in classes.items() for text in texts if not said.says(text)]
    weight, got = 0, 0.0
    for cls, texts in classes.items():
        if texts:
            weight += WEIGHTS[cls]
            got += WEIGHTS[cls] * (1 - sum(each == cls for each, _ in lost) / len(texts))
    score = got / weight
    return Recall(round(score, 4), score >= PASS and all(cls == "verified" for cls, _ in lost), lost)


@dataclass(slots=True)
class _Sentence:
    """Its words that carry meaning, what must be exact, and its clauses as (their words, negations)."""

    words: set[str] = field(default_factory=set)
    exact: set[str] = field(default_factory=set)
    clauses: list[tuple[set[str], int]] = field(default_factory=list)

    @property
    def nots(self) -> int:
        return sum(count for _, count in self.clauses)


def _sentences(of: Iterable[Token], stops: bool = False) -> list[_Sentence]:
    """`stops`: words that carry no meaning count as well."""
    found: list[_Sentence] = []
    sentence, words, nots = _Sentence(), set[str](), 0
    for kind, text in of:
        if kind in ("break", "end"):
            if words or nots:
                sentence.clauses.append((words, nots))
            words, nots = set(), 0
            if kind == "end":
                if sentence.clauses:
                    found.append(sentence)
                sentence = _Sentence()
        elif kind == "not":
            nots += 1
        elif kind in EXACT:
            sentence.exact.add(text)
            words.add(text)
        elif kind == "word" or stops:
            sentence.words.add(text)
            words.add(text)
    return found


class _Said:
    """A summary, made ready to be asked."""

    def __init__(self, text: str) -> None:
        self._flow: list[tuple[str, str, int]] = []  # kind, text, clause
        clause, found = 0, tokens(text)
        for kind, word in found:
            if kind in ("break", "end"):
                clause += 1
            else:
                self._flow.append((kind, word, clause))
        self._joined = _joined(word for _, word, _ in self._flow)
        self._starts = [0]
        for _, word, _ in self._flow:
            self._starts.append(self._starts[-1] + len(word) + 1)
        self._sentences = _sentences(found)
        self._where: dict[str, list[int]] = defaultdict(list)
        for number, sentence in enumerate(self._sentences):
            for word in sentence.words | sentence.exact:
                self._where[word].append(number)

    def says(self, item: str) -> bool:
        found = tokens(item)
        flow = [word for kind, word in found if kind not in ("break", "end")]
        return not flow or self._contains(flow) or self._covers(found)

    def _contains(self, flow: list[str]) -> bool:
        """Whether it has these words one after the other, and no negation beside them."""
        needle, at = _joined(flow), -1
        for _ in range(_TRIES):
            at = self._joined.find(needle, at + 1)
            if at < 0:
                return False
            first = bisect_left(self._starts, at)
            last = first + len(flow) - 1
            before = self._flow[max(0, first - _NEAR) : first]
            after = self._flow[last + 1 : last + 1 + _NEAR]
            beside = [each for each in before if each[2] == self._flow[first][2]]
            beside += [each for each in after if each[2] == self._flow[last][2]]
            if not any(kind == "not" for kind, _, _ in beside):
                return True
        return False

    def _covers(self, item: list[Token]) -> bool:
        """Whether it says each sentence of the item in one of its own."""
        sentences = _sentences(item)
        if not any(each.words or each.exact for each in sentences):
            sentences = _sentences(item, stops=True)
        sentences = [each for each in sentences if each.words or each.exact]
        hit = total = 0
        for sentence in sentences:
            best = self._best(sentence)
            if best is None and (sentence.exact or sentence.nots):
                return False
            hit, total = hit + (best or 0), total + len(sentence.words)
        return bool(sentences) and hit >= SHARE * total

    def _best(self, wanted: _Sentence) -> int | None:
        """How many of its words the sentence has that comes nearest to it; None where none may stand for it."""
        best: int | None = None
        for number in self._candidates(wanted):
            there = self._sentences[number]
            if not wanted.exact <= there.exact:
                continue
            about = wanted.words | wanted.exact
            if sum(nots for words, nots in there.clauses if not about.isdisjoint(words)) != wanted.nots:
                continue
            best = max(best or 0, len(wanted.words & there.words))
            if best == len(wanted.words):
                break
        return best

    def _candidates(self, wanted: _Sentence) -> Iterable[int]:
        """Sentences that can have enough of it, few of very many: all of them have its rarest exact word, or one of
        the rarer half of its words."""
        if wanted.exact:
            rarest = [min(wanted.exact, key=lambda word: len(self._where.get(word, ())))]
        else:
            rarest = sorted(wanted.words, key=lambda word: (len(self._where.get(word, ())), word))
            rarest = rarest[: len(rarest) // 2 + 1]
        numbers = dict.fromkeys(n for word in rarest for n in self._where.get(word, ())[:_CANDIDATES])
        return list(numbers)[:_CANDIDATES]


def _joined(words: Iterable[str]) -> str:
    return _BETWEEN + "".join(word + _BETWEEN for word in words)
