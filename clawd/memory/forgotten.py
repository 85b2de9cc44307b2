"""Texts that are to be gone, and where they stand in others however those were written: wrapped anew, escaped as JSON
(once or often), made harmless for a display, or a line or sentence of them alone. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from clawd.memory.text import defanged

HIDDEN = "[forgotten]"
SHORTEST = 8  # letters: what is shorter stands in too much that has nothing to do with it
PIECE = 24  # letters that a line or sentence must have to be looked for by itself
WHOLE = 20_000  # characters: of what is longer only lines and sentences are looked for
CUT = 500  # characters: of what is longer a search may have shown a part that begins and ends within a sentence
_RUN = 6  # words of such a part that are surely found

_ENDS = " \t\r\n.!?;,:"
_PIECES = re.compile(r"[\r\n]+|(?<=[.!?。！？])\s+")
_GAP = r"(?:\s|\\+(?:[nrtf]|u(?i:00[01][0-9a-f]|0085|00a0|1680|20[0-5][0-9a-f]|3000)))+"
_WIDE = re.compile(r".{1,40}")  # of a script that is written without spaces
_WORD = re.compile(r"[A-Za-z0-9]{2,}")
_SHORT = {"\b": "b", "\f": "f"}  # how JSON writes what is no space


class Forgotten:
    """`short` is how many of the texts are too short to be looked for."""

    def __init__(self, texts: Iterable[str]) -> None:
        texts = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
        long = [text for text in texts if _letters(text) >= SHORTEST]
        self.short = len(texts) - len(long)
        forms = {form.strip(_ENDS) for text in long for form in (text, defanged(text))}
        pieces = {each for text in forms for piece in _pieces(text) if _letters(each := piece.strip(_ENDS)) >= PIECE}
        # The longest first: what is left of it then is none of its pieces.
        self._pieces = sorted(
            pieces | {each for each in forms if len(each) <= WHOLE}, key=lambda each: (-len(each), each)
        )
        self._words = [sorted(set(_WORD.findall(each)), key=len, reverse=True) for each in self._pieces]

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def out_of(self, text: str) -> str:
        """The text without them."""
        for piece, words in zip(self._pieces, self._words, strict=True):
            if all(word in text for word in words):  # a pattern costs a thousand times as much
                text = _pattern(piece).sub(HIDDEN, text)
        return text

    def out_of_value(self, value: Any, structure: frozenset[str] = frozenset()) -> Any:
        """The JSON value with no string that has them; what stands under a key of `structure` stays, but for what lies
        in arguments of a call."""
        if isinstance(value, str):
            return self.out_of(value)
        if isinstance(value, list | tuple):
            return [self.out_of_value(each, structure) for each in value]
        if isinstance(value, dict):
            return {
                key: each if key in structure and not isinstance(each, list | dict)
                else self.out_of_value(each, frozenset() if key == "arguments" else structure)
                for key, each in value.items()
            }  # fmt: skip
        return value


def _letters(text: str) -> int:
    return sum(each.isalnum() for each in text)


def _pieces(text: str) -> Iterator[str]:
    if len(text) <= WHOLE:
        yield text
    for piece in _PIECES.split(text):
        yield piece
        words = piece.split() if CUT < len(text) <= WHOLE else []
        yield from (" ".join(words[at : at + _RUN]) for at in range(0, len(words), _RUN))
        yield from (part for word in words if len(word) > 40 for part in _WIDE.findall(word))


_OWN = {"\b": r"(?:\\+b|\x08)", "\\": r"\\+"}


@lru_cache(maxsize=256)
def _pattern(piece: str) -> re.Pattern[str]:
    pattern = _GAP.join("".join(map(_any_form, word)) for word in piece.split())
    # After one backslash such a letter is half of an escape, which must not be torn.
    return re.compile(rf"(?<!\\){pattern}" if piece[0] in "nrtbfu" else pattern)


def _any_form(letter: str) -> str:
    """The letter as it stands, or as JSON may write it."""
    if letter.isascii() and letter.isalnum():
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\+u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    own = r"\\+" if letter == "\\" else (r"\\*" if letter in '"/' else "") + re.escape(letter)
    short = _SHORT.get(letter)
    unseen = unicodedata.category(letter) in ("Cc", "Cf")
    return f"(?:{own}|{escaped}" + (rf"|\\+{short}" if short else "") + ")" + ("?" if unseen else "")
