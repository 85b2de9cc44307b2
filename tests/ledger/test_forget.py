"""What is over loses its text, later its row; what is open, unseen or needed stays."""

from datetime import timedelta
from typing import Any

import pytest

from clawd.channel import NOTICE, ChannelLimits
from clawd.clock import moment_of
from clawd.errors import ClawdError, NotFound
from clawd.ledger import contexts, deliveries, effects, ends, forget, inbound, jobs, queries, runs, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.forget import Terms
from clawd.model import Authority, Final, Lease
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk

TABLES = ("inbound", "wake", "turn_wake", "turn", "step", "effect", "delivery", "question", "job")


def pass_days(ledger: Ledger, days: float) -> None:
    """What upkeep does, so many days after NOW: text is kept for 7 and keys for 30."""
    moment = moment_of(NOW)
    assert moment is not None
    now = moment + timedelta(days=days)
    terms = Terms(now - timedelta(days=7), now - timedelta(days=30), now - timedelta(days=400))
    for look in forget.EVERY:
        after: int | None = 0
        while after is not None:
            after = ledger.tx(lambda tx, look=look, after=after: look(tx, terms, after))  # type: ignore[misc]


def whole(ledger: Ledger) -> str:
    return "\n".join(
        str(tuple(row))
        for table in TABLES
        for row in ledger.tx(lambda tx, t=table: tx.all(f"SELECT * FROM {t}"))  # type: ignore[misc]
    )


def counts(ledger: Ledger) -> dict[str, int]:
    return {t: ledger.tx(lambda tx, t=t: tx.all(f"SELECT COUNT(*) FROM {t}"))[0][0] for t in TABLES}  # type: ignore[misc]


def claim(desk: Desk, run: str = "r") -> Lease:
    claimed = desk.ledger.tx(lambda tx: turns.claim(tx, run, "main", 0, NOW))
    assert claimed is not None
    return Lease(run, claimed.turn["id"], claimed.attempt, 0)


def answer(desk: Desk, *, sent: bool = True, recorded: bool = True, seen: bool = True) -> int:
    """The next turn of main is played; gives its number."""
    lease = claim(desk)

    def work(tx: Transaction) -> None:
        def act(tx: Transaction, effect: int) -> dict[str, Any]:
            to = deliveries.Address("terminal", "", "main", "")
            common: dict[str, Any] = {"session": "terminal:main", "now": NOW, "limits": NOTICE}
            deliveries.enqueue(tx, to, kind="text", text="CANARY effect", turn=lease.turn, effect=effect, **common)
            return {"ok": "CANARY result"}

        turns.add_step(tx, lease, 0, {"role": "assistant", "content": "CANARY step"}, [])
        effects.do(tx, lease, "send_message", {"text": "x"}, 0, act)
        ends.answer(tx, lease, Final("CANARY answer"), [("CANARY name", "blob")], NOW, limits=ChannelLimits())
        if recorded:
            ends.recorded(tx, lease.turn, NOW)
        if sent:
            send(tx)
        if seen:
            tx.execute("UPDATE delivery SET seen = 1")

    desk.ledger.tx(work)
    return lease.turn


def send(tx: Transaction) -> None:
    for row in tx.all("SELECT id FROM delivery WHERE state = 'pending'"):
        tx.move("delivery", row["id"], "send")
        deliveries.decide(tx, row["id"], "arrive")


def test_text_goes_after_a_week_and_the_row_after_a_month(ledger: Ledger, desk: Desk) -> None:
    desk.run("r")
    first = desk.accept("CANARY question")
    answer(desk)
    pass_days(ledger, 6.9)
    assert whole(ledger).count("CANARY") == 8 and ledger.tx(forget.blobs) == {"blob"}
    pass_days(ledger, 7.1)
    assert "CANARY" not in whole(ledger) and ledger.tx(forget.blobs) == set()
    shown = ledger.tx(lambda tx: queries.message(tx, first.seq))
    assert (shown["forgotten"], shown["state"], shown["parts"], shown["reply"]) == (True, "recorded", [], None)
    pass_days(ledger, 29.9)
    assert not desk.accept("again", id="p1").fresh  # it is still known
    pass_days(ledger, 30.1)
    assert set(counts(ledger).values()) == {0}
    with pytest.raises(NotFound):
        ledger.tx(lambda tx: queries.message(tx, first.seq))
    # Numbers go on where they were.
    second = desk.accept("new")
    assert (second.seq, second.turn) == (2, 2)
    assert ledger.tx(lambda tx: turns.get(tx, 2))["ordinal"] == 1


