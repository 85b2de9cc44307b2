"""Turns: claims, fairness, fences, steps, ends. A real SQLite file each."""

from dataclasses import replace

import pytest

from clawd.channel import ChannelLimits
from clawd.errors import ClawdError, LeaseLost, UsageError
from clawd.ledger import deliveries, effects, ends, groups, money, runs, turns
from clawd.ledger.db import Transaction
from clawd.model import Final, Lease
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk


def claim(desk: Desk, run: str = "r1", group: str = "main", worker: int = 0) -> Lease | None:
    claimed = desk.ledger.tx(lambda tx: turns.claim(tx, run, group, worker, NOW))
    return None if claimed is None else Lease(run, claimed.turn["id"], claimed.attempt, worker)


def must_claim(desk: Desk, run: str = "r1", group: str = "main", worker: int = 0) -> Lease:
    lease = claim(desk, run, group, worker)
    assert lease is not None
    return lease


def answer(desk: Desk, lease: Lease, text: str = "hello", **more: object) -> ends.Ended:
    final = Final(text, **more)  # type: ignore[arg-type]
    return desk.ledger.tx(lambda tx: ends.answer(tx, lease, final, [], NOW, limits=ChannelLimits()))


def record(desk: Desk, turn: int) -> None:
    desk.ledger.tx(lambda tx: ends.recorded(tx, turn, NOW))


def fault(desk: Desk, turn: int, **more: bool) -> ends.Ended:
    return desk.ledger.tx(lambda tx: ends.fault(tx, turn, "it broke", NOW, limits=ChannelLimits(), **more))


def deliver(desk: Desk) -> None:
    def work(tx: Transaction) -> None:
        for row in tx.all("SELECT id FROM delivery WHERE state = 'pending'"):
            tx.move("delivery", row["id"], "send")
            deliveries.decide(tx, row["id"], "arrive", platform_id="e1")

    desk.ledger.tx(work)


def test_a_run_that_is_over_claims_nothing(desk: Desk) -> None:
    message = desk.accept("hi")
    desk.run("r1")
    desk.ledger.tx(lambda tx: runs.ended(tx, "r1"))
    with pytest.raises(LeaseLost):
        claim(desk)
    assert desk.state("inbound", message.seq) == "received"


def test_the_whole_way(desk: Desk) -> None:
    message = desk.accept("hi")
    desk.run("r1")
    assert (message.state, message.turn) == ("received", 1)
    lease = must_claim(desk)
    assert desk.state("inbound", message.seq) == "claimed"
    ended = answer(desk, lease)
    assert ended.state == "answered" and len(ended.deliveries) == 1
    assert desk.state("inbound", message.seq) == "answered"
    deliver(desk)
    assert desk.state("inbound", message.seq) == "delivered"
    record(desk, lease.turn)
    assert desk.state("inbound", message.seq) == "recorded"


def test_the_same_message_twice_is_one(desk: Desk) -> None:
    first, second = desk.accept("hi", id="x"), desk.accept("hi", id="x")
    assert second == replace(first, fresh=False)


def test_one_turn_a_session_and_only_after_the_last_is_recorded(desk: Desk) -> None:
    desk.accept("one")
    desk.accept("two")
    desk.run("r1")
    first = must_claim(desk)
    assert claim(desk, worker=1) is None
    answer(desk, first)
    assert claim(desk, worker=1) is None
    record(desk, first.turn)
    assert must_claim(desk).turn == 2


def test_sessions_of_a_group_take_turns(desk: Desk) -> None:
    """A session with a backlog does not keep another one waiting."""
    for _ in range(3):
        desk.accept(session="a")
    desk.accept(session="b")
    desk.run("r1")
    served = []
    while (lease := claim(desk)) is not None:
        row = desk.ledger.tx(lambda tx, lease=lease: turns.get(tx, lease.turn))  # type: ignore[misc]
        served.append(row["session"])
        answer(desk, lease)
        record(desk, lease.turn)
    assert served == ["a", "b", "a", "a"]


def test_only_equal_authority_side_by_side_and_nobody_starves(desk: Desk) -> None:
    desk.accept(session="a")
    desk.accept(session="b", role=Role.MEMBER)
    desk.accept(session="c")
    desk.run("r1")
    owner = must_claim(desk)
    assert claim(desk, worker=1) is None  # the member's waits, and the owner's third does not overtake it
    answer(desk, owner)
    member = must_claim(desk, worker=1)
    assert desk.ledger.tx(lambda tx: turns.get(tx, member.turn))["authority"] == "member"


