"""The terminal cleaner: whatever a model, a file or a stranger wrote, it can neither steer the terminal nor
hide.

Everything that is printed for a person passes `clean`. A newline and a tab pass; other controls, escape
included, and every invisible or direction-changing character are made visible.
"""

from __future__ import annotations

import re
import unicodedata

_PLAIN = re.compile(r"[\n\t -~]*")
# Invisible though their category does not say so: fillers, the grapheme joiner, variation selectors that can
# carry hidden text. U+FE0F, which only asks for an emoji's colours, passes.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]"
)
_HIDING = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


def clean(text: str) -> str:
    """The same text, harmless on a terminal: `\\x1b` becomes `␛`, U+202E becomes `⟨U+202E⟩`."""
    text = text.replace("\r\n", "\n")
    if _PLAIN.fullmatch(text):
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in "\n\t":
        return character
    if character < " ":
        return chr(0x2400 + ord(character))
    if character == "\x7f":
        return "␡"
    if unicodedata.category(character) in _HIDING or _UNSEEN.match(character):
        return f"⟨U+{ord(character):04X}⟩"
    return character