def test_a_job_goes_as_a_turn_does_with_its_session(ledger: Ledger, desk: Desk) -> None:
    desk.run("r")
    asks = Authority(Role.OWNER)
    id = ledger.tx(lambda tx: jobs.put(tx, "k", "main", "key", "CANARY prompt", asks, NOW))
    lease = claim(desk)
    ledger.tx(
        lambda tx: (
            jobs.answered(tx, id, "CANARY"),
            ends.answer(tx, lease, Final("CANARY"), [], NOW, limits=ChannelLimits()),
        )
    )
    ledger.tx(lambda tx: ends.recorded(tx, lease.turn, NOW))
    assert whole(ledger).count("CANARY") == 3
    pass_days(ledger, 7.1)
    assert "CANARY" not in whole(ledger)
    pass_days(ledger, 30.1)
    assert set(counts(ledger).values()) == {0} and not ledger.tx(lambda tx: tx.all("SELECT 1 FROM session"))


def test_a_turn_that_joined_another_goes_with_it(ledger: Ledger, desk: Desk) -> None:
    desk.run("r")
    desk.accept("CANARY question")
    lease = claim(desk)
    desk.accept("CANARY, too")
    ids = [row["id"] for row in ledger.tx(lambda tx: tx.all("SELECT id FROM wake"))]
    ledger.tx(lambda tx: ends.answer(tx, lease, Final("CANARY", shown=ids), [], NOW, limits=ChannelLimits()))
    ledger.tx(lambda tx: (ends.recorded(tx, lease.turn, NOW), send(tx), tx.execute("UPDATE delivery SET seen = 1")))
    pass_days(ledger, 7.1)
    assert "CANARY" not in whole(ledger)
    pass_days(ledger, 30.1)
    assert set(counts(ledger).values()) == {0}


@pytest.mark.parametrize(("sent", "recorded"), [(False, True), (True, False)], ids=["not delivered", "not recorded"])
def test_what_is_open_stays(ledger: Ledger, desk: Desk, sent: bool, recorded: bool) -> None:
    desk.run("r")
    desk.accept("CANARY question")
    answer(desk, sent=sent, recorded=recorded)
    before = whole(ledger)
    pass_days(ledger, 400)
    assert whole(ledger) == before


def test_what_was_never_looked_at_stays_as_long_as_the_keys(ledger: Ledger, desk: Desk) -> None:
    desk.run("r")
    desk.accept("CANARY question")
    answer(desk, seen=False)
    pass_days(ledger, 29.9)
    assert "CANARY answer" in whole(ledger)
    pass_days(ledger, 30.1)
    pass_days(ledger, 30.1)
    assert set(counts(ledger).values()) == {0}


def test_waiting_messages_and_commands_stay_and_answered_commands_go(ledger: Ledger, desk: Desk) -> None:
    desk.accept("/stop", kind="command")
    desk.accept("CANARY", held="rate")
    desk.accept("CANARY, too")
    answered = desk.accept("/help", kind="command").seq

    def work(tx: Transaction) -> None:
        inbound.answer_command(tx, answered, "CANARY reply", NOW, NOTICE)
        send(tx)
        tx.execute("UPDATE delivery SET seen = 1")

    ledger.tx(work)
    assert whole(ledger).count("CANARY") == 3
    pass_days(ledger, 8)
    assert whole(ledger).count("CANARY") == 2 and "/stop" in whole(ledger) and "/help" not in whole(ledger)
    pass_days(ledger, 31)
    assert counts(ledger) == {**dict.fromkeys(TABLES, 0), "inbound": 3, "turn": 1, "wake": 1, "turn_wake": 1}


def test_a_notice_of_its_own_goes_too(ledger: Ledger, desk: Desk) -> None:
    to = deliveries.Address("telegram", "", "7", "")

    def work(tx: Transaction) -> None:
        deliveries.enqueue(tx, to, session="s", kind="notice", text="CANARY", now=NOW, limits=ChannelLimits())
        send(tx)
        deliveries.enqueue(tx, to, session="s", kind="notice", text="not sent", now=NOW, limits=ChannelLimits())

    ledger.tx(work)
    pass_days(ledger, 8)
    assert "CANARY" not in whole(ledger) and counts(ledger)["delivery"] == 2
    pass_days(ledger, 31)
    assert counts(ledger)["delivery"] == 1 and "not sent" in whole(ledger)


