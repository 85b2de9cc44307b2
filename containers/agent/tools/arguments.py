"""Are the arguments of a call what its tool takes? What the tools take is in `declared.json`, which the daemon tells
the model from too; what has no description there is for engines alone. An argument that is not declared is refused."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KINDS = {
    "string": (str, "a text", "text"),
    "boolean": (bool, "true or false", True),
    "integer": (int, "a whole number", 1),
    "number": ((int, float), "a number", 1),
    "object": (dict, "an object", {"name": "text"}),
}
_CONTENTS = ("content", "old", "new", "body")  # may hold a NUL
_schemas: dict[str, dict[str, Any]] = {}


def schema(name: str) -> dict[str, Any] | None:
    """What a tool of the sandbox takes, as JSON schema; None when there is no such tool."""
    if not _schemas:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "declared.json")
        with open(path, encoding="utf-8") as file:
            _schemas.update((each["name"], each["parameters"]) for each in json.load(file))
    return _schemas.get(name)


def wrong(name: str, takes: dict[str, Any], arguments: Any) -> str | None:
    """A sentence that teaches the right call, or None when this one is."""
    if not isinstance(arguments, dict):
        return _taught("the arguments are no object", name, takes)
    known = takes["properties"]
    for argument in takes["required"]:
        if argument not in arguments:
            return _taught(f"{argument!r} is missing", name, takes)
    for argument, value in arguments.items():
        if argument not in known:
            return _taught(f"there is no {argument[:100]!r}: it takes {', '.join(known)}", name, takes)
        kind, said, _ = _KINDS[known[argument]["type"]]
        least = known[argument].get("minimum")
        if kind is int and isinstance(value, float) and value.is_integer():
            value = arguments[argument] = int(value)  # JSON has one kind of number
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            return _taught(f"{argument!r} must be {said}", name, takes)
        if least is not None and not least <= value < float("inf"):  # nor NaN
            return _taught(f"{argument!r} must be {said} from {least} on", name, takes)
        if isinstance(value, str) and not _text(value, argument in _CONTENTS):
            return _taught(f"{argument!r} holds a NUL or half a character", name, takes)
    return None


def _taught(what: str, name: str, takes: dict[str, Any]) -> str:
    example = {argument: _KINDS[takes["properties"][argument]["type"]][2] for argument in takes["required"]}
    return f"[{name}: {what}. For example: {json.dumps(example)}]"


def _text(value: str, nul: bool) -> bool:
    """Whether the system can be given this text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return nul or "\0" not in value
