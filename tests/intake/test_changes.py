"""Edits and deletions: before the claim, while at work, and after; none ever begins a turn."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from clawd.intake import waiting
from clawd.ledger import changes, ends, questions, steering, turns
from clawd.ledger.turns import Claim
from clawd.model import Incoming, Part, Said
from clawd.trust import Origin, Role
from tests.intake.conftest import SHARED, World, opened
from tests.ledger.conftest import NOW

pytestmark = pytest.mark.anyio


async def edit(world: World, text: str, rev: int = 1, **more: Any) -> str:
    return (await world.say(text, kind="edit", **{"id": "7", "rev": rev, **more})).state


async def delete(world: World, **more: Any) -> str:
    return (await world.say(kind="delete", **{"id": "7", "sender": "", "chat": "chat:1", **more})).state


def to_note(world: World) -> list[str]:
    return [row["kind"] for row, _ in world.ledger.tx(changes.to_note)]


def followups(world: World, claim: Claim) -> list[dict[str, Any]]:
    return world.ledger.tx(lambda tx: steering.followups(tx, turns.get(tx, claim.turn["id"])))


async def test_before_the_claim_an_edit_replaces_what_was_typed_alone(world: World) -> None:
    async with opened(world):
        await world.say("buy 1", id="7", said=(Said("quoted", "offer", "eve"),))
        assert await edit(world, "buy 2", 1) == "replaced"
        assert await edit(world, "buy 3", 3) == "replaced"
        assert await edit(world, "buy 2.5", 2) == "ignored"  # overtaken
        assert await edit(world, "buy 3", 4) == "ignored"  # a preview was added, nothing else
        assert await edit(world, "", 5) == "ignored"
        assert (await world.say("buy 1", id="7")).fresh is False  # the platform sends the first one again
    assert world.shown() == [[("typed", "buy 3"), ("quoted", "offer")]]
    assert len(world.woken) == 1 and to_note(world) == []


@pytest.mark.parametrize(
    "forged",
    [
        {"id": "8"},  # of a message that we do not have
        {"sender": "chat:2", "chat": "chat:1"},  # somebody else's
        {"sender": "chat:9", "chat": "chat:1"},  # a stranger's
        {"chat": SHARED},
    ],
)
async def test_an_edit_that_is_not_its_authors_is_ignored(world: World, forged: dict[str, Any]) -> None:
    async with opened(world):
        await world.say("hi", id="7")
        assert await edit(world, "sh: ls", **forged) in ("ignored", "refused")
    assert world.shown() == [[("typed", "hi")]]


async def test_a_command_is_carried_out_as_it_was_first_said(world: World) -> None:
    async with opened(world):
        await world.say("/help", id="7")
        assert await edit(world, "/stop all") == "ignored" and await delete(world) == "ignored"
        await world.say("hi", id="9")
        assert await edit(world, "/stop all", id="9") == "replaced"  # no command now either
    assert world.shown() == [[("typed", "/stop all")]] and len(world.told()) == 1 and not world.ended


async def test_an_edit_while_its_turn_is_at_work_is_a_wake_that_it_can_be_shown(world: World) -> None:
    async with opened(world):
        await world.say("buy 1", id="7")
        claim = world.claim()
        assert await edit(world, "buy 2") == "steers" and len(world.woken) == 2
        [wake] = followups(world, claim)
        assert (wake["kind"], wake["parts"][0]["text"], wake["sender"]) == ("edit", "buy 2", "anna")
        shown = [wake["id"] for wake in claim.wakes] + [wake["id"]]
        world.end(claim.turn["id"], shown)
    assert [state for state, _ in world.states()] == ["recorded"] * 2 and to_note(world) == []
    assert [wake["kind"] for wake in world.ledger.tx(lambda tx: turns.wakes(tx, claim.turn["id"]))] == [
        *("message", "edit"),
    ]
    assert len(world.rows("SELECT 1 FROM turn")) == 1


async def test_an_edit_that_no_model_was_shown_is_noted_and_no_turn(world: World) -> None:
    async with opened(world):
        await world.say("buy 1", id="7")
        claim = world.claim()
        await edit(world, "buy 2")
        assert to_note(world) == []
        world.end(claim.turn["id"], [claim.wakes[0]["id"]])
    assert to_note(world) == ["edit"] and world.ledger.tx(lambda tx: turns.next_claimable(tx, "main")) is None
    assert len(world.ledger.tx(lambda tx: turns.wakes(tx, claim.turn["id"]))) == 1


@pytest.mark.parametrize("how", ["requeue", "fault", "stop", "fail"])
async def test_however_a_turn_ends_its_edit_is_shown_or_noted(world: World, how: str) -> None:
    async with opened(world):
        await world.say("buy 1", id="7")
        claim = world.claim()
        await edit(world, "buy 2")
        turn = claim.turn["id"]
        if how == "requeue":
            world.ledger.tx(lambda tx: ends.requeue(tx, turn, NOW))
        elif how == "stop":
            world.ledger.tx(lambda tx: (ends.request_stop(tx, "chat:chat:1"), ends.stopped(tx, turn, NOW)))
        else:
            final, limits = how == "fail", world.channel.limits
            world.ledger.tx(lambda tx: ends.fault(tx, turn, "broke", NOW, limits=limits, final=final))
        if how in ("requeue", "fault"):
            assert [wake["kind"] for wake in world.claim().wakes] == ["message", "edit"]
            world.end(turn)
            assert to_note(world) == []
        else:
            world.ledger.tx(lambda tx: ends.recorded(tx, turn, NOW))
            assert to_note(world) == ["edit"]
    assert [state for state, _ in world.states()][1] == ("received" if how in ("stop", "fail") else "recorded")


async def test_what_comes_after_the_answer_is_noted_once(world: World) -> None:
    async with opened(world):
        await world.say("buy 1", id="7")
        world.end(world.claim().turn["id"])
        assert await edit(world, "buy 2") == "noted" and await edit(world, "buy 2") == "ignored"
        assert await delete(world) == "noted" and await delete(world) == "ignored"
        assert await edit(world, "buy 3", 9) == "ignored"  # it is gone
    assert to_note(world) == ["edit", "delete"] and world.noted == 2
    for row, _ in world.ledger.tx(changes.to_note):
        world.ledger.tx(lambda tx, seq=row["seq"]: changes.settled(tx, seq))  # type: ignore[misc]
    assert to_note(world) == [] and len(world.woken) == 1


async def test_an_edit_by_somebody_with_fewer_rights_than_its_turn_is_not_steered(world: World) -> None:
    """Whoever said it has lost rights since."""
    async with opened(world):
        await world.say("hi", id="7")
        claim = world.claim()
        incoming: Incoming = world.incoming("ho", kind="edit", id="7", rev=1)
        typed = [Part("typed", Origin.MEMBER, "ho")]
        what, _ = world.ledger.tx(lambda tx: changes.edit(tx, incoming, Role.MEMBER, typed, NOW))
        assert what == "noted" and followups(world, claim) == []
        waits = await world.say("hi", id="8")
        incoming = world.incoming("ho", kind="edit", id="8", rev=1)
        still, _ = world.ledger.tx(lambda tx: changes.edit(tx, incoming, Role.MEMBER, typed, NOW))
    assert still == "ignored" and "ho" not in world.row(waits.message)["parts"]


async def test_what_is_deleted_before_the_claim_is_not_answered(world: World) -> None:
    async with opened(world):
        first = await world.say("oops", id="7")
        assert await delete(world) == "withdrawn" and await delete(world) == "ignored"
        assert await edit(world, "oops!") == "ignored"
    assert world.ledger.tx(lambda tx: turns.next_claimable(tx, "main")) is None
    assert world.row(first.message)["state"] == "withdrawn"
    assert world.rows("SELECT state, recorded_at FROM turn")[0]["state"] == "withdrawn"
    assert world.ledger.tx(turns.to_record) == [] and not world.told()


async def test_a_deleted_message_takes_only_itself_out_of_a_turn_for_several(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "ALBUM_S", 0.05)
    async with opened(world):
        for n in (7, 8):
            await world.say(str(n), id=str(n), album="a")
        await world.until(lambda: world.woken)
        assert await delete(world) == "withdrawn"
    claim = world.claim()
    assert world.shown(claim) == [[("typed", "8")]]
    world.end(claim.turn["id"])
    assert [state for state, _ in world.states()] == ["withdrawn", "recorded", "recorded"]


async def test_lines_that_were_to_be_read_with_a_deleted_message_wait_for_the_next(world: World) -> None:
    world.rules = replace(world.rules, listen=True)
    async with opened(world):
        await world.shared("it rains")
        await world.shared("and now?", "chat:1", id="7", addressed=True)
        assert await delete(world, chat=SHARED) == "withdrawn"
        assert world.states()[0] == ("held", "listening")
        await world.shared("well?", "chat:1", addressed=True)
    assert world.shown() == [[("typed", "it rains")], [("typed", "well?")]]


@pytest.mark.parametrize("change", ["edit", "delete"])
async def test_what_is_held_is_changed_too(world: World, change: str) -> None:
    world.channel.open = anyio.Event()
    async with opened(world):
        await world.say("one", id="7", attachments=(world.file("1", b"x"),))
        await world.until(lambda: world.channel.at_once)
        if change == "edit":
            assert await edit(world, "two") == "replaced"
        else:
            assert await delete(world) == "withdrawn"
        world.channel.open.set()
        await world.until(lambda: not world.channel.at_once)
        await world.say("after")
        await world.until(lambda: len(world.woken) == (2 if change == "edit" else 1))
    texts = [row["parts"] for row in world.rows("SELECT parts FROM inbound WHERE state = 'received'")]
    assert any('"two"' in text and "inbox" in text for text in texts) is (change == "edit")


async def test_an_edit_of_an_answer_keeps_the_question_that_it_answers(world: World) -> None:
    async with opened(world):
        await world.say("paint")
        turn = world.claim().turn["id"]
        expires = datetime.now(UTC) + timedelta(days=1)
        world.ledger.tx(lambda tx: questions.ask(tx, turn, "Which?", [], "the door", expires))
        world.end(turn)
        await world.say("red", id="7")
        await edit(world, "blue")
    [[asked, answer]] = world.shown()
    assert "Which?" in asked[1] and answer == ("typed", "blue")
