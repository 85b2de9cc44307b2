"""`memory_delete`: a memory is forgotten, also by the conversations in which it was told of."""

from __future__ import annotations

from pydantic import Field

from clawd.host.tools import Act, ToolContext, told
from clawd.host.tools.memories import Wish

NAME = "memory_delete"
DESCRIPTION = "Forget a memory."
DECLARED = ("id",)
HELP = (
    "Its text leaves the memory, what was derived from it alone, and earlier conversations, for good: only on a"
    " person's wish. To correct one use memory_update. A turn that anything from outside has reached forgets its own"
    " notes alone, and conversations keep them; the owner can forget all of it."
)


class Arguments(Wish):
    id: str = Field(max_length=200)


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises NotFound, Refused, StorageError."""
    assert context.memory is not None
    id = arguments.id.strip()
    await context.memory.delete(id)
    return told({"forgotten": id})
