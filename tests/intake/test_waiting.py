"""What waits for its time, its album or for somebody who asks; and what came too late."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from clawd.channel import SendRefused
from clawd.intake import rates, waiting
from clawd.ledger import ends, held, inbound
from clawd.trust import Role
from tests.intake.conftest import LONG_AGO, World, opened
from tests.ledger.conftest import NOW

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ALBUM_S", 0.1)
    monkeypatch.setattr(waiting, "LATE_S", 0.1)


# ── albums ──


async def test_an_album_is_one_turn_with_all_its_captions_and_files(world: World) -> None:
    async with opened(world):
        for n in range(3):
            photo = world.file(str(n), b"x", f"{n}.jpg")
            await world.say(f"caption {n}" if n != 1 else "", album="a", attachments=(photo,))
        assert world.states() == [("held", "album")] * 3 and not world.woken
        await world.until(lambda: world.woken)
    assert world.woken == ["main"] and len(world.rows("SELECT 1 FROM turn")) == 1
    said = world.shown()
    assert [each[0][1].partition(" (")[0] for each in said] == ["caption 0", "/group/inbox/1.jpg", "caption 2"]
    assert all(any("inbox" in text for _, text in each) for each in said)


async def test_an_album_is_for_us_if_one_of_it_is_and_else_none_is(world: World) -> None:
    async with opened(world):
        for n in range(4):  # of album b nothing calls us
            photo = world.file(str(n), b"x", f"{n}.jpg")
            album = "ab"[n % 2]
            await world.shared("look, clawd" if n == 2 else "", album=album, attachments=(photo,), addressed=n == 2)
        await world.until(lambda: world.woken)
        await world.until(lambda: ("held", "unaddressed") not in world.states())
    assert [state for state, _ in world.states()] == ["received", "stale", "received", "stale"]
    assert sorted(world.channel.fetched) == ["0", "2"] and not world.told()
    assert len(world.shown()) == 2


async def test_an_album_counts_as_one_message_of_its_sender(world: World) -> None:
    async with opened(world):
        for _ in range(19):
            await world.say("hi", "chat:2")
        for n in range(5):
            await world.say(f"{n}", "chat:2", album="a")
        assert {reason for _, reason in world.states()} == {None, "album"}
        assert (await world.say("hi", "chat:2")).state == "held"


async def test_what_waited_goes_on_after_a_restart(world: World) -> None:
    async with opened(world):
        await world.say("1", album="a", attachments=(world.file("f", b"x"),))
        await world.shared("2", album="b")
        await world.say("3", at=datetime.now(UTC) - LONG_AGO)
        await world.say("4", attachments=(world.file("g", SendRefused("gone")),))
        world.channel.open = anyio.Event()
    assert world.states()[:3] == [("held", "album"), ("held", "unaddressed"), ("stale", "old")]
    world.channel.open.set()
    async with opened(world):
        await world.intake.recover()
        await world.until(lambda: len(world.woken) == 2 and world.told())
    assert [state for state, _ in world.states()] == ["received", "stale", "stale", "received"]


# ── listening ──


async def listened(world: World, *lines: tuple[str, str]) -> None:
    world.rules = replace(world.rules, listen=True)
    for text, sender in lines:
        assert (await world.shared(text, sender)).state in ("held", "refused")


async def test_what_members_said_in_between_is_read_with_the_next_answer_which_then_acts_for_them(world: World) -> None:
    async with opened(world):
        await listened(world, ("it rains", "chat:2"), ("buy it!", "chat:9"), ("I stay", "chat:1"))
        assert not world.woken and not world.told()
        await world.shared("and now?", "chat:1", addressed=True)
        claim = world.claim()
        assert [(wake["kind"], wake["sender"], wake["parts"][0]["text"]) for wake in claim.wakes] == [
            ("line", "bob", "it rains"),
            ("line", "anna", "I stay"),
            ("message", "anna", "and now?"),
        ]
        assert (claim.authority, claim.taint) == (Role.MEMBER, 0.4)
        await listened(world, ("later", "chat:2"))
        world.end(claim.turn["id"])
        assert world.states()[3:] == [("held", "listening")]  # what comes meanwhile is for the next one


async def test_lines_of_another_chat_are_not_read_and_a_file_in_one_is_not_fetched(world: World) -> None:
    world.rules = replace(world.rules, listen=True)
    async with opened(world):
        await world.shared("elsewhere", "chat:2", chat="-7")
        await world.shared("", "chat:2", attachments=(world.file("f", b"x", "plan.pdf"),))
        await world.shared("go", "chat:2", addressed=True)
    assert world.shown() == [[("attachment", "[a file, which was not fetched]")], [("typed", "go")]]
    assert world.channel.fetched == []


async def test_lines_are_few_and_of_a_day_and_expire_in_silence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST_LINES", 3)
    async with opened(world):
        await listened(world, *((str(n), "chat:2") for n in range(5)))
        assert [state for state, _ in world.states()] == ["stale"] * 2 + ["held"] * 3
        old = "UPDATE inbound SET received = ? WHERE seq = 3"
        world.ledger.tx(lambda tx: tx.execute(old, (datetime.now(UTC) - timedelta(hours=25)).isoformat()))
        await world.shared("go", "chat:2", addressed=True)
        assert world.shown() == [[("typed", "3")], [("typed", "4")], [("typed", "go")]]
        await listened(world, ("6", "chat:2"))
        world.ledger.tx(lambda tx: tx.execute(old.replace("seq = 3", "seq = 7"), NOW.replace("2026", "2020")))
        await world.intake.recover()
    assert world.states()[6] == ("stale", "listening") and not world.told()


async def test_a_turn_for_several_is_never_steered_into_another(world: World) -> None:
    """Else the line of a member would be left alone in the queue, and be answered for itself."""
    async with opened(world):
        await world.shared("work", "chat:1", addressed=True)
        first = world.claim()
        await listened(world, ("no!", "chat:2"))
        receipt = await world.shared("hurry", "chat:1", addressed=True)
        world.end(first.turn["id"])
        second = world.claim()
    assert second.turn["id"] == receipt.turn and [wake["kind"] for wake in second.wakes] == ["line", "message"]


# ── too late ──


async def test_a_chat_is_told_once_how_many_came_too_late(world: World) -> None:
    ago = datetime.now(UTC) - LONG_AGO
    async with opened(world):
        for n in range(3):
            receipt = await world.say(f"old {n}", at=ago + timedelta(minutes=n))
            assert (receipt.state, receipt.turn) == ("stale", None)
        await world.say("/stop", at=ago)
        await world.shared("chatter of yesterday", at=ago)
        await world.say("alone", "chat:2", at=ago)
        await world.say("new")
        await world.until(lambda: len(world.told()) == 2)
        await world.intake.recover()
        await anyio.sleep(0.2)  # that nothing more comes can only be waited for
    assert sorted(text[:10] for text in world.told()) == ["1 message ", "4 messages"]
    assert all("older than 24 h; say it again if it still matters" in text for text in world.told())
    assert [state for state, _ in world.states()] == ["stale"] * 5 + ["received"]
    assert not world.ended


# ── several of these at once ──


async def test_who_spoke_too_often_has_files_fetched_when_it_is_their_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(world):
        for _ in range(20):
            await world.say("hi", "chat:2")
        photo = world.file("f", b"x", "a.jpg")
        receipt = await world.say("see", "chat:2", attachments=(photo,))
        assert (receipt.state, world.channel.fetched) == ("held", [])
        assert world.row(receipt.message)["reason"] == "rate"
    async with opened(world):  # with rates of its own
        await world.intake.recover()
        await world.until(lambda: world.row(receipt.message)["state"] == "received")
    assert world.channel.fetched == ["f"]


async def test_who_spoke_too_often_is_heard_in_their_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "RATE_MESSAGES", 2)
    monkeypatch.setattr(rates, "RATE_WINDOW_S", 0.2)

    async def taken(n: int) -> list[int]:
        with anyio.fail_after(10):
            while len(rows := await world.ledger.do(lambda tx: tx.all("SELECT inbound FROM wake ORDER BY id"))) < n:
                await anyio.sleep(0.005)
        return [row["inbound"] for row in rows]

    async with opened(world):
        for n in range(8):
            await world.say(str(n), "chat:2")
        await taken(4)
        await world.say("8", "chat:2")
        assert await taken(9) == list(range(1, 10))


def test_what_a_group_waits_for_is_no_turns_and_its_release_leaves_it(world: World) -> None:
    """The group's sandbox is held and released: that is about turns."""
    seq = world.desk.accept("hi", held=held.FETCHING).seq

    world.ledger.tx(lambda tx: ends.release(tx, "main"))
    assert world.states() == [("held", "fetching")]
    assert world.ledger.tx(lambda tx: inbound.release(tx, [seq], NOW)) is not None
    assert world.ledger.tx(lambda tx: inbound.release(tx, [seq], NOW)) is None
