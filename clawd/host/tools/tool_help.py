"""`tool_help`: what every prompt leaves out of a tool's declaration."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from clawd.context.parts import compact
from clawd.errors import UsageError
from clawd.host.tools import ToolContext, built_in, schema

NAME = "tool_help"
DESCRIPTION = "Explain a tool in full."
DECLARED = ("name",)
HELP = "Gives what the tool does, and every argument that it takes."


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: str = Field(max_length=200, description="the tool's name")


async def prepare(context: ToolContext, arguments: Arguments) -> dict[str, Any]:
    """Raises UsageError for a tool that there is not."""
    table = built_in()
    tool = table.get(arguments.name)
    if tool is None:
        raise UsageError(f"there is no tool of the daemon of this name; there are {', '.join(sorted(table))}")
    takes = compact(schema(tool))
    return {"help": f"{tool.NAME}: {tool.DESCRIPTION} {tool.HELP}\nIts arguments, as JSON schema: {takes}"}
