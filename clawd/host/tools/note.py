"""`note`: what an agent holds on to, whatever its window loses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from clawd.errors import UsageError
from clawd.host.tools import Act, ToolContext
from clawd.ledger import contexts
from clawd.lifecycle.pinned import kept_notes

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction

NAME = "note"
DESCRIPTION = "Pin facts; see tool_help."
DECLARED = ()
HELP = (
    "Pins what this session must not lose when its window is compacted or handed over to a fresh session: short"
    " sentences, with numbers, paths and names exact. `next_safe_action` is what whoever goes on should do first. What"
    " was pinned before stays; a new goal or next_safe_action takes the old one's place."
)
_Texts = Annotated[list[str], Field(max_length=100)]


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    goal: str = Field(default="", description="what the session is to reach")
    verified: _Texts = Field(default=[], description="what was checked and holds")
    constraints: _Texts = Field(default=[], description="what must always, or never, be done")
    blockers: _Texts = Field(default=[], description="what stands in the way")
    decisions: _Texts = Field(default=[], description="what was decided, and why")
    next_safe_action: str = Field(default="", description="what is to be done next")


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises UsageError where nothing is named."""
    notes = kept_notes(arguments.model_dump())
    if notes is None:
        raise UsageError("name at least one of goal, verified, constraints, blockers, decisions, next_safe_action")

    def act(tx: Transaction, effect_id: int) -> dict[str, Any]:
        contexts.add_noted(tx, context.lease.turn, notes)
        return {"pinned": sorted(notes)}

    return act
