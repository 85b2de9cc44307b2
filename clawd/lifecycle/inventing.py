"""What a summary says that none of its sources do: numbers, paths, addresses, identifiers, commands. Pure, and linear
in what it is given.

Found is what could do harm when it is believed. A number may be written otherwise (1,000 for 1000), a name with another
case or as a part of a longer path; a command must be there word by word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from clawd.lifecycle.wording import tokens, words_of

MOST, LONGEST = 20, 200
"""Findings, and characters of each."""
_THOUSANDS = re.compile(r"-?\d{1,3}(?:[,_'](?:\d{3}))+(?:\.\d+)?")
_RUNS = re.compile(r"\d+(?:[.:/-]\d+)*")
_PARTS = re.compile(r"[-/:]")
_WITHIN = re.compile(r"[=:(),;|&]+")
_SPAN = re.compile(r"(?<!`)`([^`\n]{1,2000})`(?!`)")
_PIPED = re.compile(r"\|\s{0,8}(?:sudo\s{1,8})?(?:ba|z|da|k)?sh\b")
_PROMPT = re.compile(r"\s*(?:[-*+•]\s+|\d{1,2}[.)]\s+)?(?:\$|>>>|PS>)\s+(?=\S)")
_SHELLY = re.compile(r"(?:^|\s)-{1,2}[A-Za-z]|&&|\|\||\s[|>]\s|\$\(|;\s*\w|://|(?:^|\s)[~.]{0,2}/\w")
_PROGRAMS = words_of(
    "apt apt-get aws bash brew cargo cat chmod chown conda cp crontab curl dd dnf docker eval exec gcloud git go helm"
    " kill kubectl ln make mkdir mkfs mount mv nc npm npx perl pip pip3 pipx pkill pnpm podman powershell python"
    " python3 rm rsync ruby scp sed sh ssh sudo systemctl tar tee uv wget yarn yum zsh"
)
_VERBS = words_of(
    "install uninstall add remove delete push pull clone checkout reset rebase merge commit run exec apply start stop"
    " restart enable disable publish deploy"
)
_EDGES = "`'\"“”‘’,;:.()[]{}*"
_DEEP = 12  # parts of a path of which every run of parts is known


def inventions(summary: str, sources: Iterable[str]) -> list[str]:
    """At most 20 of them, in the order in which they stand, each clipped to 200 characters."""
    known = _Known(sources)
    found: dict[str, None] = {}
    for each in _found(summary, known):
        if not any(each in command for command in found if " " in command):
            found.setdefault(each[:LONGEST])
        if len(found) >= MOST:
            break
    return list(found)


def _found(summary: str, known: _Known) -> Iterator[str]:
    for kind, text in tokens(summary):
        if (kind == "number" and not known.number(text)) or (kind == "name" and not known.name(text)):
            yield text
    for fragment in _commands(summary):
        if not known.command(fragment):
            yield fragment.strip()


class _Known:
    """What the sources say."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._numbers: set[str] = set()
        self._names: set[str] = set()
        self._words: set[str] = set()
        self._runs: set[int] = set()  # hashes of one, two and three raw words in a row
        for source in sources:
            for kind, text in tokens(source):
                if kind == "number":
                    self._numbers |= _forms(text)
                elif kind == "name":
                    self._numbers.update(*map(_forms, _RUNS.findall(text)))
                    self._names |= _pieces(text)
                elif text:
                    self._words.add(text)
            words = _raw(source)
            self._runs.update(map(hash, zip(words, strict=False)))
            self._runs.update(map(hash, pairwise(words)))
            self._runs.update(map(hash, zip(words, words[1:], words[2:], strict=False)))

    def number(self, text: str) -> bool:
        return _canonical(text) in self._numbers or text in self._numbers

    def name(self, text: str) -> bool:
        low = text.casefold()
        if self._knows(low) or self._knows(low.strip("@#$-")):
            return True
        parts = low.split("/")
        if len(parts) <= 3 and all(map(str.isalpha, parts)):  # and/or, read/write
            return True
        parts = [part for part in _WITHIN.split(low) if part]  # key=value, f(x)
        if len(parts) > 1 and all(map(self._knows, parts)):
            return True
        first, dot, then = text.partition(".")  # an end of a sentence without a space: done.Then
        return bool(dot and then.istitle() and then.isalpha() and {first.casefold(), then.casefold()} <= self._words)

    def _knows(self, low: str) -> bool:
        return low in self._names or low in self._words or self.number(low) or low.rstrip("()") in self._names

    def command(self, fragment: str) -> bool:
        words = _raw(fragment)
        if len(words) < 2:
            return all(self.name(word) for word in words)
        size = min(len(words), 3)
        return all(hash(tuple(words[at : at + size])) in self._runs for at in range(len(words) - size + 1))


def _commands(summary: str) -> Iterator[str]:
    """What stands in backticks, lines that look like commands, and calls of well-known programs in running text."""
    fenced = False
    for line in summary.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            continue
        prompt = _PROMPT.match(line)
        bare = line.strip().lstrip("-*+• ")
        program = bare.partition(" ")[0] in _PROGRAMS
        if fenced or prompt or (program and _SHELLY.search(bare)):
            yield line[prompt.end() :] if prompt else bare
            continue
        for span in _SPAN.finditer(line):
            yield span[1]
        if (piped := _PIPED.search(line)) is not None:
            words = _raw(line[: piped.end()])[-6:]
            yield " ".join(words[next((n for n, each in enumerate(words[:-1]) if each in _PROGRAMS), 0) :])
        words = _raw(line)
        for at, word in enumerate(words[:-1]):
            if word in _PROGRAMS and words[at + 1] in _VERBS:
                yield " ".join(words[at : at + 3])


def _raw(text: str) -> list[str]:
    """Words as they stand, without what only quotes or ends them."""
    return [word for each in text.split() if (word := each.strip(_EDGES))]


def _canonical(number: str) -> str:
    if _THOUSANDS.fullmatch(number):
        return re.sub("[,_']", "", number)
    return number


def _forms(number: str) -> set[str]:
    """A number as it stands, without what groups its digits, and the parts of a date, a time or a span."""
    found = {number, _canonical(number)}
    for part in filter(None, _PARTS.split(number)):
        found |= {part, part.lstrip("0") or "0"}
    return found


def _pieces(name: str) -> set[str]:
    """A name, and each run of parts of a path."""
    low = name.casefold()
    found = {low}
    for each in (low, *_WITHIN.split(low)) if len(low) <= 2000 else ():
        parts = each.split("/")
        if len(parts) <= _DEEP:
            found.update("/".join(parts[a:b]) for a in range(len(parts)) for b in range(a + 1, len(parts) + 1))
        else:
            found.update(parts)
    found.discard("")
    return found
