"""The context life cycle of all sessions: a decision follows each turn, in the transaction that says the turn is
recorded; what it asks for is done afterwards, and again after a crash until it is done.

`settle` decides, `act` does what is open: compactions (`compacting.py`), handovers (`handing_over.py`), files
(`projecting.py`). All that is to be done stands in the ledger; a task that is lost is begun again by `recover`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import anyio

from clawd import faults
from clawd.approvals.approvals import Asked
from clawd.channel import NOTICE, ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.errors import Refused, UnsafePath
from clawd.ids import is_job
from clawd.ledger import contexts, deliveries
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.lifecycle import deciding, journal, pinned
from clawd.lifecycle.deciding import Action, Decision, Facts, Thresholds
from clawd.lifecycle.journal import Confirm
from clawd.lifecycle.manifest import scrubbed
from clawd.locks import KeyedLocks
from clawd.model import Block
from clawd.tasks import Tasks
from clawd.trust import Origin
from clawd.turns.counting import Price, counted
from clawd.turns.handing_over import OVERFLOW
from clawd.turns.projecting import Projector
from clawd.turns.ruling import DEFAULT, Rules

log = logging.getLogger(__name__)

AGAIN_S, LONGEST_S = 1.0, 60.0
FULL = (
    "What this conversation holds on to, whatever its window loses, has reached {size} KiB: new constraints and"
    " blockers are not added any more. /new begins with none."
)
CROWDED = (
    "What the agent and its tools want this conversation to hold on to has reached {size} KiB: more constraints and"
    " blockers of theirs are not added. Yours still are. /new begins with none."
)

UNBEGUN = (
    "The conversation {session} cannot begin, for a file of its group cannot be written ({why}). What is said there"
    " waits; it is tried again until it can be."
)

Outcome = Literal["none", "begun", "asked", "later"]
"""What became of a decision: nothing was to be done (or it is under way); it was begun; a person was asked; it is done
when the turn that is at work has ended."""


class Compacting(Protocol):
    def begin(self, tx: Transaction, row: Row, cause: str, turn: int | None, now: str) -> object:
        """Open a compaction of the session of `row`; `turn` is the one that was settled last."""
        ...

    async def act(self, session: str) -> None: ...


class Handing(Protocol):
    def begin(
        self,
        tx: Transaction,
        row: Row,
        decision: Decision,
        thresholds: Thresholds,
        now: str,
        confirmed_by: str | None = None,
    ) -> str | None:
        """Hand the session of `row` over; gives the successor, None where there is none."""
        ...

    async def act(self, session: str) -> None: ...


class Confirming(Protocol):
    def ask(self, tx: Transaction, row: Row, decision: Decision, now: str) -> Asked | None:
        """Ask in the chat whether it may be done; None where that was said no to. What is asked already is not asked
        again."""
        ...

    def withdraw(self, tx: Transaction, number: int) -> None:
        """The approval of this number is asked no more: it was decided by hand."""
        ...

    def look_again(self) -> None:
        """What was asked is durable."""
        ...


class Lifecycle:
    """`rules` are those of a session's row; `price` what a call costs; `deliver` is told of chats that have news, and
    `tell` tells the owner."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        tasks: Tasks,
        compactor: Compacting,
        handing: Handing,
        projector: Projector,
        *,
        rules: Callable[[Row], Rules] = lambda row: DEFAULT,
        price: Price = lambda model, input, output, cached: None,
        confirming: Confirming | None = None,
        limits: Callable[[str], ChannelLimits] = lambda channel: NOTICE,
        deliver: Callable[[Address], None] = lambda to: None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._ledger, self._clock, self._tasks, self._tell = ledger, clock, tasks, tell
        self._compactor, self._handing, self._projector = compactor, handing, projector
        self.rules, self._price, self.confirming = rules, price, confirming
        self._limits, self._deliver = limits, deliver
        self._one = KeyedLocks()

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    # ── in the ledger ──

    def settle(self, tx: Transaction, turn: Row, blocks: Sequence[Block]) -> None:
        """A turn of a session ended, and `blocks` of it are in the file: what is to be held on to is pinned, its tokens
        counted, and a decision made. In the transaction that says that the turn is recorded; a second time it changes
        nothing."""
        if is_job(turn["session"]) or turn["recorded_at"] is not None:
            return
        now, session = self._now(), turn["session"]
        row = contexts.of(tx, session, now)
        rules = self.rules(row)
        self._pin(tx, row, turn, blocks, now)
        last, calls = contexts.last_call(tx, turn), contexts.calls(tx, turn["id"])
        compacted = contexts.was_compacted(tx, session, turn["claimed_at"])
        found = counted(row, turn, blocks, last, calls, self._price, compacted=compacted)
        tx.execute(
            "UPDATE turn SET window_tokens = ?, cumulative_tokens = ? WHERE id = ?",
            *(found.window, found.cumulative, turn["id"]),
        )
        own: dict[str, Any] = {"agent_id": rules.agent_id, "memory_namespace": rules.memory_namespace, "tag": rules.tag}
        contexts.update(
            tx,
            session,
            now,
            step_index=row["step_index"] + 1,
            window=found.window,
            cumulative=found.cumulative,
            estimated=int(found.estimated),
            nanos=found.nanos,
            taint=min(row["taint"], turn["taint"]),
            **{name: value for name, value in own.items() if row[name] is None and value is not None},
        )
        self.measure(tx, session, "turn", now, used=found.used, costs=found.costs, latency_ms=found.latency_ms)
        row = contexts.of(tx, session, now)
        if row["status"] in contexts.ENDED or row["gate"] == "paused":
            return
        self._carry_out(tx, row, self.decide(tx, session), rules, turn=turn["id"])

    def _pin(self, tx: Transaction, row: Row, turn: Row, blocks: Sequence[Block], now: str) -> None:
        session, final = row["session"], json.loads(turn["final"]) if turn["final"] else {}
        notes = [*contexts.take_noted(tx, turn["id"]), final.get("notes")]
        held = pinned.of_rows(contexts.pinned(tx, session))
        new = pinned.of_turn(notes, blocks, taint=turn["taint"], turn=turn["id"], at=now, held=held)
        if not new:
            return
        fit = pinned.fit(held, new)
        contexts.unpin(tx, [item.id for item in fit.drop if item.id is not None])
        for item in fit.add:
            contexts.pin(
                tx, session, item.cls, scrubbed(item.text), turn=item.turn, at=now, origin=item.origin, trust=item.trust
            )  # fmt: skip
        if any(item.origin == Origin.OWNER for item in fit.refused):
            self._tell_once(tx, row, turn, "full", FULL.format(size=pinned.MOST_BYTES >> 10), now)
        elif fit.refused:
            self._tell_once(tx, row, turn, "crowded", CROWDED.format(size=pinned.MOST_OTHERS >> 10), now)

    def _tell_once(self, tx: Transaction, row: Row, turn: Row, what: str, sentence: str, now: str) -> None:
        told = json.loads(row["told"] or "[]")
        if what in told:
            return
        contexts.update(tx, row["session"], now, told=json.dumps([*told, what]))
        to = Address.of(turn)
        deliveries.enqueue(
            tx, to, session=row["session"], kind="notice", text=sentence, now=now, limits=self._limits(to.channel)
        )  # fmt: skip

    def measure(self, tx: Transaction, session: str, event: str, now: str, **more: Any) -> None:
        """A line of metrics.jsonl, with what is known of the session now; `more` as `journal.metric_line` takes it."""
        row = contexts.of(tx, session, now)
        line = journal.metric_line(
            event,
            at=now,
            session=session,
            step=row["step_index"],
            window=row["window"],
            total=row["cumulative"],
            estimated=bool(row["estimated"]),
            agent_id=row["agent_id"],
            memory_namespace=row["memory_namespace"],
            **more,
        )
        contexts.note(tx, session, "metrics", line)

    def decide(self, tx: Transaction, session: str, wanted: Action | None = None) -> Decision:
        """What is to be done with a session now. `wanted` is what a person asks for."""
        row = contexts.of(tx, session, self._now())
        if row["status"] in contexts.ENDED:
            return Decision("continue", "none", "the session is over")
        rules, held = self.rules(row), pinned.of_rows(contexts.pinned(tx, session))
        bound = rules.bound or contexts.last_engine(tx, session) != "offline"
        facts = Facts(
            tokens=row["window"] if bound else 0,
            thresholds=rules.limits,
            estimated=bool(row["estimated"]),
            cumulative=row["cumulative"],
            usd=None if row["nanos"] is None else row["nanos"] / journal.NANO,
            usd_limit=rules.usd,
            verify_failed=bool(row["verify_failed"]),
            phase_done=row["status"] == "phase_boundary",
            fruitless=row["fruitless"],
            failures=row["failures"],
            wanted=wanted or row["wanted"],
            step_index=row["step_index"],
            compact_count=row["compact_count"],
            pinned={cls: held.of(cls) for cls in pinned.CLASSES},
            blockers=[item.text for item in held.items if item.cls == "blockers" and not item.inherited],
        )
        return deciding.decide(facts, rules.policies)

    def reconsider(self, tx: Transaction, session: str) -> None:
        """A compaction came to nothing: where that asks for a handover, it is begun now, or after the turn at work."""
        decision = self.decide(tx, session)
        if decision.action == "handoff":
            self.carry_out(tx, session, decision)

    def carry_out(self, tx: Transaction, session: str, decision: Decision, confirmed_by: str | None = None) -> Outcome:
        """Have a decision done: journalled, then begun, or asked about where that is wanted and `confirmed_by` nobody
        yet. While a turn of the session is at work it is kept as a wish, and done when that is settled."""
        now = self._now()
        row = contexts.of(tx, session, now)
        if row["status"] in contexts.ENDED:
            return "none"
        if decision.action != "continue" and contexts.is_live(tx, session):
            contexts.update(tx, session, now, wanted=decision.action, confirmed_by=confirmed_by)
            return "later"
        return self._carry_out(tx, row, decision, self.rules(row), confirmed_by=confirmed_by)

    def overflowed(self, tx: Transaction, session: str) -> Outcome:
        """The provider says that the session is longer than its model can read: it is handed over, whatever was
        counted, and what waits in it goes along."""
        return self.carry_out(tx, session, Decision("handoff", "hard_handoff", OVERFLOW))

    def _carry_out(
        self,
        tx: Transaction,
        row: Row,
        decision: Decision,
        rules: Rules,
        *,
        confirmed_by: str | None = None,
        turn: int | None = None,
    ) -> Outcome:
        session, now = row["session"], self._now()
        if decision.action == row["wanted"]:  # whatever asks for it by now
            confirmed_by = confirmed_by or row["confirmed_by"]
        if decision.action == "handoff" and decision.trigger != "manual" and contexts.is_refused(row):
            decision = Decision("continue", decision.trigger, "it cannot be handed over")
            if turn is not None and row["window"] >= rules.limits.soft:
                decision = Decision("compact", "soft_compact", "it cannot be handed over")
        asks = decision.action in rules.confirm
        if decision.action == "continue":
            self.journal(tx, session, decision)
            return "none"
        if asks and confirmed_by is None and self.confirming is not None:
            answer = self.confirming.ask(tx, row, decision, now)
            contexts.update(tx, session, now, wanted=None)
            if answer is not None and answer.fresh:
                self.journal(tx, session, decision, confirm=Confirm())
                return "asked"
            why = f"{decision.action} waits for a yes" if answer else f"{decision.action} was said no to"
            self.journal(tx, session, Decision("continue", decision.trigger, why, decision.policy))
            return "none"
        confirm = Confirm(True, confirmed_by) if asks and confirmed_by is not None else None
        self.journal(tx, session, decision, confirm=confirm)
        contexts.update(tx, session, now, wanted=None, confirmed_by=confirmed_by)
        row = contexts.of(tx, session, now)
        if decision.action == "compact":
            if contexts.open_compaction(tx, session) is not None:
                return "none"
            self._compactor.begin(tx, row, decision.trigger, turn, now)
            return "begun"
        self._handing.begin(tx, row, decision, rules.limits, now, confirmed_by)
        if contexts.of(tx, session, now)["status"] not in contexts.ENDED:
            return "none"
        self.measure(tx, session, "handoff", now)
        return "begun"

    def journal(
        self,
        tx: Transaction,
        session: str,
        decision: Decision,
        *,
        confirm: Confirm | None = None,
    ) -> int:
        """A line of decisions.jsonl; gives its seq. What was answered to a question is a line of its own."""
        now = self._now()
        row = contexts.of(tx, session, now)
        line = journal.decision_line(
            decision,
            self.rules(row).limits,
            at=now,
            session=session,
            step=row["step_index"],
            tokens=row["window"],
            estimated=bool(row["estimated"]),
            recall=row["last_recall"] if decision.trigger == "verify_fail" else None,
            confirm=confirm,
            nanos=row["nanos"],
        )
        return contexts.note(tx, session, "decisions", line)

    # ── afterwards ──

    def soon(self, session: str) -> None:
        """Something of the session may be open."""
        self._tasks.start_soon(self._until_done, session, name=f"context {session}")

    async def _until_done(self, session: str) -> None:
        pause = AGAIN_S
        told: str | None = None
        while True:
            try:
                await self.act(session)
                return
            except (Refused, UnsafePath) as error:  # somebody put it there
                log.warning("the files of session %s are not written: %s", session, error)
                if (shut := await self._ledger.do(lambda tx: _shut(tx, session))) is None:
                    return  # they wait for the next turn, or start
                why = error.message
            except Exception as error:  # its files wait, and that is said
                log.exception("the context of session %s cannot be looked after", session)
                shut = await self._ledger.do(lambda tx: _shut(tx, session))
                why = error.strerror or str(error) if isinstance(error, OSError) else type(error).__name__
            if shut is not None and why != told:
                self._tell(UNBEGUN.format(session=shut, why=why))
                told = why
            await anyio.sleep(pause)
            pause = min(pause * 2, LONGEST_S)

    async def act(self, session: str) -> None:
        """Do what is open, in this order: the successor's beginning, a compaction, the files, the successor's. Safe to
        repeat."""
        async with self._one.hold(session):
            for to in await self._ledger.do(lambda tx: _unsent(tx, session)):
                self._deliver(to)
            faults.passing("settled")
            if self.confirming is not None:
                self.confirming.look_again()
            await self._handing.act(session)
            await self._compactor.act(session)
            await self._projector.act(session)
        row = await self._ledger.do(lambda tx: contexts.find(tx, session))
        if row is not None and row["successor"] is not None:  # it has its beginning now, and may have no turn for long
            async with self._one.hold(row["successor"]):
                await self._projector.act(row["successor"])

    async def recover(self) -> None:
        """After a start: all that an earlier daemon left open."""
        for session in await self._ledger.do(contexts.unfinished):
            self.soon(session)


def _shut(tx: Transaction, session: str) -> str | None:
    """Which session cannot be talked to before the files of this one are written."""
    row = contexts.find(tx, session)
    if row is None or row["seed"] is not None or row["successor"] is None:
        return session if row is not None and row["seed"] is not None else None
    after = contexts.find(tx, row["successor"])
    return row["successor"] if after is not None and after["seed"] is not None else None


def _unsent(tx: Transaction, session: str) -> list[Address]:
    """The chats that a session has a notice for that was not sent yet."""
    rows = tx.all("SELECT DISTINCT channel, account, chat, thread FROM delivery WHERE session = ? AND state = 'pending'"
                  " AND kind = 'notice'", session)  # fmt: skip
    return [Address.of(row) for row in rows]
