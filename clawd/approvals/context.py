"""A session is compacted, or handed over to a fresh one, where its group wants to be asked first.

While the owner is asked the session goes on, but for one at its hard limit: of that no turn is handed out. A no lets it
go on, and the same is asked again only when its window has grown by a tenth; at the hard limit it pauses the session,
which says so to whoever writes to it, until it is resumed, handed over by hand, or left for another by `/new`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clawd.approvals.approvals import Approvals, Asked
from clawd.approvals.kind import Kind, Words
from clawd.approvals.words import named
from clawd.channel import NOTICE, ChannelLimits
from clawd.errors import ClawdError, UsageError
from clawd.ledger import approvals, contexts, deliveries, handing
from clawd.ledger.db import Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.lifecycle.deciding import Action, Decision
from clawd.lifecycle.journal import Confirm

HARD = "hard_handoff"
PAUSED = "confirm_denied_at_hard"
_DOES = {
    "compact": "compact the conversation {session} of the group {group}",
    "handoff": "go on with the conversation {session} of the group {group} in a fresh session",
}
_MEANS = {
    "compact": "A summary takes the place of its older part in what the model is shown; the transcript stays whole.",
    "handoff": "The fresh session begins with what this one holds on to, and nothing else; the transcript stays.",
}


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done with a session, and what was known when that was decided. Tokens are the window's."""

    group: str
    session: str
    action: Action
    trigger: str
    reason: str
    window: int
    number: int


CarryOut = Callable[[Transaction, str, Decision, str | None], object]
Journal = Callable[[Transaction, str, Decision, Confirm], object]


class Context(Kind):
    """`carry_out` does what was decided, with who said yes; `journal` keeps what became of a question; `soon` is told
    that something of a session is open, and `wake` which group has turns that may be handed out again."""

    name, Effect, again, most, waits = "context", Step, None, 1000, True

    def __init__(
        self,
        carry_out: CarryOut,
        journal: Journal,
        *,
        soon: Callable[[str], None] = lambda session: None,
        wake: Callable[[str], None] = lambda group: None,
        limits: Callable[[str], ChannelLimits] = lambda channel: NOTICE,
    ) -> None:
        self._carry_out, self._journal, self._soon, self._wake = carry_out, journal, soon, wake
        self._limits = limits

    def subject(self, effect: Step) -> str:
        return f"{effect.session} {effect.number} {effect.action} {effect.trigger}"

    def group(self, effect: Step) -> str:
        return effect.group

    def words(self, tx: Transaction, effect: Step) -> Words:
        title = _DOES[effect.action].format(session=named(effect.session), group=effect.group)
        lines = [f"Its window holds {effect.window:,} tokens ({effect.trigger}).", _MEANS[effect.action]]
        if effect.trigger == HARD:
            lines.append("It is at its limit: until you say so nothing is answered there, and a no pauses it.")
        return Words(title, lines)

    def rests_on(self, tx: Transaction, effect: Step) -> Any:
        return {"session": effect.session}

    def refuse(self, tx: Transaction, effect: Step) -> str | None:
        row = contexts.find(tx, effect.session)
        if row is None:
            return f"there is no session {effect.session}"
        if row["status"] in contexts.ENDED:
            return f"the session {effect.session} is over ({row['status']})"
        return None

    def execute(self, tx: Transaction, effect: Step, now: str) -> str:
        """A session whose window grew meanwhile is handed over all the same; one that shrank is not compacted again.
        Where a turn is live `carry_out` keeps the wish until that is over."""
        row, asked = contexts.of(tx, effect.session, now), self._asked(tx, effect)
        by = (asked["decider"] if asked is not None else None) or "owner"
        contexts.update(tx, effect.session, now, confirm=None, gate=None, declined=None, status="running")
        if effect.action == "compact" and row["window"] < effect.window / contexts.GROWN:
            return f"nothing was left to do: the window of {effect.session} is smaller by now"
        decision = Decision(effect.action, effect.trigger, effect.reason)
        self._carry_out(tx, effect.session, decision, by)
        return f"the session {effect.session} is " + ("compacted" if effect.action == "compact" else "handed over")

    def after(self, effect: Step) -> None:
        self._soon(effect.session)
        self._wake(effect.group)

    def closed(self, tx: Transaction, effect: Step, row: Row, now: str) -> None:
        """Nobody said yes: the session goes on, or pauses at its limit."""
        context = contexts.find(tx, effect.session)
        if context is None or context["confirm"] != row["number"]:
            return  # something else is asked by now, or it went another way
        by = None if row["state"] == "expired" else row["decider"] or "owner"
        said = {"action": effect.action, "trigger": effect.trigger, "window": context["window"], "by": by}
        values: dict[str, Any] = {"status": "running", "gate": None}
        if effect.trigger == HARD:
            values = {"status": "stopped", "stopped_reason": PAUSED, "gate": "paused"}
        contexts.update(tx, effect.session, now, confirm=None, declined=json.dumps(said), **values)
        why = "nobody said yes in time" if by is None else f"{effect.action} was said no to"
        self._journal(tx, effect.session, Decision("continue", effect.trigger, why), Confirm(False, by))
        if effect.trigger == HARD:
            tell_waiting(tx, effect.session, now, self._limits)

    def over(self, effect: Step) -> None:
        self._soon(effect.session)
        self._wake(effect.group)

    def _asked(self, tx: Transaction, effect: Step) -> Row | None:
        return approvals.lately(tx, self.name, self.subject(effect), None)


