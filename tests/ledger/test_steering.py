"""What is said to a turn at work: whose word enters it, when it becomes its own, what becomes of the rest; and jobs."""

import json
from typing import Any

import pytest

from clawd.channel import ChannelLimits
from clawd.errors import UsageError
from clawd.ledger import deliveries, effects, ends, groups, held, inbound, jobs, queries, steering, turns
from clawd.ledger.db import Row, Transaction
from clawd.ledger.inbound import Accepted
from clawd.model import Authority, Lease
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk
from tests.ledger.test_turns import answer, claim, fault, must_claim, record

STEP = {"role": "assistant", "content": "", "tool_calls": []}


def turn(desk: Desk, id: int) -> Row:
    return desk.ledger.tx(lambda tx: turns.get(tx, id))


def followups(desk: Desk, lease: Lease) -> list[int]:
    """The messages that the live turn may be told of."""

    def work(tx: Transaction) -> list[int]:
        found = steering.followups(tx, turns.get(tx, lease.turn))
        return [tx.one("SELECT inbound FROM wake WHERE id = ?", wake["id"])["inbound"] for wake in found]  # type: ignore[index]

    return desk.ledger.tx(work)


def wake(desk: Desk, message: Accepted) -> int:
    """The newest wake of a message."""
    row = desk.ledger.tx(lambda tx: tx.one("SELECT MAX(id) AS id FROM wake WHERE inbound = ?", message.seq))
    assert row is not None
    return int(row["id"])


def step(desk: Desk, lease: Lease, n: int, *shown: Accepted) -> list[int]:
    """A step after which the model has been shown these messages; gives the turns that went up in this one."""
    ids = [wake(desk, each) for each in shown]

    def work(tx: Transaction) -> list[int]:
        turns.add_step(tx, lease, n, STEP, ids)
        return steering.join(tx, lease.turn, n, ids, NOW)

    return desk.ledger.tx(work)


def joined(desk: Desk, lease: Lease) -> list[tuple[int, int]]:
    """(message, step) of each wake of a turn, in the order in which it was shown them."""
    rows = desk.ledger.tx(lambda tx: tx.all(f"{turns.WAKES} WHERE tw.turn = ? ORDER BY tw.joined, w.id", lease.turn))
    return [(row["inbound"], row["joined"]) for row in rows]


def test_what_was_overheard_goes_along_with_the_message_that_it_came_with(desk: Desk) -> None:
    desk.run("r1")
    desk.accept("go")
    lease = must_claim(desk)
    desk.accept("by the way", held=held.LISTENING)
    second = desk.accept("and this")
    assert step(desk, lease, 0, second) == [second.turn], "no turn is left that has a line alone"
    assert len(joined(desk, lease)) == 3
    answer(desk, lease)
    record(desk, lease.turn)
    assert {row["state"] for row in desk.ledger.tx(lambda tx: tx.all("SELECT state FROM wake"))} == {"closed"}


def test_a_follow_up_is_the_turns_own_once_the_model_was_shown_it_and_not_before(desk: Desk) -> None:
    first = desk.accept("go")
    desk.run("r1")
    lease = must_claim(desk)
    second, third = desk.accept("and that"), desk.accept("and this")
    assert followups(desk, lease) == [second.seq, third.seq]
    assert desk.state("turn", second.turn or 0) == "queued"  # it was handed out, no more
    assert step(desk, lease, 0, first) == []
    assert step(desk, lease, 1, first, second) == [second.turn]
    assert step(desk, lease, 1, first, second) == []  # a lost response: the same step again
    assert followups(desk, lease) == [third.seq]
    assert [desk.state("turn", each.turn or 0) for each in (second, third)] == ["joined", "queued"]
    assert desk.state("inbound", second.seq) == "claimed" and joined(desk, lease) == [(first.seq, 0), (second.seq, 1)]
    ended = answer(desk, lease, "both", shown=[wake(desk, first), wake(desk, second)])
    assert len(ended.deliveries) == 1
    assert [desk.state("inbound", each.seq) for each in (first, second, third)] == ["answered", "answered", "received"]
    shown = desk.ledger.tx(lambda tx: queries.message(tx, second.seq))
    assert (shown["turn"], shown["reply"]) == (lease.turn, "both")
    record(desk, lease.turn)
    assert must_claim(desk).turn == third.turn


