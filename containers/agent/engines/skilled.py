"""What the offline engine does with skills: it lists them, shows one, and runs the script of one in the sandbox.

Each is read by the daemon's tool first, which knows whether this turn may."""

from __future__ import annotations

import json
import os
import re
import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.turn import Turn

SHARED = "/skills"
_ASKED = re.compile(r'use the skill "([^"]+)"\.?', re.IGNORECASE)
_RUN = re.compile(r"run ([\w-]+)(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)
_SHOW = re.compile(r"skill ([\w-]+)", re.IGNORECASE)
_PROGRAMS = {".py": "python3", ".sh": "sh"}


def reply(turn: Turn, text: str) -> str | None:
    """The answer to a sentence about skills; None for any other."""
    if text.rstrip("?!. ").casefold() in ("skills", "list skills"):
        return listed(turn)
    if match := _SHOW.fullmatch(text):
        return shown(turn, match[1])
    if match := _ASKED.fullmatch(text) or _RUN.fullmatch(text):
        words = match[2] if match.re is _RUN else ""
        return run(turn, match[1], words or "")
    return None


def listed(turn: Turn) -> str:
    known = (read(turn, "") or {}).get("skills") or []
    lines = [f"{each['name']}: {each.get('description') or each.get('note')}" for each in known]
    return "\n\n".join(lines) or "There are no skills yet. A folder with a SKILL.md in skills/ is one."


def shown(turn: Turn, name: str) -> str:
    said = read(turn, name)
    if isinstance(said, str):
        return said.strip("[]")
    return f"{said['body']}\n\nIts files, in {said['at']}: {', '.join(said['files'])}"


def run(turn: Turn, name: str, words: str) -> str:
    """What its script prints."""
    said = read(turn, name)
    if isinstance(said, str) and said.startswith("["):
        return said.strip("[]")
    own = os.path.join(turn.place.group, "skills", name)
    at = own if os.path.isdir(own) else os.path.join(SHARED, name)
    script = script_of(os.path.join(at, "scripts"))
    if script is None:
        return f"The skill {name} has no script that I could run (scripts/run.sh or run.py): it is for a model to read."
    try:
        arguments = shlex.split(words)
    except ValueError:  # a quote without its end
        arguments = words.split()
    program = _PROGRAMS.get(os.path.splitext(script)[1])
    command = shlex.join([*([program] if program else []), script, *arguments])
    return str(turn.round("", [("bash", {"command": command})])[0]) or "(no output)"


def script_of(directory: str) -> str | None:
    try:
        names = [name for name in sorted(os.listdir(directory)) if os.path.isfile(os.path.join(directory, name))]
    except OSError:
        return None
    name = next((name for name in ("run.sh", "run.py") if name in names), names[0] if len(names) == 1 else None)
    return os.path.join(directory, name) if name else None


def read(turn: Turn, name: str) -> Any:
    """What skill_read gives: an object, or the text of a refusal, or of one that is too long to be whole."""
    text = turn.round("", [("skill_read", {"name": name})])[0]
    try:
        return json.loads(text)
    except ValueError:
        return text
