"""Whether a quote is the owner's own word: whole sentences of a part that they typed. Pure.

Where it is not certain that a sentence ends, it goes on: who quotes has to quote more of it then. A negation, a
condition, the words that a list or a quotation was introduced with can so not be cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawd.errors import UsageError
from clawd.memory.protocol import Heard
from clawd.memory.record import Said
from clawd.memory.text import normal

LONGEST = 2000  # characters of a part; what is longer was pasted
_REFUSAL = "that is no whole sentence that the owner typed; quote it letter by letter, or leave said out"


def checked(said: Mapping[str, Any], heard: Sequence[Heard]) -> Said:
    """The citation, in the owner's own letters. Raises UsageError where nobody who may be cited said it so."""
    if not isinstance(said, Mapping) or set(said) - {"quote", "inbound"}:
        raise UsageError("said is {quote, inbound}: the owner's sentence, and the number of the message if you know it")
    quote, inbound = said.get("quote"), said.get("inbound")
    if not isinstance(quote, str) or type(inbound) not in (int, type(None)):
        raise UsageError("the quote of said is a text, its inbound a number")
    for each in heard:
        if inbound in (None, each.inbound) and (found := _found(quote, each.text)):
            return Said(found, each.inbound)
    raise UsageError(_REFUSAL)


def _found(quote: str, text: str) -> str:
    """What stands in the text as whole sentences and says this; "" where nothing does."""
    wanted = _key(quote).rstrip(_ENDS)
    if not wanted or len(text) > LONGEST:
        return ""
    known = list(sentences(text))
    for first in range(len(known)):
        said = ""
        for each in known[first:]:
            said += _key(text[each.start : each.end])
            if not each.citeable or not wanted.startswith(said.rstrip(_ENDS)):
                break
            if said.rstrip(_ENDS) == wanted:
                return text[known[first].start : each.end].strip()
    return ""


def _key(text: str) -> str:
    return normal(text).replace(" ", "")


@dataclass(frozen=True, slots=True)
class Sentence:
    """From where to where it stands in its text. What is quoted, code, or wholly in quotation marks cannot be cited."""

    start: int
    end: int
    citeable: bool


