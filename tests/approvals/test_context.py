"""A session is compacted or handed over where its group wants to be asked: the yes, the no, and the no at its limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawd.approvals import context as asking
from clawd.approvals.approvals import WAITS, Asked
from clawd.approvals.context import PAUSED
from clawd.commands import table
from clawd.errors import ClawdError
from clawd.ledger import contexts, groups, inbound, turns
from clawd.ledger.db import Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.lifecycle.deciding import Decision
from tests.approvals.conftest import ADA, World
from tests.ledger.conftest import NOW

SESSION = "terminal:main"
HARD = Decision("handoff", "hard_handoff", "the window is full")
SOFT = Decision("compact", "soft_compact", "the window grew")
HERE = Address("terminal", "", "main", "")


def session(world: World, window: int = 21_000) -> None:
    """A session whose window holds so much, and in which something waits."""
    world.desk.accept("one")

    def work(tx: Transaction) -> None:
        contexts.of(tx, SESSION, NOW)
        contexts.update(tx, SESSION, NOW, window=window)

    world.ledger.tx(work)


def ask(world: World, decision: Decision) -> Asked | None:
    return world.ledger.tx(lambda tx: world.confirming.ask(tx, contexts.of(tx, SESSION, NOW), decision, NOW))


def context(world: World) -> Row:
    return world.ledger.tx(lambda tx: contexts.of(tx, SESSION, NOW))


def grown(world: World, window: int) -> None:
    world.ledger.tx(lambda tx: contexts.update(tx, SESSION, NOW, window=window))


def notices(world: World, at: Address = HERE) -> list[str]:
    return [row["text"] for row in world.sent(at)]


def decisions(world: World) -> list[dict[str, Any]]:
    rows = world.ledger.tx(lambda tx: tx.all("SELECT line FROM journal WHERE kind = 'decisions' ORDER BY id"))
    return [json.loads(row["line"]) for row in rows]


async def decided(world: World, number: int, verdict: str) -> None:
    async with world.working():
        await world.approvals.by_hand(number, verdict)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_it_is_asked_in_its_own_chat_and_done_once_with_who_said_yes(world: World) -> None:
    session(world)
    asked = ask(world, SOFT)
    assert asked is not None and asked.fresh
    [text] = notices(world)
    assert "may I compact the conversation" in text and "21,000 tokens (soft_compact)" in text
    row = context(world)
    assert (row["status"], row["confirm"], row["gate"]) == ("awaiting_confirm", asked.number, None)
    assert ask(world, SOFT) == Asked(asked.number, False)
    async with world.working():
        await world.typed(asked.number)
    assert world.carried == [(SESSION, SOFT, "Ada")] and world.state(asked.number) == "done"
    row = context(world)
    assert (row["status"], row["confirm"]) == ("running", None) and "main" in world.woken


@pytest.mark.anyio
async def test_a_no_lets_it_go_on_and_is_asked_again_when_the_window_grew(world: World) -> None:
    session(world)
    asked = ask(world, SOFT)
    assert asked is not None
    await decided(world, asked.number, "deny")
    row = context(world)
    assert (row["status"], row["confirm"], row["gate"], world.carried) == ("running", None, None, [])
    [line] = decisions(world)
    assert (line["action"], line["trigger"], line["confirm"]) == (
        "continue", "soft_compact", {"granted": False, "by": "owner"}
    )  # fmt: skip
    grown(world, 23_000)
    assert ask(world, SOFT) is None
    other = ask(world, HARD)  # another thing is asked at once
    assert other is not None
    await decided(world, other.number, "deny")
    world.ledger.tx(lambda tx: asking.resume(tx, SESSION, NOW))
    grown(world, 23_100 + 2_400)
    assert (again := ask(world, HARD)) is not None and again.fresh


@pytest.mark.anyio
async def test_nobody_s_answer_is_a_no(world: World) -> None:
    session(world)
    asked = ask(world, SOFT)
    assert asked is not None
    world.clock.advance(WAITS.total_seconds() + 1)
    async with world.working():
        for each in world.ledger.tx(lambda tx: world.approvals._expire(tx, world.clock.now()))[0]:
            world.approvals._look_at(each)
    assert world.state(asked.number) == "expired" and context(world)["status"] == "running"
    assert decisions(world)[0]["confirm"] == {"granted": False, "by": None}


@pytest.mark.anyio
async def test_at_the_limit_nothing_is_answered_until_it_is_decided_and_a_no_pauses(world: World) -> None:
    session(world)
    asked = ask(world, HARD)
    assert asked is not None
    assert context(world)["gate"] == "confirm" and world.ledger.tx(lambda tx: turns.next_claimable(tx, "main")) is None
    assert any("my owner is asked (approval" in text for text in notices(world))
    await decided(world, asked.number, "deny")
    row = context(world)
    assert (row["status"], row["stopped_reason"], row["gate"]) == ("stopped", PAUSED, "paused")
    assert world.ledger.tx(lambda tx: turns.next_claimable(tx, "main")) is None
    why = asking.why_shut(row) or ""
    assert f"clawd session resume {SESSION}" in why and f"context handoff --session {SESSION}" in why and "/new" in why
    world.ledger.tx(lambda tx: asking.resume(tx, SESSION, NOW))
    assert context(world)["gate"] is None and world.ledger.tx(lambda tx: turns.next_claimable(tx, "main")) is not None
    assert ask(world, HARD) is None  # it goes on until it has grown by a tenth
    grown(world, 23_200)
    assert ask(world, HARD) is not None


@pytest.mark.anyio
async def test_what_is_asked_for_less_gives_way_to_the_limit(world: World) -> None:
    session(world)
    first = ask(world, SOFT)
    second = ask(world, HARD)
    assert first is not None and second is not None and second.number != first.number
    assert world.state(first.number) == "void" and context(world)["confirm"] == second.number
    assert ask(world, SOFT) == Asked(second.number, False)
    await decided(world, second.number, "approve")
    assert world.carried == [(SESSION, HARD, "owner")] and context(world)["gate"] is None


@pytest.mark.anyio
async def test_a_session_that_is_over_is_not_handed_over_by_a_late_yes(world: World) -> None:
    session(world)
    asked = ask(world, HARD)
    assert asked is not None
    world.ledger.tx(lambda tx: contexts.update(tx, SESSION, NOW, status="handoff", confirm=None, gate=None))
    await decided(world, asked.number, "approve")
    assert world.carried == [] and world.state(asked.number) in ("void", "failed")
    assert context(world)["status"] == "handoff"


def test_what_was_decided_by_hand_is_asked_no_more(world: World) -> None:
    session(world)
    asked = ask(world, HARD)
    assert asked is not None

    def by_hand(tx: Transaction) -> None:
        contexts.update(tx, SESSION, NOW, status="running", confirm=None, gate=None)
        world.confirming.withdraw(tx, asked.number)
        world.confirming.withdraw(tx, asked.number)  # safe to repeat

    world.ledger.tx(by_hand)
    assert world.state(asked.number) == "void" and context(world)["status"] == "running"


def test_in_a_shared_chat_the_owner_is_asked_in_private(world: World) -> None:
    session(world)
    world.ledger.tx(lambda tx: tx.execute("UPDATE turn SET channel = 'telegram', chat = '-100'"))
    asked = ask(world, HARD)
    assert asked is not None
    assert any("may I go on with" in text for text in notices(world, ADA))
    shared = notices(world, Address("telegram", "", "-100", ""))
    assert len(shared) == 1 and "Your message is kept" in shared[0]


@pytest.mark.parametrize("status", ["completed", "handoff", "failed"])
def test_what_is_over_is_not_resumed(world: World, status: str) -> None:
    session(world)

    def end(tx: Transaction) -> None:
        heir = groups.next_segment(tx, SESSION, NOW).id if status == "handoff" else None
        contexts.update(tx, SESSION, NOW, status=status, successor=heir)

    world.ledger.tx(end)
    with pytest.raises(ClawdError, match=r"goes on as terminal:main\.2" if status == "handoff" else "is over") as error:
        world.ledger.tx(lambda tx: asking.resume(tx, SESSION, NOW))
    assert error.value.code == 1


@pytest.mark.anyio
async def test_new_takes_what_waits_along_and_status_says_why(world: World) -> None:
    session(world)
    asked = ask(world, HARD)
    assert asked is not None
    await decided(world, asked.number, "deny")
    said = world.desk.accept("/new", kind="command")
    row = world.ledger.tx(lambda tx: inbound.get(tx, said.seq))
    reach: Any = type("Reach", (), {"state_of": lambda self, group: "", "freed": world.woken.append})()
    status = world.ledger.tx(lambda tx: table.COMMANDS["status"].run(tx, reach, row, "", NOW))
    assert "it is paused" in status.reply
    done = world.ledger.tx(lambda tx: table.COMMANDS["new"].run(tx, reach, row, "", NOW))
    assert "What waited (1) is answered there." in done.reply
    claimable = world.ledger.tx(lambda tx: turns.next_claimable(tx, "main"))
    assert claimable is not None and claimable["session"] == "terminal:main.2"
