"""The parts of what a model is told, and the prompts that ship, as Markdown beside this."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_BYTES_A_TOKEN = 4  # of English; other languages and code take more tokens


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of text under the name by which a person knows it. `tokens` is an estimate, bytes by four: only the
    model's own service counts them."""

    name: str
    text: str

    @property
    def bytes(self) -> int:
        return len(self.text.encode("utf-8", "replace"))

    @property
    def tokens(self) -> int:
        return -(-self.bytes // _BYTES_A_TOKEN)


@cache
def prompt(name: str) -> str:
    """A prompt that ships, `prompts/<name>.md`."""
    return (resources.files("clawd.context") / "prompts" / f"{name}.md").read_text("utf-8").rstrip("\n")


def declared(tools: list[dict[str, Any]], dialect: str) -> str:
    """The tools as an API of this dialect is sent them, in compact JSON."""
    return compact([_declared(tool, dialect) for tool in tools])


def _declared(tool: dict[str, Any], dialect: str) -> dict[str, Any]:
    named = {"name": tool["name"], "description": tool["description"]}
    if dialect == "messages":
        return {**named, "input_schema": tool["parameters"]}
    return {"type": "function", "function": {**named, "parameters": tool["parameters"]}}


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
