"""The words of a text as they are compared when it is asked whether one text says what another does. Pure, and linear
in the text.

Numbers and names (paths, identifiers, addresses, flags) keep their letters as they stand. Words lose their case. What
turns a sentence into another one is of a kind of its own: negations (`not`), and words like "only", "at least",
"before", units and numbers in words (`sharp`). What says that something does not hold any more is a negation, too.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from clawd.text import unhidden

Kind = Literal["word", "stop", "not", "sharp", "number", "name", "break", "end"]
"""`break` ends a clause, `end` a sentence; their texts are empty."""
Token = tuple[Kind, str]

EXACT: tuple[Kind, ...] = ("number", "name", "sharp")
_LONGEST = 2000  # characters of one word; what is longer is no word


def words_of(text: str) -> frozenset[str]:
    """The words of a list that is written as one text."""
    return frozenset(text.split())


_NOT = words_of(
    "not no never none nothing neither nor cannot without nicht nichts kein keine keinen keinem keiner keines nie"
    " niemals ohne weder pas jamais aucun aucune sans rien nunca ningún ninguna ninguno jamás sin tampoco"
    " 不 没 沒 勿 别 別 未 无 無"
)
_REVOKED = words_of(
    "ignore ignored lifted revoked dropped cancelled canceled obsolete false ignorieren ignoriert aufgehoben hinfällig"
    " ungültig annulé ignorer ignorar anulado"
)
_SHARP = words_of(
    "only least most more less fewer before after until unless except above below over under between within maximum"
    " minimum max min always sometimes nur mindestens höchstens mehr weniger vor nach bis außer über unter zwischen"
    " immer manchmal seulement moins plus avant après sauf toujours solo sólo menos más antes después hasta salvo"
    " excepto siempre two three four five six seven eight nine ten eleven twelve twenty hundred thousand million"
    " billion zwei drei vier fünf sechs sieben acht neun zehn elf zwölf hundert tausend deux trois quatre cinq sept"
    " huit neuf dix cent mille dos tres cuatro cinco seis siete ocho nueve diez cien mil"
)
_UNITS = words_of(
    "% percent prozent ms s sec secs second seconds sekunde sekunden m min mins minute minutes minuten h hr hrs hour"
    " hours stunde stunden d day days tag tage tagen week weeks woche wochen month months monat monate year years jahr"
    " jahre b byte bytes k kb mb gb tb kib mib gib tib px mm cm km g kg usd eur dollar dollars euro euros cent cents"
    " token tokens"
)
_STOP = words_of(
    "a an the of to in on at for by with from and or is are was were be been being it its this that these those as i"
    " we you he she they my our your their do does did has have had will would can could should shall may might"
    " please so then there here if but just e.g i.e etc der die das den dem des ein eine einen einem einer und oder"
    " ist sind war waren zu von mit für auf im am an als es wir ich du sie er wird werden hat haben bitte dass z.b d.h"
    " le la les un une du de et ou est sont à au aux en dans pour par sur avec ce cette il elle nous vous je qui que ne"
    " el los las una unos y o son del al para por con su se lo"
)
_STEMS = frozenset(("must", "should", "would", "could", "need"))
_SHORT = frozenset(("e.g", "i.e", "etc", "z.b", "d.h", "bzw", "ca", "vs", "approx", "nr", "mr", "mrs", "dr"))

_SIGNS = frozenset("%$€£¥")
_OPENING, _CLOSING = "([{<\"'`*«“„‘¿¡", ")]}>\"'`*»”’,;:.!?…"
_MARKER = re.compile(r"\s*(?:(?:[-*+•>]|#{1,6}|\d{1,2}[.)]|\[[ xX]\])\s+)*")
_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff])")
_NUMBER = re.compile(r"([$€£¥]?)([+-]?)(\d(?:[\d.,:_'/-]*\d)?)(%|°?[A-Za-zµ]{1,4})?([$€£¥]?)")
_NAME = re.compile(r"[_\\=#@$|&^~]|::|->|\(\)|^-[A-Za-z]|^--|[^\W_]\.[^\W_]|[a-zß-öø-ÿ][A-Z]|^\.[^\W_]|^\.{0,2}/")
_WORDS = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d+")
_DASHES = str.maketrans(
    {"—": " — ", "–": " – ", "。": "。 ", "！": "! ", "？": "? ", "、": ", ", "’": "'", "‘": "'", "\u00ad": ""}
)


def tokens(text: str) -> list[Token]:
    """The words of a text, markup and list markers left out."""
    text = unicodedata.normalize("NFKC", unhidden(text)).translate(_DASHES)
    if not text.isascii():
        text = _CJK.sub(r" \1 ", text)
    found: list[Token] = []
    open_line = False  # the sentence may go on in the next line
    for line in text.splitlines():
        marker = _MARKER.match(line)
        rest = line[marker.end() :] if marker else line
        begins = bool(marker and marker[0].strip()) or not rest.strip() or rest[:1].isupper()
        if found and (begins or not open_line):
            found.append(("end", ""))
        for chunk in rest.split():
            _chunk(chunk, found)
        open_line = bool(found) and found[-1][0] not in ("end", "break")
    found.append(("end", ""))
    return found


def _chunk(chunk: str, found: list[Token]) -> None:
    """The tokens of what stands between two white spaces."""
    core = chunk.lstrip(_OPENING)
    opened, core = chunk[: len(chunk) - len(core)], core.rstrip(_CLOSING)
    closed = chunk[len(opened) + len(core) :]
    if core.endswith("(") and closed.startswith(")"):  # a call: f()
        core, closed = core + ")", closed[1:]
    core = core.removesuffix("'s")
    if any(each in opened for each in "([{"):
        found.append(("break", ""))
    if any(map(str.isalnum, core)):
        _core(core, found)
    elif core in _SIGNS and found and found[-1][0] == "number":
        found.append(("sharp", core))
    if any(each in closed for each in ".!?…;。") and core.casefold() not in _SHORT:
        found.append(("end", ""))
    elif closed.strip("\"'`*") or not core or core in ("—", "–", "-", "|"):
        found.append(("break", ""))


def _core(core: str, found: list[Token]) -> None:
    if len(core) > _LONGEST:
        found.append(("name", core))
        return
    low = core.casefold()
    if low in _STOP:
        found.append(("stop", low))
        return
    if (number := _NUMBER.fullmatch(core)) is not None:
        before, sign, digits, unit, after = number.groups()
        found.append(("number", sign.replace("+", "") + digits))
        found.extend(("sharp", each.casefold()) for each in (before, unit, after) if each)
        return
    if "://" in core or "/" in core or _NAME.search(core) or (_has_digit(core) and any(map(str.isalpha, core))):
        found.append(("name", core))
        return
    for word in _WORDS.findall(low):
        found.extend(_word(word, found))


def _word(word: str, before: list[Token]) -> list[Token]:
    if word.isdigit():
        return [("number", word)]
    if word.endswith("n't"):
        stem = word[:-3]
        return [*([("word", stem)] if stem in _STEMS else []), ("not", "not")]  # type: ignore[list-item]
    word = word.rpartition("'")[2] if word[1:2] == "'" else word.partition("'")[0]  # l'eau; it's
    if word in _NOT:
        return [("not", "not")]
    if word in _REVOKED:
        return [("not", word)]
    if word in _SHARP or (word in _UNITS and before and before[-1][0] == "number"):
        return [("sharp", word)]
    return [("stop" if word in _STOP else "word", word)]


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))
