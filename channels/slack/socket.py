"""Slack's Socket Mode client, made to be watched and to leave nothing behind.

The library retries a used ticket for ever, hides what its requests were refused with, and works in tasks that outlive
it: here the time of the last data is kept, a refusal ends the waiting, and closing ends every task.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import anyio
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.web import SILENT
from clawd.channel import Fatal, NotSent

_CLOSING_S = 2.0


class Socket(SocketModeClient):
    """One client, for one connection at a time. `ticket` gives a new address, `take` is given each envelope."""

    def __init__(
        self,
        app_token: str,
        web: AsyncWebClient,
        ping_s: float,
        ticket: Callable[[], Awaitable[str]],
        take: Callable[[Socket, SocketModeRequest], None],
    ) -> None:
        super().__init__(
            app_token,
            logger=SILENT,
            web_client=web,
            proxy=web.proxy,
            ping_interval=ping_s,
            on_message_listeners=[self._text],
        )
        self._ticket, self._take = ticket, take
        self.socket_mode_request_listeners.append(self._request)
        self.fatal: Fatal | None = None
        self.crowded = self.spoke = False  # Slack has refused this connection for there are too many; has said anything
        self._data, self._pong, self._next_ticket = time.monotonic(), 0.0, -math.inf
        self._news = anyio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, url: str | None) -> None:
        """Connect, first with this ticket, for as long as it takes."""
        self.wss_uri = url
        self._tasks.add(asyncio.ensure_future(self.connect()))  # type: ignore[no-untyped-call]

    def quiet(self) -> float:
        """Seconds since the last data: a frame, or the answer to a ping of ours."""
        pong = self.last_ping_pong_time or 0.0  # the library itself sets the first one of a connection
        if pong and self._pong and pong != self._pong:
            self._data, self.spoke = time.monotonic(), True
        self._pong = pong
        return time.monotonic() - self._data

    async def news(self) -> None:
        """Wait for data, for the end, or for the time between two pings."""
        with anyio.move_on_after(self.ping_interval):
            await self._news.wait()
        self._news = anyio.Event()

    async def _text(self, message: aiohttp.WSMessage) -> None:
        self._data, self.spoke = time.monotonic(), True
        frame = json.loads(message.data)
        if frame.get("type") in ("hello", "disconnect"):
            self.crowded = frame.get("reason") == "too_many_websockets"
            if frame.get("reason") == "link_disabled":
                self.fatal = Fatal(
                    "Socket Mode is off for the Slack app: turn it on (Settings → Socket Mode) and reload clawd"
                )
        self._news.set()

    async def _request(self, _: Any, request: SocketModeRequest) -> None:
        self._take(self, request)

    async def issue_new_wss_url(self) -> str:
        """Not twice within a ping: a connection that is closed as soon as it is made would ask all the time."""
        now = time.monotonic()
        if now < self._next_ticket:
            raise ConnectionError("it is too early to ask again")
        self._next_ticket = now + self.ping_interval
        try:
            return await self._ticket()
        except NotSent as error:
            self._next_ticket = max(self._next_ticket, now + (error.retry_after or 0.0))
            raise
        except Fatal as error:
            self.fatal = error
            self._news.set()
            raise

    async def run_message_listeners(self, message: dict[str, Any], raw_message: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await super().run_message_listeners(message, raw_message)
        finally:
            self._tasks.discard(task)

    async def end(self) -> None:
        """Close the connection and wait for the end of every task; a peer that is silent cannot hold it up."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_CLOSING_S), contextlib.suppress(Exception):
                await self.close()  # type: ignore[no-untyped-call]
            self.closed = True
            own = (self.message_processor, self.current_session_monitor, self.message_receiver)
            tasks = [*self._tasks, *(each for each in own if each is not None)]
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.aiohttp_client_session.close()
