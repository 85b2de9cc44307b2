"""`memory_write`: something that outlives the conversation. How far it is believed is the daemon's to say."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from clawd.errors import UsageError
from clawd.host.tools import Act, ToolContext, told
from clawd.host.tools.memories import Kind, Said, Wish, became, key_of, moment

NAME = "memory_write"
DESCRIPTION = "Remember something beyond this conversation; tool_help has kinds and citing."
DECLARED = ("content", "kind")
HELP = (
    "`kind`: episode (what happened; the default), entity (a person, a project, a thing), fact (one line under a short"
    " `key`, which replaces what was under it), reflection (a lesson); procedure (how something is done) and profile"
    " (who the owner is) wait for the owner. `event_time` is when it happened, if not now. `derived_from` are ids of"
    " memories that it was concluded from, `supersedes` the id of one that it corrects. `said` cites the owner: `quote`"
    " is one or more whole sentences of a message that the owner typed, letter by letter; it is trusted as the owner's"
    " word also where this turn is not. What the turn is not trusted for waits for the owner's yes: `waits`. Write one"
    " memory a call, understandable by itself; no secrets. A turn has 100 changes of memories."
)
MOST = 20_000  # characters


class Arguments(Wish):
    content: str = Field(max_length=MOST)
    kind: Kind = "episode"
    key: str = Field(default="", max_length=100, description="of a fact")
    event_time: str = Field(default="", max_length=40, description="like 2026-12-01T09:00")
    tags: list[Annotated[str, Field(max_length=60)]] = Field(default=[], max_length=20)
    derived_from: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=50)
    supersedes: str = Field(default="", max_length=200)
    said: Said | None = None


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises UsageError, NotFound for a memory that it names, StorageError."""
    return await kept(context, arguments, wait=False)


async def kept(context: ToolContext, arguments: Arguments, *, wait: bool) -> Act:
    """The memory is there when this returns, and the same again if its turn has to call once more."""
    assert context.memory is not None
    if not arguments.content.strip():
        raise UsageError("a memory needs some text")
    at = moment(arguments.event_time, "event_time", context.zone)
    given = arguments.model_dump(include={"key", "tags", "derived_from", "supersedes", "said"})
    metadata = {name: value for name, value in given.items() if value}
    metadata |= {"event_time": at.isoformat()} if at else {}
    key = f"{wait} {key_of(arguments)}"
    return told(became(await context.memory.write(arguments.content, arguments.kind, metadata, key, wait=wait)))
