"""A state machine that drives messages, turns, records and sends with a crash possible after every transaction.

The platform and the session file are what a person would see: every message must end with exactly one visible reply,
one set of blocks, or one sentence that says why not. A send that may have arrived is repeated at most once, and marked.
"""

import contextlib
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clawd.errors import LeaseLost
from clawd.ledger import deliveries, ends, runs, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.moves import delivery_after_doubt
from clawd.model import Final, Lease
from tests.ledger.conftest import NOW, Desk

GROUPS = ("main", "other")


class Messages(RuleBasedStateMachine):
    @initialize(tells=st.booleans())
    def begin(self, tells: bool) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.desk = Desk(Ledger.open(self.directory / "ledger.db"))
        self.tells = tells
        self.runs = 0
        self.run: dict[str, str] = {}
        self.leases: list[Lease] = []
        self.stale: list[Lease] = []
        self.accepted: list[int] = []
        self.ids: list[str] = []
        self.file: list[int] = []  # turns whose blocks are in their session file
        self.platform: Counter[int] = Counter()  # what a person sees, by delivery
        self.marked: set[int] = set()

    @property
    def ledger(self) -> Ledger:
        return self.desk.ledger

    # ── what happens ──

    @rule(group=st.sampled_from(GROUPS), session=st.sampled_from(["a", "b"]))
    def accept(self, group: str, session: str) -> None:
        self.ids.append(f"m{len(self.ids)}")
        taken = self.desk.accept(group=group, session=f"{group}:{session}", id=self.ids[-1])
        self.accepted.append(taken.seq)

    @precondition(lambda self: self.ids)
    @rule(group=st.sampled_from(GROUPS), data=st.data())
    def again(self, group: str, data: st.DataObject) -> None:
        """The platform sends a message once more."""
        id = data.draw(st.sampled_from(self.ids))
        row = self.ledger.tx(lambda tx: tx.one("SELECT seq, grp, session FROM inbound WHERE platform_id = ?", id))
        assert row is not None
        assert self.desk.accept(group=row["grp"], session=row["session"], id=id).seq == row["seq"]

    @rule(group=st.sampled_from(GROUPS), worker=st.integers(0, 2))
    def claim(self, group: str, worker: int) -> None:
        if group not in self.run:
            self.runs += 1
            self.run[group] = f"r{self.runs}"
            self.desk.run(self.run[group], group)
        if any(lease.run == self.run[group] and lease.worker == worker for lease in self.leases):
            return
        claim = self.ledger.tx(lambda tx: turns.claim(tx, self.run[group], group, worker, NOW))
        if claim is not None:
            self.leases.append(Lease(self.run[group], claim.turn["id"], claim.attempt, worker))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        count = len(self.ledger.tx(lambda tx: turns.steps(tx, lease.turn)))
        self.ledger.tx(lambda tx: turns.add_step(tx, lease, count, {"role": "assistant", "n": count}, []))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), ending=st.sampled_from(["answer", "answer", "answer", "fault", "stop"]))
    def end(self, data: st.DataObject, ending: str) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        if ending == "stop":
            session = self.ledger.tx(lambda tx: turns.get(tx, lease.turn))["session"]
            self.ledger.tx(lambda tx: ends.request_stop(tx, session))
            return
        self.leases.remove(lease)
        self.stale.append(lease)
        if ending == "answer":
            self.answer(lease)
        else:
            self.ledger.tx(lambda tx: ends.fault(tx, lease.turn, "broke", NOW, limit=4000))

    def answer(self, lease: Lease) -> ends.Ended:
        final = Final(f"reply to {lease.turn}")
        return self.ledger.tx(lambda tx: ends.answer(tx, lease, final, [], NOW, limit=4000))

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """A final of an attempt that is over: a replay, or refused; never a second answer."""
        lease = data.draw(st.sampled_from(self.stale))
        with contextlib.suppress(LeaseLost):
            ended = self.answer(lease)
            assert ended.state == self.ledger.tx(lambda tx: turns.get(tx, lease.turn))["state"]
            assert len(ended.deliveries) == (0 if ended.state == "stopped" else 1)

    @rule(commit=st.booleans())
    def record(self, commit: bool) -> None:
        """Append the blocks of a turn; the daemon may die before it says so."""
        for turn in self.ledger.tx(turns.to_record)[:1]:
            if turn not in self.file:
                self.file.append(turn)
            if commit:
                self.ledger.tx(lambda tx, turn=turn: ends.recorded(tx, turn, NOW))  # type: ignore[misc]
            else:
                self.crash()

    @rule(fate=st.sampled_from(["sent", "lost answer", "refused", "crash before", "crash after"]))
    def send(self, fate: str) -> None:
        for address in self.ledger.tx(deliveries.waiting_chats)[:1]:
            row = self.ledger.tx(lambda tx, to=address: deliveries.head(tx, to.channel, to.account, to.chat))
            assert row is not None
            if row["state"] == "sending":
                self.decide(row["id"], "doubt")
            elif row["state"] == "unknown":
                found = self.platform[row["id"]] > 0
                decision = delivery_after_doubt(self.tells, found)
                self.decide(row["id"], decision)
                if decision == "repeat":
                    self.marked.add(row["id"])
                    self.platform[row["id"]] += 1
            else:
                self.try_to_send(row["id"], fate)

    def try_to_send(self, id: int, fate: str) -> None:
        self.ledger.tx(lambda tx: tx.move("delivery", id, "send"))
        if fate == "refused":
            self.decide(id, "bounce")
            return
        if fate == "crash before":
            self.crash()
            return
        self.platform[id] += 1
        if fate == "sent":
            self.decide(id, "arrive")
        elif fate == "lost answer":
            self.decide(id, "doubt")
        else:
            self.crash()

    def decide(self, id: int, event: str) -> None:
        self.ledger.tx(lambda tx: deliveries.decide(tx, id, event))

    @rule()
    def crash(self) -> None:
        """The daemon dies between two transactions and starts again: its sandboxes are dead."""
        self.ledger._connection.close()  # no goodbye
        self.desk.ledger = Ledger.open(self.directory / "ledger.db")
        self.stale += self.leases
        self.leases = []
        self.run = {}

        def recover(tx: Transaction) -> None:
            for run in runs.alive(tx):
                runs.ended(tx, run["id"])
                for row in turns.claimed_by(tx, run["id"]):
                    ends.requeue(tx, row["id"], NOW)

        self.ledger.tx(recover)

    # ── what must hold ──

    @invariant()
    def nothing_is_seen_twice_unmarked(self) -> None:
        for id, times in getattr(self, "platform", {}).items():
            assert times == 1 or (times == 2 and id in self.marked) or (times == 0)

    @invariant()
    def no_session_runs_two_turns(self) -> None:
        if hasattr(self, "desk"):
            rows = self.ledger.tx(
                lambda tx: tx.all("SELECT session, COUNT(*) AS n FROM turn WHERE state = 'claimed' GROUP BY session")
            )
            assert all(row["n"] == 1 for row in rows)

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        try:
            self.finish()
            self.judge()
        finally:
            self.ledger.close()
            shutil.rmtree(self.directory)

    def finish(self) -> None:
        """Let everything come to its end without further trouble."""
        for _ in range(20 * len(self.accepted) + 20):
            for group in GROUPS:
                self.claim(group, 0)
            for lease in list(self.leases):
                self.leases.remove(lease)
                self.answer(lease)
            self.record(commit=True)
            self.send("sent")

    def judge(self) -> None:
        assert self.file == list(dict.fromkeys(self.file))
        for seq in self.accepted:
            message = self.ledger.tx(lambda tx, seq=seq: tx.one("SELECT * FROM inbound WHERE seq = ?", seq))  # type: ignore[misc]
            assert message is not None and message["state"] in ("recorded", "stopped", "failed"), dict(message)
            assert self.file.count(message["turn"]) == 1
            sent = self.ledger.tx(
                lambda tx, turn=message["turn"]: tx.all("SELECT * FROM delivery WHERE turn = ?", turn)  # type: ignore[misc]
            )
            assert len(sent) == (0 if message["state"] == "stopped" else 1)
            assert all(self.platform[row["id"]] >= 1 for row in sent)


TestMessages = Messages.TestCase
TestMessages.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
