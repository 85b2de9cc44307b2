"""`memory`: the memory tool of Anthropic's API, for agents that know it: the group's memories as files beneath
/memories. No prompt declares it; it is called by name, and MCP lists it."""

from __future__ import annotations

import secrets
from typing import Any, Literal

from pydantic import Field

from clawd.host.tools import Act, ToolContext, told
from clawd.host.tools.memories import Wish, key_of

NAME = "memory"
DESCRIPTION = "Your memory as files beneath /memories."
DECLARED = ("command", "path")
HELP = (
    "Anthropic's memory tool (memory_20250818): view {path, view_range}, create {path, file_text}, str_replace {path,"
    " old_str, new_str}, insert {path, insert_line, insert_text}, delete {path}, rename {old_path, new_path}. A file is"
    " one memory, the same that the other memory tools have; beneath /memories/procedures and /memories/reflections it"
    " tells how to act, and waits for the owner. What this turn is not trusted for waits, too: the answer says so."
)
_LONGEST = 300


class Arguments(Wish):
    command: Literal["view", "create", "str_replace", "insert", "delete", "rename"]
    path: str | None = Field(default=None, max_length=_LONGEST)
    view_range: list[int] | None = Field(default=None, max_length=2)
    file_text: str | None = Field(default=None, max_length=20_000)
    old_str: str | None = Field(default=None, max_length=20_000)
    new_str: str | None = Field(default=None, max_length=20_000)
    insert_line: int | None = None
    insert_text: str | None = Field(default=None, max_length=20_000)
    old_path: str | None = Field(default=None, max_length=_LONGEST)
    new_path: str | None = Field(default=None, max_length=_LONGEST)


async def prepare(context: ToolContext, arguments: Arguments) -> Act | dict[str, Any]:
    """Raises UsageError, Refused, NotFound, StorageError."""
    assert context.memory is not None
    said = await context.memory.directory(arguments.model_dump(exclude_none=True), key_of(arguments))
    if arguments.command == "view":
        fence = f"memory-{secrets.token_hex(8)}"
        return {"text": f"<{fence}>\n{said}\n</{fence}>"}
    return told({"text": said})
