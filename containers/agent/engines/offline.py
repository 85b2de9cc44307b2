"""The engine of the first run: fixed rules, no language model, no key, no network. It understands these
sentences:

  help · what can you do       what it understands
  hello                        a greeting, with the name from user_profile.md
  say X                        X
  time                         the time
  note: X                      keeps X as a line of work/notes.md
  notes · files                the notes; what lies in work/
  sh: COMMAND                  runs a command in work/ (the owner alone)
  send: TEXT                   sends TEXT as a message of its own
  send file: NAME              sends a file of work/
  remind me in 10 minutes to X    reminds of X then
  every weekday at 9: X        hears X then, as if somebody had said it
  remember X                   keeps X in the memory
  recall X                     what the memory has about X
  forget X · forget ID         takes it out again
  schedules                    what is scheduled
  cancel reminder ID           takes one of them away
  skills · skill NAME          the skills there are; what one of them says
  run NAME WORDS               runs a skill's script

Anything else it does not understand, and says so.
"""

from __future__ import annotations

import json
import os
import re

from agent.engines import recollection, skilled
from agent.turn import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.turn import Turn

HELP = """I am the offline engine: fixed rules, no language model. I understand:
  say X            I say X
  time             what time it is
  note: X          I keep X in work/notes.md
  notes            what I have kept
  files            what lies in work/
  sh: COMMAND      I run a command in the sandbox (only for the owner)
  send: TEXT       I send TEXT as a message of its own
  send file: NAME  I send a file of work/
  remind me in 10 minutes to X, remind me tomorrow at 9 to X
  every weekday at 9: X        I hear X then, as if you had said it
  schedules        what is scheduled; cancel reminder ID takes one away
  remember X, recall X, forget X      what I keep for good, and what about X
  skills           the skills that I have; skill NAME shows one
  run NAME WORDS   I run a skill's script
  help             this list"""
UNKNOWN = """I do not understand that. I am the offline engine: rules, no language model.
Say "help" for what I do understand."""
_GREETINGS = ("hello", "hi", "hey", "good morning", "good afternoon", "good evening", "hallo", "moin")
_SHOWN = 200
_REMIND = "Remind me: "  # how the prompt of a reminder begins
_LATER = re.compile(
    r"remind me\b|(every|tomorrow|in \S+ (sec|min|hour|day|week)\w*|at \d|on \w+|next \w+)\b.*:\s*\S", re.IGNORECASE
)


def respond(turn: Turn) -> Answer:
    """Every wake gets its answer, in order."""
    replies = [reminder(wake, part) or reply(turn, part) for wake in turn.wakes for part in spoken(wake)]
    return Answer("\n\n".join(text for text in replies if text) or UNKNOWN, model="offline")


