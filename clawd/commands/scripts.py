"""Scripts of the engine `scripted` as a command reads them: the file, and how many turns it is.

What each step may hold is the runner's to say (`containers/agent/engines/scripted.py`); a test holds the two together.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawd.context.compose import SCRIPT_BYTES
from clawd.errors import UsageError
from clawd.resources import shipped

_SHIPPED = "examples"


@dataclass(frozen=True, slots=True)
class Script:
    """`steps` as they stand in the file; `sha256` is that of its bytes."""

    path: Path
    sha256: str
    steps: list[dict[str, Any]]

    @property
    def turns(self) -> int:
        """How many turns play it through: each ends with the first step that calls no tool, or fails."""
        return len(turns_of(self.steps))


def turns_of(steps: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The steps of each turn."""
    turns: list[list[dict[str, Any]]] = [[]]
    for step in steps:
        turns[-1].append(step)
        if not step.get("tool_calls") or step.get("error"):
            turns.append([])
    return turns if turns[-1] else turns[:-1]


def found(name: str) -> Path:
    """The file of that name, else the script that ships under it (`demo`). Raises UsageError."""
    path = Path(name).absolute()
    if path.exists():
        return path
    known = sorted(each.stem for each in shipped(_SHIPPED).glob("*.json"))
    if name in known:
        return shipped(_SHIPPED) / f"{name}.json"
    raise UsageError(f"there is no script {name}", hint=f"a file, or one that ships: {', '.join(known)}")


def read(path: Path) -> Script:
    """Raises UsageError, in one sentence, for what cannot be played."""
    try:
        if not path.is_file():
            raise UsageError(f"the script {path} is no file")
        if path.stat().st_size > SCRIPT_BYTES:
            raise UsageError(f"the script {path} is larger than {SCRIPT_BYTES >> 20} MB")
        data = path.read_bytes()
        script = json.loads(data)
    except OSError as error:
        raise UsageError(f"the script {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the script {path} is not JSON: {error}") from error
    steps = script.get("steps") if isinstance(script, dict) else None
    if not isinstance(steps, list) or not steps or not all(isinstance(step, dict) for step in steps):
        raise UsageError(f'the script {path} is not {{"steps": [{{…}}, …]}} with one step at least')
    return Script(path, hashlib.sha256(data).hexdigest(), steps)
