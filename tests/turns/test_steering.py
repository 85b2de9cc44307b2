"""Steering as a runner meets it: what `more` hands out, what a step makes of it, and what the session's file keeps."""

from pathlib import Path
from typing import Any

import pytest

from clawd.ledger import steering, turns
from clawd.ledger.db import Transaction
from clawd.model import Block, Final, Lease
from clawd.sessions import reading
from clawd.trust import Role
from clawd.turns.record import blocks_of
from tests.turns.conftest import Ground, opened

pytestmark = pytest.mark.anyio

ASKS = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {}}]}
RESULT = {"role": "tool", "content": "done", "tool_call_id": "c"}


async def more(ground: Ground, lease: Lease) -> list[tuple[str, list[str]]]:
    """(action, what the model is shown of each wake)."""
    controls = await ground.counter.more(lease)
    return [(each.action, [wake["text"] for wake in each.wakes]) for each in controls]


async def wake(ground: Ground, seq: int) -> int:
    row = await ground.ledger.do(lambda tx: tx.one("SELECT MAX(id) AS id FROM wake WHERE inbound = ?", seq))
    assert row is not None
    return int(row["id"])


async def test_more_hands_out_what_waited_before_the_claim(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept(text="go")
        await ground.accept(text="left")
        lease, _ = await ground.offer(await ground.run())
        [(action, [text])] = await more(ground, lease)
        assert action == "steer" and "left" in text


async def test_more_hands_out_what_was_said_and_a_step_takes_it_in(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        first = await ground.accept(text="go")
        run = await ground.run()
        lease, offer = await ground.offer(run)
        assert await more(ground, lease) == []
        second, member = await ground.accept(text="left"), await ground.accept(text="never", role=Role.MEMBER)
        for _ in range(2):  # nothing is durable by that, and an answer may be lost
            [(action, [text])] = await more(ground, lease)
            assert action == "steer" and "left" in text and "never" not in text
        own, late = offer.wakes[0]["id"], await wake(ground, second)
        await ground.counter.step(lease, 0, ASKS, [own])
        # Nothing is said between a call and its result, whatever a runner claims; nor does another role's word enter.
        await ground.counter.step(lease, 1, RESULT, [own, late, await wake(ground, member)])
        assert (await ground.turn(second))["state"] == "queued"
        await ground.ledger.do(lambda tx: tx.execute("UPDATE wake SET trust = 0.3 WHERE id = ?", late))
        await ground.counter.step(lease, 2, {"role": "assistant", "content": "so"}, [own, late])
        assert run.live[lease.turn].taint == 0.3 and await more(ground, lease) == []
        ground.followups = "queue"
        third = await ground.accept(text="later")
        assert await more(ground, lease) == []
        await ground.counter.final(lease, Final("both", shown=[own, late], model="m"))
        await ground.recorded(first, second)
        assert (await ground.message(second))["reply"] == (await ground.message(first))["reply"] == "both"
        said = reading.load(ground.home.group("main").sessions / "terminal_main.md")
        assert not said.errors
        assert [(block.role, block.content) for block in said.blocks] == [
            ("user", "go"), ("assistant", ""), ("tool", "done"),
            ("user", "left"), ("assistant", "so"), ("assistant", "both"),
        ]  # fmt: skip
        assert said.blocks[-1].meta["model"] == "m"
        for waiting, role in ((member, "member"), (third, "owner")):
            lease, offer = await ground.offer(run)
            assert (lease.turn, offer.context["authority"]) == ((await ground.turn(waiting))["id"], "member"), role
            await ground.counter.final(lease, Final("ok"))
            await ground.recorded(waiting)
        blocks = reading.load(ground.home.group("main").sessions / "terminal_main.md").blocks
        assert [(each.meta.get("from"), each.meta.get("name")) for each in blocks if each.role == "user"] == [
            (None, None), (None, None), ("member", None), (None, None),
        ]  # fmt: skip


async def test_what_is_to_stop_hears_of_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        lease, offer = await ground.offer(run)
        newer = await ground.accept(text="newer")
        turn = (await ground.turn(newer))["id"]
        live = await ground.ledger.do(lambda tx: steering.interrupt(tx, turn, "now"))
        assert live is not None and live["id"] == lease.turn
        ground.dispatcher.stop_live(lease.turn)
        assert await more(ground, lease) == [("stop", [])]
        ids = [offer.wakes[0]["id"], await wake(ground, newer)]
        await ground.counter.step(lease, 0, {"role": "assistant", "content": "x"}, ids)
        await ground.counter.final(lease, Final("too late", shown=ids))
        again, _ = await ground.offer(run)
        assert again.turn == turn and (await ground.notices()) == [steering.INTERRUPTED]
        assert await more(ground, again) == []


def _turn(**more: Any) -> Any:
    usual = {"base_steps": 0, "ended_at": None, "state": "answered", "stop_requested": 0, "error": "it broke"}
    return {**usual, "model": None, "final": '{"text": "bye", "files": [], "notes": null}', **more}


def _wake(
    text: str, joined: int = 0, *, recorded: bool = False, role: str = "owner", sender: str | None = "owner"
) -> Any:
    parts = [{"kind": "typed", "origin": role, "text": text}]
    wake = {"kind": "message", "role": role, "sender": sender, "at": None}
    return {**wake, "parts": parts, "joined": joined, "recorded": recorded}


FALLBACK = '{"text": "bye", "files": [], "notes": {"fallback": [{"from": "a", "to": "b", "why": "overloaded"}, 7]}}'
NONE, NEWER = "[no-result:-the-turn-ended-first]", "[stopped-to-answer-a-newer-message]"
ODD = '{"text": "bye", "files": [], "notes": {"fallback": "a"}}'


@pytest.mark.parametrize(
    ("turn", "wakes", "steps", "told"),
    [
        (_turn(), [_wake("a")], [], "user:a assistant:bye"),
        (_turn(), [_wake("a"), _wake("b")], [ASKS, RESULT], "user:a user:b assistant: tool:done assistant:bye"),
        (_turn(), [_wake("a"), _wake("b", 2)], [ASKS, RESULT], "user:a assistant: tool:done user:b assistant:bye"),
        # What was left without a result stands next to its call.
        (_turn(), [_wake("a"), _wake("b", 1)], [ASKS], f"user:a assistant: tool:{NONE} user:b assistant:bye"),
        # The failed turn's record has what it was told.
        (_turn(base_steps=2), [_wake("a", recorded=True), _wake("b", 2)], [ASKS, RESULT], "user:b assistant:bye"),
        (_turn(), [_wake("a", recorded=True), _wake("b")], [], "user:b assistant:bye"),
        (_turn(state="failed"), [_wake("a")], [], "user:a system:[the-turn-failed:-it-broke]"),
        (_turn(state="stopped", stop_requested=1), [_wake("a")], [], "user:a system:[stopped-by-the-person]"),
        (_turn(state="stopped"), [_wake("a")], [], "user:a system:[stopped-by-the-person]"),
        (_turn(state="stopped", stop_requested=2), [_wake("a")], [], f"user:a system:{NEWER}"),
    ],
)  # fmt: skip
async def test_the_blocks_of_a_turn_stand_in_the_order_in_which_its_model_met_them(
    turn: Any, wakes: Any, steps: Any, told: str
) -> None:
    blocks = blocks_of(turn, wakes, steps)
    assert " ".join(f"{each.role}:{each.content.replace(' ', '-')}" for each in blocks) == told


@pytest.mark.parametrize(
    ("block", "meta"),
    [
        (_wake("a"), {}),
        (_wake("a", role="member", sender="member:bob"), {"from": "member", "name": "bob"}),
        (_wake("a", role="member", sender=None), {"from": "member"}),
    ],
)
async def test_a_block_says_who_spoke_where_it_was_not_the_owner(block: Any, meta: dict[str, str]) -> None:
    assert blocks_of(_turn(), [block], [])[0].meta == meta


@pytest.mark.parametrize(
    ("final", "meta"),
    [
        ({}, {}),
        ({"model": "b"}, {"model": "b"}),
        ({"model": "b", "final": FALLBACK}, {"model": "b", "fallback": "a overloaded"}),
        ({"final": ODD}, {}),
    ],
)
async def test_an_answer_says_which_model_gave_it(final: dict[str, Any], meta: dict[str, Any]) -> None:
    answer: Block = blocks_of(_turn(**final), [], [])[-1]
    assert answer.meta == meta


async def test_what_joined_is_there_after_a_crash(tmp_path: Path) -> None:
    """The daemon and its sandbox are gone after the step that took a follow-up in: the next attempt has both."""
    async with opened(tmp_path, workers=0) as ground:
        first = await ground.accept(text="go")
        run = await ground.run()
        lease, offer = await ground.offer(run)
        second = await ground.accept(text="left")
        own, late = offer.wakes[0]["id"], await wake(ground, second)
        await ground.counter.step(lease, 0, {"role": "assistant", "content": "so"}, [own, late])
        ground.box(run).end("crashed")
        await run.gone.wait()
        run = await ground.run()
        lease, offer = await ground.offer(run)
        assert [(each["id"], each["joined"]) for each in offer.wakes] == [(own, 0), (late, 0)] and len(offer.steps) == 1
        assert "left" in offer.wakes[1]["parts"][0]["text"]
        await ground.counter.final(lease, Final("ok", shown=[own, late]))
        await ground.recorded(first, second)

        def states(tx: Transaction) -> list[str]:
            return [row["state"] for row in tx.all("SELECT state FROM turn ORDER BY id")]

        assert await ground.ledger.do(states) == ["answered", "joined"]
        assert (await ground.ledger.do(lambda tx: turns.get(tx, lease.turn)))["attempt"] == 2
