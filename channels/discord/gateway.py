"""Discord's gateway: one client of discord.py, its events in their order, and whether anything comes at all.

The library keeps its addresses in class attributes: they are set for the whole process where the config has others.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from channels.discord.api import kind
from channels.discord.events import Place
from clawd.channel import Fatal, Inbox, imported
from clawd.model import Incoming

if TYPE_CHECKING:
    import discord

API = "https://discord.com/api/v10"
GATEWAY = "wss://gateway.discord.gg/"
KNOWN = 200  # channels whose newest message the cursor holds
# Read by us, as they come.
_READ = ("MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "MESSAGE_DELETE_BULK", "INTERACTION_CREATE")
_EVENTS = frozenset(("READY", "RESUMED", *_READ))
_LOST_S, _REBUILD_S = 10.0, 60.0  # without a session: trouble; a new client
_WRONG_TOKEN = (
    "Discord does not take this token: make a new one in the developer portal (Bot, Reset Token) and put it where"
    " [channels.discord] token refers to"
)
INTENTS = (
    "Discord refuses the Message Content Intent: turn it on in the developer portal (Bot, Privileged Gateway Intents,"
    " Message Content Intent)"
)


def api_base(settings: Mapping[str, Any]) -> str:
    return str(settings.get("api_base") or API).rstrip("/")


@asynccontextmanager
async def entered(settings: Mapping[str, Any], tap: Callable[..., None]) -> AsyncIterator[discord.Client]:
    """A new client that Discord has let in, without its gateway. Nothing of it is left behind."""
    await anyio.to_thread.run_sync(imported, "discord")
    import aiohttp
    import discord
    import yarl
    from discord.gateway import DiscordWebSocket
    from discord.http import Route

    class Client(discord.Client):
        def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
            tap(event, *args)

    logging.getLogger("discord").setLevel(logging.CRITICAL)  # an outage is told once, by us
    if not (token := settings.get("token")):
        raise Fatal(_WRONG_TOKEN)
    base = api_base(settings)
    if base != Route.BASE:
        Route.BASE = base
    intents = discord.Intents.none()
    intents.guilds = intents.messages = intents.message_content = True
    connector = aiohttp.TCPConnector(limit=0)
    client = Client(
        intents=intents,
        connector=connector,
        max_messages=None,
        member_cache_flags=discord.MemberCacheFlags.none(),
        chunk_guilds_at_startup=False,
        guild_ready_timeout=0.0,
        enable_debug_events=True,
        max_ratelimit_timeout=30.0,
    )
    for event in _READ:  # what the library cannot parse would end the connection
        client._connection.parsers.pop(event, None)
    try:
        try:
            with anyio.fail_after(60):
                await client.login(token)
                where = settings.get("gateway_url") or (GATEWAY if base == API else None)
                gateway = yarl.URL(where or (await client.http.get_bot_gateway())[1])
        except discord.LoginFailure:
            raise Fatal(_WRONG_TOKEN) from None
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            raise ConnectionError(
                f"Discord cannot be reached, or does not let us in ({kind(error)}): look at the network and api_base"
            ) from None
        if gateway != DiscordWebSocket.DEFAULT_GATEWAY:
            DiscordWebSocket.DEFAULT_GATEWAY = gateway
        yield client
    finally:
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(5):
                await client.close()
            await connector.close()


async def connected(client: discord.Client) -> None:
    """For as long as the library keeps up the gateway, with its reconnects."""
    import discord

    try:
        await client.connect()
    except discord.PrivilegedIntentsRequired:
        raise Fatal(INTENTS) from None
    except discord.ConnectionClosed as error:
        if error.code == 4004:
            raise Fatal(_WRONG_TOKEN) from None
        if error.code in (4010, 4011, 4012, 4013):
            raise Fatal(f"Discord refuses this bot at its gateway, code {error.code}") from None
        raise ConnectionError(f"Discord closed the gateway, code {error.code}") from None
    except AttributeError:
        if client.ws is not None:
            raise
        raise ConnectionError("Discord's gateway cannot be reached") from None  # the first handshake failed
    raise ConnectionError("the connection to Discord ended")


class Line:
    """What comes over one client's gateway, and since when there is a session (`ready`) or none (`lost`)."""

    def __init__(self, inbox: Inbox, cursor: str | None) -> None:
        self.inbox = inbox
        self.seen: dict[str, list[Any]] = json.loads(cursor) if cursor else {}
        """Of each channel that we know: its newest message, its chat, whether that is direct."""
        self._put, self.events = anyio.create_memory_object_stream[tuple[str, Any]](10_000)
        self._frame, self._heartbeat = "", 41.25
        self.ready, self.lost, self.at = False, time.monotonic(), math.inf
        self._turned = anyio.Event()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._put.close()
        self.events.close()

    def tap(self, event: str, *args: Any) -> None:
        """The library's `dispatch`. A heartbeat's answer counts as well as an event."""
        if event == "socket_raw_receive":
            self._frame, self.at = args[0], time.monotonic()
            if '"heartbeat_interval"' in self._frame[:300]:
                self._heartbeat = json.loads(self._frame)["d"]["heartbeat_interval"] / 1000
            if self.ready:
                self.inbox.heard()
        elif event == "socket_event_type" and args[0] in _EVENTS:
            if args[0] in ("READY", "RESUMED"):
                self.ready = True
                self._turned.set()
                self.inbox.heard()
            self._put.send_nowait((args[0], json.loads(self._frame)["d"]))
        elif event == "disconnect" and self.ready:
            self.ready, self.lost = False, time.monotonic()
            self._turned.set()

    async def watch(self, client: discord.Client) -> None:
        """A connection that says nothing, not even to heartbeats, is cut: the library resumes on a new one, at once and
        not after a minute. One that does not come back is given up: the library's own pauses grow to 17 minutes."""
        told, self.lost = False, time.monotonic()
        while True:
            due = self._silent() if self.ready else self.lost + (_REBUILD_S if told else _LOST_S)
            with anyio.move_on_after(due - time.monotonic()):
                await self._turned.wait()
            self._turned = anyio.Event()
            now = time.monotonic()
            if self.ready and now >= self._silent():
                self.ready, self.lost = False, now
                self.inbox.trouble("Discord says nothing any more; connecting again")
                if (raw := client.ws.socket.get_extra_info("socket")) is not None:
                    with contextlib.suppress(OSError):
                        raw.shutdown(socket.SHUT_RDWR)
            if self.ready:
                told = False
            elif now >= self.lost + _REBUILD_S:
                raise ConnectionError("Discord's gateway does not answer")
            elif now >= self.lost + _LOST_S and not told:
                told = True
                self.inbox.trouble("the connection to Discord broke; connecting again")

    def _silent(self) -> float:
        """When it will have been silent for too long."""
        return self.at + self._heartbeat * 1.25 + 2

    async def receive(self, incoming: Incoming, channel: str = "", place: Place | None = None) -> None:
        """Make it durable, and with it the place in a channel. We know a channel once something of it was kept."""
        known = self.seen.pop(channel, None)
        if place is not None:
            newest = max(incoming.platform_id, known[0], key=int) if known else incoming.platform_id
            self.seen[channel] = [newest, place.chat, place.direct]
        self.seen = dict([*self.seen.items()][-KNOWN:])
        cursor = json.dumps(self.seen)
        receipt = await self.inbox.receive(incoming, cursor if known else None)
        if place is not None and known is None:
            if receipt.message is None:
                del self.seen[channel]
            else:
                await self.inbox.keep(cursor)
