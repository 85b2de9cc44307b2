"""The block by which a compaction stands in a session's file, written and read. Pure.

META `compact` is {id, method, upto, masked, trust, recall}: it stands for every block before it up to the last one of
the turn `upto` (null: for none, it masks alone), and of the turns up to `masked` the tool output is left out of what a
model is shown. Nothing is taken out of the file. The block's content is what a model is shown instead.
What else lies before the first turn behind `upto` goes with it; `upto` 0 is all that came before the first turn.
A successor's first block has META `handoff`: {manifest, parent, trust}.
A block stands for anything only where it is ours (`is_ours`), and where the ledger knows of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clawd.lifecycle import masking
from clawd.model import Block

KEPT = 0.25  # of the soft limit: as much of the newest turns stays as it is
ENOUGH = 0.7  # of the soft limit: where leaving out tool output comes to this, no summary is needed
FRUITLESS = 0.1  # a compaction that frees less than this part of the window was of no use


EARLY, EMPTY = "leaving out what is older would free nothing yet", "nothing was said in it that could be left out"
"""Why one that a person asked for left the session as it is, which is no failure."""


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
    return Block("system", text, at, meta={"compact": said, "note": note_of(mark.id)})


def note_of(id: int) -> str:
    """By which its block is known when it is appended once more."""
    return f"compaction {id}"


def is_ours(block: Block) -> bool:
    """Whether a block may be a compaction's or a manifest's: no program put it in, and it was not brought in."""
    return block.role == "system" and not {"source", "from"} & block.meta.keys()


def mark_of(block: Block) -> Mark | None:
    """What a block says of a compaction; None for any other block, also one that a person made unreadable."""
    said = block.meta.get("compact")
    if not is_ours(block) or not isinstance(said, dict) or type(said.get("id")) is not int:
        return None
    if block.meta.get("note") != note_of(said["id"]) or "key" in block.meta:
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


def turn_of(block: Block) -> int | None:
    """The turn that a block was recorded with; None for one from elsewhere, and for what was added to a turn later."""
    turn = block.meta.get("turn")
    return turn if type(turn) is int and "note" not in block.meta else None


@dataclass(frozen=True, slots=True)
class Cut:
    """What a compaction of some blocks would do: stand for the first `at` of them, the last turn of which is `upto`,
    and leave out tool output up to the turn `masked`. `upto` None: there is nothing that it could stand for."""

    masked: int | None
    upto: int | None = None
    at: int = 0


def cut(blocks: Sequence[Block], room: int) -> Cut:
    """The newest turns that fit into `room` characters stay, at least one; where all do, the newest one alone."""
    begins: dict[int, int] = {}  # turn → index of its first block
    for index, block in enumerate(blocks):
        if (turn := turn_of(block)) is not None:
            begins.setdefault(turn, index)
    turns = list(begins)
    masked = masking.last_masked(turns)
    if not turns or begins[turns[-1]] == 0:
        return Cut(masked)
    kept, used = len(turns) - 1, 0
    for n in range(len(turns) - 1, -1, -1):
        end = begins[turns[n + 1]] if n + 1 < len(turns) else len(blocks)
        used += sum(weight(block, masked) for block in blocks[begins[turns[n]] : end])
        if used > room and n < len(turns) - 1:
            break
        kept = n
    if begins[turns[kept]] == 0:  # there is room for all of it, and yet it is too much
        kept = len(turns) - 1
    return Cut(masked, turns[kept - 1] if kept else 0, begins[turns[kept]])


def weight(block: Block, masked: int | None = None) -> int:
    """About how many characters of a prompt a block is."""
    content = 80 if masking.is_masked(block, masked) else len(block.content)
    return content + sum(len(str(call)) for call in block.tool_calls) + (80 if block.role != "tool" else 40)


def fruitless(before: int, after: int) -> bool:
    """Whether a compaction of a window of `before` tokens to `after` was of no use."""
    return before - after < FRUITLESS * before
