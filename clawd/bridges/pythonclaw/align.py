"""Whether two histories of one session are the same, or one goes on where the other ends. Pure.

A session is compared as PythonClaw would restore it, without the snapshots of its memory that PythonClaw puts in at
each restart. PythonClaw keeps the last 50 messages alone: so what is there may begin within what is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

from clawd.bridges.pythonclaw.forms import CAP, restorable
from clawd.bridges.pythonclaw.sessions import REFRESH, gist
from clawd.model import Block

_SURE = 3  # messages in a row that are no chance


@dataclass(frozen=True, slots=True)
class Aligned:
    """What each side has beyond the other's end. Neither: they are the same."""

    new_here: tuple[Block, ...] = ()
    new_there: tuple[Block, ...] = ()


def aligned(here: Sequence[Block], there: Sequence[Block]) -> Aligned | None:
    """None where both went on by themselves."""
    capped = len(there) >= CAP
    ours = _compared(here)
    theirs = _compared([*dropwhile(lambda each: each.role == "tool", there)] if capped else there)
    known, said = [gist(each) for each in ours], [gist(each) for each in theirs]
    for start in range(len(known) if capped else 1):
        both = min(len(known) - start, len(said))
        if both < (_SURE if start else 0):
            break
        if known[start : start + both] == said[:both]:
            return Aligned(tuple(ours[start + both :]), tuple(theirs[both:]))
    return None


def _compared(blocks: Sequence[Block]) -> list[Block]:
    return [each for each in restorable(blocks) if not (each.role == "system" and each.content.startswith(REFRESH))]