_ENDS = ".!?。！？"
_NARROW_ENDS, _WIDE_ENDS = ".!?．", "。！？｡।॥؟۔።"
_CLOSERS = "\"'”’»›)]}）」』*_~"
_PAIRS = {"“": "”", "„": "“”", "«": "»", "‹": "›", "(": ")", "[": "]", "{": "}", "（": "）", "「": "」", "『": "』"}
_QUOTES = frozenset("“„«‹「『\"'")
_LINE = re.compile(r"[^\n]*\n?")
_OPAQUE = re.compile(r"[ ]{0,3}>|[ ]{4}|\t")
_CODE = re.compile(r"[ ]{0,3}(```+|~~~+)")
_ITEM = re.compile(r"\s*(?:[-*+•–—·▪◦]|\(?\w{1,3}[.)])\s")
_GOES_ON = tuple(",;:–—-(…&/")
_TOKEN = re.compile(r"[^\s\"“”„«»()\[\]]*\Z")
# What ends with a full stop and ends no sentence; whatever has a full stop within (e.g., p.m., z.B.), one letter alone
# and a small number (3. Mai) end none either.
_SHORT = frozenset(
    """
    dr mr mrs ms prof st jr sr vs etc no nos nr inc ltd co corp fig vol pp approx est dept gov gen col sgt capt rev
    hon al cf ca bzw usw evtl ggf inkl exkl zzgl bspw vgl sog str tel abs art jan feb mar apr jun jul aug sep sept
    oct okt nov dec dez mon tue wed thu fri sat sun av bd ave blvd mme mlle cie sig dott avv sra srta dra ej pág núm
    avda max min std ph am pm eg ie viz incl excl misc zit hr fr frl hrn mio mrd тыс млн руб ул им др пр см
    """.split()  # noqa: SIM905
)


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a text, one beside the other."""
    hidden = list(_hidden(text))
    covered = bytearray(len(text))
    for begin, end in hidden:
        covered[begin:end] = b"\1" * (end - begin)
    begin = 0
    for end in [*_ends(text, covered), len(text)]:
        if text[begin:end].strip():
            within = text[begin:end]
            citeable = not any(covered[begin:end]) and any(map(str.isalnum, _unquoted(within)))
            yield Sentence(begin, end, citeable)
        begin = end


def _hidden(text: str) -> Iterator[tuple[int, int]]:
    """Lines that somebody else wrote: quoted with >, code."""
    fence = ""
    for line in _LINE.finditer(text):
        if not line[0]:
            continue
        mark = _CODE.match(line[0])
        if fence:
            fence = "" if mark and mark[1].startswith(fence) and not line[0].strip(" \n`~") else fence
            yield line.span()
        elif mark:
            fence = mark[1]
            yield line.span()
        elif _OPAQUE.match(line[0]) and line[0].strip():
            yield line.span()


def _ends(text: str, covered: bytearray) -> Iterator[int]:
    """Where a sentence surely ends."""
    open: list[str] = []
    at = 0
    while at < len(text):
        each, at = text[at], at + 1
        if covered[at - 1] and each != "\n":
            continue
        if open and each in open[-1]:
            open.pop()
        elif each == '"' or (each == "'" and _opens(text, at - 1)):
            open.append(each)
        elif each in _PAIRS:
            open.append(_PAIRS[each])
        elif each == "\n":
            blank = _blank_after(text, at)
            if blank and not open and not _goes_on(text[: at - 1], text[blank:]):
                yield blank
                at = blank
            continue
        if each not in _NARROW_ENDS and each not in _WIDE_ENDS:
            continue
        stop = at
        while stop < len(text) and text[stop] in _NARROW_ENDS + "…" + _WIDE_ENDS + _CLOSERS and not covered[stop]:
            if open and text[stop] in open[-1]:
                open.pop()
            elif text[stop] in '"':
                open.append('"')
            stop += 1
        marks, begin = text[at - 1 : stop].rstrip(_CLOSERS), at - 1
        at = stop
        if not open and _ended(text, begin, marks, stop):
            yield stop


def _ended(text: str, begin: int, marks: str, stop: int) -> bool:
    """Whether the marks that begin there end a sentence. `stop` is behind them and what closes with them."""
    after = text[stop:]
    wide = marks[-1:] in _WIDE_ENDS
    if after and not after[0].isspace() and not (wide and stop - begin == len(marks)):
        return False
    if marks.startswith("..") or "…" in marks:
        return False
    following = after.lstrip()
    if following[:1].islower() or _ITEM.match(after.lstrip("\n")) or following.startswith(_GOES_ON):
        return False
    if marks in (".", "．"):
        token = _TOKEN.search(text[:begin])
        word = normal(token[0]) if token else ""
        return not (len(word) < 2 or "." in word or word in _SHORT or (word.isdigit() and len(word) < 3))
    return True


def _opens(text: str, at: int) -> bool:
    """Whether an apostrophe opens a quotation."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    closes = before.isalnum() or (before and before in _CLOSERS)
    return not closes and bool(after) and not after.isspace()


def _blank_after(text: str, at: int) -> int:
    """Behind the blank lines that follow here, 0 where there are none."""
    stop = at
    while (line := _LINE.match(text, stop)) is not None and line[0].endswith("\n") and not line[0].strip():
        stop = line.end()
    return stop if stop > at or not text[at:].strip() else 0


def _goes_on(before: str, after: str) -> bool:
    """Whether what follows a blank line belongs to what stands before it."""
    return before.rstrip().endswith(_GOES_ON) or bool(_ITEM.match(after)) or after[:1].islower()


def _unquoted(text: str) -> str:
    """The text without what stands in quotation marks."""
    kept: list[str] = []
    open = ""
    for at, each in enumerate(text):
        if open:
            open = "" if each in open else open
        elif each in _QUOTES and (each != "'" or _opens(text, at)):
            open = _PAIRS.get(each, each)
        else:
            kept.append(each)
    return "".join(kept)
