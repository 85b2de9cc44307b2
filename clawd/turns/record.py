"""The record: a turn's blocks in its session file, built from the ledger, safe to repeat."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio

from clawd import faults
from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.ledger import turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.locks import KeyedLocks
from clawd.model import Block
from clawd.sessions.file import SessionFile


def blocks_of(turn: Row, wakes: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[Block]:
    """The blocks of an ended turn: what was said to it, its steps, its answer or how else it ended.

    A turn that tries a failed one again brings only what is new: the failed one's record has the rest.
    """
    blocks = []
    if turn["retry_of"] is None:
        for wake in wakes:
            text = "\n\n".join(part["text"] for part in wake["parts"])
            blocks.append(Block("user", text, _moment(wake["at"])))
    for step in steps[turn["base_steps"] :]:
        blocks.append(
            Block(
                step["role"],
                step.get("content") or "",
                _moment(step.get("at")),
                tuple(step.get("tool_calls") or ()),
                step.get("tool_call_id"),
            )
        )
    ended = _moment(turn["ended_at"])
    if turn["state"] == "answered":
        final = json.loads(turn["final"])
        named = [f"[file: {name}]" for name in final["files"]]
        text = "\n\n".join(filter(None, [final["text"], *named]))
        if text:
            blocks.append(Block("assistant", text, ended))
    elif turn["state"] == "stopped":
        blocks.append(Block("system", "[stopped by the person]", ended))
    else:
        blocks.append(Block("system", f"[the turn failed: {turn['error']}]", ended))
    return blocks


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


class Recorder:
    """Writes ended turns. One at a time a session, in the order of their ids."""

    def __init__(self, home: Home, ledger: Ledger, clock: Clock) -> None:
        self._home, self._ledger, self._clock = home, ledger, clock
        self._locks = KeyedLocks()

    async def record(self, turn: int, *, redo: bool) -> Row:
        """Append the turn's blocks durably, then say so in the ledger. Raises StorageError or OSError; then try again
        with `redo`."""

        def read(tx: Transaction) -> tuple[Row, Path, list[Block]]:
            row = turns.get(tx, turn)
            place = tx.one(
                "SELECT s.stem, g.folder FROM session s JOIN grp g ON g.name = s.grp WHERE s.id = ?",
                row["session"],
            )
            assert place is not None
            path = self._home.group(place["folder"]).sessions / f"{place['stem']}.md"
            return row, path, blocks_of(row, turns.wakes(tx, turn), turns.steps(tx, turn))

        row, path, blocks = await self._ledger.do(read)
        async with self._locks.hold(row["session"]):
            file = SessionFile(path, row["session"])
            await anyio.to_thread.run_sync(lambda: file.append(blocks, turn, redo))
            faults.passing("appended")
            await self._ledger.do(lambda tx: turns.recorded(tx, turn, rfc3339(self._clock.now())))
        return row
