"""What a platform does: it sends twice, moves chats, holds presses of buttons, and must never be read in a circle."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from clawd.errors import DiskFull, StorageError
from clawd.intake import Done, Rules
from clawd.ledger import changes, chats, deliveries, questions
from clawd.ledger.db import Row, Transaction
from clawd.model import Receipt, Said
from tests.intake.conftest import LONG_AGO, SHARED, World, opened
from tests.ledger.conftest import NOW

pytestmark = pytest.mark.anyio


async def take(world: World, *cursors: str, **more: Any) -> list[Receipt]:
    """The same message, once for each cursor."""
    incoming = world.incoming(**more)
    return [await world.intake.receive(incoming, cursor) for cursor in cursors]


def cursor(world: World) -> str | None:
    return world.ledger.tx(lambda tx: chats.cursor(tx, "chat"))


def sent(world: World, id: str, chat: str, *buttons: str, turn: int | None = None) -> None:
    """A message of ours that its platform calls `id`."""

    def put(tx: Transaction) -> None:
        tx.insert(
            "delivery", session="chat:1", channel="chat", account="", chat=chat, thread="", n=0, kind="text",
            text="ours", nonce=f"n{chat}{id}", state="sent", platform_id=id, made=NOW, turn=turn,
            buttons=json.dumps([["label", value] for value in buttons]),
        )  # fmt: skip

    world.ledger.tx(put)


@pytest.mark.parametrize(
    ("what", "state"),
    [
        ({"text": "hi"}, "received"),
        ({"text": "/help"}, "received"),
        ({"text": "hi", "sender": "chat:9"}, "refused"),
        ({"text": "hi", "sender": "chat:9", "kind": "button", "value": "approve:1"}, "refused"),
        ({"text": "chatter", "sender": "chat:2", "direct": False}, "ignored"),
        ({"text": ""}, "refused"),
        ({"text": "x" * 300_000}, "refused"),
        ({"text": "y", "kind": "edit", "rev": 1}, "ignored"),
        ({"kind": "delete"}, "ignored"),
        ({"kind": "button", "value": "approve:1", "target": "5"}, "ignored"),
        ({"kind": "button", "value": "", "target": None}, "ignored"),
        ({"text": "old", "at": datetime.now(UTC) - LONG_AGO}, "stale"),
    ],
)
async def test_whatever_comes_its_cursor_is_kept_and_the_same_again_is_one(
    world: World, what: dict[str, Any], state: str
) -> None:
    async with opened(world):
        first, again = await take(world, "5", "6", **what)
    assert (first.state, cursor(world)) == (state, "6")
    assert again.message == first.message and not (first.message and again.fresh)
    assert len(world.rows("SELECT 1 FROM inbound")) == (1 if first.message else 0)


async def test_a_defect_of_ours_stops_no_poll_loop_and_is_told(world: World) -> None:
    async with opened(world):
        world.rules = None  # type: ignore[assignment]
        await take(world, "7", text="hi")
    assert cursor(world) == "7" and "by a defect of clawd" in world.told()[0] and world.delivered


async def test_nor_does_one_of_the_doors(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(world):
        monkeypatch.setattr(world, "admit", None)
        (receipt,) = await take(world, "8", text="hi")
    assert cursor(world) == "8" and "by a defect of clawd" in str(receipt.told) and world.states() == []


@pytest.mark.parametrize("sender", ["chat:1", "chat:9"])
async def test_no_name_or_id_holds_up_what_comes_behind_it(world: World, sender: str) -> None:
    odd: Any = {"name": "\ud83d", "title": "\ud83d\n", "thread": 5, "reply_to": "\ud83d", "album": [1]}
    async with opened(world):
        await take(world, "7", text="hi", sender=sender, **odd)
        await take(world, "8", text="hi", sender="chat:1", direct=False, addressed=True, chat="\ud83d", title="\ud83d")
    assert cursor(world) == "8" and len(world.states()) == (2 if sender == "chat:1" else 1)
    assert all(name == name.encode("utf-8", "replace").decode() for name in world.met)


async def test_on_a_full_disk_nothing_is_acknowledged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.ledger, "lay_ballast", lambda: False)
    async with opened(world):
        for more in ({"text": "hi"}, {"text": "hi", "kind": "edit"}, {"kind": "button"}):
            with pytest.raises(DiskFull):
                await take(world, "1", **more)
        world.intake.closed = True
        with pytest.raises(StorageError):
            await take(world, "1", text="hi")
    assert cursor(world) is None and world.states() == []


async def test_who_floods_us_with_what_cannot_be_is_told_no_more(world: World) -> None:
    async with opened(world):
        for _ in range(25):
            await world.say("", "chat:2")
    assert len(world.told()) == 20


async def test_a_message_is_one_in_whatever_thread_it_comes(world: World) -> None:
    async with opened(world):
        first = await world.shared("hi", id="7", addressed=True, thread="7")
        again = await world.shared("hi", id="7", addressed=True)
    assert again.message == first.message and not again.fresh


async def test_a_row_tells_whatever_its_platform_told(world: World) -> None:
    async with opened(world):
        receipt = await world.shared(
            "hi",
            addressed=True,
            reply_to="3",
            thread="t",
            title="Friends",
            name="B.",
            said=(Said("quoted", "x", "eve"),),
        )
    row = world.row(receipt.message)
    assert (row["name"], row["direct"], row["reply_to"], row["thread"]) == ("bob", 0, "3", "t")
    assert [tuple(each)[:6] for each in world.rows("SELECT * FROM chat")] == [("chat", "", SHARED, 0, "Friends", None)]
    assert world.rows("SELECT others FROM grp")[0]["others"] == 1
    [wake] = world.claim().wakes
    assert (wake["sender"], wake["role"]) == ("bob", "member")  # as people.toml calls them, not as they do
    assert world.rows("SELECT taint FROM turn")[0]["taint"] == 0.2  # by what was quoted


@pytest.mark.parametrize(("reply_to", "origin", "trust"), [("7", "agent", 0.7), ("8", "external", 0.2)])
async def test_a_quote_of_our_own_message_is_an_agents_word(
    world: World, reply_to: str, origin: str, trust: float
) -> None:
    sent(world, "7", "chat:1")
    sent(world, "8", "chat:2")
    async with opened(world):
        await world.say("what?", reply_to=reply_to, said=(Said("quoted", "ours"),))
    claim = world.claim()
    assert claim.wakes[0]["parts"][1]["origin"] == origin and claim.taint == trust


async def test_a_chat_that_moved_stays_the_one_that_it_was(world: World) -> None:
    world.ledger.tx(lambda tx: chats.move(tx, "chat", "", SHARED, "-200"))
    async with opened(world):
        first = await world.shared("hi", id="1", addressed=True)
        again = await world.shared("hi", id="1", addressed=True, chat="-200")
        other = await world.shared("ho", id="2", addressed=True, chat="-200")
    assert again.message == first.message and world.row(other.message)["chat"] == SHARED


@pytest.mark.parametrize("channel", ["chat", "terminal"])
async def test_a_command_is_answered_where_it_was_asked(world: World, channel: str) -> None:
    async with opened(world):
        incoming = world.incoming("/status@clawd_bot", "chat:2", direct=False, addressed=True, thread="t5")
        if channel == "terminal":
            incoming = replace(incoming, channel=channel, sender="member:bob", direct=True)
        await world.intake.receive(incoming)
    [row] = world.rows("SELECT * FROM delivery")
    assert (row["thread"], row["kind"]) == ("t5", "notice")
    assert row["reply_to"] == (incoming.platform_id if channel == "chat" else None)


# ── buttons ──


def pressed(world: World) -> list[tuple[str, str]]:
    done: list[tuple[str, str]] = []

    def press(tx: Transaction, row: Row, now: str) -> Done | None:
        if row["role"] != "owner":
            return None
        return Done("Done.", lambda: done.append((row["value"], row["sender"])))

    world.presses = {"approve": press}
    return done


async def test_a_button_does_once_what_it_says_and_says_so(world: World) -> None:
    done = pressed(world)
    sent(world, "50", "chat:1", "approve:1:s", "deny:1:s")
    async with opened(world):
        first, again = await take(world, "1", "2", kind="button", value="approve:1:s", target="50")
    assert done == [("approve:1:s", "chat:1")] and world.told()[1:] == ["Done."]
    assert (first.state, first.fresh, again.fresh, cursor(world)) == ("answered", True, False, "2")


@pytest.mark.parametrize(
    "forged",
    [
        {"value": "approve:2:s"},  # is on none of our messages
        {"target": "51"},  # is not on that one
        {"target": "52"},  # which nobody sent
        {"target": None},
        {"sender": "chat:2", "chat": "chat:1"},  # not theirs
        {"sender": "chat:9", "chat": "chat:1"},  # a stranger's
        {"chat": SHARED},
        {"value": "deny:1:s"},  # nobody is there for it
        {"kind": "message", "text": "approve:1:s"},
    ],
)
async def test_a_forged_press_does_nothing_and_leaves_nothing(world: World, forged: dict[str, Any]) -> None:
    done = pressed(world)
    sent(world, "50", "chat:1", "approve:1:s", "deny:1:s")
    sent(world, "51", "chat:1")
    async with opened(world):
        await take(world, "1", **{"kind": "button", "value": "approve:1:s", "target": "50", **forged})
    assert done == [] and cursor(world) == "1"
    assert not world.rows("SELECT 1 FROM inbound WHERE kind = 'button'")


def ask(world: World, chat: str = "chat:1") -> int:
    """A turn's question with choices, which was sent as message 60. Gives its id."""
    turn = world.claim().turn["id"]
    expires = datetime.now(UTC) + LONG_AGO
    id = world.ledger.tx(lambda tx: questions.ask(tx, turn, "Which?", ["red", "blue"], "the door", expires))[0]
    sent(world, "60", chat, f"answer:{id}:1", f"answer:{id}:2", turn=turn)
    world.ledger.tx(
        lambda tx: tx.execute("UPDATE turn SET state = 'answered', recorded_at = ? WHERE id = ?", NOW, turn)
    )
    return id


