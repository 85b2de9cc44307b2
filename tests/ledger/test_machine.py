"""A state machine that drives messages, turns, steering, jobs, records and sends with a crash possible after every
transaction.

The platform and the session file are what a person would see: every message must end with exactly one visible reply of
a turn whose model was shown it, one set of blocks, or one sentence that says why not. A send that may have arrived is
repeated at most once, and marked.
"""

import contextlib
import shutil
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clawd.channel import ChannelLimits
from clawd.errors import LeaseLost
from clawd.ledger import changes, deliveries, ends, held, inbound, jobs, runs, steering, streams, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.moves import delivery_after_doubt
from clawd.model import Authority, Final, Incoming, Lease, Part
from clawd.trust import Role, at_least, origin_of
from tests.ledger.conftest import NOW, Desk

GROUPS = ("main", "other")
ROLES = st.sampled_from([Role.OWNER, Role.OWNER, Role.MEMBER])
SHM = Path("/dev/shm")
AT = datetime(2026, 12, 1, tzinfo=UTC)


class Messages(RuleBasedStateMachine):
    @initialize(tells=st.booleans())
    def begin(self, tells: bool) -> None:
        self.few = mock.patch.object(inbound, "MAX_QUEUED", 2)  # so that turns of several messages are common
        self.few.start()
        self.directory = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
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
        self.jobs: list[int] = []
        self.lines: list[int] = []
        self.revs = 0
        self.shown: dict[int, set[int]] = {}  # by turn: the wakes that a model was surely shown for it
        self.take_in("main", "a", Role.OWNER)
        self.claim("main", 0)

    @property
    def ledger(self) -> Ledger:
        return self.desk.ledger

    # ── what happens ──

    @rule(group=st.sampled_from(GROUPS), session=st.sampled_from(["a", "b"]), role=ROLES)
    def accept(self, group: str, session: str, role: Role) -> None:
        self.take_in(group, session, role)

    def take_in(self, group: str, session: str, role: Role) -> int:
        self.ids.append(f"m{len(self.ids)}")
        taken = self.desk.accept(group=group, session=f"{group}:{session}", id=self.ids[-1], role=role)
        self.accepted.append(taken.seq)
        return taken.turn or 0

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), role=ROLES, then=st.sampled_from(["wait", "step", "step", "step and crash", "interrupt"]))
    def follow_up(self, data: st.DataObject, role: Role, then: str) -> None:
        """Somebody says more to a turn at work."""
        lease = data.draw(st.sampled_from(self.leases))
        row = self.ledger.tx(lambda tx: turns.get(tx, lease.turn))
        turn = self.take_in(row["grp"], row["session"].partition(":")[2], role)
        if then == "interrupt":
            self.ledger.tx(lambda tx: steering.interrupt(tx, turn, NOW))
        elif then != "wait":
            self.take_step(lease, data)
        if then == "step and crash":
            self.crash()

    @rule(group=st.sampled_from(GROUPS), session=st.sampled_from(["a", "b"]), role=ROLES)
    def overhear(self, group: str, session: str, role: Role) -> None:
        """Somebody says in between what is not for us."""
        self.ids.append(f"m{len(self.ids)}")
        name = f"{group}:{session}"
        seq = self.desk.accept(group=group, session=name, id=self.ids[-1], role=role, held=held.LISTENING).seq
        self.lines.append(seq)
        self.ledger.tx(lambda tx: held.bound_lines(tx, seq))

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), role=ROLES, text=st.sampled_from(["", "", "other", "another"]))
    def change(self, data: st.DataObject, role: Role, text: str) -> None:
        """Somebody edits or deletes what they said, whatever became of it."""
        id = data.draw(st.sampled_from(self.ids))
        self.revs += 1
        row = self.ledger.tx(lambda tx: tx.one("SELECT * FROM inbound WHERE platform_id = ? AND kind = 'message'", id))
        assert row is not None
        kind = "edit" if text else "delete"
        incoming = Incoming("terminal", row["chat"], id, row["sender"], (text,), AT, kind=kind, rev=self.revs)  # type: ignore[arg-type]
        typed = [Part("typed", origin_of(role), text)]
        for _ in range(2):  # its platform says so twice
            if text:
                self.ledger.tx(lambda tx: changes.edit(tx, incoming, role, typed, NOW))
            else:
                self.ledger.tx(lambda tx: changes.delete(tx, incoming, NOW))
        if self.desk.state("inbound", row["seq"]) == "withdrawn" and row["seq"] in self.accepted:
            self.accepted.remove(row["seq"])

    @precondition(lambda self: self.accepted and len(self.jobs) < 3)
    @rule(trust=st.sampled_from([1.0, 0.2]))
    def job(self, trust: float) -> None:
        asks, key = Authority(Role.OWNER, trust), f"k{len(self.jobs)}"
        group = self.ledger.tx(lambda tx: tx.one("SELECT name FROM grp"))
        assert group is not None
        self.jobs.append(self.ledger.tx(lambda tx: jobs.put(tx, "k", group["name"], key, "p", asks, NOW)))

    @rule(group=st.sampled_from(GROUPS), release=st.sampled_from([True, True, False]))
    def hold(self, group: str, release: bool) -> None:
        self.ledger.tx(lambda tx: ends.hold(tx, group, "no sandbox", NOW, limits=ChannelLimits()))
        if release:
            self.ledger.tx(lambda tx: ends.release(tx, group))

    @rule()
    def retry(self) -> None:
        """Somebody has what failed tried again."""
        for row in self.ledger.tx(lambda tx: tx.all("SELECT seq FROM inbound WHERE state = 'failed' LIMIT 1")):
            self.ledger.tx(lambda tx, seq=row["seq"]: ends.retry(tx, seq, NOW))  # type: ignore[misc]

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
        """The model took a step, after it was shown the turn's wakes and as many follow-ups as there were then."""
        self.take_step(data.draw(st.sampled_from(self.leases)), data)

    def take_step(self, lease: Lease, data: st.DataObject) -> None:
        shown = self.show(lease, data)

        def add(tx: Transaction) -> None:
            count = len(turns.steps(tx, lease.turn))
            for _ in range(2):  # its answer was lost
                turns.add_step(tx, lease, count, {"role": "assistant", "n": count}, shown)
                steering.join(tx, lease.turn, count, shown, NOW)

        self.ledger.tx(add)

    def show(self, lease: Lease, data: st.DataObject) -> list[int]:
        """What the model of a turn is shown now: some of its wakes, and some of what was said meanwhile."""

        def there(tx: Transaction) -> list[int]:
            own = turns.wakes(tx, lease.turn)
            return [wake["id"] for wake in own + steering.followups(tx, turns.get(tx, lease.turn))]

        ids = self.ledger.tx(there)
        shown = data.draw(st.one_of(st.just(ids), st.lists(st.sampled_from(ids), min_size=1, unique=True)))
        self.shown.setdefault(lease.turn, set()).update(shown)
        return shown

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def stream(self, data: st.DataObject) -> None:
        """The text of a turn begins to be shown."""
        turn = data.draw(st.sampled_from(self.leases)).turn
        row = self.ledger.tx(lambda tx: turns.get(tx, turn))
        if not row["session"].startswith("job:"):
            self.ledger.tx(lambda tx: streams.begin(tx, turn, "reply to", NOW, limits=ChannelLimits()))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), ending=st.sampled_from(["answer", "answer", "answer", "fault", "stop"]))
    def end(self, data: st.DataObject, ending: str) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        if ending == "stop":
            session = self.ledger.tx(lambda tx: turns.get(tx, lease.turn))["session"]
            self.ledger.tx(lambda tx: ends.request_stop(tx, session))
            return
        shown = self.show(lease, data) if data.draw(st.booleans()) else None
        self.leases.remove(lease)
        self.stale.append(lease)
        if ending == "answer":
            ended = self.answer(lease, shown)
            marks = ", ".join("?" * len(shown or ()))
            rows = self.ledger.tx(
                lambda tx: tx.all(f"SELECT turn FROM turn_wake WHERE wake IN ({marks})", *shown or ())
            )
            assert ended.state == "stopped" or {row["turn"] for row in rows} <= {lease.turn}
        else:
            self.ledger.tx(lambda tx: ends.fault(tx, lease.turn, "broke", NOW, limits=ChannelLimits()))

    def answer(self, lease: Lease, shown: list[int] | None = None) -> ends.Ended:
        final = Final(f"reply to {lease.turn}", shown=shown)
        if shown is None:
            own = self.ledger.tx(lambda tx: turns.wakes(tx, lease.turn))
            self.shown.setdefault(lease.turn, set()).update(wake["id"] for wake in own)
        return self.ledger.tx(lambda tx: ends.answer(tx, lease, final, [], NOW, limits=ChannelLimits()))

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """A final of an attempt that is over: a replay, or refused; never a second answer."""
        lease = data.draw(st.sampled_from(self.stale))
        with contextlib.suppress(LeaseLost):
            ended = self.answer(lease)
            assert ended.state == self.ledger.tx(lambda tx: turns.get(tx, lease.turn))["state"]
            texts = self.ledger.tx(lambda tx: tx.all("SELECT * FROM delivery WHERE turn = ?", lease.turn))
            assert sorted(ended.deliveries) == [row["id"] for row in texts]

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
            found = self.platform[row["id"]] > 0
            if row["state"] == "sending":
                self.decide(row["id"], "bounce" if row["edited"] else "doubt")
            elif row["state"] == "unknown" and row["kind"] == "stream" and not (found and self.tells):
                self.decide(row["id"], "fail")
            elif row["state"] == "unknown":
                decision = delivery_after_doubt(self.tells, found)
                self.decide(row["id"], decision)
                if decision == "repeat":
                    self.marked.add(row["id"])
                    self.platform[row["id"]] += 1
            else:
                self.try_to_send(row["id"], fate, bool(row["edited"]))

    def try_to_send(self, id: int, fate: str, edit: bool) -> None:
        self.ledger.tx(lambda tx: tx.move("delivery", id, "send"))
        if fate == "refused":
            self.decide(id, "bounce")
            return
        if fate == "crash before":
            self.crash()
            return
        self.platform[id] = 1 if edit else self.platform[id] + 1  # the same text again changes nothing
        if fate == "sent":
            self.decide(id, "arrive")
        elif fate == "lost answer":
            self.decide(id, "bounce" if edit else "doubt")
        else:
            self.crash()

    def decide(self, id: int, event: str) -> None:
        platform_id = f"m{id}" if event in ("arrive", "find") else None
        self.ledger.tx(lambda tx: deliveries.decide(tx, id, event, platform_id=platform_id))

    @rule()
    def crash(self) -> None:
        """The daemon dies between two transactions and starts again: its sandboxes are dead, and the next ones claim
        what is left."""
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
        for group in GROUPS:
            self.claim(group, 0)

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
            self.few.stop()
            self.ledger.close()
            shutil.rmtree(self.directory)

    def finish(self) -> None:
        """Let everything come to its end without further trouble."""
        for _ in range(20 * len(self.accepted) + 10 * len(self.jobs) + 20):
            for group in GROUPS:
                self.ledger.tx(lambda tx, group=group: ends.release(tx, group))  # type: ignore[misc]
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
            replies = [row for row in sent if row["kind"] == "text" or "did not work" in row["text"]]
            assert len(replies) == (0 if message["state"] == "stopped" else 1)
            assert all(self.platform[row["id"]] >= 1 for row in sent if row["kind"] != "stream")
            grown = {row["id"] for row in sent if row["kind"] == "stream" and row["state"] == "sent"}
            assert grown <= {row["edits"] for row in sent}, "what has begun to be shown says how it ended"
            if message["state"] == "recorded":
                wakes = self.ledger.tx(
                    lambda tx, seq=seq: tx.all("SELECT MAX(id) AS id FROM wake WHERE inbound = ?", seq)  # type: ignore[misc]
                )
                assert {row["id"] for row in wakes} <= self.shown[message["turn"]]
        self.judge_turns()
        self.judge_changes()

    def judge_changes(self) -> None:
        """Each change has replaced, was shown, or is to be noted; a line was read with an answer, or waits."""
        noted = {row["seq"] for row, _ in self.ledger.tx(changes.to_note)}
        for row in self.ledger.tx(lambda tx: tx.all("SELECT * FROM inbound WHERE kind <> 'message'")):
            assert row["state"] in ("recorded", "stopped", "failed") or row["seq"] in noted, dict(row)
        for seq in self.lines:
            assert self.desk.state("inbound", seq) in ("held", "stale", "recorded", "stopped", "failed", "withdrawn")

    def judge_turns(self) -> None:
        """Each turn has ended, one role acted in it, and what a job said went nowhere."""
        for turn in self.ledger.tx(lambda tx: tx.all("SELECT * FROM turn")):
            ends_ = ("answered", "stopped", "failed", "joined", "withdrawn")
            assert turn["state"] in ends_ and turn["recorded_at"], dict(turn)
            wakes = self.ledger.tx(lambda tx, id=turn["id"]: tx.all(f"{turns.WAKES} WHERE tw.turn = ?", id))  # type: ignore[misc]
            kinds = {wake["kind"] for wake in wakes}
            assert bool(wakes) == (turn["state"] not in ("joined", "withdrawn"))
            assert not wakes or kinds - {"line", "edit"}  # neither is answered for itself
            assert "line" in kinds or len({wake["authority"] for wake in wakes if wake["kind"] != "edit"}) <= 1
            assert all(at_least(Role(wake["authority"]), Role(turn["authority"])) for wake in wakes)
            assert all(wake["state"] == "closed" and wake["trust"] >= turn["taint"] for wake in wakes)
            sent = self.ledger.tx(lambda tx, id=turn["id"]: tx.all("SELECT 1 FROM delivery WHERE turn = ?", id))  # type: ignore[misc]
            assert not (sent and turn["session"].startswith("job:"))
        jobs_done = self.ledger.tx(lambda tx: tx.all("SELECT turn FROM job"))
        assert len(jobs_done) == len(self.jobs) and all(self.file.count(row["turn"]) == 1 for row in jobs_done)


TestMessages = Messages.TestCase
TestMessages.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
