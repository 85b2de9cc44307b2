"""What of a change is whose, when a rule tells of changes, and in which words. Pure."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from clawd.config.group import Watch
from clawd.ledger.approvals import canonical
from clawd.ledger.seen import Changes, Known
from clawd.model import Part
from clawd.trust import Origin
from clawd.wakes.tree import Found

STILL_S = 1.0  # a file that is being written waits until it stood still for so long
CAP_S, CAP_SETTLES = 60.0, 10  # a change waits for others at most so long
AFTER_TURN_S = 2.0  # what a turn did may be on the disk so long after its end
COARSE_S = 0.05  # the kernel's time of a change may be so much too early
HOUR_S = 3600.0
LISTED, SAMPLE = 50, 20


def rule_id(watch: Watch, n: int = 0) -> str:
    """What a rule's rows are known by: its paths and globs; `n` of those that were before it are the same."""
    return hashlib.sha256(f"{canonical([watch.paths, watch.globs])}{n or ''}".encode()).hexdigest()


def due(first: float, last: float, settle: float) -> float:
    """When changes are told of which the first came at `first` and the last at `last`, if no further one comes."""
    quiet = max(settle, STILL_S)
    return min(last + quiet, first + max(quiet, min(CAP_SETTLES * settle, CAP_S)))


def wait(made: Sequence[float], now: float, cooldown: float, most: int) -> tuple[float, bool]:
    """Seconds until a rule may wake its group that did so at `made`, and whether that is because it has had `most` in
    an hour. A time that is still to come was made by a clock that was wrong."""
    past = sorted(each for each in made if each <= now)
    if past and (left := past[-1] + cooldown - now) > 0:
        return left, False
    hour = [each for each in past if now - each < HOUR_S]
    return (hour[-most] + HOUR_S - now, True) if len(hour) >= most else (0.0, False)


def summary(changes: Changes) -> str:
    """How many of which."""
    return ", ".join(f"{n:,} {event}" for event, n in sorted(changes.counts.items()))


def listing(changes: Changes) -> str:
    """A line of JSON for each of the first files, and whether there are more. Names are anybody's choice."""
    total = sum(changes.counts.values())
    shown = changes.first[: LISTED if total <= LISTED else SAMPLE]
    lines = [
        json.dumps({"path": os.fsdecode(path), "event": event, **({} if size is None else {"size": size})})
        for path, event, size in shown
    ]
    return "\n".join([*lines, *([f"… and {total - len(shown):,} more"] if total > len(shown) else [])])


@dataclass(frozen=True, slots=True)
class Own:
    """Tells what a group's own turns did: at the times of `spans`, or as the user `uid`, who is nobody else. What is
    gone went at `gone` at the earliest."""

    writable: bool
    uid: int | None
    spans: Sequence[tuple[float, float]]
    gone: float

    def __call__(self, known: Known | None, found: Found | None) -> bool:
        if not self.writable:
            return False
        before = known.seen if known else None
        if found is not None and self.uid is not None and (before is None or before.ino != found.stat.ino):
            return found.uid == self.uid  # it was made by who owns it
        when = found.when if found is not None else self.gone
        return any(begin <= when <= end for begin, end in self.spans)


def parts(watch: Watch, origin: Origin, changes: Changes, *, down: bool) -> list[Part]:
    """What the agent is told: the rule's prompt as `origin`'s word; `down`: not all of it happened while we looked."""
    asked = [Part("typed", origin, watch.prompt)] if watch.prompt.strip() else []
    meanwhile = " Some of it changed while clawd was not running." if down else ""
    said = f"Files changed in what this group watches ({', '.join(watch.paths)}): {summary(changes)}.{meanwhile}"
    listed = Part("attachment", Origin.DOCUMENT, listing(changes), name="changed files")
    return [*asked, Part("quoted", Origin.SYSTEM, said, "clawd"), listed]
