"""Reflect (Reflexion): what a turn that failed, or that the person corrected, says to the next one that is asked the
same. Pure, without a model.

A lesson has the words of what was asked in it, for by these it is found again; what tools and models said in it is a
line each, cut, and without any secret that we know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawd.log import redactor

LONGEST = 600  # characters of a lesson
_GOAL, _CALL, _SAID = 150, 110, 110  # characters of what it quotes
# How a person begins who was answered wrongly.
_CORRECTION = re.compile(
    r"\s*(?:no[,.!:;]|nope\b|wrong\b|incorrect\b|actually[, ]|not (?:that|what|like|quite|right|correct)\b"
    r"|(?:that|this|it)(?:['’]s| is| was)(?: still)? (?:wrong|not (?:right|correct|what)|incorrect)"
    r"|i (?:said|meant|asked)\b"
    r"|you (?:misunderstood|forgot|got (?:it|that) wrong)|again wrong"
    r"|nein\b|falsch\b|doch nicht\b|das (?:ist|war|stimmt) (?:falsch|nicht)|ich (?:meinte|sagte|wollte)\b"
    r"|non[,.! ]|c['’]est (?:faux|pas)|incorrecto\b|(?:eso|esto) (?:no|está mal)|mal[,.!]|quise decir"
    r"|sbagliato\b|errado\b|fout\b|nee[,.! ]|нет[,.! ]|неправильно|неверно|不对|不對|错了|錯了|違う|違います|아니)",
    re.IGNORECASE,
)
# A sentence in brackets that is no failure: what was left out, and that there was nothing.
_REMARK = re.compile(
    r"…|nothing found|no file has|the (?:file|directory) is empty|no result|interrupted:|it is no text", re.IGNORECASE
)
# What a turn may not is no failure, and no lesson helps it.
_DENIED = re.compile(r"\b(?:the owner|not its to change)\b", re.IGNORECASE)
# What went wrong where nobody who is asked the same again can do better.
_OURS = re.compile(
    r"\b(?:budget|credential|api key|rate limit|overloaded|unavailable|sandbox|daemon|defect of clawd|script cannot"
    r"|timed out|network|connection|unreachable|no model|cannot be (?:read|put together)|refused with 5\d\d)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Try:
    """One call, and what came of it; `wrong` is empty where it worked."""

    name: str
    arguments: str
    wrong: str


def corrects(text: str) -> bool:
    """Whether somebody says that the answer before was wrong."""
    return _CORRECTION.match(text) is not None


def lesson(context: Mapping[str, Any]) -> str | None:
    """Of {goal, steps, error, correction}: what was asked, the messages of the turn (assistant and tool, as steps have
    them), how it failed, and what the person said to its answer. At most LONGEST characters; None where there is
    nothing to learn."""
    goal, error = _line(context.get("goal"), _GOAL), str(context.get("error") or "")
    correction = _line(context.get("correction"), _SAID)
    tries = _tries(context.get("steps") or ())
    parts = _learned(tries)
    if error and not _OURS.search(error):
        parts.append(f"It ended with: {_line(error, _SAID).rstrip('.')}.")
    if correction:
        parts.append(f"The answer was corrected: “{correction}”")
    if not goal or not parts:
        return None
    said = [f"When asked “{goal}”:", *parts]
    while len(text := redactor.clean(" ".join(said))) > LONGEST and len(said) > 2:
        said.pop(1 if correction else -1)  # what the person said is worth more than what a tool did
    return text[:LONGEST]


def bettered(old: str, lesson: str, applies_to: str) -> str:
    """A lesson in other words, with what was asked still in it."""
    asked, colon, _ = old.partition("”: ")
    applies = f" For: {_line(applies_to, _SAID)}." if applies_to.strip() else ""
    return redactor.clean(f"{asked}{colon}{_line(lesson, 300)}{applies}")[:LONGEST]


def failed(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any tool of a turn did not do what it was called for."""
    return any(each.wrong for each in _tries(steps))


def _learned(tries: Sequence[_Try]) -> list[str]:
    """What failed, the last two tools of it, and what worked instead."""
    found: dict[str, str] = {}
    for number, each in enumerate(tries):
        if not each.wrong:
            continue
        later = (other for other in tries[number + 1 :] if other.name == each.name and not other.wrong)
        better = next((other for other in later if other.arguments != each.arguments), None)
        what = f"{each.name} {_line(each.arguments, _CALL)} failed: {_line(each.wrong, _SAID)}."
        found.pop(each.name, None)
        found[each.name] = what + (f" What then worked: {_line(better.arguments, _CALL)}." if better else "")
    return list(found.values())[-2:]


def _tries(steps: Sequence[Mapping[str, Any]]) -> list[_Try]:
    calls: dict[str, tuple[str, str]] = {}
    tries = []
    for step in steps:
        for call in step.get("tool_calls") or ():
            function = call.get("function") or call
            arguments = function.get("arguments", "")
            raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            calls[str(call.get("id"))] = (str(function.get("name")), raw)
        if step.get("role") == "tool":
            name, arguments = calls.get(str(step.get("tool_call_id")), ("a tool", ""))
            tries.append(_Try(name, arguments, _wrong(str(step.get("content") or ""))))
    return tries


def _wrong(result: str) -> str:
    """What a tool's result says went wrong: a tool never raises, it ends with a sentence in brackets."""
    last = result.rstrip().rpartition("\n")[2]
    if not (last.startswith("[") and last.endswith("]")) or _is_json(result):
        return ""
    said = result.rstrip()[: -len(last)].strip()
    if _DENIED.search(last) or _REMARK.match(last[1:]):
        return ""
    if last == "[exit code 1]" and not said:  # as grep, test and diff say no
        return ""
    return f"{last[1:-1].rstrip('.')}" + (f", after: {said[-_SAID:]}" if said else "")


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _line(text: Any, most: int) -> str:
    """One line of at most so many characters."""
    line = " ".join(str(text or "").split()).strip()
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
