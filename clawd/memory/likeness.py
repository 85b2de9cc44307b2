"""How far two texts say the same, in any language, without a model: whether one is only the other once more, and
whether they differ in the one thing that matters. Pure; built so that no text is compared with every other."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import ceil
from operator import xor

from clawd.memory.text import normal


def _words(all: str) -> frozenset[str]:
    return frozenset(all.split())


NEAR = 0.9  # Jaccard of the words of two texts that are one
_MOST = 8  # texts with a common key that one is compared with: the last ones
_LONGEST = 40  # words of weight in a text that may contradict another

# One sign is a word in scripts without spaces.
_WORD = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\\W_]+(?:['’][^\\W_]+)*")
_AROUND = ".,;:!?()[]{}\"'“”„«»…"
_SENTENCE = re.compile(r"(?:^|[.!?:\n])\W*$")
_NOT = _words(
    "no not never none neither nor nobody nothing without cannot cant dont doesnt didnt isnt wasnt wont shouldnt"
    " nicht kein keine keinen keiner keinem keines nie niemals ohne weder noch ne pas jamais sans aucun aucune rien ni"
    " nunca jamás sin ningún ninguna nada tampoco non mai senza nessuno não nem sem niet geen nooit zonder inte aldrig"
    " ikke aldri nie не нет никогда без ni 不 没 沒 無 无 未 非 勿 别 안 못"
)
_NOT_WITHIN = re.compile("ない|ません|なかっ|ไม่|않|없|아니")
_LIGHT = _words(
    "a an the this that these those is are was were be been being am do does did has have had will would can could"
    " should of to in on at for by from with as and or but it its he she they them his her their you your we our us i"
    " me my so than then there here very just also now der die das den dem ein eine einen ist sind war und oder zu im"
    " auf für von mit le la les un une des du de et ou est à el los las una y o es en por para con il lo gli e"
)
_CORRECTS = re.compile(
    r"^\s*(?:correction|corrected|korrektur|berichtigung|corrección|correzione|correção|更正|訂正)\b[\s:,-]"
    r"|\b(no longer|not (?:any ?more|anymore)|any ?more|nicht mehr|ne \w+ plus|ya no|non (?:\w+ )?più|não mais)\b"
    r"|不再",
    re.IGNORECASE,
)
_ONLY_CORRECTS = _words(
    "correction corrected korrektur berichtigung corrección correzione correção longer anymore any more mehr plus ya"
    " più mais 更 訂 正 再"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A text as it is compared. `numbers`, `negations` and `names` are what no duplicate may differ in; `weight` are
    the words that are none of them and carry the sense, `first` the first of those. `corrects`: it says of itself that
    something was otherwise."""

    normal: str
    words: tuple[str, ...]
    bag: frozenset[str]
    numbers: tuple[str, ...]
    negations: tuple[str, ...]
    names: tuple[str, ...]
    weight: frozenset[str]
    first: str
    corrects: bool


def shape(text: str) -> Shape:
    shown = unicodedata.normalize("NFKC", text)
    found = [(match[0], match.start()) for match in _WORD.finditer(shown)]
    words = tuple(word.casefold().replace("’", "'") for word, _ in found)
    names = (word for (raw, at), word in zip(found, words, strict=True)
             if any(map(str.isupper, raw)) and not _SENTENCE.search(shown[max(0, at - 4) : at]))  # fmt: skip
    numbers = (run.strip(_AROUND) for run in shown.casefold().split() if any(map(str.isdigit, run)))
    negations = [word for word in words if _negates(word)] + _NOT_WITHIN.findall(shown)
    heavy = [_stem(word) for word in words if not (_negates(word) or word in _LIGHT or word in _ONLY_CORRECTS
                                                   or any(map(str.isdigit, word)))]  # fmt: skip
    return Shape(
        normal(text), words, frozenset(words), tuple(sorted(numbers)), tuple(sorted(negations)), tuple(sorted(names)),
        frozenset(heavy), heavy[0] if heavy else "", _CORRECTS.search(shown) is not None,
    )  # fmt: skip


