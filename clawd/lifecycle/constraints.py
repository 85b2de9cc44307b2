"""Which sentences of a person set a limit to the work, in four languages. Data, and the one search through it. Pure.

In a phrase `…` stands for at most six words, `*` for any ending of a word, and a word in `^` must begin the sentence. A
sentence too many costs some bytes, one too few may cost what it was to protect: in doubt a phrase is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

PHRASES: dict[str, tuple[str, ...]] = {
    "en": (
        *("must", "mustn't", "never", "always", "do not", "don't", "only", "at most", "at least", "no more than"),
        *("no less than", "no fewer than", "not more than", "not less than", "may not", "shall not", "should not"),
        *("shouldn't", "has to", "have to", "under no circumstances", "on no account", "by no means", "no later than"),
        *("not allowed", "forbidden", "refrain from", "make sure", "be sure to", "stay within"),
    ),
    "de": (
        *("muss", "musst", "müssen", "müsst", "darf … nicht", "darf … kein*", "darfst … nicht", "darfst … kein*"),
        *("dürfen … nicht", "dürfen … kein*", "darf nur", "dürfen nur", "soll* … nicht", "soll* … kein*", "nie"),
        *("niemals", "immer", "nur", "ausschließlich", "höchstens", "mindestens", "maximal", "nicht mehr als"),
        *("nicht weniger als", "auf keinen fall", "auf gar keinen fall", "keinesfalls", "unter keinen umständen"),
        *("unbedingt", "bitte … nicht", "bitte … kein*", "^nicht", "^kein*", "^lösch* … nicht", "^änder* … nicht"),
        *("^benutz* … nicht", "^verwend* … nicht", "^schick* … nicht", "^send* … nicht", "^schreib* … nicht"),
        *("^benutz* … kein*", "^verwend* … kein*", "^nimm … nicht", "^nimm … kein*", "^mach* … nicht"),
        *("^mach* … kein*", "^fass* … nicht", "^rühr* … nicht", "^lass* … nicht", "verboten", "spätestens"),
        *("achte darauf", "stell* sicher"),
    ),
    "fr": (
        *("doit", "dois", "doivent", "devez", "devons", "jamais", "toujours", "uniquement", "seulement"),
        *("exclusivement", "au plus", "au maximum", "au moins", "au minimum", "pas plus de", "pas moins de"),
        *("il faut", "il ne faut pas", "^ne … pas", "^n'* … pas", "ne … que", "ne … aucun*", "en aucun cas"),
        *("sous aucun prétexte", "interdit*", "veille* à", "^pas de", "surtout pas", "au plus tard"),
    ),
    "es": (
        *("debe", "debes", "deben", "debemos", "nunca", "jamás", "siempre", "solo", "sólo", "solamente"),
        *("únicamente", "como máximo", "como mucho", "a lo sumo", "al menos", "por lo menos", "como mínimo"),
        *("no más de", "no menos de", "hay que", "tiene que", "tienes que", "tienen que", "no puede*", "prohibid*"),
        *("bajo ningún concepto", "en ningún caso", "de ninguna manera", "asegúrate de", "^no *es", "^no *as"),
        *("^no *en", "^no *an", "^no *éis", "^no *áis", "^no lo", "^no la", "^no los", "^no las", "a más tardar"),
    ),
}

# What has one of the phrases, and sets no limit.
EXCEPT: tuple[str, ...] = (
    *("i do not", "i don't", "we don't", "we do not", "you don't have to", "you do not have to", "don't worry"),
    *("do not worry", "don't mind", "ich muss", "nur so", "immer noch", "wie immer", "il y a toujours"),
)


def binds(sentence: str) -> bool:
    """Whether a sentence sets a limit. A question does not."""
    said = " ".join(sentence.replace("\u2019", "'").casefold().split())
    if said.rstrip("\"'»)").endswith("?"):
        return False
    limits, exceptions = _compiled()
    return limits.search(exceptions.sub(" ", said)) is not None


@lru_cache(maxsize=1)
def _compiled() -> tuple[re.Pattern[str], re.Pattern[str]]:
    every = (phrase for phrases in PHRASES.values() for phrase in phrases)
    return re.compile(_one_of(every)), re.compile(_one_of(EXCEPT))


def _one_of(phrases: Iterable[str]) -> str:
    return "|".join(_pattern(phrase.casefold()) for phrase in dict.fromkeys(phrases))


def _pattern(phrase: str) -> str:
    start = r"^[\W_]{0,8}(?:[-*\d.)]{1,8}\s)?" if phrase.startswith("^") else r"(?<!\w)"
    words = [word if word == "…" else re.escape(word).replace(r"\*", r"\w*") for word in phrase.lstrip("^").split()]
    joined = r"\s+".join(words).replace(r"\s+…\s+", r"(?:\s+\S+){0,6}?\s+")
    return rf"{start}{joined}(?!\w)"
