"""Edits and deletions as a runner and the session's file meet them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clawd.ledger import changes
from clawd.model import Block, Final, Incoming, Part
from clawd.sessions import reading
from clawd.trust import Origin, Role
from tests.turns.conftest import NOW, Ground, opened
from tests.turns.test_steering import ASKS, RESULT, more, wake

pytestmark = pytest.mark.anyio


async def change(ground: Ground, seq: int, text: str = "", rev: int = 1) -> str:
    """The owner edits a message, or deletes it."""
    row = (await ground.ledger.do(lambda tx: tx.one("SELECT * FROM inbound WHERE seq = ?", seq))) or {}
    kind: Any = "edit" if text else "delete"
    incoming = Incoming(
        row["channel"], row["chat"], row["platform_id"], row["sender"], (text,), datetime.now(UTC), kind=kind, rev=rev
    )
    typed = [Part("typed", Origin.OWNER, text)]
    if text:
        what, _ = await ground.ledger.do(lambda tx: changes.edit(tx, incoming, Role.OWNER, typed, NOW))
    else:
        what, _ = await ground.ledger.do(lambda tx: changes.delete(tx, incoming, NOW))
    if what == "steers":
        ground.dispatcher.wake("main")
    elif what == "noted":
        ground.recorder.failed()
    return what


def file(ground: Ground) -> tuple[Block, ...]:
    said = reading.load(ground.home.group("main").sessions / "terminal_main.md")
    assert not said.errors
    return tuple(said.blocks)


async def test_a_turn_at_work_is_shown_an_edit_of_what_it_answers(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept(text="buy 1")
        lease, offer = await ground.offer(await ground.run())
        assert await more(ground, lease) == [] and await change(ground, message, "buy 2") == "steers"
        [(action, [text])] = await more(ground, lease)
        assert action == "steer" and '"kind":"edit"' in text and "buy 2" in text
        own = offer.wakes[0]["id"]
        edit = (await ground.ledger.do(lambda tx: tx.one("SELECT MAX(id) AS id FROM wake"))) or {}
        await ground.counter.step(lease, 0, ASKS, [own])
        await ground.counter.step(lease, 1, RESULT, [own])
        await ground.counter.final(lease, Final("2, then", shown=[own, edit["id"]]))
        await ground.recorded(message)
        assert edit["id"] != await wake(ground, message)
        assert [(block.role, block.content, block.meta.get("kind")) for block in file(ground)] == [
            ("user", "buy 1", None), ("assistant", "", None), ("tool", "done", None),
            ("user", "buy 2", "edit"), ("assistant", "2, then", None),
        ]  # fmt: skip


async def test_what_nobody_was_shown_is_noted_once_behind_its_turn_as_its_speakers_word(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept(text="buy 1")
        lease, offer = await ground.offer(await ground.run())
        await change(ground, message, "buy 2")
        await ground.counter.final(lease, Final("bought 1", shown=[offer.wakes[0]["id"]]))
        await ground.recorded(message)
        await ground.until(lambda: len(file(ground)) == 3)
        assert await change(ground, message, "buy 3", 2) == await change(ground, message) == "noted"
        await ground.until(lambda: len(file(ground)) == 5)
        # A crash between the file and the ledger: what is there is not noted again.
        await ground.ledger.do(lambda tx: tx.execute("UPDATE inbound SET state = 'received' WHERE kind <> 'message'"))
        await ground.recorder.add_notes()
        blocks = file(ground)
        states = await ground.ledger.do(lambda tx: tx.all("SELECT state FROM inbound WHERE kind <> 'message'"))
    assert [(block.role, block.content.partition("]")[2].strip()) for block in blocks[2:]] == [
        *(("user", "buy 2"), ("user", "buy 3"), ("system", "")),
    ]
    assert "was deleted" in blocks[-1].content and {row["state"] for row in states} == {"recorded"}
    assert [block.meta["kind"] for block in blocks[2:4]] == ["edit"] * 2
