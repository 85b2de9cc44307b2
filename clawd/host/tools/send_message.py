"""`send_message`: a message of its own, before the answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field

from clawd.errors import UsageError
from clawd.host.bodies import TEXT_BYTES
from clawd.host.tools import Act, ToolContext
from clawd.ledger.deliveries import LONG

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction

NAME = "send_message"
DESCRIPTION = "Send a message to this chat now, before your answer."
DECLARED = ("text",)
HELP = (
    "Your answer itself needs no tool. `to` sends to another chat of this group instead, named as its bindings are"
    " (telegram:-100123). The message says where it came from. Unless this turn is the owner's and nothing from outside"
    " has reached it, they are asked first: `waits`, and what becomes of it comes as a message. A turn has 20 sends."
)


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    text: str
    to: str = Field(default="", max_length=300, description="another chat of this group; empty: this one")


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises UsageError for an empty or too long text."""
    if not arguments.text.strip():
        raise UsageError("a message needs some text")
    if len(arguments.text.encode()) > TEXT_BYTES:
        raise UsageError(f"a message may hold at most {TEXT_BYTES >> 10} KiB; send a file instead")

    whole = None
    if len(arguments.text) >= LONG:
        with suppress(OSError):  # then it goes in many messages
            whole = await to_thread.run_sync(context.blobs.add, arguments.text.encode())

    def act(tx: Transaction, effect_id: int) -> dict[str, Any]:
        waits = context.enqueue(tx, effect_id, kind="text", text=arguments.text, to=arguments.to, whole=whole)
        return waits or {"queued": "message"}

    return act
