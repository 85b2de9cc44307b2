"""What a person has done about a session's context by hand: compact it, hand it over, say that a phase is done. The
operations of the control socket, and of a command that holds the home's lock: there all that needs no model is done at
once."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from clawd.approvals.context import why_shut
from clawd.clock import Clock, rfc3339
from clawd.commands.standing import missing, segment
from clawd.config.home import Home
from clawd.errors import ClawdError, UsageError
from clawd.ids import check_session_id, is_job
from clawd.ledger import contexts
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.lifecycle.deciding import Decision
from clawd.locks import KeyedLocks
from clawd.tasks import Tasks
from clawd.trust import Role
from clawd.turns.lifecycle import Lifecycle

if TYPE_CHECKING:
    from clawd.commands.operations import Operations

Params = dict[str, Any]
Wish = Literal["compact", "handoff"]
BY_COMMAND = "the owner, at the command line"


class ContextOperations:
    """With `alone` there is no daemon: what is open is done here."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        lifecycle: Lifecycle,
        operations: Operations,
        *,
        alone: bool = False,
    ) -> None:
        self._ledger, self._clock, self._lifecycle = ledger, clock, lifecycle
        self._operations, self._alone = operations, alone

    def table(self) -> dict[str, Callable[[Params], Awaitable[Params]]]:
        return {name: partial(operation, self) for name, operation in _OPERATIONS.items()}

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    async def compact(self, params: Params) -> Params:
        """{session, group?, yes?} → {session, action, trigger, state, compaction|null, successor|null, waits?}. The
        action is a handoff where the window is full. `state`: begun; later, when a turn is at work; asked, when the
        chat is; unconfirmed, when nothing was done because the action wants a yes first. `waits`: whether a daemon
        goes on with it."""
        return await self._wanted(params, "compact")

    async def handoff(self, params: Params) -> Params:
        """The same, to hand over."""
        return await self._wanted(params, "handoff")

    async def _wanted(self, params: Params, wish: Wish) -> Params:
        session = await self._known(params)
        by = BY_COMMAND if params.get("yes") is True else None
        try:
            found = await self._ledger.do(lambda tx: self.carry_out(tx, session, wish, by, strict=True))
        except Unconfirmed as error:
            return _answer(session, error.decision, "unconfirmed")
        await self._done(session)
        return found | {"waits": not self._alone}

    def carry_out(self, tx: Transaction, session: str, wish: Wish, by: str | None, *, strict: bool = False) -> Params:
        """Compact a session or hand it over, or have that done when its turn ends. Where a yes is wanted first and `by`
        nobody gave it, the chat is asked; with `strict` Unconfirmed is raised instead. Raises ClawdError for a session
        that ended, or that cannot be handed over."""
        row = open_row(tx, session, self._now())
        decision = self._lifecycle.decide(tx, session, wanted=wish)
        if strict and by is None and decision.action in self._lifecycle.rules(row).confirm:
            raise Unconfirmed(decision)
        if by is not None and row["status"] == "awaiting_confirm":  # that is the answer
            contexts.update(tx, session, self._now(), status="running", confirm=None, gate=None)
            if self._lifecycle.confirming is not None and row["confirm"] is not None:
                self._lifecycle.confirming.withdraw(tx, row["confirm"])
        done = self._lifecycle.carry_out(tx, session, decision, confirmed_by=by)
        row, compaction = contexts.of(tx, session, self._now()), None
        if decision.action == "compact" and done in ("begun", "none"):
            opened = contexts.open_compaction(tx, session)
            compaction = opened["id"] if opened is not None else None
        if done == "none" and compaction is None and row["status"] not in contexts.ENDED:
            raise ClawdError(f"session {session} is as it was: {_why_not(row, decision)}", hint="clawd context status")
        state = "begun" if done == "none" else done
        return _answer(session, decision, state) | {"compaction": compaction, "successor": row["successor"]}

    async def said(self, row: Row) -> str:
        """What `/context` says in the conversation of an inbound row."""
        session = await self._ledger.do(lambda tx: segment(tx, row["session"]))
        if session is None:
            return "Nothing was said here yet."
        context = await self._ledger.do(lambda tx: contexts.of(tx, session.id, self._now()))
        tried = await self._ledger.do(lambda tx: contexts.last_compaction(tx, session.id))
        limits = self._lifecycle.rules(context).limits
        about = "about " if context["estimated"] else ""
        times = context["compact_count"]
        said = (
            f"session {session.id}: {about}{context['window']:,} tokens in view, compacted at {limits.soft:,}, handed"
            f" over at {limits.hard:,} ({limits.profile}); compacted {times} time{'s' if times != 1 else ''} so far"
        )
        if tried is not None and tried["state"] == "failed":
            said += f"\nThe last try left it as it is: {tried['error']}."
        if (shut := why_shut(context)) is not None:
            return f"{said}\n{shut}"
        if context["status"] == "awaiting_confirm":
            return f"{said}\nThe owner is asked what becomes of it (approval {context['confirm']})."
        return said

    def typed(self, tx: Transaction, row: Row) -> tuple[str, Callable[[], None] | None]:
        """`/compact` by an inbound row: the reply, and what follows once it is durable. What the owner types is their
        yes; for an admin the chat is asked where the group wants that. Raises ClawdError."""
        known = segment(tx, row["session"])
        if known is None or contexts.find(tx, known.id) is None:
            raise ClawdError("Nothing was said here yet.")
        by = f"the owner, with /compact (message {row['seq']})" if Role(row["role"]) is Role.OWNER else None
        found = self.carry_out(tx, known.id, "compact", by)
        told = {
            "later": "It is compacted when the turn that is at work has ended.",
            "asked": "It is compacted once the owner says yes.",
        }
        over = f"It was handed over: it goes on as {found['successor']}." if found["successor"] else ""
        said = over or told.get(found["state"], "It is being compacted. /context says how it stands.")
        return said, lambda: self._lifecycle.soon(known.id)

    async def signal(self, params: Params) -> Params:
        """{session, group?, phase_done: true} → {session, status}: the next decision is to hand over. Raises ClawdError
        for a session that ended, or waits for a yes."""
        if params.get("phase_done") is not True:
            raise UsageError("say what happened: --phase-done")
        session = await self._known(params)

        def signal(tx: Transaction) -> None:
            row = open_row(tx, session, self._now())
            if row["status"] == "awaiting_confirm":
                raise ClawdError(
                    f"session {session} waits for a yes", hint=f"clawd approvals approve {row['confirm']}, or deny"
                )
            if row["gate"] == "paused":
                raise ClawdError(f"session {session} is paused", hint=f"clawd session resume {session}")
            contexts.update(tx, session, self._now(), status="phase_boundary", stopped_reason=None)

        await self._ledger.do(signal)
        await self._done(session)
        return {"session": session, "status": "phase_boundary"}

    async def _known(self, params: Params) -> str:
        """The exact id of the session that is meant. Raises NotFound; nothing is made then."""
        session, group = params.get("session"), params.get("group")
        if not isinstance(session, str):
            raise UsageError("session is missing")
        if is_job(check_session_id(session)):
            raise missing(session, None, None)
        found = await self._ledger.do(lambda tx: segment(tx, session))
        if found is None:  # its file may have been put there just now
            await self._operations.adopt_sessions()
            found = await self._ledger.do(lambda tx: segment(tx, session))
        if found is None or group not in (None, found.group):
            raise missing(session, group, found.group if found is not None else None)
        return found.id

    async def _done(self, session: str) -> None:
        if self._alone:
            await self._lifecycle.act(session)
        else:
            self._lifecycle.soon(session)