async def test_a_choice_that_is_pressed_answers_as_if_it_were_typed(world: World) -> None:
    async with opened(world):
        await world.say("paint the door")
        id = ask(world)
        receipt = await world.say(kind="button", value=f"answer:{id}:2", target="60")
        late = await world.say(kind="button", value=f"answer:{id}:1", target="60")
    assert receipt.turn is not None and late.turn is None
    assert world.told()[1:] == ["That question is answered already."]
    [wake] = world.claim().wakes
    assert wake["kind"] == "answer" and wake["parts"][-1]["text"] == "blue" and wake["parts"][-1]["origin"] == "owner"


async def test_a_choice_is_for_those_with_the_right_to_answer(world: World) -> None:
    async with opened(world):
        await world.say("paint the door", direct=False, addressed=True)
        id = ask(world, SHARED)
        refused = await world.shared(kind="button", value=f"answer:{id}:1", target="60", text="")
        typed = await world.shared("2")  # no answer, and not for us
        owner = await world.say("2", direct=False)  # for us, though nobody mentioned us
    assert (refused.turn, typed.state) == (None, "ignored") and "more rights" in world.told()[1]
    assert owner.turn is not None and world.claim().wakes[0]["kind"] == "answer"


async def test_notices_wait_for_no_message(world: World) -> None:
    """What is told beside a message says nothing about its own end."""
    async with opened(world):
        for _ in range(21):
            last = await world.say("hi", "chat:2")
    [told] = world.rows("SELECT * FROM delivery")
    assert "more than 20 messages a minute" in told["text"]
    world.ledger.tx(lambda tx: deliveries.take(tx, "chat", "", "chat:2"))
    world.ledger.tx(lambda tx: deliveries.decide(tx, told["id"], "arrive", platform_id="9"))
    assert (last.told, world.row(last.message)["state"]) == (None, "held")


