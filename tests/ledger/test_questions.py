"""Questions of an agent: who answers them with what, what comes back and for whom it acts, and how else they end."""

import json
from datetime import timedelta
from typing import Any

import pytest

from clawd.channel import ChannelLimits
from clawd.clock import moment_of
from clawd.ledger import ends, groups, inbound, questions, turns
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk
from tests.ledger.test_forget import pass_days, send, whole

MOMENT = moment_of(NOW)
assert MOMENT is not None
COLOURS = ["Red", "light  blue", "20"]


def ask(
    desk: Desk, choices: list[str] = COLOURS, *, role: Role = Role.OWNER, taint: float = 1.0, hours: float = 24
) -> int:
    """A turn asks; gives it, live."""
    desk.accept("paint", role=role)
    desk.run("r")
    claimed = desk.ledger.tx(lambda tx: turns.claim(tx, "r", "main", 0, NOW))
    assert claimed is not None
    turn: int = claimed.turn["id"]
    desk.ledger.tx(lambda tx: turns.fall(tx, "r", taint))
    put(desk, turn, choices, hours)
    return turn


def put(desk: Desk, turn: int, choices: list[str] = COLOURS, hours: float = 24) -> int:
    assert MOMENT is not None
    expires = MOMENT + timedelta(hours=hours)
    return desk.ledger.tx(lambda tx: questions.ask(tx, turn, 'Which "colour"?', choices, "the door", expires))[1]


def wake_of(desk: Desk, turn: int | None) -> dict[str, Any]:
    [wake] = desk.ledger.tx(lambda tx: turns.wakes(tx, turn or 0))
    return wake


def states(desk: Desk) -> list[str]:
    return [row["state"] for row in desk.ledger.tx(lambda tx: tx.all("SELECT state FROM question ORDER BY id"))]


@pytest.mark.parametrize(
    ("said", "choices", "choice"),
    [
        ("2", COLOURS, 1),
        (" #2. ", COLOURS, 1),
        ("(3)", COLOURS, 2),
        ("LIGHT blue", COLOURS, 1),
        ("red", COLOURS, 0),
        ("20", COLOURS, 2),  # its words come before a number
        ("02", COLOURS, 1),
        ("0", COLOURS, None),
        ("4", COLOURS, None),
        ("999999999", COLOURS, None),
        ("red please", COLOURS, None),
        ("1 2", COLOURS, None),
        ("", COLOURS, None),
        ("anything", [], None),
    ],
)
def test_what_is_a_choice(said: str, choices: list[str], choice: int | None) -> None:
    assert questions.chosen(choices, said) == choice


def test_an_answer_brings_the_question_back_and_is_answered_itself(desk: Desk) -> None:
    ask(desk)
    accepted = desk.accept("light BLUE")
    wake = wake_of(desk, accepted.turn)
    assert (wake["kind"], wake["role"], wake["sender"]) == ("answer", "owner", "owner")
    told, typed = wake["parts"]
    assert (told["origin"], typed["kind"], typed["origin"], typed["text"]) == ("system", "typed", "owner", "light BLUE")
    assert told["text"] == (
        'You asked: "Which \\"colour\\"?". The choices were "Red", "light  blue", "20". Your note: "the door".'
        ' The answer is choice 2, "light  blue".'
    )
    assert states(desk) == ["answered"] and desk.state("inbound", accepted.seq) == "received"
    assert wake_of(desk, desk.accept("2").turn)["kind"] == "message"  # it was answered


def test_any_text_answers_an_open_question_and_a_command_does_not(desk: Desk) -> None:
    ask(desk, [])
    desk.accept("/status", kind="command")
    assert states(desk) == ["open"]
    assert wake_of(desk, desk.accept("mauve, I think").turn)["parts"][0]["text"].endswith("What follows is the answer.")


@pytest.mark.parametrize(
    ("asker", "answerer", "answers"),
    [
        (Role.OWNER, Role.OWNER, True),
        (Role.OWNER, Role.ADMIN, False),
        (Role.OWNER, Role.MEMBER, False),
        (Role.ADMIN, Role.MEMBER, False),
        (Role.MEMBER, Role.MEMBER, True),
        (Role.MEMBER, Role.OWNER, True),
    ],
)
def test_who_answers_and_for_whom_that_acts(desk: Desk, asker: Role, answerer: Role, answers: bool) -> None:
    ask(desk, role=asker, taint=0.3)
    accepted = desk.accept("1", role=answerer)
    wake = wake_of(desk, accepted.turn)
    assert wake["kind"] == ("answer" if answers else "message")
    assert states(desk) == ["answered" if answers else "open"]
    row = desk.ledger.tx(lambda tx: turns.get(tx, accepted.turn or 0))
    # The owner's "1" lends a member's turn nothing, and cleans nothing that it had read.
    assert row["authority"] == wake["role"] == (asker if answers else answerer)
    assert (row["taint"] == 0.3) is answers


def test_only_its_own_conversation_answers_and_a_held_message_does_when_it_is_taken(desk: Desk) -> None:
    ask(desk)
    desk.accept("2", session="terminal:other")
    assert states(desk) == ["open"]
    held = desk.accept("2", held="rate")
    assert states(desk) == ["open"]
    released = desk.ledger.tx(lambda tx: inbound.release(tx, [held.seq], NOW))
    assert released is not None and wake_of(desk, released.turn)["kind"] == "answer"


