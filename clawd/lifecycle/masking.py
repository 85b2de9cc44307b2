"""Which tool output a model is not shown any more, and what stands in its place. Pure, and the same file gives the same
bytes: what a provider holds of a prompt stays good until the next compaction.

What is left out are results of turns up to one that a compaction names, where they are longer than `LONG`. The calls
stay, and so does all that was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clawd.model import Block

LONG = 400  # bytes; what is shorter is hardly longer than what would stand for it
FRESH = 3  # the newest turns, whose results are always shown


def last_masked(turns: Sequence[int]) -> int | None:
    """The last turn whose results are left out, of these in their order; None where all are too new."""
    return turns[-FRESH - 1] if len(turns) > FRESH else None


def is_masked(block: Block, masked: int | None) -> bool:
    turn = block.meta.get("turn")
    return block.role == "tool" and masked is not None and type(turn) is int and turn <= masked and size(block) > LONG


def placeholder(block: Block, by: int | None) -> str:
    """What stands for a result that the compaction `by` left out."""
    return f"[result of {size(block)} bytes left out by compaction {by}; it is kept in the conversation's file]"


def freed(blocks: Iterable[Block], masked: int | None, by: int | None) -> int:
    """The characters that it takes out of what is shown."""
    return sum(len(block.content) - len(placeholder(block, by)) for block in blocks if is_masked(block, masked))


def size(block: Block) -> int:
    return len(block.content.encode("utf-8", "replace"))
