"""Words as they are compared, of a text and of a query alike. Pure.

Marks over letters are dropped. Scripts that put no space between words (Chinese, Japanese, Thai, …) are cut into runs
of one, two and three letters, so that a word is found wherever it stands, and a word of one letter too. A query is
never given to FTS5 as it was written: each of its words is quoted, and whatever else is in it is gone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import datetime

LONGEST = 64  # words of a query that count, the first ones
_QUERY = 10_000  # letters of a query that are looked at

_MARKS = re.compile(
    "[\u00ad\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u2064"
    "\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff]+"
)
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3005-\u3007\u3041-\u30ff\u3105-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_UNSPACED}]+")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
_DAY = re.compile(r"(?<!\d)\d{4}-\d\d(?:-\d\d)?(?!\d)", re.ASCII)

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# What says little by itself, without its marks: of English, and the commonest of German, French and Spanish that are no
# words of English.
_LITTLE = """
d m
a about after again all also am an and any are as at be because been before being but by can could did do does doing
don down during each few for from further had has have having he her here hers him his how i if in into is it its
itself just ll me more most my no nor not now of off on once only or other our out over own re s same she should so
some such t than that the their theirs them then there these they this those through to too under until up ve very was
we were what when where which while who whom why will with would you your yours aber als auch auf aus bei bis das dass
dem den der des ein eine einem einen einer es fur habe ich ihr im ist mein nach nicht noch oder sich sie sind um und
uns von vor wann was wer wie wir wird wo zu zum zur au aux avec ce ces cette dans de du elle en est et ete il je la le
les leur lui ma mais mes mon ne nous ou par pas qu que qui sa ses sont sur tu un une vous al como con cuando del donde
ella el ellos era esta este ha las lo los mas mi muy para pero por quien se si sobre su sus tiene una unos y yo
"""
_STOP = frozenset(_LITTLE.split())


def plain(text: str) -> str:
    """The text in small letters without marks over them and without what does not show, in one form of each."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", _MARKS.sub("", unicodedata.normalize("NFKD", text.casefold())))


def storable(text: str) -> str:
    """The text without what UTF-8 has no bytes for."""
    return text.encode("utf-8", "replace").decode()


def indexed(text: str) -> str:
    """The text as it is given to FTS5."""
    text = plain(text).replace("\x00", " ")
    if text.isascii() or _RUN.search(text) is None:
        return text
    grams = (gram for run in _RUN.findall(text) for size in (1, 2, 3) for gram in _grams(run, size))
    return f"{_RUN.sub(' ', text)} {' '.join(grams)}"


def day(at: float) -> str:
    """The day in words: a question may name any of them."""
    try:
        then = datetime.fromtimestamp(at)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{then:%Y-%m-%d} {then.day} {_MONTHS[then.month - 1]} {then.year} {_DAYS[then.weekday()]}"


def words(query: str) -> tuple[list[str], list[str]]:
    """The words of a query, and the runs of its unspaced scripts: each once, in their order, at most LONGEST together.
    Words that say little are left out unless there are no others."""
    text = plain(query[:_QUERY])
    spaced = dict.fromkeys([*_DAY.findall(text), *_separate(_DAY.sub(" ", _RUN.sub(" ", text)))])
    runs = dict.fromkeys(gram for run in _RUN.findall(text) for gram in _asked(run))
    telling = [each for each in spaced if each not in _STOP] or ([] if runs else list(spaced))
    telling = telling[:LONGEST]
    return telling, list(runs)[: LONGEST - len(telling)]


def quoted(words: Sequence[str]) -> str:
    """An expression of FTS5 that any of the words fulfils."""
    return " OR ".join('"' + each.replace('"', '""') + '"' for each in words)


def _separate(text: str) -> list[str]:
    """The words between what is neither a letter, a number nor a sign that belongs to one."""
    return "".join(
        each if each.isalnum() or (not each.isascii() and unicodedata.category(each)[0] == "M") else " "
        for each in text
    ).split()


def _grams(run: str, size: int) -> Iterator[str]:
    return (run[start : start + size] for start in range(len(run) - size + 1))


def _asked(run: str) -> Iterator[str]:
    """What is looked for of a run: threes and twos, and what means something alone."""
    yield from _grams(run, 3)
    yield from _grams(run, 2)
    yield from _HAN.findall(run) if len(run) > 1 else [run]