def test_a_final_takes_in_what_it_was_shown_last(desk: Desk) -> None:
    first = desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    step(desk, lease, 0, first)
    second = desk.accept(role=Role.OWNER)
    answer(desk, lease, shown=[wake(desk, first), wake(desk, second)])
    assert joined(desk, lease) == [(first.seq, 0), (second.seq, 1)]
    assert desk.state("inbound", second.seq) == "answered" and desk.state("turn", second.turn or 0) == "joined"


def _choose(tx: Transaction, turn: int) -> None:
    tx.execute('UPDATE turn SET choice = \'{"model": "other"}\' WHERE id = ?', turn)


def _elsewhere(tx: Transaction, turn: int) -> None:
    tx.execute("UPDATE turn SET chat = 'another' WHERE id = ?", turn)


def _beside(tx: Transaction, turn: int) -> None:
    tx.execute("UPDATE turn SET thread = 'another' WHERE id = ?", turn)


def _clock(tx: Transaction, turn: int) -> None:
    tx.execute("UPDATE wake SET kind = 'schedule' WHERE id IN (SELECT wake FROM turn_wake WHERE turn = ?)", turn)


def _again(tx: Transaction, turn: int) -> None:
    tx.execute("UPDATE turn SET retry_of = 1 WHERE id = ?", turn)


def _hold(tx: Transaction, turn: int) -> None:
    tx.move("turn", turn, "hold")


def _stop(tx: Transaction, turn: int) -> None:
    ends.stopped(tx, turn, NOW)


def _end(tx: Transaction, turn: int) -> None:
    tx.execute("UPDATE turn SET stop_requested = 1 WHERE id = 1")


@pytest.mark.parametrize("change", [_choose, _elsewhere, _beside, _clock, _again, _hold, _stop, _end])
def test_what_is_no_word_to_this_turn_waits_for_its_own_whatever_a_step_says(desk: Desk, change: Any) -> None:
    """Another engine was asked for, its answer goes elsewhere, no person said it, it has steps of its own, it cannot go
    on, or this one is to stop."""
    desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    second = desk.accept()
    assert followups(desk, lease) == [second.seq]
    desk.ledger.tx(lambda tx: change(tx, second.turn))
    before = desk.state("turn", second.turn or 0), desk.state("inbound", second.seq)
    assert followups(desk, lease) == [] == step(desk, lease, 0, second)
    assert (desk.state("turn", second.turn or 0), desk.state("inbound", second.seq)) == before


@pytest.mark.parametrize("live", [Role.OWNER, Role.ADMIN, Role.MEMBER])
@pytest.mark.parametrize("said", [Role.OWNER, Role.ADMIN, Role.MEMBER])
def test_only_the_same_role_is_taken_in_and_none_keeps_another_out(desk: Desk, live: Role, said: Role) -> None:
    desk.accept(role=live)
    desk.run("r1")
    lease = must_claim(desk)
    other, same = desk.accept(role=said), desk.accept(role=live)
    assert followups(desk, lease) == ([other.seq, same.seq] if said == live else [same.seq])
    assert step(desk, lease, 0, other) == ([other.turn] if said == live else [])
    assert turn(desk, lease.turn)["authority"] == live


def test_the_owners_word_enters_a_turn_whose_work_tree_has_fallen(desk: Desk) -> None:
    """Whose word it is counts, not what the turn may still do."""
    desk.accept()
    desk.run("r1")
    desk.ledger.tx(lambda tx: groups.fall(tx, "main", Role.MEMBER, 0.4))
    lease = must_claim(desk)
    assert turn(desk, lease.turn)["authority"] == "member"
    owner, member = desk.accept(), desk.accept(role=Role.MEMBER)
    assert followups(desk, lease) == [owner.seq] and step(desk, lease, 0, owner, member) == [owner.turn]


