"""`memory_update`: another text for a memory. Who is trusted less than it is only proposes one."""

from __future__ import annotations

from pydantic import Field

from clawd.errors import UsageError
from clawd.host.tools import Act, ToolContext, told
from clawd.host.tools.memories import Said, Wish, became, key_of
from clawd.host.tools.memory_write import MOST

NAME = "memory_update"
DESCRIPTION = "Replace a memory's text; see tool_help."
DECLARED = ()
HELP = (
    "`content` takes the place of the text of memory `id`. Where that is trusted more than this turn, both stay and the"
    " owner decides: `waits`. `said` cites the owner, as in memory_write."
)


class Arguments(Wish):
    id: str = Field(max_length=200)
    content: str = Field(max_length=MOST)
    said: Said | None = None


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises UsageError, NotFound, Refused, StorageError."""
    assert context.memory is not None
    if not arguments.content.strip():
        raise UsageError("a memory needs some text; memory_delete forgets one")
    said = arguments.said.model_dump() if arguments.said else None
    done = await context.memory.update(arguments.id.strip(), arguments.content, said, key_of(arguments))
    return told(became(done))
