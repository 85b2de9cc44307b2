"""Text in a platform's own units. Pure, and linear in the text."""

from __future__ import annotations

import re
import unicodedata

_SENTENCE = re.compile(r"[.!?…:;][)\]\"'*_`]*\s|[。！？]")
_WORD = re.compile(r"\s")
_JOINER, _LONGEST_CLUSTER = "\u200d", 40
# Letters and marks that show nothing: Hangul fillers, the blank of Braille, the joiner of graphemes.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def units(text: str) -> int:
    """Length in UTF-16 code units, which is how chat platforms count."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def split(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` UTF-16 units whose concatenation is `text`, cut after a paragraph, a line, a sentence
    or a word where one ends in the second half of the piece. `limit` is at least 2."""
    chunks, start = [], 0
    while start < len(text):
        end = cut(text, start, limit)
        chunks.append(text[start:end])
        start = end
    return chunks


def cut(text: str, start: int, limit: int) -> int:
    """Where a piece of at most `limit` units that begins at `start` ends best."""
    end = start + fitting(text[start : start + limit], limit)
    if end == len(text):
        return end
    middle = start + (end - start) // 2
    for mark in ("\n\n", "\n"):
        if (at := text.rfind(mark, middle, end)) != -1:
            return at + len(mark)
    for pattern in (_SENTENCE, _WORD):
        ends = [found.end() for found in pattern.finditer(text, middle, end)]
        if ends:
            return ends[-1]
    return _between_clusters(text, start, end)


def fitting(text: str, limit: int) -> int:
    """How many characters of `text` fit into `limit` units."""
    if units(text) <= limit:
        return len(text)
    kept = text.encode("utf-16-le", "surrogatepass")[: 2 * limit]
    if 0xD8 <= kept[-1] <= 0xDB:  # the first half of a pair
        kept = kept[:-2]
    return len(kept.decode("utf-16-le", "surrogatepass"))


def visible(text: str) -> bool:
    """Whether a person would see anything of it."""
    return any(not (each.isspace() or unicodedata.category(each) in ("Cc", "Cf", "Mn")) for each in text)


def made_visible(text: str) -> str:
    """The same text with everything that does not show, or moves what does, as ⟨U+202E⟩; lines stay lines."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter == "\n" or _shows(letter) else f"⟨U+{ord(letter):04X}⟩" for letter in text)


def _shows(letter: str) -> bool:
    if letter in _BLANK or "\ufe00" <= letter <= "\ufe0f" or "\U000e0100" <= letter <= "\U000e01ef":
        return False
    category = unicodedata.category(letter)
    return category not in _HIDDEN and (category != "Zs" or letter == " ")


def unhidden(text: str) -> str:
    """The same text without what nobody sees: control characters but line ends and tabs, what turns the direction of
    writing, zero-width characters, tags, selectors of variants that fonts do not have. Joiners stay between letters
    that are not ASCII: scripts and emoji need them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each for at, each in enumerate(text) if not _hides(text, at))


def _hides(text: str, at: int) -> bool:
    each = text[at]
    if each in "\n\t" or each.isascii():
        return not (each in "\n\t" or each.isprintable())
    if each in "\u200c\u200d":
        around = text[max(at - 1, 0) : at] + text[at + 1 : at + 2]
        return len(around) < 2 or any(near.isascii() or unicodedata.category(near) == "Cf" for near in around)
    return unicodedata.category(each) in ("Cc", "Cf", "Cs", "Co") or "\U000e0100" <= each <= "\U000e01ef"


def _between_clusters(text: str, start: int, end: int) -> int:
    """`end`, or a little before it where it would cut what is seen as one character."""
    for at in range(end, max(start, end - _LONGEST_CLUSTER), -1):
        if not _joined(text, start, at):
            return at
    return end


def _joined(text: str, start: int, at: int) -> bool:
    before, after = text[at - 1], text[at]
    if _flag(before) and _flag(after):
        first = at
        while first > start and at - first < _LONGEST_CLUSTER and _flag(text[first - 1]):
            first -= 1
        return (at - first) % 2 == 1
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in ("Mn", "Mc", "Me")
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
        or (before, after) == ("\r", "\n")
    )


def _flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
