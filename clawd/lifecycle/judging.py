"""Whether a summary may stand for what it was made of. Pure."""

from __future__ import annotations

import json

from clawd.lifecycle import summary
from clawd.lifecycle.inventing import inventions
from clawd.lifecycle.pinned import Pinned
from clawd.lifecycle.recall import recall


def judge(said: str, pinned: Pinned, goal: str, prompt: str) -> tuple[float | None, str | None]:
    """Its score, and what is wrong with it, None where it may stand: it says what is held on to, and nothing that
    neither that nor the `prompt` does with which it was asked for."""
    known = recall(said, pinned, goal)
    if not known.passed:
        lost = "; ".join(f"{cls}: {text[:80]}" for cls, text in known.lost[:3])
        return known.score, f"it leaves out what is held on to ({lost or 'what it is all for'})"
    given = [json.loads(line) for line in prompt.splitlines() if line.startswith("{")]
    invented = inventions(said, [*summary.sources(given), *(item.text for item in pinned.items)])
    return known.score, f"it has what nobody said: {', '.join(invented[:5])}" if invented else None
