"""A watched folder is a disk of its own, which is taken away and comes back. For a mount namespace of its own: run by
test_files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio

from tests.wakes.test_files import EVENTS, RULE, World


async def main(root: Path) -> None:
    world = World(root)
    data, kept = world.home.group("main").work / "data", root / "kept"
    for each in (data, kept):
        each.mkdir(parents=True)

    def do(*words: str) -> None:
        subprocess.run(words, check=True, timeout=10)

    do("mount", "-t", "tmpfs", "none", str(kept))
    for n in range(30):
        (kept / f"f{n}").write_text("x")
    do("mount", "--bind", str(kept), str(data))
    async with world.life():
        await world.group("main", RULE.replace('"work"', '"work/data"') + EVENTS)
        await world.settled("main")
        do("umount", str(data))
        await world.until(lambda: world.notices("main"))
        assert "is not there, for its disk is not" in world.notices("main")[0], world.notices("main")
        (kept / "f1").write_text("other")
        do("mount", "--bind", str(kept), str(data))
        await world.tells("main", {"work/data/f1": "modified"})
        assert len(world.notices("main")) == 1
    world.ledger.close()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
