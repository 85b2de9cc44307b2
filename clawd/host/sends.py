"""Where a host tool's sends may go: the turn's own chat, or another binding of its group, by the turn's rights as they
are in the transaction that sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clawd.approvals.chats import is_barred
from clawd.channel import ChannelLimits
from clawd.errors import UsageError
from clawd.host.changes import Asks, asked, missing
from clawd.ledger import deliveries, turns
from clawd.ledger.db import Transaction
from clawd.ledger.deliveries import Address, address_of, binding_of
from clawd.model import DeliveryKind
from clawd.trust import Role


def destination(to: str, own: Address, bindings: Sequence[str], authority: Role, taint: float) -> tuple[Address, str]:
    """Where a send to `to` goes, empty: to the turn's own chat; and what the turn is short of to send there by itself,
    empty where it may. Raises UsageError for what is no binding."""
    if to in ("", binding_of(own)):
        return own, ""
    if to not in bindings:
        others = ", ".join(each for each in bindings if each != binding_of(own)) or "no other chat"
        raise UsageError(f"{to!r} is no binding of this group; it has {others}")
    return address_of(to), missing(authority, taint)


class Sends:
    """Puts what tools of a turn send into the outbox, or before the owner. Implements `host.tools.Enqueue`. `limits`
    gives those of a channel that is there, `bindings` are the group's."""

    def __init__(
        self,
        turn: int,
        limits: Callable[[str], ChannelLimits | None],
        bindings: Sequence[str],
        ask: Asks,
        now: str,
    ) -> None:
        self._turn, self._limits, self._bindings, self._ask, self._now = turn, limits, bindings, ask, now

    def __call__(
        self, tx: Transaction, effect_id: int, /, *, kind: DeliveryKind, text: str, to: str = "", **what: Any
    ) -> dict[str, Any] | None:
        row = turns.get(tx, self._turn)
        own = Address.of(row)
        address, short = destination(to, own, self._bindings, Role(row["authority"]), row["taint"])
        limits = self._limits(address.channel)
        if limits is None:
            raise UsageError(f"the channel {address.channel} is not there")
        if not limits.buttons:
            what.pop("buttons", None)
        if kind == "reaction" and not limits.reactions:
            raise UsageError(f"{address.channel} has no reactions; say it in words")
        if address != own:
            text = f"From {binding_of(own)}:\n{text}".rstrip()
            file = {name: what.get(name) for name in ("blob", "name")}
            message = {"group": row["grp"], "session": row["session"], "source": binding_of(own), "to": to,
                       "kind": kind, "text": text, **file}  # fmt: skip
            if is_barred(tx, row["grp"], to):
                raise UsageError(f"nothing was sent: the owner has not said yes to {to} yet. Say it here instead")
            if short:
                return {"waits": asked(self._ask, tx, "send", message, self._turn, f"nothing was sent to {to}", short)}
        deliveries.enqueue(
            tx,
            address,
            session=row["session"],
            turn=self._turn,
            effect=effect_id,
            now=self._now,
            limits=limits,
            kind=kind,
            text=text,
            **what,
        )
        return None
