"""Stand-ins for the platforms, on loopback and real sockets: one module each, one class each (`telegram.Telegram`,
`slack.Slack`, `discord.Discord`), on the base here. The real client libraries drive them. They are as strict as the
real ones, and keep every call.

    with Telegram() as platform:                 # platform.config: TOML lines for config.toml; platform.env: its tokens
        platform.say("hello", chat="7", sender="7")               # a direct message; gives the platform's id of it
        platform.say("hi", chat="-100", sender="8", mention=True) # in a shared chat
        platform.wait(lambda: platform.texts("7") == ["hello!"])
        platform.fail(429, retry_after=1)        # the next call that sends; `after=True`: takes effect, answer lost
        platform.drop(); platform.freeze(); platform.thaw(); platform.down(); platform.up()
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Sent:
    """A message of ours as a person sees it now. `history`: every text that it had, the last one too. `spans`: what is
    formatted, as (kind, text). `rich`: whether it was sent in the platform's own form."""

    id: str
    chat: str
    text: str
    thread: str = ""
    reply_to: str | None = None
    name: str | None = None  # of a file
    data: bytes | None = None
    buttons: list[tuple[str, str]] = field(default_factory=list)  # label, value
    reactions: list[str] = field(default_factory=list)
    spans: list[tuple[str, str]] = field(default_factory=list)
    rich: bool = False
    deleted: bool = False
    history: list[str] = field(default_factory=list)
    at: list[float] = field(default_factory=list)  # monotonic, of each of `history`


@dataclass
class Fault:
    """What becomes of one call. `what`: "send" (messages, edits, files), "poll" (what brings events), "any"."""

    status: int = 500
    retry_after: float | None = None
    after: bool = False  # it takes effect, then the connection breaks without an answer
    hang: float = 0.0  # seconds before anything happens
    text: str | None = None  # the platform's words; None: its usual ones
    what: str = "send"


@dataclass
class Call:
    """One call of a client: the method as the platform names it, and its parameters."""

    method: str
    params: dict[str, Any]
    at: float


class Platform(ABC):
    """Listens on a free port of loopback from its making to `close`, in a thread and an event loop of its own."""

    name: str
    shared = "-100"  # a shared chat, and direct ones of three people
    owner, member, stranger = "7", "8", "9"
    threads = True
    typing = True
    deletes = True  # whether the platform tells of deletions
    edits = True  # whether people can edit what they said
    albums = True  # whether several files come as several messages of one album
    streams = True  # whether answers grow
    form_refusal = ""  # the platform's words (400) for a form that it refuses: platform.fail(400, text=form_refusal)

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.calls: list[Call] = []
        self.faults: deque[Fault] = deque()
        self.problems: list[str] = []  # what the real platform would have refused, and what surprised us
        self.typed: list[tuple[str, float]] = []  # chat, when
        self.live = 0  # connections that bring events, now
        self.port = 0
        self._frozen = asyncio.Event()
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner: web.AppRunner | None = None
        self.up()

    # ---- for tests, from any thread

    @property
    @abstractmethod
    def config(self) -> str:
        """Lines of config.toml that open this channel here."""

    @property
    @abstractmethod
    def env(self) -> dict[str, str]:
        """The environment that its secrets are in."""

    @abstractmethod
    def account(self, user: str) -> str:
        """A person as people.toml names it: `telegram:7`."""

    @abstractmethod
    def binding(self, chat: str) -> str:
        """A chat as group.toml names it."""

    @abstractmethod
    def direct(self, user: str) -> str:
        """The chat of one person with the bot."""

    def registered(self) -> set[str] | None:
        """The commands that the platform was told of; None where that is not done by a call."""
        return None

    @abstractmethod
    def chats(self) -> Iterator[str]:
        """More shared chats, each a new one in which the bot and everybody is."""

    @abstractmethod
    def thread(self, chat: str) -> str:
        """A new thread (a topic) of a shared chat."""

    @abstractmethod
    def say(
        self,
        text: str,
        chat: str = "",
        sender: str = "",
        *,
        thread: str = "",
        reply_to: str | None = None,
        mention: bool = False,
        files: list[tuple[str, bytes]] | None = None,
        album: bool = False,  # several files are several messages of one album, where the platform has such
        voice: bool = False,
        forwarded: str | None = None,  # the name of whose words they are
        bot: bool = False,
        at: float | None = None,  # seconds since 1970; now
        id: str | None = None,
    ) -> str:
        """Somebody writes; `chat` and `sender` are the owner's direct chat and the owner if empty. Gives its id."""

    @abstractmethod
    def edit(self, id: str, text: str, chat: str = "", sender: str = "") -> None: ...

    @abstractmethod
    def delete(self, id: str, chat: str = "") -> None: ...

    @abstractmethod
    def press(self, message: Sent, value: str, sender: str = "") -> None:
        """Somebody presses a button that is on a message of ours (or, forged, is not)."""

    @abstractmethod
    def again(self) -> None:
        """The platform delivers its last event once more."""

    @abstractmethod
    def drop(self) -> None:
        """Every connection that brings events breaks now."""

    def fail(self, status: int = 500, times: int = 1, **more: Any) -> None:
        self.faults.extend(Fault(status=status, **more) for _ in range(times))

    def freeze(self) -> None:
        """Half-open: what is connected stays, and nothing comes or is answered on it until `thaw`."""
        self._loop.call_soon_threadsafe(self._frozen.set)

    def thaw(self) -> None:
        self._loop.call_soon_threadsafe(self._frozen.clear)

    def texts(self, chat: str = "", thread: str | None = None) -> list[str]:
        """What a chat shows of us now, the owner's direct chat if empty."""
        chat = chat or self.direct(self.owner)
        return [
            each.text for each in self.sent if each.chat == chat and not each.deleted and thread in (None, each.thread)
        ]

    def wait(self, what: Callable[[], Any], seconds: float = 30.0) -> Any:
        """Until it is true; gives it."""
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < deadline, f"not in {seconds:g} s; shown: {[each.text for each in self.sent]}"
            with self._changed:
                self._changed.wait(0.05)
        return found

    def down(self) -> None:
        """Nobody listens, and every connection is broken."""
        self._run(self._stop())

    def up(self) -> None:
        self._run(self._start())

    def close(self) -> None:
        self.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def __enter__(self) -> Platform:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- for the platforms

    @abstractmethod
    def app(self) -> web.Application:
        """A new application with the platform's routes."""

    async def _start(self) -> None:
        if self._runner is None:
            self._runner = web.AppRunner(self.app(), shutdown_timeout=0.1, access_log=None)
            await self._runner.setup()
            site = web.TCPSite(self._runner, "127.0.0.1", self.port)
            await site.start()
            self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def _note(self, method: str, params: dict[str, Any]) -> None:
        self.calls.append(Call(method, params, time.monotonic()))

    def _show(self, message: Sent) -> Sent:
        message.history, message.at = [message.text], [time.monotonic()]
        self.sent.append(message)
        self.news()
        return message

    def _change(self, message: Sent, text: str) -> None:
        message.text = text
        message.history.append(text)
        message.at.append(time.monotonic())
        self.news()

    def news(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def fault(self, what: str) -> Fault | None:
        """The fault that this call is to have, taken off the queue."""
        for each in self.faults:
            if each.what in (what, "any"):
                self.faults.remove(each)
                return each
        return None