async def test_a_message_costs_no_more_in_a_chat_of_many(world: World) -> None:
    """In steps of SQLite's machine, so of no clock."""
    steps = [0]

    def step() -> None:
        steps[0] += 1

    async def cost(id: str) -> int:
        steps[0] = 0
        world.rules = Rules("mention", "clawd", listen=True)
        await world.shared("by the way", id=f"line{id}")
        await world.shared("hi", id=id, addressed=True)
        await world.shared("ho", id=id, kind="edit", rev=1)
        await world.shared("", id=id, kind="delete")
        world.ledger.tx(changes.to_note)
        return steps[0]

    async with opened(world):
        await world.shared("hi", id="first", addressed=True)
        world.end(world.claim().turn["id"])
        world.rows("UPDATE inbound SET state = 'recorded'")
        world.ledger._connection.set_progress_handler(step, 1)
        few = await cost("few")
        names = [row["name"] for row in world.rows("SELECT name FROM pragma_table_info('inbound')")]
        taken = ", ".join({"seq": "NULL", "platform_id": "'old' || n"}.get(name, f'"{name}"') for name in names)
        number = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000)"
        world.rows(f"INSERT INTO inbound {number} SELECT {taken} FROM inbound, n WHERE platform_id = 'first'")
        many = await cost("many")
        world.ledger._connection.set_progress_handler(None, 0)
    assert many < 2 * few