class Confirming:
    """Asks, in the transaction that decided."""

    def __init__(self, room: Approvals, limits: Callable[[str], ChannelLimits] = lambda channel: NOTICE) -> None:
        self._room, self._limits = room, limits

    def ask(self, tx: Transaction, row: Row, decision: Decision, now: str) -> Asked | None:
        """Ask whether the session of `row` (of `context`) may be compacted or handed over; None where that was said no
        to, and its window is much as it was then. What is asked already for less is asked no more."""
        row = contexts.of(tx, row["session"], now)
        session: str = row["session"]
        if row["status"] in contexts.ENDED or is_declined(row, decision):
            return None
        if row["confirm"] is not None:
            open_ = approvals.numbered(tx, row["confirm"])
            before = json.loads(open_["effect"])
            if open_["state"] in approvals.LIVE and (
                before["trigger"] == decision.trigger or before["trigger"] == HARD
            ):
                return Asked(open_["number"], False, open_["state"])
            contexts.update(tx, session, now, confirm=None)
            if open_["state"] == "open":
                self._room.void_in(tx, open_["id"], "the conversation needs something else by now")
        newest = tx.one("SELECT COALESCE(MAX(id), 0) AS id FROM approval")
        assert newest is not None
        effect = {
            "group": row["grp"], "session": session, "action": decision.action, "trigger": decision.trigger,
            "reason": decision.reason, "window": row["window"], "number": newest["id"] + 1,
        }  # fmt: skip
        where = handing.place(tx, session)
        try:
            asked = self._room.ask_in(tx, "context", effect, here=None if where is None else Address.of(where))
        except UsageError:  # too much is asked already: it is asked again after the next turn
            return None
        values: dict[str, Any] = {"status": "awaiting_confirm", "confirm": asked.number}
        if decision.trigger == HARD:
            values["gate"] = "confirm"
        contexts.update(tx, session, now, **values)
        if decision.trigger == HARD:
            tell_waiting(tx, session, now, self._limits)
        return asked

    def withdraw(self, tx: Transaction, number: int) -> None:
        """What was asked was decided by hand: it is asked no more."""
        open_ = approvals.numbered(tx, number)
        if open_["state"] == "open":
            self._room.void_in(tx, open_["id"], "it was decided by hand meanwhile")

    def look_again(self) -> None:
        """What was asked is durable."""
        self._room.look_again()


def is_declined(row: Row, decision: Decision) -> bool:
    """Whether this was said no to for a session (a row of `context`), whose window has not grown by a tenth since."""
    if row["declined"] is None:
        return False
    said = json.loads(row["declined"])
    same = (said["action"], said["trigger"]) == (decision.action, decision.trigger)
    return same and row["window"] < contexts.GROWN * said["window"]


def why_shut(row: Row | None) -> str | None:
    """What whoever writes to a session (a row of `context`) is told of its gate; None where they will be answered."""
    if row is None or row["gate"] not in ("confirm", "paused"):
        return None
    if row["gate"] == "confirm":
        return (
            f"This conversation has filled its window, and my owner is asked (approval {row['confirm']}) whether it may"
            " go on in a fresh session. Your message is kept, and answered after that; /new begins another one at once."
        )
    session = row["session"]
    return (
        "This conversation has filled its window, and was not to go on in a fresh session: it is paused, and your"
        f" message is kept. On the host `clawd session resume {session}` lets it go on as it is, `clawd context handoff"
        f" --session {session}` in a fresh one; /new begins another here."
    )


def tell_waiting(tx: Transaction, session: str, now: str, limits: Callable[[str], ChannelLimits]) -> None:
    """Everybody whose message waits in a session that is shut is told why, each message once."""
    why = why_shut(contexts.find(tx, session))
    if why is None:
        return
    told: set[Address] = set()
    for turn in tx.all("SELECT * FROM turn WHERE session = ? AND state = 'queued' AND recorded_at IS NULL", session):
        to = Address.of(turn)
        for _ in tx.all("UPDATE inbound SET told = 1 WHERE turn = ? AND NOT told RETURNING seq", turn["id"]):
            if to not in told:
                told.add(to)
                deliveries.enqueue(
                    tx, to, session=session, kind="notice", text=why, now=now, limits=limits(to.channel)
                )  # fmt: skip


def resume(tx: Transaction, session: str, now: str) -> str:
    """A paused session goes on as it is, until its window has grown by a tenth: then it is decided, and asked, anew.
    Gives its status. Raises ClawdError for one that is over, or waits for an approval."""
    row = contexts.of(tx, session, now)
    if row["status"] in contexts.ENDED:
        heir = contexts.heir(tx, session)
        more = f"; it goes on as {heir}" if heir != session else ""
        raise ClawdError(
            f"the session {session} is over ({row['status']}){more}",
            hint=f"clawd context status --session {heir}" if heir != session else None,
        )
    if row["confirm"] is not None:
        raise ClawdError(
            f"the session {session} waits for approval {row['confirm']}",
            hint=f"clawd approvals approve {row['confirm']}, or deny",
        )
    if row["gate"] == "paused" or row["status"] == "stopped":
        declined = json.loads(row["declined"] or "null") or {"action": "handoff", "trigger": HARD, "by": None}
        contexts.update(
            tx, session, now, status="running", stopped_reason=None, gate=None,
            declined=json.dumps(declined | {"window": row["window"]}),
        )  # fmt: skip
    return str(contexts.of(tx, session, now)["status"])
