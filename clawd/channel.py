"""The adapter protocol: what a channel tells us, what we ask of it, and its platform's limits as data.

An adapter knows this module and `clawd.model` only. It registers by the entry point `clawd.channels`; everything that
can be shared (splitting, formatting, order, rates, retries, streaming, dedupe, rights) is done by the rooms above it.
An adapter never decides who may speak, and acknowledges a message to its platform only after `Inbox.receive` returned.
"""

from __future__ import annotations

import gc
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from clawd.model import Attachment, Check, Incoming, Outgoing, Receipt


class NotSent(Exception):
    """The platform surely did not store the message (refused connection, 429). `retry_after`: seconds for which it
    wants nothing more for this chat; None where it did not say."""

    def __init__(self, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class Unsure(Exception):
    """The message may or may not have been stored: the answer was lost."""


class SendRefused(Exception):
    """The platform will never take this message (chat gone, bot removed, message to edit gone)."""


class FormatRefused(Exception):
    """The platform took offence at the form: surely not stored. The same text is sent once more as it stands."""


class ChatMoved(Exception):
    """Surely not stored: the chat has another id from now on."""

    def __init__(self, chat: str) -> None:
        super().__init__(f"the chat is {chat} now")
        self.chat = chat


class Fatal(Exception):
    """The platform will not let us in as we are configured (wrong token, missing right). A sentence that says what to
    do; never the token. The channel is `dead` until its config changes."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a platform takes, edits and typing included: seconds between two messages to a chat, messages a minute to a
    shared chat (0: no other limit), seconds between any two requests."""

    chat_s: float = 0.0
    shared_per_minute: int = 0
    all_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """`text`: the longest message in UTF-16 code units, once it is in the form `markup`. `pieces`: a text of more
    messages goes out as a file. `tells`: whether `find` can say if a send arrived."""

    text: int = 4096
    markup: Literal["plain", "spans", "discord", "slack"] = "plain"
    pieces: int = 8
    tells: bool = False
    reactions: bool = False
    buttons: bool = False
    edits: bool = False
    stream_s: float = 0.0
    """Seconds between two edits of a message that grows; 0: nothing is streamed."""
    stream_shared_s: float = 0.0
    """The same in a shared chat."""
    typing_s: float = 0.0
    """Seconds after which a typing notice must be said again; 0: there is none."""
    files: bool = True
    """Whether a file can be sent."""
    file_bytes: int = 10 << 20
    """The largest file that can be sent."""
    fetch_bytes: int = 20 << 20
    """The largest file that can be fetched."""
    rates: Rates = Rates()


# What every platform takes, for what is put together where nobody knows the channel.
NOTICE = ChannelLimits(text=1900)


def imported(*names: str) -> None:
    """Import what an adapter stands on; in a thread, for it takes long. Garbage is not collected meanwhile, and what
    came is passed over from then on: to look through all of it would stop the event loop."""
    if all(name in sys.modules for name in names):
        return
    gc.disable()
    try:
        for name in names:
            importlib.import_module(name)
        gc.freeze()
    finally:
        gc.enable()


def handle(name: str) -> str:
    """A name that somebody chose, as one short word: it may stand inside of what somebody else typed."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_")[:32] or "somebody"


class Inbox(Protocol):
    """What an adapter hands messages to, and tells of its life."""

    async def receive(self, incoming: Incoming, cursor: str | None = None) -> Receipt:
        """When it returns, the message is durable, and so is the cursor, in one commit: acknowledge it then. Never
        raises for what a message holds: such a one is refused, and its sender is told."""
        ...

    async def keep(self, cursor: str) -> None:
        """The place up to which the platform was read, where there was nothing for us."""
        ...

    async def cursor(self) -> str | None:
        """The last place that was kept."""
        ...

    async def moved(self, chat: str, now: str, cursor: str) -> None:
        """A chat has another id from now on, which is durable with the cursor. Inside it keeps its first one."""
        ...

    def heard(self) -> None:
        """The platform said something just now (data, an empty poll's answer, a heartbeat's): the channel is live."""
        ...

    def trouble(self, why: str) -> None:
        """The connection is bad; the adapter goes on trying. One sentence, told once until it is live again."""
        ...


class Adapter:
    """A channel. What a platform has not is left as it is here. `send` and what follows may be called while `run` is
    not at work: then NotSent, and it is tried again."""

    name: str
    limits: ChannelLimits

    async def run(self, inbox: Inbox) -> None:
        """Connect, with a new client, and take in until cancelled; then nothing is left open. Raises Fatal; anything
        else that it raises has it started again with a back-off."""
        raise NotImplementedError

    async def send(self, message: Outgoing) -> str:
        """Send and give the platform's id. With `edits` that message is given this text instead (the same text again is
        no error). A `reaction` puts its text, an emoji, on the message `target`. Raises NotSent, Unsure, SendRefused,
        FormatRefused, ChatMoved."""
        raise NotImplementedError

    async def find(self, message: Outgoing) -> str | None:
        """The platform's id of an earlier attempt, or None when it surely did not arrive. Only where `limits.tells`.
        Raises Unsure where it will never be known; NotSent, and anything else, where it may be asked again."""
        return None

    async def delete(self, chat: str, id: str) -> None:
        """Take one of our messages back. Raises SendRefused."""
        raise SendRefused(f"{self.name} cannot take a message back")

    async def typing(self, chat: str, thread: str) -> None:
        """Say that an answer is on its way. May raise anything: it is only a courtesy."""

    async def fetch(self, attachment: Attachment, to: Path) -> None:
        """Write a file that came with a message to `to`, at most `limits.fetch_bytes`. Raises SendRefused with a
        sentence when that can never be had, anything else when it may be tried again."""
        raise SendRefused(f"{self.name} has no files")

    async def commands(self, table: Mapping[str, str]) -> None:
        """Register the chat commands, {word: help}, with the platform, if they are not what it has."""

    async def test(self, chats: Sequence[str]) -> list[Check]:
        """Whether token and rights are as they must be, and a round trip to the first of these chats; without `run`."""
        return []


class AdapterFactory(Protocol):
    """What the entry point names: called with the channel's own table of `config.toml`, secrets revealed."""

    def __call__(self, settings: dict[str, Any]) -> Adapter: ...