def test_taint_falls_with_what_joins_onto_the_turn_its_neighbours_and_the_tree(desk: Desk) -> None:
    desk.accept(session="a")
    desk.accept(session="b")
    desk.run("r1")
    lease, beside = must_claim(desk), must_claim(desk, worker=1)
    second = desk.accept(session="a")
    desk.ledger.tx(lambda tx: tx.execute("UPDATE wake SET trust = 0.2 WHERE inbound = ?", second.seq))
    step(desk, lease, 0, second)
    assert [turn(desk, each.turn)["taint"] for each in (lease, beside)] == [0.2, 0.2]
    answer(desk, lease)
    assert desk.ledger.tx(lambda tx: groups.get(tx, "main")).authority.taint == 0.2


def test_what_was_said_to_a_turn_that_joins_goes_on_with_the_live_one(desk: Desk) -> None:
    desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    second = desk.accept()
    desk.ledger.tx(lambda tx: ends.hold(tx, "main", "no sandbox", NOW, limits=ChannelLimits()))
    desk.ledger.tx(lambda tx: ends.release(tx, "main"))
    step(desk, lease, 0, second)
    answer(desk, lease)
    rows = desk.ledger.tx(lambda tx: tx.all("SELECT turn, n, text FROM delivery ORDER BY id"))
    assert [(row["turn"], row["n"]) for row in rows] == [(lease.turn, 0), (lease.turn, 1)]
    assert rows[0]["text"].startswith("Your message is kept")
    record(desk, lease.turn)
    assert desk.state("inbound", second.seq) == "answered"  # the notice is part of what it was told
    desk.ledger.tx(lambda tx: [(tx.move("delivery", n, "send"), deliveries.decide(tx, n, "arrive")) for n in (1, 2)])
    assert desk.state("inbound", second.seq) == "recorded"


@pytest.mark.parametrize("how", ["requeue", "fault"])
def test_another_attempt_has_what_joined_the_first_at_the_same_step(desk: Desk, how: str) -> None:
    first = desk.accept("one")
    desk.run("r1")
    lease = must_claim(desk)
    step(desk, lease, 0, first)
    second = desk.accept("two")
    step(desk, lease, 1, first, second)
    if how == "fault":
        fault(desk, lease.turn)
    else:
        desk.ledger.tx(lambda tx: ends.requeue(tx, lease.turn, NOW))
    assert [desk.state("inbound", each.seq) for each in (first, second)] == ["received", "received"]
    desk.run("r2")
    again = desk.ledger.tx(lambda tx: turns.claim(tx, "r2", "main", 0, NOW))
    assert again is not None and len(again.steps) == 2
    assert [(each["parts"][0]["text"], each["joined"]) for each in again.wakes] == [("one", 0), ("two", 1)]
    assert [desk.state("inbound", each.seq) for each in (first, second)] == ["claimed", "claimed"]


@pytest.mark.parametrize("how", ["failed", "stopped"])
def test_a_follow_up_ends_as_its_new_turn_does(desk: Desk, how: str) -> None:
    first = desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    second = desk.accept()
    step(desk, lease, 0, first, second)
    if how == "failed":
        fault(desk, lease.turn, final=True)
    else:
        desk.ledger.tx(lambda tx: ends.request_stop(tx, "terminal:main"))
        desk.ledger.tx(lambda tx: ends.stopped(tx, lease.turn, NOW))
    assert [desk.state("inbound", each.seq) for each in (first, second)] == [how, how]
    record(desk, lease.turn)
    if how == "failed":
        again = desk.ledger.tx(lambda tx: ends.retry(tx, second.seq, NOW))  # whichever of them is named
        offer = desk.ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
        assert offer is not None and offer.turn["id"] == again
        assert [(each["joined"], each["recorded"]) for each in offer.wakes] == [(0, True), (0, True)]
        late = desk.accept()
        assert step(desk, Lease("r1", again, offer.attempt, 0), 1, late) == [late.turn]
        answer(desk, Lease("r1", again, offer.attempt, 0))
        assert {desk.state("inbound", each.seq) for each in (first, second, late)} == {"answered"}