def test_authority_and_taint_fall_onto_the_work_tree_until_lifted(desk: Desk) -> None:
    desk.accept(role=Role.MEMBER)
    desk.run("r1")
    lease = must_claim(desk)
    answer(desk, lease)
    record(desk, lease.turn)
    desk.accept(role=Role.OWNER)
    second = must_claim(desk)
    row = desk.ledger.tx(lambda tx: turns.get(tx, second.turn))
    assert (row["authority"], row["taint"]) == ("member", 0.4)
    answer(desk, second)
    record(desk, second.turn)
    desk.ledger.tx(lambda tx: groups.lift(tx, "main"))
    desk.accept(role=Role.OWNER)
    third = must_claim(desk)
    row = desk.ledger.tx(lambda tx: turns.get(tx, third.turn))
    assert (row["authority"], row["taint"]) == ("owner", 1.0)


@pytest.mark.parametrize(
    "stale",
    [
        lambda lease: replace(lease, attempt=2),
        lambda lease: replace(lease, run="r2"),
        lambda lease: replace(lease, worker=3),
    ],
)
def test_a_stale_lease_can_do_nothing(desk: Desk, stale) -> None:  # type: ignore[no-untyped-def]
    desk.accept()
    desk.run("r1")
    lease = stale(must_claim(desk))
    with pytest.raises(LeaseLost):
        desk.ledger.tx(lambda tx: turns.add_step(tx, lease, 0, {"role": "assistant"}, []))
    with pytest.raises(LeaseLost):
        desk.ledger.tx(lambda tx: effects.do(tx, lease, "send_message", {}, 1, lambda tx, id: {}))
    with pytest.raises(LeaseLost):
        answer(desk, lease)


def test_a_replayed_final_is_one(desk: Desk) -> None:
    desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    ended = answer(desk, lease)
    assert answer(desk, lease, "another") == ended
    texts = desk.ledger.tx(lambda tx: [row["text"] for row in tx.all("SELECT text FROM delivery")])
    assert texts == ["hello"]


def test_steps_are_kept_and_handed_to_the_next_attempt(desk: Desk) -> None:
    desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    step = {"role": "assistant", "content": "", "tool_calls": []}
    for _ in range(2):  # a lost response: the same step again
        desk.ledger.tx(lambda tx: turns.add_step(tx, lease, 0, step, [1]))
    with pytest.raises(LeaseLost):
        desk.ledger.tx(lambda tx: turns.add_step(tx, lease, 0, {**step, "content": "other"}, [1]))
    assert fault(desk, lease.turn).state == "queued"
    desk.run("r2")
    again = desk.ledger.tx(lambda tx: turns.claim(tx, "r2", "main", 0, NOW))
    assert again is not None and again.attempt == 2 and again.steps == [step]


@pytest.mark.parametrize(("most", "size"), [(3, 1 << 20), (1000, 250)])
def test_the_steps_of_a_turn_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch, most: int, size: int) -> None:
    monkeypatch.setattr(turns, "MOST_STEPS", most)
    monkeypatch.setattr(turns, "MOST_STEP_BYTES", size)
    desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    message = {"role": "assistant", "content": "x" * 40}

    def add(n: int) -> None:
        desk.ledger.tx(lambda tx: turns.add_step(tx, lease, n, message, []))

    for n in range(3):
        add(n)
    with pytest.raises(UsageError, match="a turn may have"):
        add(3)
    add(2)  # a repeat is no further one


def test_three_faults_fail_and_tell(desk: Desk) -> None:
    message = desk.accept()
    states = []
    for n in range(3):
        desk.run(f"r{n}")
        states.append(fault(desk, must_claim(desk, f"r{n}").turn).state)
    assert states == ["queued", "queued", "failed"]
    assert desk.state("inbound", message.seq) == "failed"
    text = desk.ledger.tx(lambda tx: tx.one("SELECT text FROM delivery"))["text"]  # type: ignore[index]
    assert "it broke" in text and f"clawd messages retry {message.seq}" in text


def test_a_restart_of_the_daemon_is_no_fault(desk: Desk) -> None:
    desk.accept()
    for n in range(5):
        desk.run(f"r{n}")
        lease = must_claim(desk, f"r{n}")
        assert lease.attempt == 1
        desk.ledger.tx(lambda tx, lease=lease: ends.requeue(tx, lease.turn, NOW))  # type: ignore[misc]


def test_a_failed_message_can_be_tried_again_after_its_steps_without_their_effects(desk: Desk) -> None:
    message = desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    step = {"role": "assistant", "content": "s", "tool_calls": []}
    desk.ledger.tx(lambda tx: turns.add_step(tx, lease, 0, step, []))
    desk.ledger.tx(lambda tx: effects.do(tx, lease, "send_message", {"text": "x"}, 1, lambda tx, id: {"ok": 1}))
    with pytest.raises(ClawdError, match="only a failed one"):
        desk.ledger.tx(lambda tx: ends.retry(tx, message.seq, NOW))
    fault(desk, lease.turn, final=True)
    record(desk, lease.turn)
    turn = desk.ledger.tx(lambda tx: ends.retry(tx, message.seq, NOW))
    again = desk.ledger.tx(lambda tx: turns.claim(tx, "r1", "main", 0, NOW))
    assert again is not None and again.turn["id"] == turn and again.steps == [step]
    new = Lease("r1", turn, again.attempt, 0)
    result = desk.ledger.tx(lambda tx: effects.do(tx, new, "send_message", {"text": "x"}, 1, lambda tx, id: {"ok": 2}))
    assert result.result == {"ok": 1}
    answer(desk, new)
    assert desk.state("inbound", message.seq) == "answered"


