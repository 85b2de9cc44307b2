"""Skills as a model is told of them: names and descriptions, one line of JSON each, the rest when it asks. Pure.

The same skills are the same bytes, which a provider's prompt cache lives by; and no description can end its line. What
was fit elsewhere comes before what is equal otherwise: a skill's fitness makes it neither match nor be allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from clawd.context.fence import json_line
from clawd.context.parts import Part, prompt
from clawd.model import Authority
from clawd.model import Part as Piece
from clawd.skills.shelf import Version
from clawd.trust import Origin, Role, at_least

MOST = 16 << 10  # bytes of the part
_MOST_FITTING = 3
_MOST_LETTERS = 4_000  # of a message that are looked at: it is the event loop that looks
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Listed:
    """What a turn is told of: skills that it may read freely, and those that would lower it. `refused` are sentences
    for the person."""

    told: tuple[Version, ...] = ()
    lowering: tuple[Version, ...] = ()
    refused: tuple[str, ...] = ()


def is_above(acts: Authority, other: Authority) -> bool:
    """Whether a turn may do more than another one could, by its role or its trust."""
    return not at_least(other.role, acts.role) or acts.taint > other.taint


def listed(versions: Iterable[Version], acts: Authority, refused: Iterable[str]) -> Listed:
    """For a turn that acts so."""
    free, lowering = list[Version](), list[Version]()
    for each in versions:
        (lowering if is_above(acts, each.acts) else free).append(each)
    return Listed(tuple(free), tuple(lowering), tuple(refused))


def part(skills: Listed) -> tuple[list[Part], list[str]]:
    """The part of the prompt, none where there are no skills; and what the person is to be told of it."""
    entries = [(_order(each), {"name": each.skill.name, "at": each.at, "description": each.skill.description})
               for each in skills.told]  # fmt: skip
    entries += [(_order(each), {"name": each.skill.name, "note": lowers(each)}) for each in skills.lowering]
    lines = [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]
    if not lines:
        return [], []
    text, told = _text(lines), list[str]()
    if len(text.encode()) > MOST:
        told.append(
            f"There are {len(lines)} skills, more than a prompt has room for: their names alone are told to the agent."
        )
        text = _text([{"name": each["name"]} for each in lines])
    if len(text.encode()) > MOST:
        text = text.encode()[:MOST].decode("utf-8", "ignore").rpartition("\n")[0] + "\n… skill_read lists the others."
    return [Part("skills", text)], told


def _order(version: Version) -> tuple[float, str]:
    """The fittest first, then by name. What an agent says of its own skill counts only where its turn was the owner's,
    and clean."""
    own = not is_above(Authority(Role.OWNER, 1.0), version.acts)
    return -(version.skill.fitness or 0.0) if own else 0.0, version.skill.name


def lowers(version: Version) -> str:
    acts = version.acts
    return (
        f"made in a turn that acted for {acts.role} with a trust of {acts.taint:g}; "
        "reading it lowers what this turn may do to that"
    )


def _text(lines: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join([prompt("skills"), *map(json_line, lines)])


def noted(wake: dict[str, Any], skills: Listed) -> dict[str, Any]:
    """A wake with a word of ours on which skills fit what was typed, if any does."""
    typed = "\n".join(piece["text"] for piece in wake["parts"] if piece["kind"] == "typed")
    text = typed[:_MOST_LETTERS].casefold()
    words = _WORD.findall(text)
    fitting = [(match, each) for each in skills.told if (match := _match(each.skill.triggers, text, words))]
    names = [each.skill.name for _, each in sorted(fitting, key=lambda pair: (-pair[0], *_order(pair[1])))]
    if not names:
        return wake
    named = " and ".join(f'"{name}"' for name in names[:_MOST_FITTING])
    note = f"The skill {named} fits this; read it first." if len(names) == 1 else f"The skills {named} may fit this."
    return {**wake, "parts": [*wake["parts"], asdict(Piece("quoted", Origin.SYSTEM, note, "clawd"))]}


def _match(triggers: Iterable[str], text: str, words: list[str]) -> int:
    """How well a text is meant: 0 not at all, 1 by a `*` alone, which any text has, more by each word of a trigger."""
    fitting = {trigger.casefold() for trigger in triggers if fits(trigger, text, words)}
    said = sum(len(trigger.split()) for trigger in fitting if trigger.strip("* "))
    return said + 1 if said else min(1, len(fitting))


def fits(trigger: str, text: str, words: list[str]) -> bool:
    """Whether a trigger, words with `*` in them for any letters, stands among the words of a text, one after another;
    `*` alone is any one word."""
    patterns = trigger.casefold().split()
    if not patterns or not all(piece in text for piece in trigger.casefold().replace("*", " ").split()):
        return False  # nearly always: before each word is compared
    ends = range(len(words) - len(patterns) + 1)
    return any(all(_fits(pattern, words[at + n]) for n, pattern in enumerate(patterns)) for at in ends)


def _fits(pattern: str, word: str) -> bool:
    first, *rest = pattern.split("*")
    if not rest:
        return word == first
    *middle, last = rest
    if len(word) < len(first) + len(last) or not word.startswith(first) or not word.endswith(last):
        return False
    at, end = len(first), len(word) - len(last)
    for piece in middle:
        if (found := word.find(piece, at, end)) < 0:
            return False
        at = found + len(piece)
    return True
