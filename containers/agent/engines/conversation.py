"""The conversation as every API takes it, from the history, the wakes and the steps of a turn.

It begins and ends with the user and alternates. The user's message after tool calls holds exactly one result for each
of them. No text is blank. What is missing is said, what belongs nowhere is left out. Ids are numbers of our own: those
of a history may be anything, and the same beginning gives the same bytes, which a provider's cache needs."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agent.turn import Turn

UNANSWERED = "[no result: this call was interrupted, or its result was lost]"
NOTHING = "[no output]"
EARLIER = "[The earlier part of this conversation is left out.]"
GO_ON = "[Go on.]"


def conversation(turn: Turn) -> list[dict]:
    """Entries {role: "user", results: {id: text}, texts} and {role: "assistant", text, calls: [(id, name, raw)]}."""
    return sound(messages_of(turn))


def messages_of(turn: Turn) -> list[dict]:
    """The history, the wakes and the steps as they stand; a wake comes before the step that it joined."""
    messages = list(turn.context.get("history") or ())
    waiting = sorted(turn.wakes, key=lambda wake: wake.get("joined", 0))
    for number, step in enumerate([*turn.steps, None]):
        while waiting and (step is None or waiting[0].get("joined", 0) <= number):
            messages.append({"role": "user", "content": waiting.pop(0).get("text", "")})
        if step is not None:
            messages.append(step)
    return messages


def sound(messages: list) -> list[dict]:
    talk: list[dict] = []
    waiting: list[tuple] = []  # the newest calls that have no result yet: id as it stands, and ours
    number = 0
    for message in messages:
        role, text = message.get("role"), str(message.get("content") or "")
        if role == "tool":
            for pair in waiting:
                if pair[0] == message.get("tool_call_id"):
                    talk[-1]["results"][pair[1]] = text if text.strip() else NOTHING
                    waiting.remove(pair)
                    break
        elif role == "assistant":
            given = message.get("tool_calls") or ()
            if not given and not text.strip():
                continue
            calls, waiting = [], []
            for call in given:
                number += 1
                function = call.get("function") or {}
                calls.append((f"c{number:08d}", _name(function.get("name")), str(function.get("arguments") or "")))
                waiting.append((call.get("id"), calls[-1][0]))
            if not talk:
                talk.append(_user([EARLIER]))
            if talk[-1]["role"] == "user":
                talk.append({"role": "assistant", "text": "", "calls": calls})
            both = f"{talk[-1]['text']}\n\n{text}" if text.strip() else talk[-1]["text"]
            talk[-1].update(text=both.strip(), calls=calls)
            if calls:
                talk.append(_user([], [id for id, _, _ in calls]))
        elif text.strip():
            if not talk or talk[-1]["role"] == "assistant":
                talk.append(_user([]))
            talk[-1]["texts"].append(text)
    if not talk or talk[-1]["role"] == "assistant":
        talk.append(_user([GO_ON]))
    return talk


def _user(texts: list[str], calls: list[str] | None = None) -> dict:
    return {"role": "user", "results": dict.fromkeys(calls or (), UNANSWERED), "texts": texts}


def _name(name: object) -> str:
    """A tool's name as both APIs take it, also one that a model made up."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", str(name or ""))[:64] or "unknown"
