"""PythonClaw's memory as ours: MEMORY.md in both of its dialects, INDEX.md, the daily logs. Pure.

An older MEMORY.md (before 0.7.1) has headings of values unescaped, and PythonClaw itself reads each as a fact of its
own. So do we: nothing is lost, and what cannot be told apart is said.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from clawd.bridges.pythonclaw.forms import key_line, memory_bytes
from clawd.bridges.pythonclaw.home import lines
from clawd.errors import UsageError
from clawd.memory import keyed
from clawd.memory.keyed import Fact, key_of
from clawd.memory.record import settled

_HEADING = re.compile(r"^## ([^\n]*)\n+(?!\n*> Updated:)", re.MULTILINE)
_KEYS = re.compile(r"^## ([^\n]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Facts:
    """`preamble` is text before the first fact, which PythonClaw does not read."""

    facts: dict[str, Fact]
    preamble: str = ""
    changed: tuple[str, ...] = ()


def read(data: bytes) -> Facts:
    """A MEMORY.md, whoever wrote it."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    said = ["its bytes are not UTF-8: U+FFFD stands for what is none"] if "\ufffd" in text and not _utf8(data) else []
    preamble, found = keyed.parsed(data)
    keys = Counter(each.strip() for each in _KEYS.findall(text))
    twice = [key for key, n in keys.items() if key and n > 1]
    said += lines([f"the key {key[:80]!a} stands there more than once: the last value is taken" for key in twice])
    phantom = [key for each in _HEADING.findall(text) if (key := each.strip()) in found]
    if len(phantom) < len(found):  # where none has a time, somebody wrote them all by hand
        said += lines(
            [f"the key {key[:80]!a} has no time: it may be a heading within the value before it" for key in phantom]
        )
    facts = dict[str, Fact]()
    for fact in found.values():
        if not fact.value:
            said.append(f"the key {fact.key[:80]!a} has no value: it is left out")
            continue
        sound = _sound(fact)
        if sound.key != fact.key:
            said.append(f"the key {fact.key[:80]!a} cannot be one here: it is {sound.key[:80]!a}")
        facts[_free(sound.key, facts)] = sound
    facts = {key: replace(fact, key=key) for key, fact in facts.items()}
    return Facts(facts, settled(preamble.removeprefix(keyed.PREAMBLE.strip())), tuple(said))


def merged(own: Facts, others: Mapping[str, Facts]) -> Facts:
    """All facts in one: those of each chat, by its safe id, have that in front where the key is another's, too."""
    facts, changed = dict(own.facts), list(own.changed)
    for chat, each in others.items():
        changed += each.changed
        for fact in each.facts.values():
            key = fact.key
            if key in facts and facts[key].value != fact.value:
                key = _free(_sound(replace(fact, key=f"{chat}_{fact.key}")).key, facts)
                changed.append(f"the key {fact.key[:80]!a} of {chat} is another's, too: it is {key[:80]!a}")
            facts.setdefault(key, replace(fact, key=key))
    return Facts(facts, own.preamble, tuple(changed))


def file(facts: Iterable[Fact]) -> bytes:
    return memory_bytes(facts)


def _sound(fact: Fact) -> Fact:
    """The fact under a key that can be one here; its value says the whole of one that is too long."""
    key = key_line(fact.key)
    try:
        return replace(fact, key=key_of(key))
    except UsageError:
        digest = hashlib.sha256(fact.key.encode("utf-8", "replace")).hexdigest()[:8]
        short = "".join(each if each.isprintable() else " " for each in key)[: keyed.LONGEST_KEY - 20].strip()
        return replace(fact, key=f"{short}~{digest}", value=f"{key}\n\n{fact.value}")


def _free(key: str, facts: Mapping[str, Fact]) -> str:
    if key not in facts:
        return key
    return next(each for n in range(2, len(facts) + 3) if (each := f"{key[: keyed.LONGEST_KEY - 8]}_{n}") not in facts)


def _utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
