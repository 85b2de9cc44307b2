"""Effects: once, keyed by content; with a number and without; bounded."""

from typing import Any

import pytest

from clawd.channel import ChannelLimits
from clawd.errors import UsageError
from clawd.ledger import effects, ends, groups, jobs, turns
from clawd.ledger.db import Transaction
from clawd.model import Authority, Effect, Lease
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk

HI = {"text": "hi"}


def claim(desk: Desk, run: str = "r1") -> Lease:
    desk.run(run)
    claimed = desk.ledger.tx(lambda tx: turns.claim(tx, run, "main", 0, NOW))
    assert claimed is not None
    done = desk.ledger.tx(lambda tx: tx.all("SELECT 1 FROM effect WHERE turn = ?", claimed.turn["id"]))
    assert [each["result"] for each in claimed.effects] == [{"ok": n + 1} for n in range(len(done))]
    return Lease(run, claimed.turn["id"], claimed.attempt, 0)


def call(
    desk: Desk, lease: Lease, arguments: dict[str, Any] = HI, nth: int | None = None, *, heard: bool = True, **tool: str
) -> Effect:
    """A call that is answered; whoever asked has `heard` it."""

    def work(tx: Transaction) -> Effect:
        count = len(tx.all("SELECT id FROM effect")) + 1
        done = effects.do(tx, lease, tool.get("tool", "send_message"), arguments, nth, lambda tx, id: {"ok": count})
        if heard and done.id is not None:
            effects.given(tx, lease, done.id)
        return done

    return desk.ledger.tx(work)


def test_one_with_a_number_is_keyed_by_content_and_happens_once(desk: Desk) -> None:
    desk.accept()
    lease = claim(desk)
    assert call(desk, lease, {"a": 1, "b": 2}, 1).result == call(desk, lease, {"b": 2, "a": 1}, 1).result == {"ok": 1}
    assert call(desk, lease, {"a": 1, "b": 2}, 2).result == {"ok": 2}
    assert call(desk, lease, {"a": 1, "b": 2}).result == {"ok": 3}  # comes after them


def test_without_a_number_a_lost_answer_is_given_again_and_a_heard_one_is_over(desk: Desk) -> None:
    desk.accept()
    lease = claim(desk)
    assert [call(desk, lease, heard=heard).result["ok"] for heard in (False, False, True, False, True)] == [
        1,
        1,
        1,
        2,
        2,
    ]
    assert call(desk, lease, {"text": "other"}).result == {"ok": 3}


@pytest.mark.parametrize("end", ["fault", "restart", "lost offer"])
def test_whoever_goes_on_with_the_turn_hears_of_each_effect_again_before_another_is_done(desk: Desk, end: str) -> None:
    desk.accept()
    lease = claim(desk)
    assert [call(desk, lease).result["ok"] for _ in range(2)] == [1, 2]
    if end == "fault":
        desk.ledger.tx(lambda tx: ends.fault(tx, lease.turn, "it broke", NOW, limits=ChannelLimits()))
        lease = claim(desk, "r2")
    elif end == "restart":  # the attempt stays what it was
        desk.ledger.tx(lambda tx: ends.requeue(tx, lease.turn, NOW))
        lease = claim(desk, "r2")
    else:
        desk.ledger.tx(lambda tx: turns.hand_over(tx, lease, 3))
        lease = Lease("r1", lease.turn, lease.attempt, 3)
    assert [call(desk, lease).result["ok"] for _ in range(3)] == [1, 2, 3]


def test_a_refusal_leaves_nothing(desk: Desk) -> None:
    desk.accept()
    lease = claim(desk)

    def refuse(tx: Transaction, id: int) -> dict[str, Any]:
        raise UsageError("no")

    with pytest.raises(UsageError):
        desk.ledger.tx(lambda tx: effects.do(tx, lease, "send_message", HI, None, refuse))
    assert not desk.ledger.tx(lambda tx: effects.done(tx, lease.turn))


def test_quotas_count_every_tool_that_sends(desk: Desk) -> None:
    desk.accept()
    lease = claim(desk)
    files = [call(desk, lease, {"n": n}, 0, tool="send_file").result for n in range(12)]
    assert ["error" in result for result in files] == [False] * 10 + [True] * 2 and "10 files" in files[-1]["error"]
    rest = [
        call(desk, lease, {"n": n}, 0, tool=tool).result for n in range(4) for tool in ("send_message", "ask", "react")
    ]
    assert ["error" in result for result in rest] == [False] * 10 + [True] * 2 and "20 sends" in rest[-1]["error"]
    assert call(desk, lease, {"n": 0}, 0, tool="send_file").result == files[0]  # what was done is known all the same
    assert call(desk, lease, tool="recall").result == {"ok": 21}


def test_a_job_has_no_tools(desk: Desk) -> None:
    def ask(tx: Transaction) -> None:
        groups.add(tx, "main", NOW)
        jobs.put(tx, "compact", "main", "k", "do", Authority(Role.OWNER), NOW)

    desk.ledger.tx(ask)
    lease = claim(desk)
    for tool in ("send_message", "tool_help"):
        assert call(desk, lease, tool=tool) == Effect({"error": "a job has no tools"})
