"""What a host tool may have done that outlives its turn: by the turn itself, or with the owner's yes, by the turn's
rights as they are in the transaction that asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from clawd.errors import UsageError
from clawd.ledger import turns
from clawd.ledger.db import Row, Transaction
from clawd.model import Authority
from clawd.people.door import Asked
from clawd.trust import Role, at_least

REFUSED = {"denied": "the owner said no to it", "expired": "the owner was asked and did not answer"}


class Asks(Protocol):
    """What tools need of the approvals."""

    def ask_in(self, tx: Transaction, kind: str, effect: Mapping[str, Any], *, turn: int | None) -> Asked:
        """Ask the owner, unless this was asked already. Raises UsageError."""
        ...

    def do_in(self, tx: Transaction, kind: str, effect: Mapping[str, Any], *, turn: int) -> None:
        """Have it done without asking anybody. Raises UsageError."""
        ...


def is_own(acts: Authority | None, turn: Row) -> bool:
    """Whether what acts so, because an agent made it, has no more rights than the turn has: then that can take it away
    again. None stands for what a person made."""
    return acts is not None and at_least(Role(turn["authority"]), acts.role) and bool(turn["taint"] >= acts.taint)


def missing(authority: Role, taint: float) -> str:
    """What a turn is short of to do by itself what only the owner may; empty where it may."""
    short = []
    if authority != Role.OWNER:
        short.append(f"this turn acts for {authority}, and that needs the owner")
    if taint < 1:
        short.append(f"text from outside has reached this turn (its trust is {taint:g}, and that needs 1)")
    return "; ".join(short)


def asked(ask: Asks, tx: Transaction, kind: str, effect: Mapping[str, Any], turn: int, nothing: str, why: str) -> str:
    """Ask the owner; gives how the agent is told that it waits. `nothing` says what was not done. Raises UsageError
    where they said no, or cannot be asked."""
    found = ask.ask_in(tx, kind, effect, turn=turn)
    if found.state in REFUSED:
        raise UsageError(f"{nothing}: {REFUSED[found.state]}")
    who = "the owner is asked" if found.fresh else "the owner was asked already"
    return f"{nothing} yet: {why}. So {who}; what becomes of it comes as a message"


class Changes:
    """Implements `host.tools.Change` for one turn."""

    def __init__(self, turn: int, ask: Asks) -> None:
        self._turn, self._ask = turn, ask

    def __call__(
        self,
        tx: Transaction,
        kind: str,
        effect: Mapping[str, Any],
        what: str,
        *,
        always: bool = False,
        own: bool = False,
    ) -> dict[str, Any]:
        """`what` completes "done: …" and "… was not done"."""
        row = turns.get(tx, self._turn)
        why = missing(Role(row["authority"]), row["taint"]) or ("an agent can only propose this" if always else "")
        if own:
            why = ""
        if not why:
            self._ask.do_in(tx, kind, effect, turn=self._turn)
            return {"done": what}
        return {"waits": asked(self._ask, tx, kind, effect, self._turn, f"{what}: not done", why)}
