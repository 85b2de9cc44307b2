"""What the tools of the memory have in common: their arguments are no more than a wish, and what they give of memories
lies inside of a fence whose name nobody can know beforehand."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from clawd.context.fence import fenced
from clawd.context.memories import line
from clawd.errors import UsageError
from clawd.memory.record import MemoryRecord
from clawd.memory.store import Written

Kind = Literal["episode", "entity", "fact", "procedure", "reflection", "profile"]
_STAMPED = ("source", "trust", "taint", "origin", "status")
_DAY = len("2026-12-01")


class Wish(BaseModel):
    """Arguments, with a sentence for whoever would say themselves how far they are to be trusted."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _stamped(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and (named := [name for name in _STAMPED if name in values]):
            sentence = f"{named[0]} is no argument: the daemon knows by itself where a memory comes from; leave it out"
            raise PydanticCustomError("stamped", "{sentence}", {"sentence": sentence})
        return values


class Said(Wish):
    quote: str = Field(min_length=1, max_length=2000, description="whole sentences, letter by letter")
    inbound: int | None = Field(default=None, description="the number of the message, where it is known")


def key_of(arguments: BaseModel) -> str:
    """What makes two calls of a turn the same one."""
    return json.dumps(arguments.model_dump(), sort_keys=True)


def moment(text: str, name: str, zone: str, *, end: bool = False) -> datetime | None:
    """A time as a model writes it, in the group's zone; a day alone is its beginning, or its `end`. Raises
    UsageError."""
    if not text.strip():
        return None
    try:
        found = datetime.fromisoformat(text.strip())
        found = found if found.tzinfo else found.replace(tzinfo=ZoneInfo(zone))
        return found + timedelta(days=1) if end and len(text.strip()) == _DAY else found
    except (ValueError, OverflowError):
        raise UsageError(f"{name} is no time; write it like 2026-12-01 or 2026-12-01T09:00") from None


def became(done: Written) -> dict[str, Any]:
    """What became of a write. What it contradicts is still there."""
    beside = {"contradicts": done.conflicts} if done.conflicts else {}
    if done.status == "active":
        return {"id": done.id, "trust": done.trust, **beside}
    waits = f"it is not believed yet, and nobody is given it, until the owner says yes: {done.why}"
    return {"id": done.id, "waits": waits, **beside}


def shown(memories: Iterable[tuple[MemoryRecord, str, float]], zone: str, floor: float, most: int) -> str:
    """Memories, each with what is shown of it, at most so many characters, and how far that is trusted, in a fence of
    their own."""
    lines = []
    for record, text, trust in memories:
        fields = line(record, text, trust, zone, most)
        quote = fields.pop("said", None)
        status = "active" if quote else record.status  # what waits may cite the owner, who has said that already
        note = None if status == "active" and trust >= floor else "not believed: nobody vouches for it"
        lines.append({**fields, "status": status, "note": note, "text": quote or fields["text"]})
    return fenced(f"memory-{secrets.token_hex(8)}", lines)
