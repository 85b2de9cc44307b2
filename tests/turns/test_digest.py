"""One message about what waits, over a real ledger and real files."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from clawd.channel import NOTICE
from clawd.clock import TurnedClock
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.config.schema import MemoryTable
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import TERMINAL
from clawd.memory.outside import Outside, noted
from clawd.memory.protocol import Voice
from clawd.trust import Origin, Role
from clawd.turns.digest import DAY, HOUR, MANY, Digest, said, when
from clawd.turns.memory import Memories
from tests.ledger.conftest import NOW

AGENT = Voice(Origin.AGENT, Role.OWNER, 0.2, "telegram:7#12", 3)
AT = datetime(2026, 12, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize(("told", "known", "waiting", "due"), [
    (None, [], [], None),
    (None, [], ["a"], AT),
    (AT - timedelta(hours=1), ["a"], ["a"], None),
    (AT - timedelta(hours=1), ["a"], ["a", "b"], AT + timedelta(hours=23)),
    (AT - DAY, ["a"], ["a", "b"], AT),
    (AT - timedelta(hours=1), ["a"], list("bcdefghijk"), AT + timedelta(hours=23)),
    (AT - timedelta(hours=1), ["a"], list("bcdefghijkl"), AT),
    (AT - timedelta(minutes=20), ["a"], list("bcdefghijkl"), AT + timedelta(minutes=40)),
    (AT - timedelta(hours=1), ["a", "b"], ["a"], None),
])  # fmt: skip
def test_when_the_owner_is_told(
    told: datetime | None, known: list[str], waiting: list[str], due: datetime | None
) -> None:
    assert when(AT, told, known, waiting) == due and MANY == 10


def test_other_programs_have_nobody_told_sooner_and_the_message_says_how_many() -> None:
    many = [f"fp_{number}" for number in range(1000)]
    told = AT - timedelta(hours=1)
    assert when(AT, None, [], many, many) == AT
    assert when(AT, told, [], many, many) == when(AT, told, [], ["a", *many], many) == told + DAY
    assert when(AT, told, [], [*"bcdefghijkl", *many], many) == AT
    assert when(AT, told, many, many, many) is None
    end = ": /memory shows what it is, or `clawd memory pending`."
    assert said("main", 1000, 1000) == f"1000 memories wait for your word (from other programs){end}"
    assert said("main", 3, 1) == f"3 memories wait for your word (1 of them from other programs){end}"
    assert said("main", 3) == f"3 memories wait for your word{end}"


@pytest.mark.anyio
async def test_one_message_after_the_turn_and_none_again_after_a_restart(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    ledger, clock = Ledger.open(home.ledger_file), TurnedClock(AT)
    for group in ("main", "family"):
        ensure_group(home, group)
        ledger.tx(lambda tx, group=group: groups.add(tx, group, NOW))
    busy, looked = {"main"}, list[str]()

    def is_busy(group: str) -> bool:
        looked.append(group)
        return group in busy

    def life() -> tuple[Memories, Digest]:
        memories = Memories(home, ledger, clock, lambda group: MemoryTable())
        digest = Digest(ledger, clock, memories, home.state / "trust.jsonl", where=lambda tx: ("owner", TERMINAL),
                        limits=lambda channel: NOTICE, deliver=lambda at: None, busy=is_busy, after_s=0.0)  # fmt: skip
        memories.waits = digest.waits
        return memories, digest

    def told() -> list[str]:
        return [row["text"] for row in ledger.tx(lambda tx: tx.all("SELECT text FROM delivery ORDER BY id"))]

    async def until(done: object) -> None:
        deadline = time.monotonic() + 20
        while not done():  # type: ignore[operator]
            assert time.monotonic() < deadline, (told(), looked)
            await anyio.sleep(0.01)

    memories, digest = life()
    for text in ("The code is 1234.", "The car is red."):
        memories.of("main").put(text, "entity", {}, AGENT)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(digest.run)  # a daemon before this one could not tell it
        await until(lambda: looked.count("main") > 2)
        assert not told()  # its turn is at work
        busy.clear()
        await until(told)
        memories.of("family").put("Mum likes tulips.", "procedure", {}, AGENT)
        digest.waits("family")
        await until(lambda: len(told()) == 2)
        tasks.cancel_scope.cancel()
    assert told() == [
        "2 memories wait for your word: /memory shows what it is, or `clawd memory pending`.",
        "1 memory waits for your word in the group family: /memory shows what it is,"
        " or `clawd memory pending --group family`.",
    ]
    await memories.close()
    memories, digest = life()
    looked.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(digest.run)
        await until(lambda: {"main", "family"} <= set(looked))
        memories.of("main").put("The bank is another one.", "entity", {}, AGENT)
        digest.waits("main")
        await until(lambda: looked.count("main") > 1)
        for number in range(MANY):
            memories.of("family").put(f"Note {number} of many.", "entity", {}, AGENT)
        memories.of("family").put("One more of many.", "entity", {}, AGENT)
        clock.advance(HOUR.total_seconds())
        digest.waits("family")
        await until(lambda: len(told()) == 3)
        assert "12 memories wait for your word in the group family" in told()[-1]
        clock.advance(DAY.total_seconds() + 1)
        digest.waits("main")
        await until(lambda: len(told()) == 4)
        tasks.cancel_scope.cancel()
    assert told()[-1].startswith("3 memories wait for your word:")
    notes = [{"text": f"Line {number}."} for number in range(100)]
    notes += [{"text": f"v{number}", "fact": f"mmkr_a_{number}"} for number in range(20)]
    for some in (notes[:100], notes[100:]):
        made = [noted("mmkr:a", each, AT) for each in some]
        await memories.do("main", lambda memory, made=made: Outside(memory, "mmkr:a").keep(made))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(digest.run)
        clock.advance(DAY.total_seconds() + 1)
        digest.waits("main")
        await until(lambda: len(told()) == 5)
        tasks.cancel_scope.cancel()
    assert told()[-1].startswith("23 memories wait for your word (20 of them from other programs):")
    await memories.close()
    ledger.close()
