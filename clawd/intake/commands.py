"""What chat commands and buttons are to intake: a row of the ledger, carried out once, with a reply."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Literal, Protocol

from clawd.ledger.db import Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.trust import Role

_WORD = re.compile(r"/([a-z][a-z_]{0,31})(@\S+)?(?:\s+(.*))?", re.DOTALL)


class CommandContext(Protocol):
    """What commands may ask of the daemon."""

    def stopped(self, live: list[int], waiting: list[int], told: Collection[Address] = ()) -> None:
        """A stop is durable: of live turns, which are told so now, and of turns that waited, whose chats `told` hear
        of it."""
        ...

    def freed(self, group: str) -> None:
        """The group has turns that may be handed out."""
        ...

    def state_of(self, group: str) -> str:
        """One line on the group's sandbox and engine."""
        ...

    def decide(
        self, tx: Transaction, row: Row, verdict: Literal["approve", "deny"], which: str
    ) -> tuple[str, Callable[[], None] | None]:
        """`/approve` and `/deny` by this message: the reply, and what is to be done once it is durable. Raises
        ClawdError."""
        ...

    async def usage(self, group: str, session: str) -> str:
        """What `/usage` says."""
        ...

    async def context(self, row: Row) -> str:
        """What `/context` says."""
        ...

    def compact(self, tx: Transaction, row: Row) -> tuple[str, Callable[[], None] | None]:
        """`/compact` by this message: the reply, and what is to be done once it is durable. Raises ClawdError."""
        ...

    async def model(self, group: str, words: str) -> str:
        """What `/model` says, and does. Raises ClawdError."""
        ...

    async def schedule(self, row: Row, words: str) -> str:
        """What `/schedule` says, and makes. Raises ClawdError."""
        ...

    async def skills(self, group: str) -> str:
        """What `/skills` says."""
        ...

    async def memory(self, row: Row, words: str) -> str | Filed:
        """What `/memory` says, and does. Raises ClawdError."""
        ...

    async def remember(self, row: Row, text: str) -> str:
        """What `/remember` says, and keeps. Raises ClawdError."""
        ...

    async def decide_memory(self, row: Row, verdict: Literal["approve", "deny"], which: str) -> str:
        """`/approve` and `/deny` of a memory; "" for what is none. Raises ClawdError."""
        ...

    async def pair(self, person: str | None) -> str:
        """What `/pair` says to an owner: a code for another account of theirs. Raises ClawdError."""
        ...


@dataclass(frozen=True, slots=True)
class Filed:
    """A reply, and the file (the sha256 of its blob, and what it is called) that goes out before it."""

    reply: str
    blob: str
    name: str


@dataclass(frozen=True, slots=True)
class Done:
    """A command's reply, and what is to be done once it is durable."""

    reply: str
    after: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """`needs` is the lowest role that may say it."""

    help: str
    needs: Role
    run: Callable[[Transaction, CommandContext, Row, str, str], Done]
    before: Callable[[CommandContext, Row, str], Awaitable[str | Filed]] | None = None
    """What is done outside of the ledger, and may be done twice: its words are the reply, and `run` is not called,
    unless they are none."""


# What a pressed button does: (tx, its row with `value`, now). It was surely put on that very message by us; who
# may press it is for this to know. None: it is ignored, and nothing of it is kept.
Press = Callable[[Transaction, Row, str], Done | None]


def parse(text: str) -> tuple[str, str] | None:
    """(word, rest) of a message that is a command, else None. `/etc/passwd` and `/ x` are no commands."""
    match = _WORD.fullmatch(text.strip())
    return (match[1], (match[3] or "").strip()) if match else None


def names_a_bot(text: str) -> bool:
    """Whether a command says which bot it is for: `/status@clawd_bot`."""
    match = _WORD.fullmatch(text.strip())
    return match is not None and match[2] is not None