def test_a_stop_keeps_what_waits_also_when_the_model_was_just_shown_it(desk: Desk) -> None:
    first = desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    second = desk.accept()
    desk.ledger.tx(lambda tx: ends.request_stop(tx, "terminal:main"))
    assert step(desk, lease, 0, first, second) == []
    answer(desk, lease, shown=[wake(desk, first), wake(desk, second)])
    assert [desk.state("inbound", each.seq) for each in (first, second)] == ["stopped", "received"]


@pytest.mark.parametrize(("by", "told"), [("1", ["2"]), ("2", ["1"]), ("3", ["1", "2"])])
def test_a_stop_is_told_in_every_other_chat_that_it_ends_something_of(desk: Desk, by: str, told: list[str]) -> None:
    desk.accept(thread="1")
    desk.accept(thread="2")
    desk.run("r1")
    lease, here = must_claim(desk), deliveries.Address("terminal", "", "main", by)
    desk.ledger.tx(lambda tx: ends.request_stop(tx, "terminal:main", by=here))
    desk.ledger.tx(lambda tx: ends.stop_waiting(tx, "terminal:main", NOW, by=here))
    desk.ledger.tx(lambda tx: ends.stopped(tx, lease.turn, NOW))
    rows = desk.ledger.tx(lambda tx: tx.all("SELECT thread, text FROM delivery ORDER BY thread"))
    assert [tuple(row) for row in rows] == [(each, "Stopped from another chat.") for each in told]


def test_a_final_that_fails_leaves_what_no_step_named_to_its_own_turn(desk: Desk) -> None:
    desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    second = desk.accept()
    fault(desk, lease.turn, final=True)
    record(desk, lease.turn)
    assert must_claim(desk).turn == second.turn


def test_what_an_answer_was_not_shown_waits_again_in_its_order(desk: Desk) -> None:
    """Fifty wait, so that further ones are merged into one turn; its model was shown the first of them alone."""
    merged = [desk.accept(str(n)) for n in range(53)][49:]
    desk.run("r1")
    for _ in range(49):
        lease = must_claim(desk)
        answer(desk, lease)
        record(desk, lease.turn)
    lease = must_claim(desk)
    later = desk.accept("later")
    step(desk, lease, 0, merged[1])  # a step said so, the final forgets it
    answer(desk, lease, shown=[wake(desk, merged[0])])
    assert [desk.state("inbound", each.seq) for each in merged] == ["answered", "answered", "received", "received"]
    record(desk, lease.turn)
    assert must_claim(desk).turn == later.turn
    answer(desk, Lease("r1", later.turn or 0, 1, 0))
    record(desk, later.turn or 0)
    again = desk.ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
    assert again is not None and [each["parts"][0]["text"] for each in again.wakes] == ["51", "52"]
    assert turn(desk, again.turn["id"])["ordinal"] == 51 and again.turn["channel"] == "terminal"
    answer(desk, Lease("r1", again.turn["id"], again.attempt, 0))
    assert desk.state("inbound", merged[3].seq) == "answered"


@pytest.mark.parametrize("shown", [[], [999], None])
def test_an_answer_answers_something(desk: Desk, shown: list[int] | None) -> None:
    """A runner that names nothing cannot have its turn played for ever."""
    message = desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    answer(desk, lease, shown=shown)
    assert desk.state("inbound", message.seq) == "answered"
    record(desk, lease.turn)
    assert claim(desk) is None


# ---- interrupt


def test_a_newer_message_ends_the_live_turn_and_says_so_once(desk: Desk) -> None:
    first = desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    newer, newest = desk.accept(), desk.accept()
    interrupted = [desk.ledger.tx(lambda tx, n=n: steering.interrupt(tx, n, NOW)) for n in (newer.turn, newest.turn)]  # type: ignore[misc]
    assert [row and row["id"] for row in interrupted] == [lease.turn, None]
    ended = desk.ledger.tx(lambda tx: ends.requeue(tx, lease.turn, NOW))  # also after a crash
    assert ended.state == "stopped"
    outcome = desk.ledger.tx(lambda tx: queries.outcome(tx, first.seq))
    assert outcome is not None and (outcome["state"], outcome["error"]) == ("stopped", steering.STOPPED[2])
    assert outcome["reply"] == steering.INTERRUPTED
    record(desk, lease.turn)
    assert must_claim(desk).turn == newer.turn


