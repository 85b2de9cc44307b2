"""`react`: an emoji on a message, where the channel has that."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from clawd.errors import UsageError
from clawd.host.tools import Act, ToolContext
from clawd.ledger import inbound

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction

NAME = "react"
DESCRIPTION = "Put an emoji on a message; see tool_help."
DECLARED = ()
HELP = (
    "Puts one emoji on the newest message of this turn, or on the one of this conversation whose id `message` gives."
    " Refused where the chat has no reactions."
)


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    emoji: str = Field(min_length=1, max_length=64, description="one emoji, as the chat has it")
    message: int = Field(
        default=0, ge=0, le=2**53, description="the id of a message of this conversation; 0: the newest"
    )


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises UsageError for what is no emoji."""
    if any(letter.isspace() or unicodedata.category(letter) == "Cc" for letter in arguments.emoji):
        raise UsageError("a reaction is one emoji")

    def act(tx: Transaction, effect_id: int) -> dict[str, Any]:
        target = inbound.target(tx, context.lease.turn, arguments.message)
        if target is None:
            raise UsageError("this conversation has no such message in this chat")
        context.enqueue(tx, effect_id, kind="reaction", text=arguments.emoji, target=target)
        return {"queued": "reaction"}

    return act
