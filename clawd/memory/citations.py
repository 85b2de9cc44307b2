"""Whether a quote is the owner's own word: whole sentences of a part that they typed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clawd.errors import UsageError
from clawd.memory.protocol import Heard
from clawd.memory.record import Said


def checked(said: Mapping[str, Any], heard: Sequence[Heard]) -> Said:
    """The citation. Raises UsageError where nobody who may be cited said it so."""
    quote, inbound = str(said.get("quote", "")).strip(), said.get("inbound")
    for each in heard:
        if inbound in (None, each.inbound) and quote and each.text.strip() == quote:
            return Said(quote, each.inbound)
    raise UsageError("that is not a whole sentence that the owner typed; quote it letter by letter, or leave said out")