def test_stop_is_committed_first_and_wins_over_a_later_final(desk: Desk) -> None:
    message = desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    assert desk.ledger.tx(lambda tx: ends.request_stop(tx, "terminal:main")) == [lease.turn]
    ended = answer(desk, lease)
    assert (ended.state, ended.deliveries) == ("stopped", [])
    assert desk.state("inbound", message.seq) == "stopped"


def test_a_committed_final_wins_over_a_later_stop(desk: Desk) -> None:
    desk.accept()
    desk.run("r1")
    answer(desk, must_claim(desk))
    assert desk.ledger.tx(lambda tx: ends.request_stop(tx, "terminal:main")) == []


def test_a_stop_holds_through_a_crash(desk: Desk) -> None:
    desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    desk.ledger.tx(lambda tx: ends.request_stop(tx, "terminal:main"))
    assert desk.ledger.tx(lambda tx: ends.requeue(tx, lease.turn, NOW)).state == "stopped"


def test_stop_all_clears_what_waits(desk: Desk) -> None:
    messages = [desk.accept() for _ in range(3)]
    desk.run("r1")
    must_claim(desk)
    assert desk.ledger.tx(lambda tx: ends.stop_waiting(tx, "terminal:main", NOW)) == [2, 3]
    assert [desk.state("inbound", each.seq) for each in messages] == ["claimed", "stopped", "stopped"]


def test_held_turns_are_told_once_and_go_on_in_order(desk: Desk) -> None:
    messages = [desk.accept(), desk.accept()]
    for _ in range(2):
        held = desk.ledger.tx(lambda tx: ends.hold(tx, "main", "no sandbox can be made", NOW, limits=ChannelLimits()))
        assert [each.turn for _, each in held] == [1, 2]
        assert desk.state("inbound", messages[0].seq) == "held"
        assert desk.ledger.tx(lambda tx: ends.release(tx, "main")) == 2
    count = desk.ledger.tx(lambda tx: tx.one("SELECT COUNT(*) AS n FROM delivery"))
    assert count is not None and count["n"] == 2
    desk.run("r1")
    assert must_claim(desk).turn == 1


def test_beyond_fifty_waiting_messages_join_the_last_turn(desk: Desk) -> None:
    accepted = [desk.accept() for _ in range(53)]
    assert [each.merged for each in accepted] == [False] * 50 + [True] * 3
    assert {each.turn for each in accepted[49:]} == {50}
    assert not desk.accept(role=Role.MEMBER).merged  # never with another authority


def test_a_choice_is_its_turn_s_alone(desk: Desk) -> None:
    accepted = [desk.accept(model="x", engine="chat") for _ in range(51)]
    assert accepted[50].merged and not desk.accept().merged and not desk.accept(model="y").merged
    desk.accept(role=Role.ADMIN, model="z")
    rows = desk.ledger.tx(lambda tx: tx.all("SELECT choice FROM turn WHERE id >= 50 ORDER BY id"))
    chosen = '{"engine": "chat", "model": "x"}'
    assert [row["choice"] for row in rows] == [chosen, None, '{"model": "y"}', None]
    desk.run("r1")
    lease = must_claim(desk)
    row = desk.ledger.tx(lambda tx: turns.get(tx, lease.turn))
    assert (row["engine"], row["choice"]) == ("chat", chosen)


def test_usage_is_kept(desk: Desk) -> None:
    desk.accept()
    desk.run("r1")
    lease = must_claim(desk)
    row = desk.ledger.tx(lambda tx: turns.get(tx, lease.turn))
    desk.ledger.tx(lambda tx: money.report(tx, row, "m", (3, 5, 1), None, day="2026-12-01", month="2026-12", now=NOW))
    answer(desk, lease)
    row = desk.ledger.tx(lambda tx: turns.get(tx, lease.turn))
    assert (row["input"], row["output"], row["cached"], row["usd"]) == (3, 5, 1, None)


def test_stop_reaches_what_a_new_segment_left_running(desk: Desk) -> None:
    desk.accept()
    desk.run("r1")
    old = must_claim(desk)
    segment = desk.ledger.tx(lambda tx: groups.next_segment(tx, "terminal:main", NOW))
    desk.accept()
    new = must_claim(desk, worker=1)
    assert desk.ledger.tx(lambda tx: ends.request_stop(tx, segment.id)) == [old.turn, new.turn]
