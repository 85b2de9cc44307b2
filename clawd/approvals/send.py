"""A message or a file of an agent goes to another chat of its group, from a turn that may not send it there itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from clawd.approvals.chats import is_barred
from clawd.approvals.kind import Kind, Words
from clawd.approvals.words import named
from clawd.channel import ChannelLimits
from clawd.config.home import Home
from clawd.config.load import load_group
from clawd.ledger import deliveries
from clawd.ledger.approvals import canonical
from clawd.ledger.db import Transaction
from clawd.ledger.deliveries import Address, address_of
from clawd.model import DeliveryKind


@dataclass(frozen=True, slots=True)
class Message:
    """`source` and `to` are bindings; `text` is what will be sent, whole, `blob` the sha256 of a file."""

    group: str
    session: str
    source: str
    to: str
    kind: DeliveryKind
    text: str
    blob: str | None = None
    name: str | None = None


class Send(Kind):
    name, Effect = "send", Message

    def __init__(
        self, home: Home, limits: Callable[[str], ChannelLimits | None], deliver: Callable[[Address], None]
    ) -> None:
        """`limits` are those of a channel that is there."""
        self._home, self._limits, self._deliver = home, limits, deliver

    def subject(self, effect: Message) -> str:
        return hashlib.sha256(canonical(asdict(effect)).encode("utf-8", "surrogatepass")).hexdigest()

    def group(self, effect: Message) -> str:
        return effect.group

    def words(self, tx: Transaction, effect: Message) -> Words:
        what = f"the file {named(effect.name)}" if effect.name else "this message"
        return Words(
            f"send {what} to {effect.to}",
            [f"The agent of the group {effect.group} asks for it, in {effect.source}. It goes out as you see it."],
            "The text:" if effect.text else "",
            effect.text,
            (effect.blob, effect.name) if effect.blob and effect.name else None,
        )

    def reminder(self, effect: Message) -> str:
        what = f"the file {json.dumps(effect.name, ensure_ascii=False)}" if effect.name else "a message"
        text = json.dumps(effect.text, ensure_ascii=False)
        return f"You asked to send {what} to {effect.to}: {text}."

    def rests_on(self, tx: Transaction, effect: Message) -> Any:
        return effect.to in load_group(self._home, effect.group).bindings

    def refuse(self, tx: Transaction, effect: Message) -> str | None:
        if effect.to not in load_group(self._home, effect.group).bindings:
            return f"{effect.to} is no binding of the group {effect.group}"
        if self._limits(address_of(effect.to).channel) is None:
            return f"the channel {address_of(effect.to).channel} is not there"
        if is_barred(tx, effect.group, effect.to):
            return f"the owner has not said yes to {effect.to} yet"
        return None

    def execute(self, tx: Transaction, effect: Message, now: str) -> str:
        to = address_of(effect.to)
        limits = self._limits(to.channel)
        assert limits is not None  # or it was refused in this very transaction
        deliveries.enqueue(
            tx, to, session=effect.session, kind=effect.kind, text=effect.text, blob=effect.blob, name=effect.name,
            now=now, limits=limits,
        )  # fmt: skip
        return f"it is on its way to {effect.to}"

    def after(self, effect: Message) -> None:
        self._deliver(address_of(effect.to))
