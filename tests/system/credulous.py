"""The daemon without the proof of a compaction: whatever a summariser says stands, and a session that read what nobody
vouches for is trusted as before. What lies do to this one shows that they are some."""

from __future__ import annotations

import sys

from clawd.cli.main import run
from clawd.ledger import groups
from clawd.lifecycle import judging
from clawd.lifecycle.recall import Recall
from tests.system.watched import watch


def lay_down() -> None:
    """Of this process."""
    put = setattr
    put(judging, "recall", lambda *words: Recall(1.0, True))
    put(judging, "inventions", lambda *words: [])
    put(groups, "distrust", lambda *words: None)


if __name__ == "__main__":
    lay_down()
    watch()
    sys.exit(run(sys.argv[1:]))
