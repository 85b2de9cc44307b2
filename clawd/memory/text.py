"""What two texts have in common however they are written, and how a text is shown that nobody vouches for. Pure."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_LINE = 24  # letters that a line must have to be known again by itself
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def normal(text: str) -> str:
    """The text as it is compared: NFKC, case folded, without what does not show, one space between words."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    shown = "".join(
        " " if each.isspace() else each
        for each in folded
        if each.isspace() or unicodedata.category(each) not in _UNSEEN
    )
    return " ".join(shown.split())


def digest(text: str) -> str:
    """The sha256 by which a text is known."""
    return hashlib.sha256(normal(text).encode("utf-8", "surrogatepass")).hexdigest()


def lines(text: str) -> tuple[str, ...]:
    """The sha256 of each line that is long enough to be known again without the others."""
    found = (normal(line).strip("-*+>#\"' ") for line in text.splitlines())
    return tuple(dict.fromkeys(hashlib.sha256(each.encode("utf-8", "surrogatepass")).hexdigest()
                               for each in found if len(each) >= _LINE))  # fmt: skip


_SCHEME = re.compile(r"\b(https?|ftp|file|data|javascript)\s*:", re.IGNORECASE)
_IMAGE = re.compile(r"!\[([^\]]*)\]")
_IMPORT = re.compile(r"(?<!\S)@(?=[\w./~])")


def defanged(text: str) -> str:
    """The same words, in which nothing can be followed, loaded or imported by whoever shows them."""
    text = _IMAGE.sub(r"[image: \1]", text)
    text = _SCHEME.sub(lambda match: match[1][0] + "xx" + match[1][3:] + "[:]", text)
    return _IMPORT.sub("[@]", text)
