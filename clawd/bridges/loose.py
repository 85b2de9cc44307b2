"""JSON as people write it: comments, commas at the end, single quotes, keys without quotes; all of JSON5 among it.

PythonClaw's config allows comments and trailing commas, OpenClaw's is JSON5 (https://spec.json5.org). Beyond that `#`
begins a comment too, and a key may hold `-` and `.`. The time that it takes grows with the text alone, and no nesting
is too deep for it: what is deeper than `DEEPEST` is refused. No error repeats anything of the text, which may be a key.
"""

from __future__ import annotations

import json
import re
from typing import Any

from clawd.errors import ClawdError

DEEPEST = 64  # lists and tables in each other
_SKIPPED = re.compile(r"(?>[\s\ufeff]+|//[^\n\r\u2028\u2029]*|#[^\n\r\u2028\u2029]*|/\*.*?\*/)*+", re.DOTALL)
_QUOTED = {
    '"': re.compile(r'"((?:[^"\\\n\r]|\\(?:\r\n|.))*+)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\\n\r]|\\(?:\r\n|.))*+)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|.))", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_ESCAPES |= dict.fromkeys(("\r\n", "\n", "\r", "\u2028", "\u2029"), "")  # the string goes on in the next line
_KEY = re.compile(r"[\w$][\w$.-]*")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]{1,32}|(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,9})?)(?![\w.])"
)
_WORD = re.compile(r"[+-]?[A-Za-z]+")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "NaN": float("nan")}
_WORDS |= {sign + "Infinity": float(sign + "inf") for sign in ("", "+", "-")}
_HALF = re.compile("[\ud800-\udfff]")
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")  # that json.loads would leave as halves


class NotJson(ClawdError):
    """A text that is not JSON, however loosely. `message` completes "it cannot be read: …"."""


def read(text: str) -> Any:
    """What the text says: tables, lists, texts, numbers, true, false and None. Of a key that stands there twice the
    last one holds. Half a character in a text becomes U+FFFD. Raises NotJson, with the line."""
    try:
        value = None if _HALVES.search(text) else json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if value is None:
        return _Reader(text).whole()
    if _too_deep(value):
        raise NotJson(f"it is nested more than {DEEPEST} deep")
    return value


def _too_deep(value: Any) -> bool:
    level, depth = [value] if isinstance(value, dict | list) else [], 0
    while level:
        if depth == DEEPEST:
            return True
        depth += 1
        level = [
            below
            for each in level
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
            if isinstance(below, dict | list)
        ]
    return False


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def whole(self) -> Any:
        value = self._value(0)
        if self._next():
            raise self._wrong("goes on after its end")
        return value

    def _next(self) -> str:
        """The next character that counts; "" at the end."""
        found = _SKIPPED.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        first = self._next()
        if first in ("{", "["):
            if depth == DEEPEST:
                raise NotJson(f"it is nested more than {DEEPEST} deep")
            self._at += 1
            return self._table(depth + 1) if first == "{" else self._list(depth + 1)
        if first in _QUOTED:
            return self._string(first)
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            return _number(number[0])
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in _WORDS:
            raise self._wrong("is not JSON")
        self._at = word.end()
        return _WORDS[word[0]]

    def _table(self, depth: int) -> dict[str, Any]:
        table = dict[str, Any]()
        while (first := self._next()) != "}":
            if first in _QUOTED:
                key = self._string(first)
            elif bare := _KEY.match(self._text, self._at):
                self._at, key = bare.end(), bare[0]
            else:
                raise self._wrong("has no key where one is due")
            if self._next() != ":":
                raise self._wrong("has no colon after a key")
            self._at += 1
            table[key] = self._value(depth)
            self._comma("}")
        self._at += 1
        return table

    def _list(self, depth: int) -> list[Any]:
        items = []
        while self._next() != "]":
            items.append(self._value(depth))
            self._comma("]")
        self._at += 1
        return items

    def _comma(self, end: str) -> None:
        following = self._next()
        if following == ",":
            self._at += 1
        elif following != end:
            raise self._wrong("has no comma where one is due")

    def _string(self, quote: str) -> str:
        found = _QUOTED[quote].match(self._text, self._at)
        if found is None:
            raise self._wrong("has a text that does not end")
        self._at = found.end()
        text = _ESCAPE.sub(_escaped, found[1])
        # Two halves that were escaped one by one are a character; one alone is none.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _HALF.search(text) else text

    def _wrong(self, what: str) -> NotJson:
        return NotJson(f"line {self._text.count(chr(10), 0, self._at) + 1} {what}")


def _escaped(found: re.Match[str]) -> str:
    if code := found[1] or found[2]:
        return chr(int(code, 16))
    return _ESCAPES.get(found[3], found[3])


def _number(text: str) -> int | float:
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.lstrip("+"))
    if digits[:2] in ("0x", "0X"):
        return sign * int(digits, 16)
    return sign * (int(digits) if digits.isdecimal() else float(digits))
