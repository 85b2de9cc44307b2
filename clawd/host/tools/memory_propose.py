"""`memory_propose`: a memory that waits for the owner's yes, whoever wrote it and however far the turn is trusted."""

from __future__ import annotations

from clawd.host.tools import Act, ToolContext, memory_write
from clawd.host.tools.memories import Kind

NAME = "memory_propose"
DESCRIPTION = "Propose a memory to the owner; see tool_help."
DECLARED = ()
HELP = (
    "As memory_write, but it waits for the owner's yes in any case. For what changes how you behave: a profile (who the"
    " owner is; their yes puts it into user_profile.md; the default) or a procedure, and for anything that you are not"
    " sure of."
)


class Arguments(memory_write.Arguments):
    kind: Kind = "profile"


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises UsageError, NotFound for a memory that it names, StorageError."""
    return await memory_write.kept(context, arguments, wait=True)