def test_a_session_has_one_open_question_and_a_conversation_can_withdraw_it(desk: Desk) -> None:
    turn = ask(desk)
    assert put(desk, turn) == 1
    assert states(desk) == ["withdrawn", "open"]
    segment = desk.ledger.tx(lambda tx: groups.next_segment(tx, "terminal:main", NOW))
    assert desk.ledger.tx(lambda tx: questions.withdraw(tx, segment.id)) == 1
    assert desk.ledger.tx(lambda tx: questions.withdraw(tx, segment.id)) == 0
    assert wake_of(desk, desk.accept("2").turn)["kind"] == "message"


def test_one_that_nobody_answers_becomes_a_turn_of_its_own_authority(desk: Desk) -> None:
    asking = ask(desk, role=Role.MEMBER, taint=0.3)
    assert MOMENT is not None
    early, late = MOMENT + timedelta(hours=23.9), MOMENT + timedelta(hours=24)
    assert desk.ledger.tx(lambda tx: questions.expire(tx, early)) == ([], late)
    assert desk.ledger.tx(lambda tx: questions.expire(tx, late)) == (["main"], None)
    assert desk.ledger.tx(lambda tx: questions.expire(tx, late)) == ([], None)
    row = desk.ledger.tx(lambda tx: turns.get(tx, asking + 1))
    assert (row["state"], row["authority"], row["taint"], row["session"]) == ("queued", "member", 0.3, "terminal:main")
    wake = wake_of(desk, row["id"])
    assert (wake["kind"], wake["role"]) == ("answer", "member")
    assert [part["origin"] for part in wake["parts"]] == ["system"]
    assert wake["parts"][0]["text"].endswith("Nobody answered it in time.")
    assert states(desk) == ["expired"]
    desk.ledger.tx(lambda tx: ends.requeue(tx, asking, NOW))
    desk.ledger.tx(lambda tx: ends.stop_waiting(tx, "terminal:main", NOW))
    assert desk.ledger.tx(lambda tx: ends.hold(tx, "main", "why", NOW, limits=ChannelLimits())) == []


def test_a_turn_without_a_message_fails_with_nothing_to_retry(desk: Desk) -> None:
    asking = ask(desk)
    assert MOMENT is not None
    over = MOMENT + timedelta(days=2)
    desk.ledger.tx(lambda tx: questions.expire(tx, over))
    desk.ledger.tx(lambda tx: ends.stopped(tx, asking, NOW))
    desk.ledger.tx(lambda tx: ends.recorded(tx, asking, NOW))
    claimed = desk.ledger.tx(lambda tx: turns.claim(tx, "r", "main", 0, NOW))
    assert claimed is not None and claimed.turn["id"] == asking + 1
    desk.ledger.tx(lambda tx: ends.fault(tx, asking + 1, "it broke", NOW, limits=ChannelLimits(), final=True))
    [said] = desk.ledger.tx(lambda tx: tx.all("SELECT text FROM delivery"))
    assert said["text"] == "That did not work: it broke."


def test_a_failed_answer_is_tried_again_with_what_it_answered(desk: Desk) -> None:
    asking = ask(desk)
    accepted = desk.accept("1")
    desk.ledger.tx(lambda tx: ends.stopped(tx, asking, NOW))
    desk.ledger.tx(lambda tx: ends.recorded(tx, asking, NOW))
    assert desk.ledger.tx(lambda tx: turns.claim(tx, "r", "main", 0, NOW)) is not None
    before = wake_of(desk, accepted.turn)
    desk.ledger.tx(lambda tx: ends.fault(tx, accepted.turn or 0, "it broke", NOW, limits=ChannelLimits(), final=True))
    again = desk.ledger.tx(lambda tx: ends.retry(tx, accepted.seq, NOW))
    assert {**wake_of(desk, again), "id": 0} == {**before, "id": 0, "recorded": True}


def test_the_target_of_a_reaction(desk: Desk) -> None:
    turn = ask(desk)
    other = desk.accept("other", id="p-other")
    far = desk.accept("far", session="terminal:far", id="p-far")

    def target(message: int | None) -> str | None:
        wake = wake_of(desk, message)["id"] if message else 0
        return desk.ledger.tx(lambda tx: inbound.target(tx, turn, wake))

    assert [target(None), target(turn), target(other.turn), target(far.turn)] == ["p1", "p1", "p-other", None]


def test_its_text_is_forgotten_with_the_turns_once_it_is_over(desk: Desk) -> None:
    asking = ask(desk, ["CANARY red", "CANARY blue"], hours=720)

    def end(turn: int) -> None:
        desk.ledger.tx(lambda tx: ends.stopped(tx, turn, NOW))
        desk.ledger.tx(lambda tx: ends.recorded(tx, turn, NOW))

    end(asking)
    pass_days(desk.ledger, 8)
    assert "CANARY red" in whole(desk.ledger)  # somebody may still answer it
    accepted = desk.accept("1")
    assert "CANARY red" in json.dumps(wake_of(desk, accepted.turn))
    desk.run("r2")
    assert desk.ledger.tx(lambda tx: turns.claim(tx, "r2", "main", 0, NOW)) is not None
    end(accepted.turn or 0)
    desk.ledger.tx(send)
    pass_days(desk.ledger, 8)
    assert "CANARY" not in whole(desk.ledger)
    pass_days(desk.ledger, 31)
    assert desk.ledger.tx(lambda tx: tx.all("SELECT id FROM question UNION SELECT id FROM wake")) == []