def alone(home: Home, ledger: Ledger, clock: Clock, own: Operations) -> ContextOperations:
    """For a command that holds the home's lock. What a model must do waits for a daemon."""
    from clawd.config.load import load_config
    from clawd.context.compose import Composer
    from clawd.turns.compacting import Compactor
    from clawd.turns.handing_over import HandingOver
    from clawd.turns.jobs import Jobs
    from clawd.turns.projecting import Projector
    from clawd.turns.ruling import Ruling
    from clawd.usage.prices import window_of

    config, locks = load_config(home, dict(os.environ)), KeyedLocks()
    ruling = Ruling(lambda: config, own.settings, window=window_of, root=home.root)
    composer = Composer(
        home,
        clock,
        own.settings,
        config=lambda: config,
        hard=lambda group, standing: ruling.limits(group, standing).hard,
    )
    jobs = Jobs(ledger, clock, composer.engine, lambda group: None)
    compactor = Compactor(home, ledger, clock, jobs, composer, locks.hold, ruling.limits)
    lifecycle = Lifecycle(
        ledger,
        clock,
        _Nothing(),
        compactor,
        HandingOver(home, ledger, clock, alone=locks.hold),
        Projector(home, ledger, clock, ruling),
        rules=ruling,
    )
    compactor.reconsider, compactor.measure = lifecycle.reconsider, lifecycle.measure
    return ContextOperations(ledger, clock, lifecycle, own, alone=True)


class _Nothing(Tasks):
    """Begins nothing: whoever is alone does what is open itself, and a daemon the rest."""

    def __init__(self) -> None:
        pass

    def start_soon(self, work: Callable[..., Awaitable[Any]], *arguments: Any, name: str | None = None) -> None:
        pass


class Unconfirmed(Exception):
    """A yes is wanted first; what was written for the decision is taken back with the transaction."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.action)
        self.decision = decision


def open_row(tx: Transaction, session: str, now: str) -> Row:
    """The row of a session that goes on. Raises ClawdError with what became of one that ended."""
    row = contexts.of(tx, session, now)
    if row["status"] in contexts.ENDED:
        if row["successor"] is not None:
            raise ClawdError(
                f"session {session} was handed over: it goes on as {row['successor']}",
                hint=f"--session {row['successor']}",
            )
        raise ClawdError(f"session {session} is over ({row['status']})", hint="clawd session list")
    return row


def _why_not(row: Row, decision: Decision) -> str:
    """Why nothing was begun."""
    if decision.action == "continue":
        return decision.reason
    if row["status"] == "awaiting_confirm":
        return f"it waits for approval {row['confirm']}"
    refused = json.loads(row["refused"]) if row["refused"] else {}
    return str(refused.get("why") or "that was said no to, and its window has not grown since")


def _answer(session: str, decision: Decision, state: str) -> Params:
    return {
        "session": session,
        "action": decision.action,
        "trigger": decision.trigger,
        "state": state,
        "compaction": None,
        "successor": None,
    }


_OPERATIONS = {
    "context.compact": ContextOperations.compact,
    "context.handoff": ContextOperations.handoff,
    "context.signal": ContextOperations.signal,
}
OPERATIONS = tuple(_OPERATIONS)
