"""Discord, on discord.py: the library is the gateway (heartbeats, RESUME, reconnects) and the client of the API.

Events are read as Discord sends them, by one task and in their order, so that each is durable before the next one is
looked at. After a READY nothing is replayed: what the channels that we know have missed is fetched, from the cursor on.
A message is sent with its delivery's nonce, which Discord enforces for some minutes: meanwhile it is safely repeated.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio

from channels.discord.api import call, command, edit, kind, nonce_of, post, shape
from channels.discord.events import Place, read_deletion, read_edit, read_interaction, read_message
from channels.discord.gateway import API, INTENTS, KNOWN, Line, api_base, connected, entered
from clawd.channel import Adapter, ChannelLimits, Fatal, Inbox, NotSent, Rates, SendRefused, Unsure
from clawd.model import Attachment, Check, Incoming, Outgoing

if TYPE_CHECKING:
    import discord
    from discord.http import HTTPClient

log = logging.getLogger(__name__)

_FILES = ("cdn.discordapp.com", "media.discordapp.net")
_PAGES = 20  # of 100 messages that are fetched of a channel after a READY


class Discord(Adapter):
    name = "discord"
    limits = ChannelLimits(
        text=2000,
        markup="discord",
        tells=True,
        reactions=True,
        buttons=True,
        edits=True,
        stream_s=1.2,
        stream_shared_s=1.2,
        typing_s=8.0,
        file_bytes=10 << 20,
        fetch_bytes=25 << 20,
        rates=Rates(chat_s=1.0, all_s=0.02),
    )

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._base = api_base(settings)
        self._client: discord.Client | None = None
        self._places: dict[str, Place] = {}  # of channels that the library does not know
        self._sent: dict[str, tuple[str, str]] = {}  # our newest messages by nonce: id, channel

    async def run(self, inbox: Inbox) -> None:
        with Line(inbox, await inbox.cursor()) as line:
            async with entered(self._settings, line.tap) as client:
                self._client = client
                try:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(line.watch, client)
                        tasks.start_soon(self._read, client, line)
                        await connected(client)
                except BaseExceptionGroup as failures:
                    raise failures.exceptions[0] from None
                finally:
                    self._client = None

    # ---- in

    async def _read(self, client: discord.Client, line: Line) -> None:
        async for name, data in line.events:
            if name == "READY":
                await self._missed(client, line)
            elif name == "MESSAGE_DELETE_BULK":
                for id in data["ids"]:
                    await self._take(client, line, "MESSAGE_DELETE", data | {"id": id})
            elif name != "RESUMED":
                await self._take(client, line, name, data)

    async def _take(
        self, client: discord.Client, line: Line, name: str, data: dict[str, Any], place: Place | None = None
    ) -> None:
        assert client.user is not None
        me, now = str(client.user.id), datetime.now(UTC)
        try:
            place = place or await self._place(client, data["channel_id"], data.get("guild_id"))
            match name:
                case "MESSAGE_CREATE":
                    if data["author"]["id"] == me and data.get("nonce"):
                        self._keep(str(data["nonce"]), data["id"], data["channel_id"])
                    incoming = read_message(data, place, me, self._roles(client, place, data))
                case "MESSAGE_UPDATE":
                    incoming = read_edit(data, place, me, self._roles(client, place, data))
                case "MESSAGE_DELETE":
                    incoming = read_deletion(data["id"], place, now)
                case _:
                    incoming = read_interaction(data, place)
            if incoming is None:
                return
            int(incoming.platform_id.partition(":")[0])  # the cursor compares them
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            log.exception("discord: an event cannot be read: %s", name)
            return
        if incoming.kind == "message":
            await line.receive(incoming, data["channel_id"], place)
        else:
            await line.receive(incoming)
        if name == "INTERACTION_CREATE":
            await self._acknowledge(client, incoming, data)

    async def _missed(self, client: discord.Client, line: Line) -> None:
        """After a READY: what was said in the channels that we know since what we saw last."""
        with anyio.move_on_after(2):  # the servers come one by one behind it, and with them our roles
            while any(guild.unavailable for guild in client.guilds):
                await anyio.sleep(0.05)
        for channel, (newest, chat, direct) in [*line.seen.items()]:
            place = Place(chat, channel if channel != chat else "", direct=direct)
            for _ in range(_PAGES):
                try:
                    page = await self._history(channel, 100, newest)
                except SendRefused as error:
                    log.warning("discord: what was missed in channel %s cannot be had: %s", channel, error)
                    break
                for data in reversed(page):
                    newest = data["id"]
                    await self._take(client, line, "MESSAGE_CREATE", dict(data), place)
                if len(page) < 100:
                    break

    async def _history(self, channel: str, most: int, after: Any = None) -> list[Any]:
        """Its newest messages, or the first ones after one; the newest first."""
        found: list[Any] = await self._call(lambda http: http.logs_from(channel, most, after=after), reads=True)
        return sorted(found, key=lambda each: -int(each["id"]))

    async def _place(self, client: discord.Client, channel: str, guild: str | None) -> Place:
        import discord

        if guild is None:
            return Place(channel, direct=True)
        found = client.get_channel(int(channel))
        if found is None:
            return self._places.get(channel) or await self._asked(client, channel)
        home = found.parent if isinstance(found, discord.Thread) else found
        title = f"#{getattr(home, 'name', channel)} ({getattr(getattr(home, 'guild', None), 'name', guild)})"
        if isinstance(found, discord.Thread):
            return Place(str(found.parent_id), channel, title, post=isinstance(home, discord.ForumChannel))
        return Place(channel, title=title)

    async def _asked(self, client: discord.Client, channel: str) -> Place:
        """A thread that was archived, say: the library knows the live ones only."""
        import discord

        try:
            data: dict[str, Any] = await self._call(lambda http: http.get_channel(channel), reads=True)
        except SendRefused:
            data = {}
        place = Place(channel, title=f"#{data.get('name', channel)}")
        if data.get("type") in (10, 11, 12):
            parent = client.get_channel(int(data["parent_id"]))
            place = Place(data["parent_id"], channel, post=isinstance(parent, discord.ForumChannel))
        if len(self._places) >= KNOWN:
            self._places.clear()
        self._places[channel] = place
        return place

    def _roles(self, client: discord.Client, place: Place, data: Mapping[str, Any]) -> frozenset[str]:
        """Our own roles in the server of a channel: who mentions one of them, mentions us."""
        known = client.get_channel(int(place.chat)) if data.get("mention_roles") else None
        if (guild := getattr(known, "guild", None)) is None:
            return frozenset()
        return frozenset(str(role.id) for role in (*(guild.me.roles if guild.me else ()), guild.self_role) if role)

    async def _acknowledge(self, client: discord.Client, incoming: Incoming, data: Mapping[str, Any]) -> None:
        """Within 3 s, or Discord says that we failed. The answer itself comes into the channel."""
        from discord.http import Route

        heard = {
            "type": 4,
            "data": {"content": " ".join(incoming.texts)[:1900], "flags": 1 << 6, "allowed_mentions": {"parse": []}},
        }
        route = Route(
            "POST",
            "/interactions/{webhook_id}/{webhook_token}/callback",
            webhook_id=data["id"],
            webhook_token=data["token"],
        )
        try:
            with anyio.fail_after(3):
                await client.http.request(route, json={"type": 6} if incoming.kind == "button" else heard)
        except Exception as error:
            log.info(
                "discord: %s %s was too late to be acknowledged: %s", incoming.kind, incoming.platform_id, kind(error)
            )

    # ---- out

    async def send(self, message: Outgoing) -> str:
        channel, target = message.thread or message.chat, message.edits or message.target or ""
        if message.kind == "reaction":
            await self._call(lambda http: http.add_reaction(channel, target, message.text))
            return target
        text = message.formatted.text if message.formatted else message.text
        if message.edits:
            await self._call(
                lambda http: http.edit_message(channel, target, params=edit(text, message)),
                form=message.formatted is not None,
            )
            return target
        nonce = nonce_of(message.nonce)
        sent = await self._call(
            partial(post, message, channel, text, nonce),
            form=message.formatted is not None,
            seconds=280.0 if message.path else 25.0,
        )
        self._keep(nonce, sent["id"], channel)
        return str(sent["id"])

    async def find(self, message: Outgoing) -> str | None:
        """By the nonce, if the message came by. Discord does not keep nonces; as a chat's rows leave one by one, it is
        else our newest message there, if that has this text. A wrong None is harmless while the nonce counts."""
        if (known := self._sent.get(nonce_of(message.nonce))) is not None:
            return known[0]
        channel, client = message.thread or message.chat, self._client
        texts = {each.strip() for each in (message.text, message.formatted.text if message.formatted else "")}
        try:
            page = await self._history(channel, 50)
        except SendRefused:
            return None
        me = str(client.user.id) if client and client.user else ""
        taken = {id for id, _ in self._sent.values()}
        for each in page:
            if each["author"]["id"] == me:
                names = [_bare(file["filename"]) for file in each["attachments"]]
                same = names == [_bare(message.name or "")] if message.path else each["content"].strip() in texts
                return each["id"] if same and each["id"] not in taken else None
        return None

    async def delete(self, chat: str, id: str) -> None:
        channel = dict(self._sent.values()).get(id, chat)
        await self._call(lambda http: http.delete_message(channel, id))

    async def typing(self, chat: str, thread: str) -> None:
        await self._call(lambda http: http.send_typing(thread or chat), reads=True)

    async def fetch(self, attachment: Attachment, to: Path) -> None:
        """A file's link runs out after a day: then its message is asked for a new one."""
        handle = attachment.handle
        if await self._download(handle["url"], to):
            return
        found = await self._call(lambda http: http.get_message(handle["channel"], handle["message"]), reads=True)
        files = [found, *(each["message"] for each in found.get("message_snapshots") or ())]
        urls = {file["id"]: file["url"] for each in files for file in each.get("attachments", ())}
        if handle["id"] not in urls or not await self._download(urls[handle["id"]], to):
            raise SendRefused(f"the file {attachment.name} is no longer there")

    async def _download(self, url: str, to: Path) -> bool:
        """False where the link has run out. Only from where Discord keeps files: a link is what somebody else sent."""
        import aiohttp

        where, base = urlsplit(url), urlsplit(self._base)
        if not (where.scheme == "https" and where.hostname in _FILES) and (
            self._base == API or (where.scheme, where.hostname) != (base.scheme, base.hostname)
        ):
            raise SendRefused("the file is not where Discord keeps files")
        most = self.limits.fetch_bytes
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300, sock_read=30)) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status in (403, 404):
                return False
            if answer.status != 200:
                raise ConnectionError(f"Discord's files answered {answer.status}")
            async with await anyio.open_file(to, "wb") as file:
                async for chunk in answer.content.iter_chunked(1 << 18):
                    if (most := most - len(chunk)) < 0:
                        raise SendRefused(f"the file is larger than {self.limits.fetch_bytes >> 20} MB")
                    await file.write(chunk)
        return True

    async def commands(self, table: Mapping[str, str]) -> None:
        wanted = [command(word, help) for word, help in table.items()]
        app = self._client.application_id if self._client else None
        there: list[Any] = await self._call(lambda http: http.get_global_commands(app or 0), reads=True)
        if sorted(map(shape, there)) != sorted(map(shape, wanted)):  # Discord takes 200 new ones a day
            await self._call(lambda http: http.bulk_upsert_global_commands(app or 0, wanted))

    async def test(self, chats: Sequence[str]) -> list[Check]:
        import discord

        checks: list[Check] = []
        try:
            async with entered(self._settings, lambda *_: None) as client:
                checks.append(Check(f"the token: it is {client.user}'s", True))
                flags = client.application_flags
                content = flags.gateway_message_content or flags.gateway_message_content_limited
                checks.append(Check("the Message Content Intent", content, "" if content else INTENTS))
                left = (await client.http.get_bot_gateway())[2]["remaining"]
                checks.append(Check("the gateway", left > 0, "" if left else "too many connections today: wait a day"))
                if chats:
                    checks.append(await self._round_trip(client, chats[0]))
        except Fatal as error:
            checks.append(Check("the token", False, str(error)))
        except (ConnectionError, discord.DiscordException) as error:
            checks.append(Check("Discord", False, str(error)))
        return checks

    async def _round_trip(self, client: discord.Client, chat: str) -> Check:
        probe = Discord(self._settings)
        probe._client = client
        what = f"a message to {chat}, and its deletion"
        try:
            message = Outgoing(
                0, self.name, chat, "", "notice", "This is a test of the connection.", secrets.token_hex(8)
            )
            await probe.delete(chat, await probe.send(message))
        except (NotSent, SendRefused, Unsure) as error:
            return Check(what, False, str(error))
        return Check(what, True)

    def _keep(self, nonce: str, id: str, channel: str) -> None:
        self._sent[nonce] = id, channel
        while len(self._sent) > KNOWN:
            del self._sent[next(iter(self._sent))]

    async def _call(self, request: Callable[[HTTPClient], Awaitable[Any]], **how: Any) -> Any:
        return await call(lambda: self._client, request, **how)


def _bare(name: str) -> str:
    """Of a file's name what Discord leaves as it is."""
    return "".join(filter(str.isalnum, name))