def _negates(word: str) -> bool:
    return word in _NOT or word.endswith("n't")


def _stem(word: str) -> str:
    """Without a plural's or a verb's s: "likes" and "like" are one."""
    word = word.removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def duplicate(one: Shape, other: Shape) -> bool:
    """Whether they are one text: equal, or all but a tenth of the words in the same order, with nothing exchanged and
    the same numbers, names and negations."""
    if one.normal == other.normal:
        return True
    shared = len(one.bag & other.bag)
    if not shared or shared < NEAR * (len(one.bag) + len(other.bag) - shared) or _marks(one) != _marks(other):
        return False
    from difflib import SequenceMatcher  # which takes time to load

    first, second = sorted((one.words, other.words))
    gone: set[str] = set()
    new: set[str] = set()
    for tag, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if tag == "replace":
            return False
        if tag != "equal":
            gone.update(first[a:b])
            new.update(second[c:d])
    return not gone & new  # what moved to another place may say something else


def contradict(one: Shape, other: Shape) -> str:
    """In what a text and a newer one of the same matter differ: "numbers", "negation", "a word", or nothing."""
    if not one.weight or not other.weight or one.first != other.first:
        return ""
    if one.weight == other.weight:
        if one.numbers != other.numbers:
            return "numbers"
        return "negation" if one.negations != other.negations else ""
    same = (one.numbers, one.negations) == (other.numbers, other.negations)
    less, more = len(one.weight - other.weight), len(other.weight - one.weight)
    if other.corrects and (less, more) == (0, 1) and len(one.weight) > 1:  # "…, not X" names what it corrects
        return "a word"
    return "a word" if same and less == more == 1 and len(one.weight) > 2 else ""


def duplicates(shapes: Sequence[Shape]) -> list[list[int]]:
    """Groups of at least two: the first of each, by the given order, and those that are its duplicates."""
    often: dict[str, int] = {}
    for each in shapes:
        for word in each.bag:
            often[word] = often.get(word, 0) + 1
    seen: dict[tuple[object, ...], list[int]] = {}
    groups: dict[int, list[int]] = {}
    for number, each in enumerate(shapes):
        words = sorted(each.bag, key=lambda word: (often[word], word))
        # Two that share nine tenths share one of so many of their rarest words.
        rare = words[: len(words) - ceil(NEAR * len(words)) + 1]
        keys = [(each.normal,), *((_marks(each), word) for word in rare)]
        candidates = sorted({known for key in keys for known in seen.get(key, ())[-_MOST:]})
        of = next((known for known in candidates if duplicate(shapes[known], each)), None)
        if of is not None:
            groups.setdefault(of, [of]).append(number)
            continue
        for key in keys:
            seen.setdefault(key, []).append(number)
    return list(groups.values())


def contradictions(shapes: Sequence[Shape]) -> Iterator[tuple[int, int, str]]:
    """Pairs of numbers, the lower first, with what they differ in."""
    seen: dict[tuple[int, int], list[int]] = {}
    for number, each in enumerate(shapes):
        if not 0 < len(each.weight) <= _LONGEST:
            continue
        keys = _keys(each)
        asked = [*keys, *((0, key) for _, key in keys[1:])] if each.corrects else keys
        near = {known for key in asked for known in seen.get(key, ())[-_MOST:]}
        for known in sorted(near):
            if what := contradict(shapes[known], each):
                yield known, number, what
        for key in keys:
            seen.setdefault(key, []).append(number)


def _keys(of: Shape) -> list[tuple[int, int]]:
    """Texts whose words of weight are the same, or the same but for one, have one of these in common."""
    all = reduce(xor, map(hash, of.weight))
    return [(0, all), *((len(of.weight), all ^ hash(word)) for word in of.weight)]


def _marks(of: Shape) -> tuple[object, ...]:
    return of.numbers, of.negations, of.names
