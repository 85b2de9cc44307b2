"""The timer of what ends by itself, shown with questions: it sleeps until the next one ends, and hears of a new one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from clawd.clock import SystemClock
from clawd.ledger import questions, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deadlines import Deadlines
from tests.ledger.conftest import NOW, Desk

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(ledger: Ledger) -> AsyncIterator[tuple[Deadlines[str], list[str]]]:
    woken: list[str] = []
    timer = Deadlines(ledger, SystemClock(), questions.expire, woken.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timer.run)
        yield timer, woken
        tasks.cancel_scope.cancel()


async def until(woken: list[str], count: int) -> None:
    with anyio.fail_after(10):
        while len(woken) < count:
            await anyio.sleep(0.005)


async def test_each_question_ends_at_its_own_time_also_after_a_restart(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    desk = Desk(ledger)

    def ask(group: str, seconds: float) -> None:
        desk.accept(group=group)
        desk.run(group, group)

        def work(tx: Transaction) -> None:
            claimed = turns.claim(tx, group, group, 0, NOW)
            assert claimed is not None
            expires = datetime.now(UTC) + timedelta(seconds=seconds)
            questions.ask(tx, claimed.turn["id"], "q", [], "", expires)

        ledger.tx(work)

    ask("before", -1)
    ask("late", 3600)
    async with running(ledger) as (timer, woken):
        await until(woken, 1)
        for group in ("soon", "later"):
            ask(group, 0.05)
            timer.look_again()
            await until(woken, len(woken) + 1)
    async with running(ledger) as (timer, again):
        timer.look_again()
        await anyio.wait_all_tasks_blocked()
    assert (woken, again) == (["before", "soon", "later"], [])
    ledger.close()
