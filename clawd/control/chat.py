"""A conversation over the control socket: what was sent on this connection, and the news and deliveries that
answer it.

Deliveries are told at least once and carry their id; the client shows each id once and says that it was seen.
News may be lost; an outcome is read from the ledger whenever some news suggests that it changed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from clawd.config.models import checked
from clawd.errors import UsageError
from clawd.ids import check_speaker
from clawd.model import Incoming, Outgoing, Receipt
from clawd.signals import News, Signals, Subscription
from clawd.trust import Role

_STREAM = ("delta", "tool", "turn")
_DECIDING = ("turn", "message", "delivery")
_UNDERWAY = ("received", "queued", "claimed", "answered")  # no outcome yet

Send = Callable[[str, dict[str, Any]], Awaitable[None]]


class Mailbox(Protocol):
    """What arrives at an attached terminal. Iteration ends when the terminal fell too far behind."""

    def __aiter__(self) -> Mailbox: ...

    async def __anext__(self) -> Outgoing: ...

    def arrived(self) -> list[Outgoing]:
        """Take what is there already, without waiting."""
        ...


class TerminalLike(Protocol):
    """The terminal channel, as a conversation needs it."""

    def attach(self, chat: str, thread: str) -> AbstractContextManager[Mailbox]: ...


class ChatHost(Protocol):
    """What the daemon gives to conversations."""

    @property
    def signals(self) -> Signals: ...

    @property
    def terminal(self) -> TerminalLike: ...

    async def open(self, group: str, session: str | None) -> tuple[str, str]:
        """(group, session id). Makes `main` on first use; raises NotFound for another group that does not
        exist."""
        ...

    async def receive(self, incoming: Incoming) -> Receipt:
        """Accept a message durably. The same (chat, platform_id) again is the same message."""
        ...

    async def outcome(self, message: int) -> dict[str, Any] | None:
        """How a message ended: {state, turn, session, group, reply, files[], engine, model, backend, attempt,
        ms, usage, error}; None while it is open; {"state": "held", "error": sentence} while its turn is
        held."""
        ...

    async def unseen(self, chat: str, thread: str) -> list[Outgoing]:
        """Deliveries that no terminal has acknowledged, oldest first."""
        ...

    async def seen(self, deliveries: list[int]) -> None:
        """A terminal has shown these to a person."""
        ...


def text_of(params: dict[str, Any], key: str) -> str:
    """A string parameter that is there and not empty. Raises UsageError."""
    value = params.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{key}: {value!r} is not usable" if value else f"{key} is missing")
    return value


def same_session(opened: str, told: str) -> bool:
    """Whether news of session `told` belongs to a conversation that opened `opened`: itself, or its next
    segments."""
    rest = told.removeprefix(re.sub(r"\.\d+$", "", opened))
    return told == opened or (rest != told and bool(re.fullmatch(r"(\.\d+)?", rest)))


class Conversation:
    """One connection's chat. `open` first; `close` ends its pumps with the task group that it was given."""

    def __init__(self, host: ChatHost, tasks: TaskGroup, send: Send) -> None:
        self._host = host
        self._tasks = tasks
        self._send = send
        self._group = self._session = self._sender = self._thread = ""
        self._own_session: str | None = None
        self._choice: dict[str, str] = {}
        self._told: dict[int, str] = {}  # messages sent here, and the state that their client knows
        self._mailbox: Mailbox | None = None
        self._news: Subscription | None = None
        self._deciding = anyio.Lock()

    async def open(self, params: dict[str, Any]) -> dict[str, Any]:
        """{group?, session?, as?, replay?, choice?} → {group, session}. What was not seen follows as events with
        `replay`; `choice` is the owner's of engine, model and effort, for the turns of this conversation alone."""
        if self._group:
            raise UsageError("this connection has a conversation already")
        sender = check_speaker(text_of({"as": "owner", **params}, "as"))
        choice = checked(params.get("choice"))
        if choice and sender != Role.OWNER:
            raise UsageError("only the owner chooses the engine, the model and the effort")
        own = text_of(params, "session") if params.get("session") is not None else None
        group, session = await self._host.open(text_of({"group": "main", **params}, "group"), own)
        self._group, self._session, self._sender = group, session, sender
        self._own_session, self._thread, self._choice = own, own or "", choice
        await self._tasks.start(self._deliveries)
        await self._tasks.start(self._follow)
        if params.get("replay"):
            for message in await self._host.unseen(group, self._thread):
                await self._message(message)
        return {"group": group, "session": session}

    async def send(self, params: dict[str, Any]) -> dict[str, Any]:
        """{text, platform_id} → the Receipt. Its outcome follows as an event."""
        self._require_open()
        receipt = await self._host.receive(
            Incoming(
                channel="terminal",
                chat=self._group,
                thread=self._thread,
                platform_id=text_of(params, "platform_id"),
                sender=self._sender,
                texts=(text_of(params, "text"),),
                at=datetime.now(UTC),
                session=self._own_session,
                direct=True,
                choice=self._choice,
            )
        )
        if receipt.message is not None:
            self._told[receipt.message] = ""
            if receipt.state not in _UNDERWAY or receipt.turn is None or not receipt.fresh:
                self._tasks.start_soon(self._decide)
        return asdict(receipt)

    async def seen(self, params: dict[str, Any]) -> dict[str, Any]:
        """{deliveries: [id]} → {}."""
        self._require_open()
        deliveries = params.get("deliveries")
        if not isinstance(deliveries, list) or not all(type(number) is int for number in deliveries):
            raise UsageError("deliveries: a list of numbers is needed")
        await self._host.seen(deliveries)
        return {}

    def _require_open(self) -> None:
        if not self._group:
            raise UsageError("chat.open comes first")

    async def _deliveries(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with self._host.terminal.attach(self._group, self._thread) as self._mailbox:
            task_status.started()
            async for message in self._mailbox:
                await self._message(message)
        self._tasks.cancel_scope.cancel()  # fell behind: the client comes again and is replayed

    async def _follow(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with self._host.signals.subscribe() as self._news:
            task_status.started()
            async for news in self._news:
                if await self._forward(news) or self._news.missed():
                    await self._decide()

    async def _forward(self, news: News) -> bool:
        """Pass on what streams; gives whether an outcome may have changed."""
        if news.group not in ("", self._group):
            return False
        if news.kind in _STREAM and same_session(self._session, news.session):
            await self._send(news.kind, news.data)
        if not self._told or news.kind not in _DECIDING or news.data.get("state") in _UNDERWAY:
            return False
        return same_session(self._session, news.session)

    async def _catch_up(self) -> bool:
        """Pass on the news so far, so that what was streamed is told before what it became."""
        changed = False
        for news in self._news.arrived() if self._news else ():
            changed |= await self._forward(news)
        return changed

    async def _decide(self) -> None:
        """Tell the outcome of every message of this connection whose state is news to the client."""
        async with self._deciding:
            changed = True
            while changed:
                changed = False
                for message, told in list(self._told.items()):
                    outcome = await self._host.outcome(message)
                    if outcome is None or outcome["state"] == told:
                        continue
                    if outcome["state"] == "held":
                        self._told[message] = "held"
                    else:
                        del self._told[message]
                    changed |= await self._catch_up()
                    for delivered in self._mailbox.arrived() if self._mailbox else ():
                        await self._tell(delivered)
                    await self._send("outcome", {"message": message, **outcome})

    async def _message(self, message: Outgoing) -> None:
        if await self._catch_up():
            self._tasks.start_soon(self._decide)
        await self._tell(message)

    async def _tell(self, message: Outgoing) -> None:
        await self._send(
            "message",
            {
                "delivery": message.delivery,
                "turn": message.turn,
                "session": message.session,
                "kind": message.kind,
                "text": message.text,
                "name": message.name,
                "path": str(message.path) if message.path else None,
                "repeat": message.repeat,
            },
        )