def spoken(wake: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a wake that somebody typed, none of them blank."""
    return [part for part in wake.get("parts", ()) if part.get("kind") == "typed" and part.get("text", "").strip()]


def reminder(wake: dict[str, Any], part: dict[str, Any]) -> str:
    """What a schedule reminds of; empty for anything else."""
    is_one = wake.get("kind") == "schedule" and part["text"].startswith(_REMIND)
    return "Reminder: " + part["text"][len(_REMIND) :].strip() if is_one else ""


def may_run_commands(turn: Turn, part: dict[str, Any]) -> bool:
    """`sh:` counts only in a part that the owner typed, in a turn that acts for the owner alone."""
    return turn.context.get("authority") == "owner" and part.get("origin") == "owner"


def refusal(turn: Turn, part: dict[str, Any]) -> str:
    if part.get("origin") != "owner":
        return "Only the owner may run commands with sh:."
    group = turn.context.get("group", "GROUP")
    return (
        "sh: is off: somebody else than the owner has had a hand in this turn or in this group's work/. "
        f"To trust work/ as it is: clawd groups trust {group}. To begin with a fresh one: clawd groups clean {group}."
    )


def reply(turn: Turn, part: dict[str, Any]) -> str:
    raw: str = part["text"]
    if raw.startswith("sh:"):
        if not may_run_commands(turn, part):
            return refusal(turn, part)
        return turn.round("", [("bash", {"command": raw[3:].strip()})])[0] or "(no output)"
    text = raw.strip()
    words = text.rstrip("?!. ").casefold()
    head, colon, rest = text.partition(":")
    verb, rest = (head.strip().casefold(), rest.strip()) if colon else ("", "")
    if words in ("help", "what can you do", ""):
        return HELP
    if words in ("time", "what time is it", "what is the time"):
        return f"It is {turn.now()[:16].replace('T', ' ')}."
    if words in ("notes", "list notes"):
        return notes(turn)
    if words in ("files", "list files"):
        return files(turn)
    if words.partition(",")[0] in _GREETINGS:
        name = person(turn)
        return f'Hello{", " + name if name else ""}! Say "help" for what I can do.'
    if verb == "note" and rest:
        return keep_note(turn, " ".join(rest.split()))
    if verb == "send" and rest:
        return sent(turn, "send_message", {"text": rest}, "Sent.")
    if verb == "send file" and rest:
        return sent(turn, "send_file", {"path": rest}, f"I sent {rest}.")
    if (answer := skilled.reply(turn, text) or recollection.reply(turn, part)) is not None:
        return answer
    if text[:4].casefold() in ("say ", "say:") and text[4:].strip():
        return text[4:].strip()
    if words in ("schedules", "list schedules", "reminders"):
        return schedules(turn)
    cancel = re.fullmatch(r"cancel (?:reminder|schedule) (\S+?)[.!]?", text, re.IGNORECASE)
    if cancel:
        told = asked(turn, {"action": "remove", "id": cancel[1]})
        return told if isinstance(told, str) else told.get("waits") or f"{cancel[1]} is cancelled."
    if _LATER.match(text):
        return scheduled(turn, text)
    return UNKNOWN


def asked(turn: Turn, arguments: dict[str, Any]) -> Any:
    """What the daemon's tool gives, or its refusal as a sentence."""
    result = turn.round("", [("schedule", arguments)])[0]
    return result[1:-1] if result.startswith("[") else json.loads(result)


def scheduled(turn: Turn, text: str) -> str:
    told = asked(turn, {"when": text})
    if isinstance(told, str):
        return told
    said = f"{told['id']}: {told['understood']}. Next: {', '.join(told['next'])}."
    ends = f" It ends on {told['until']}." if "until" in told else ""
    return said + ends + (f" It waits: {told['waits']}." if "waits" in told else "")


def schedules(turn: Turn) -> str:
    told = asked(turn, {"action": "list"})
    if isinstance(told, str):
        return told
    lines = []
    for each in told["schedules"]:
        state = "proposed" if each.get("proposed") else each.get("next") or each.get("error") or "paused"
        lines.append(f"{each['id']}: {each['when']} ({state})")
    return "\n".join(lines) or 'There are no schedules. "remind me in 10 minutes to stretch" makes one.'


def keep_note(turn: Turn, text: str) -> str:
    line = f"- {turn.now()[:19].replace('T', ' ')} {text}"
    result = turn.round("", [("jot", {"line": line})])[0]
    return f"Noted: {text}" if not result.startswith("[") else f"I could not keep that note. {result[1:-1]}"


def sent(turn: Turn, tool: str, arguments: dict[str, str], done: str) -> str:
    result = turn.round("", [(tool, arguments)])[0]
    return result[1:-1] if result.startswith("[") else done


def notes(turn: Turn) -> str:
    try:
        descriptor = os.open(os.path.join(turn.place.work, "notes.md"), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(100_000).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        text = ""
    except OSError as error:
        return f"notes.md cannot be read: {error.strerror}."
    return text or 'There are no notes yet. "note: buy milk" keeps one.'


def files(turn: Turn) -> str:
    found = []
    for directory, names, here in os.walk(turn.place.work):
        names[:] = sorted(name for name in names if not name.startswith("."))
        below = os.path.relpath(directory, turn.place.work)
        found += [os.path.normpath(os.path.join(below, name)) for name in sorted(here)]
        if len(found) > _SHOWN:
            return "\n".join([*found[:_SHOWN], "… and more"])
    return "\n".join(found) or "work/ is empty."


def person(turn: Turn) -> str:
    """The name in user_profile.md, if it stands there as `name: X`."""
    try:
        with open(os.path.join(turn.place.group, "user_profile.md"), encoding="utf-8", errors="replace") as file:
            lines = file.read(20_000).splitlines()
    except OSError:
        return ""
    for line in lines:
        key, colon, value = line.strip(" -*#").partition(":")
        if colon and key.strip(" *").casefold() == "name":
            return value.strip(" *_")[:80]
    return ""
