"""Approvals for a command that holds the home's lock: they are decided, and executed at the next start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clawd.approvals.approvals import Approvals
from clawd.approvals.context import Context
from clawd.approvals.kind import Kind
from clawd.approvals.schedule import Schedule
from clawd.approvals.send import Send
from clawd.approvals.skill import Skill
from clawd.approvals.watch import Watch
from clawd.channel import NOTICE
from clawd.clock import Clock, SystemClock, rfc3339
from clawd.config.home import Home
from clawd.ledger import contexts
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.lifecycle import journal
from clawd.lifecycle.deciding import Decision
from clawd.lifecycle.journal import Confirm


def approvals(home: Home, ledger: Ledger, clock: Clock) -> Approvals:
    """What an agent asked for can be told to it; nothing is asked or begun."""
    kinds: dict[str, Kind] = {
        Send.name: Send(home, lambda channel: None, _nothing),
        Schedule.name: Schedule(home, clock, _nothing),
        Watch.name: Watch(home, _nothing),
        Skill.name: Skill(home),
        Context.name: Context(_nothing, _note),
    }
    return Approvals(
        ledger, clock, None, kinds, _Nobody(), limits=lambda channel: NOTICE, deliver=_nothing, wake=_nothing,
        blobs=home.blobs,
    )  # fmt: skip


def _nothing(*arguments: Any, **named: Any) -> None:
    pass


def _note(tx: Transaction, session: str, decision: Decision, confirm: Confirm) -> None:
    now = rfc3339(SystemClock().now())
    row = contexts.of(tx, session, now)
    line = journal.decision_line(
        decision, None, at=now, session=session, step=row["step_index"], tokens=row["window"],
        estimated=bool(row["estimated"]), confirm=confirm,
    )  # fmt: skip
    contexts.note(tx, session, "decisions", line)


class _Nobody:
    """Nobody is asked here."""

    def where(self, tx: Transaction, but_not: str | None = None, here: Address | None = None) -> tuple[str, Address]:
        raise AssertionError

    def names(self) -> Sequence[str]:
        return ()

    def name_of(self, channel: str, sender: str) -> str | None:
        return None
