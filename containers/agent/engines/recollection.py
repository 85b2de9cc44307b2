"""What the offline engine does with the memory: it keeps what it is told to, finds it again, and forgets it.

The daemon decides what is believed, and says what waits for the owner. What the owner typed is cited whole."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.turn import Turn

_KEEP = re.compile(r"remember(?:\s+that|:)?\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_FIND = re.compile(r"(?:recall|what do you (?:know|remember) about)\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_FORGET = re.compile(r"forget(?:\s+that|:)?\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_ID = re.compile(r"[a-z]{2}_[0-9a-z]{10}|(?:fact|day|file):\S.*")
MOST_CITED = 2000  # characters of a quote


def reply(turn: Turn, part: dict[str, Any]) -> str | None:
    """The answer to a sentence about the memory; None for any other."""
    text = part["text"].strip()
    if match := _KEEP.fullmatch(text):
        return keep(turn, match[1], text if part.get("origin") == "owner" else "")
    if match := _FIND.fullmatch(text):
        words = match[1].rstrip("?!. ")
        found = search(turn, words)
        if isinstance(found, str):
            return found
        return "\n".join(map(line, found)) or f"I remember nothing about {words}."
    if match := _FORGET.fullmatch(text):
        return forget(turn, match[1].strip())
    return None


def keep(turn: Turn, content: str, cited: str) -> str:
    arguments: dict[str, Any] = {"content": content}
    if 0 < len(cited) <= MOST_CITED:
        kept = asked(turn, "memory_write", {**arguments, "said": {"quote": cited}})
        if isinstance(kept, dict):
            return told(kept)
    kept = asked(turn, "memory_write", arguments)  # what cannot be cited is kept as our own note
    return kept if isinstance(kept, str) else told(kept)


def told(kept: dict[str, Any]) -> str:
    if "waits" in kept:
        return f"Noted as {kept['id']}, but {kept['waits']}."
    return f"I will remember that ({kept['id']})."


def forget(turn: Turn, what: str) -> str:
    """By its id, or the one memory that has all the words."""
    id = what if _ID.fullmatch(what) else what.rstrip(".!")
    if not _ID.fullmatch(id):
        found = search(turn, id)
        if isinstance(found, str):
            return found
        words = set(re.findall(r"\w+", id.casefold()))
        fit = [each for each in found if words <= set(re.findall(r"\w+", f"{each['id']} {each['text']}".casefold()))]
        if len(fit) != 1 or fit[0]["kind"] == "day":  # a day's log is more than what was meant
            which = '\n\nSay "forget ID" for the one that you mean.'
            return "\n".join(map(line, fit or found)) + which if fit or found else f"I remember nothing about {id}."
        id = fit[0]["id"]
    gone = asked(turn, "memory_delete", {"id": id})
    return gone if isinstance(gone, str) else f"{id} is forgotten."


def line(found: dict[str, Any]) -> str:
    return f"{found['id']} ({found['at'][:10]}): {' '.join(found['text'].split())}"


def search(turn: Turn, query: str) -> Any:
    """What is found, {id, at, text …} each, or why nothing can be."""
    found = asked(turn, "memory_search", {"query": query[:1000], "k": 20})
    if isinstance(found, str):
        return found
    return [json.loads(each) for each in found.get("memories", "").split("\n")[1:-1]]


def asked(turn: Turn, tool: str, arguments: dict[str, Any]) -> Any:
    """What the daemon's tool gives, or its refusal as a sentence."""
    result = turn.round("", [(tool, arguments)])[0]
    if result.startswith("["):
        return result[1:-1]
    try:
        given = json.loads(result)
    except ValueError:  # the middle of a long one is left out
        return "There is more of that than I can read. Ask for less."
    return given.get("error") or given