def test_a_member_does_not_end_the_owners_turn_nor_the_other_way_round(desk: Desk) -> None:
    for live, said in ((Role.OWNER, Role.MEMBER), (Role.MEMBER, Role.OWNER)):
        desk.accept(role=live, group=live)
        desk.run(live, live)
        lease = must_claim(desk, live, live)
        newer = desk.accept(role=said, group=live)
        assert desk.ledger.tx(lambda tx, newer=newer: steering.interrupt(tx, newer.turn or 0, NOW)) is None  # type: ignore[misc]
        assert not turn(desk, lease.turn)["stop_requested"]


# ---- jobs


def test_a_job_is_a_turn_without_chat_file_or_tools_whose_trust_is_that_of_its_inputs(desk: Desk) -> None:
    desk.accept(session="a", role=Role.OWNER)
    desk.run("r1")
    asks = Authority(Role.OWNER, 0.5)
    ids = [desk.ledger.tx(lambda tx: jobs.put(tx, "k", "main", "key", "prompt", asks, NOW)) for _ in range(2)]
    assert ids == [1, 1]
    person, job = must_claim(desk), must_claim(desk, worker=1)
    assert [turn(desk, each.turn)["session"] for each in (person, job)] == ["a", "job:1"]  # people come first
    desk.ledger.tx(lambda tx: turns.fall(tx, "r1", 0.2))
    assert [turn(desk, each.turn)["taint"] for each in (person, job)] == [0.2, 0.5]
    effect = desk.ledger.tx(lambda tx: effects.known(tx, job, "send_message", {}, 0))
    assert effect is not None and effect.result == {"error": "a job has no tools"}
    assert answer(desk, job, '{"a": 1}').deliveries == []
    assert desk.ledger.tx(lambda tx: groups.get(tx, "main")).authority.taint == 1.0
    for held in ("job:1", "job:2"):
        assert desk.ledger.tx(lambda tx, held=held: groups.session(tx, held)) is None  # type: ignore[misc]
        with pytest.raises(UsageError, match="clawd's own"):
            desk.accept(session=held)
    assert desk.ledger.tx(groups.session_counts) == {"main": 1}


def test_a_failed_job_has_no_chat_to_tell(desk: Desk) -> None:
    desk.accept(session="a")
    asks = Authority(Role.OWNER)
    desk.ledger.tx(lambda tx: jobs.put(tx, "k", "main", "key", "prompt", asks, NOW))
    desk.ledger.tx(lambda tx: ends.hold(tx, "main", "no sandbox", NOW, limits=ChannelLimits()))
    desk.ledger.tx(lambda tx: ends.release(tx, "main"))
    desk.run("r1")
    must_claim(desk)
    assert fault(desk, must_claim(desk, worker=1).turn, final=True).deliveries == []
    rows = desk.ledger.tx(lambda tx: tx.all("SELECT channel FROM delivery"))
    assert [row["channel"] for row in rows] == ["terminal"]


def test_messages_of_a_full_queue_are_merged_with_the_same_role_and_chat_alone(desk: Desk) -> None:
    """So all wakes of a turn are of one role, by which steering decides, and each is answered where it was said."""
    for _ in range(inbound.MAX_QUEUED):
        desk.accept()
    assert desk.accept().merged
    desk.accept(role=Role.MEMBER)
    desk.accept()
    desk.accept(thread="7")
    desk.accept(thread="8")
    rows = desk.ledger.tx(
        lambda tx: tx.all(
            "SELECT tw.turn, json_group_array(DISTINCT w.authority) AS roles,"
            " SUM(t.thread <> i.thread) AS elsewhere FROM turn_wake tw"
            " JOIN turn t ON t.id = tw.turn JOIN wake w ON w.id = tw.wake JOIN inbound i ON i.seq = w.inbound"
            " GROUP BY tw.turn"
        )
    )
    assert all(len(json.loads(row["roles"])) == 1 and not row["elsewhere"] for row in rows)
