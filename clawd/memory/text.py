"""What two texts have in common however they are written, and how a text is shown that nobody vouches for. Pure."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator

from clawd.text import unhidden

LONG = (
    24  # letters that a line or sentence must have to be known again by itself; one that is written wide counts twice
)
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(map(chr, range(0xFE00, 0xFE10)))


class _Shown(dict[int, str | None]):
    """What each letter is for a comparison: a space, nothing, or itself."""

    def __missing__(self, code: int) -> str | None:
        letter = chr(code)
        unseen = letter in _BLANK or unicodedata.category(letter) in _UNSEEN
        self[code] = " " if letter.isspace() else None if unseen else letter
        return self[code]


_SHOWN = _Shown()


def normal(text: str) -> str:
    """The text as it is compared: NFKC, case folded, without what does not show, one space between words."""
    return " ".join(_folded(text).translate(_SHOWN).split())


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def digest(text: str) -> str:
    """The sha256 by which a text is known."""
    return hashlib.sha256(normal(text).encode("utf-8", "surrogatepass")).hexdigest()


# ── what is known again ──

_END = re.compile(r"(?<=[。！？।؟۔])|(?<=[.!?])[\"')\]*_]*(?=\s)")
_STOP = re.compile("[.!?。！？।؟۔]")
_PARAGRAPH = re.compile(r"\n\s*\n")
_NO_LETTER = re.compile(r"[\W_]+")
_WIDE = re.compile(r"[\u2e80-\uffdc\U00020000-\U0003ffff]")


def lines(text: str) -> tuple[str, ...]:
    """The marks by which parts of a text are known without the others, if they are long enough: the whole, each line,
    and each sentence however it was wrapped. Only letters and digits count, so that neither list marks nor spaces make
    another text of it."""
    marks = (_mark(piece) for piece in _pieces(_folded(text)))
    return tuple(dict.fromkeys(mark for mark in marks if mark))


def _pieces(text: str) -> Iterator[str]:
    yield text
    if "\n" not in text.strip() and _STOP.search(text) is None:
        return
    yield from text.splitlines()
    for paragraph in {text, *_PARAGRAPH.split(text)}:
        yield from _END.split(paragraph)


def _mark(piece: str) -> str | None:
    if len(piece) < (LONG if piece.isascii() else LONG // 2):
        return None
    letters = _NO_LETTER.sub("", piece if piece.isascii() else piece.translate(_SHOWN))
    if len(letters) < LONG and len(letters) + len(_WIDE.findall(letters)) < LONG:
        return None
    return hashlib.sha256(letters.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# ── what cannot be followed ──

_MARKUP = re.compile(r"<(?=[a-z/!?@#])", re.IGNORECASE)
_IMAGE = re.compile(r"(?<!!)!+\[")
_LINK = re.compile(r"\](?=[(:])")  # [a](b), [a]: b
_SCHEME = re.compile(
    r"(?<![a-zA-Z0-9])(https?|ftps?|wss?|javascript|vbscript|file(?=\s*[:：]\s*/)|data(?=\s*[:：]\s*(?:[\w.+-]+/|[,;]))"
    r"|(?:mailto|tel|sms|blob|about)(?=[:：]\S))\s*[:：]",
    re.IGNORECASE,
)
_AUTHORITY = re.compile(r"[:：](?=[/\\]{2})")
_HOST = re.compile(r"(?<![/\\\w.\]])[/\\]{2}(?=[^\s/\\\]])")  # //host: of whatever scheme the page has
_DOTTED = re.compile(r"(?<=\w)\.(?=[a-z]{2,24}(?::\d+)?[/?#])", re.IGNORECASE)
_WWW = re.compile(r"(www)\.", re.IGNORECASE)
_IMPORT = re.compile(r"(?<!\w)@(?=[\w./~\\])")


def defanged(text: str) -> str:
    """The same words, in which nothing can be followed, loaded or imported by whoever shows them. Doing it twice
    changes nothing more."""
    text = _SCHEME.sub(lambda match: f"{match[1][0]}xx{match[1][3:]}[:]", _MARKUP.sub("&lt;", unhidden(text)))
    text = _HOST.sub("[//]", _AUTHORITY.sub("[:]", text))
    text = _IMPORT.sub("[@]", _DOTTED.sub("[.]", _WWW.sub(r"\1[.]", text)))
    return _LINK.sub("] ", _IMAGE.sub("[image: ", text))
