"""`memory_read`: a memory whole. The turn falls to its taint first."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from clawd.host.tools import ToolContext
from clawd.host.tools.memories import Wish, shown

NAME = "memory_read"
DESCRIPTION = "Read a memory."
DECLARED = ("id",)
HELP = (
    "By its id, as memory_search gives it; `next` is the `offset` to read on from, where there is more. Reading one"
    " that is trusted less than this turn lowers the turn. Of one that cites the owner in a turn that was not trusted,"
    " only the quote is given."
)
ROOM = 8000  # characters


class Arguments(Wish):
    id: str = Field(max_length=200)
    offset: int = Field(default=0, ge=0)


async def prepare(context: ToolContext, arguments: Arguments) -> dict[str, Any]:
    """Raises NotFound, Refused, StorageError."""
    assert context.memory is not None
    record, end = await context.memory.read(arguments.id.strip()), arguments.offset + ROOM
    given = [(record, record.text[arguments.offset : end], record.trust)]
    more = {"next": end} if end < len(record.text) else {}
    return {"memory": shown(given, context.zone, context.memory.floor, ROOM), **more}