def test_a_failed_turn_outlives_the_one_that_tries_it_again(ledger: Ledger, desk: Desk) -> None:
    desk.run("r")
    seq = desk.accept("CANARY question").seq
    failed = claim(desk).turn

    def fail(tx: Transaction) -> int:
        ends.fault(tx, failed, "it broke", NOW, limits=ChannelLimits(), final=True)
        ends.recorded(tx, failed, NOW)
        send(tx)
        tx.execute("UPDATE delivery SET seen = 1")
        return ends.retry(tx, seq, NOW)

    again = ledger.tx(fail)
    pass_days(ledger, 400)  # the new one is open
    assert "CANARY question" in whole(ledger) and counts(ledger)["turn"] == 2
    assert answer(desk) == again
    pass_days(ledger, 8)
    assert "CANARY" not in whole(ledger)
    for _ in range(2):
        pass_days(ledger, 31)
    assert set(counts(ledger).values()) == {0}


def test_a_failed_message_without_its_text_is_not_tried_again(ledger: Ledger, desk: Desk) -> None:
    desk.run("r")
    seq = desk.accept("CANARY question").seq
    failed = claim(desk).turn

    def fail(tx: Transaction) -> None:
        ends.fault(tx, failed, "it broke", NOW, limits=ChannelLimits(), final=True)
        ends.recorded(tx, failed, NOW)
        send(tx)
        tx.execute("UPDATE delivery SET seen = 1")

    ledger.tx(fail)
    pass_days(ledger, 8)
    with pytest.raises(ClawdError, match="must send it again"):
        ledger.tx(lambda tx: ends.retry(tx, seq, NOW))


def test_a_delivery_that_failed_is_noted_in_its_conversation_first(ledger: Ledger, desk: Desk) -> None:
    desk.run("r")
    desk.accept("CANARY question")
    answer(desk, sent=False)
    ledger.tx(lambda tx: tx.execute("UPDATE delivery SET state = 'failed', error = 'gone'"))
    ledger.tx(lambda tx: tx.execute("UPDATE inbound SET state = 'recorded'"))
    pass_days(ledger, 31)
    assert "CANARY" in whole(ledger)
    for row in ledger.tx(deliveries.failures_to_note):
        ledger.tx(lambda tx, id=row["id"]: deliveries.noted(tx, id))  # type: ignore[misc]
    pass_days(ledger, 31)
    assert "CANARY" not in whole(ledger)


def test_runs_that_are_over_go_and_those_with_a_turn_stay(ledger: Ledger, desk: Desk) -> None:
    for run in ("alive", "over", "owing"):
        desk.run(run)
    desk.accept()
    claim(desk, "owing")
    for run in ("over", "owing"):
        ledger.tx(lambda tx, run=run: runs.ended(tx, run))  # type: ignore[misc]
    pass_days(ledger, 31)
    assert [row["id"] for row in ledger.tx(lambda tx: tx.all("SELECT id FROM run ORDER BY id"))] == ["alive", "owing"]


def test_no_slice_is_longer_than_it_may_be(ledger: Ledger, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forget, "SLICE", 3)
    desk.run("r")
    for n in range(10):
        desk.accept(f"CANARY {n}")
        answer(desk)
    for days in (8, 31):
        pass_days(ledger, days)
    assert set(counts(ledger).values()) == {0}


def test_of_contexts_what_is_over_goes_and_what_a_session_holds_on_to_stays(desk: Desk) -> None:
    desk.accept("hi")
    desk.accept("hi", session="terminal:main:old")
    common = {"turn": 1, "at": NOW, "origin": "owner", "trust": 1.0}

    def hold(tx: Transaction) -> None:
        for id in ("terminal:main", "terminal:main:old"):
            contexts.of(tx, id, NOW)
            contexts.pin(tx, id, "constraints", "CANARY", **common)  # type: ignore[arg-type]
        contexts.update(tx, "terminal:main:old", NOW, status="handoff", sealed_at=NOW)
        for state in ("written", "written", "failed", "asked"):
            tx.insert("compaction", session="terminal:main", state=state, cause="manual", text="CANARY",
                      ledger="CANARY", before=1, made=NOW, ended=None if state == "asked" else NOW)  # fmt: skip

    desk.ledger.tx(hold)

    def left() -> tuple[list[Any], list[Any]]:
        rows = desk.ledger.tx(lambda tx: tx.all("SELECT id, text, ledger FROM compaction ORDER BY id"))
        pins = desk.ledger.tx(lambda tx: tx.all("SELECT session FROM pinned ORDER BY id"))
        return [(row["id"], row["text"] or row["ledger"]) for row in rows], [row["session"] for row in pins]

    both = ["terminal:main", "terminal:main:old"]
    pass_days(desk.ledger, 6)
    assert left() == ([(n, "CANARY") for n in (1, 2, 3, 4)], both)
    pass_days(desk.ledger, 8)
    assert left() == ([(1, None), (2, None), (3, None), (4, "CANARY")], both)
    pass_days(desk.ledger, 31)
    assert left() == ([(2, None), (4, "CANARY")], ["terminal:main"])
