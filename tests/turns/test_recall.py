"""What memory gives a turn of itself: nothing that lowers it, nothing private beside others, nothing that is off; and a
search that does not come back holds up a few turns only."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.clock import SystemClock
from clawd.config.home import Home
from clawd.config.schema import MemoryTable
from clawd.errors import StorageError
from clawd.ledger.db import Ledger
from clawd.ledger.turns import Claim
from clawd.memory.protocol import Voice
from clawd.memory.store import GroupMemory
from clawd.trust import Origin, Role
from clawd.turns.memory import MOST_RECALLS, Memories

pytestmark = pytest.mark.anyio


def claim(text: str, taint: float = 1.0, others: bool = False, channel: str = "terminal") -> Claim:
    row: Any = {"id": 7, "grp": "main", "session": f"{channel}:main", "channel": channel, "account": "", "chat": "main"}
    wake = {"joined": 0, "parts": [{"kind": "typed", "text": text}]}
    return Claim(row, 0, Role.OWNER, taint, [wake] if text else [], [], others=others)


class Ground:
    def __init__(self, path: Path) -> None:
        self.home, self.table = Home(path), MemoryTable()
        self.home.create()
        self.ledger = Ledger.open(self.home.ledger_file)
        self.memories = Memories(self.home, self.ledger, SystemClock(), lambda group: self.table)

    async def keep(self, text: str, **voice: Any) -> None:
        await self.memories.do("main", lambda memory: memory.put(text, "episode", {}, Voice(**voice)))

    async def given(self, claim: Claim) -> tuple[list[str], int]:
        recalled = await self.memories.recall(claim)
        return sorted(hit.text for hit in recalled.hits), recalled.more


async def test_what_would_lower_a_turn_or_is_not_for_others_is_left_out(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    await ground.keep("the boat lies in Kiel", private=True)
    await ground.keep("the boat is blue")
    await ground.keep("a tool saw the boat", origin=Origin.AGENT, taint=0.6)
    await ground.keep("a page sells the boat", origin=Origin.AGENT, taint=0.2)  # waits for the owner
    owner = ["the boat is blue", "the boat lies in Kiel"]
    assert await ground.given(claim("boat")) == (owner, 1)
    assert await ground.given(claim("boat", 0.6)) == (["a tool saw the boat", *owner], 0)
    assert await ground.given(claim("boat", others=True)) == (owner[:1], 1)
    assert await ground.given(claim("boat", channel="telegram")) == (owner[:1], 1), "somebody may read along"
    assert await ground.given(claim("nothing of it")) == ([], 0)
    assert await ground.given(claim("")) == ([], 0)
    ground.table = MemoryTable(recall_k=1)
    assert len((await ground.given(claim("boat")))[0]) == 1
    ground.table = MemoryTable(recall_k=0)
    assert await ground.given(claim("boat")) == ([], 0)
    await ground.memories.close()
    ground.ledger.close()


async def test_searches_that_hang_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ground, go = Ground(tmp_path), threading.Event()
    monkeypatch.setattr(GroupMemory, "find", lambda *_, **__: go.wait(20) and ([], []))
    for _ in range(MOST_RECALLS):
        with pytest.raises(TimeoutError), anyio.fail_after(0.05):
            await ground.memories.recall(claim("boat"))
    with pytest.raises(StorageError, match="have not come back"):
        await ground.memories.recall(claim("boat"))
    go.set()
    with anyio.fail_after(20):
        while ground.memories._recalls["main"]:
            await anyio.sleep(0.01)
    assert await ground.given(claim("boat")) == ([], 0)
    await ground.memories.close()
    ground.ledger.close()
