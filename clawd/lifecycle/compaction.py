"""The block by which a compaction stands in a session's file, written and read. Pure.

META `compact` is {id, method, upto, masked, trust, recall}: it stands for every block before it up to the last one of
the turn `upto` (null: for none, it masks alone), and of the turns up to `masked` the tool output is left out of what a
model is shown. Nothing is taken out of the file. The block's content is what a model is shown instead.
A successor's first block has META `handoff`: {manifest, parent, trust}.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clawd.model import Block


@dataclass(frozen=True, slots=True)
class Mark:
    """What a compaction's block says of itself."""

    id: int
    method: str
    upto: int | None
    masked: int | None
    trust: float
    recall: float | None = None


def block_of(mark: Mark, text: str, at: datetime | None) -> Block:
    """The block of a compaction."""
    said: dict[str, Any] = {
        "id": mark.id, "method": mark.method, "upto": mark.upto, "masked": mark.masked, "trust": mark.trust,
        "recall": mark.recall,
    }  # fmt: skip
    return Block("system", text, at, meta={"compact": said})


def mark_of(block: Block) -> Mark | None:
    """What a block says of a compaction; None for any other block, also one that a person made unreadable."""
    said = block.meta.get("compact")
    if block.role != "system" or not isinstance(said, dict) or type(said.get("id")) is not int:
        return None
    upto, masked, trust, recall = (said.get(name) for name in ("upto", "masked", "trust", "recall"))
    return Mark(
        said["id"],
        str(said.get("method")),
        upto if type(upto) is int else None,
        masked if type(masked) is int else None,
        float(trust) if isinstance(trust, int | float) and 0 <= trust <= 1 else 0.0,
        float(recall) if isinstance(recall, int | float) else None,
    )
