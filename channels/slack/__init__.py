"""Slack, by Socket Mode: one web client and one connection, new ones for each `run`.

An envelope is acknowledged only once its message is durable, and one that could not be kept is not, so that Slack sends
it again. Envelopes are taken one after the other, in their order.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from channels.slack import reading, refusals, writing
from channels.slack.reading import Us
from clawd.channel import Adapter, ChannelLimits, Fatal, Inbox, NotSent, Rates, SendRefused, Unsure, imported
from clawd.model import Attachment, Check, Outgoing

if TYPE_CHECKING:
    from slack_sdk.socket_mode.request import SocketModeRequest

    from channels.slack.socket import Socket
    from channels.slack.web import Web

    Envelope = tuple[Socket, SocketModeRequest]

log = logging.getLogger(__name__)

# What the manifest of docs/slack.md asks for.
RIGHTS = [
    "app_mentions:read",
    *(f"{each}:history" for each in ("channels", "groups", "im", "mpim")),
    *(f"{each}:read" for each in ("channels", "groups", "mpim", "users", "files")),
    *("chat:write", "files:write", "reactions:write", "commands"),
]
_EVENT = "clawd_delivery"  # our messages' metadata
_LOOK_BACK = 999  # messages in which an earlier attempt is looked for
_NAME_S, _NAMES, _NAME_WAIT_S = 3600.0, 1000, 1.0
_STALE, _REBUILD = 4, 12  # pings without data, until a new ticket is asked for and until there is a new client
_LONGEST_WAIT_S, _ACK_S = 30.0, 10.0


class Slack(Adapter):
    """`settings`: bot_token, app_token, api_base, ping_s."""

    name = "slack"
    limits = ChannelLimits(
        text=4000,
        markup="slack",
        tells=True,
        reactions=True,
        buttons=True,
        edits=True,
        stream_s=1.6,
        stream_shared_s=2.0,
        typing_s=60.0,
        file_bytes=50 << 20,
        fetch_bytes=50 << 20,
        rates=Rates(chat_s=1.0),
    )

    def __init__(self, settings: dict[str, Any]) -> None:
        self._bot_token, self._app_token = settings.get("bot_token") or "", settings.get("app_token") or ""
        self._base = str(settings.get("api_base") or "https://slack.com").rstrip("/")
        self._ping_s = float(settings.get("ping_s", 5.0))
        self._web: Web | None = None  # while `run` is in
        self._us = Us("", "", "")
        self._words: frozenset[str] = frozenset()
        self._names: dict[str, tuple[str, float]] = {}  # id: name, until when
        self._uploads: dict[str, str] = {}  # nonce: id of a file whose completion is in doubt

    # ---- taking in

    async def run(self, inbox: Inbox) -> None:
        async with self._client() as web:
            url = await self._enter(inbox, web)
            waiting, envelopes = anyio.create_memory_object_stream["Envelope"](math.inf)
            try:
                self._web = web
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._take_in, inbox, envelopes)
                    fatal = await self._stay(inbox, web, url, waiting)
                    tasks.cancel_scope.cancel()
            finally:
                self._web = None
                waiting.close()
                envelopes.close()
        raise fatal

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Web]:
        for token in ("bot_token", "app_token"):
            if not getattr(self, f"_{token}"):
                raise Fatal(f"[channels.slack] has no {token}: make one {refusals.WHERE}")
        await anyio.to_thread.run_sync(imported, "channels.slack.socket")
        from channels.slack import web

        async with web.opened(self._bot_token, self._base) as client:
            yield client

    async def _enter(self, inbox: Inbox, web: Web) -> str:
        """Try both tokens, for as long as Slack cannot be reached. Gives a first ticket. Raises Fatal."""
        wait = 1.0
        while True:
            try:
                who = await _first(web, "bot_token", "auth_test")
                if not who.get("bot_id"):
                    raise Fatal("bot_token of [channels.slack] is a person's: take the one that begins with xoxb-")
                self._us = Us(who["user_id"], who.get("user") or "", who["team_id"])
                return await self._ticket(web)
            except NotSent as error:
                inbox.trouble(str(error))
                await anyio.sleep(max(wait, min(error.retry_after or 0.0, _LONGEST_WAIT_S)))
                wait = min(wait * 2, _LONGEST_WAIT_S)

    async def _ticket(self, web: Web) -> str:
        answer = await _first(web, "app_token", "apps_connections_open", app_token=self._app_token)
        return str(answer["url"])

    async def _stay(self, inbox: Inbox, web: Web, url: str | None, waiting: MemoryObjectSendStream[Envelope]) -> Fatal:
        """Hold a connection until that is pointless. A silent one is given a new ticket, then a new client."""
        from channels.slack.socket import Socket

        def take(socket: Socket, request: SocketModeRequest) -> None:
            waiting.send_nowait((socket, request))

        while True:
            socket = Socket(self._app_token, web.client, self._ping_s, lambda: self._ticket(web), take)
            try:
                socket.begin(url)
                while (quiet := socket.quiet()) < _REBUILD * self._ping_s and not (fatal := socket.fatal or web.fatal):
                    if socket.crowded:
                        inbox.trouble("Slack closes our connections, too many are open: is clawd running twice?")
                    elif socket.spoke and quiet < 2 * self._ping_s:
                        inbox.heard()
                    if quiet > _STALE * self._ping_s:
                        inbox.trouble("Slack is silent; connecting again")
                        if not await socket.is_connected():
                            socket.wss_uri = None
                    await socket.news()
            finally:
                await socket.end()
            if fatal is not None:
                return fatal
            url = None

    async def _take_in(self, inbox: Inbox, envelopes: MemoryObjectReceiveStream[Envelope]) -> None:
        from slack_sdk.socket_mode.response import SocketModeResponse

        async for socket, request in envelopes:
            kind, payload = request.type, request.payload
            incoming = None
            try:
                if reading.incoming(kind, payload, self._us, {}, self._words) is not None:
                    names = await self._named(reading.unnamed(kind, payload))
                    incoming = reading.incoming(kind, payload, self._us, names, self._words)
            except Exception:  # sent again, it would be understood as little
                log.exception("slack: an event was not understood")
            try:
                if incoming is not None:
                    await inbox.receive(incoming)
            except Exception as error:
                log.warning("slack: a message could not be kept; Slack will send it again: %s", error)
                continue
            with anyio.move_on_after(_ACK_S):
                try:
                    await socket.send_socket_mode_response(SocketModeResponse(request.envelope_id))
                except Exception as error:  # the connection went; Slack sends it again, and it is known by then
                    log.info("slack: an acknowledgement was lost: %s", type(error).__name__)

    async def _named(self, ids: Sequence[str]) -> dict[str, str]:
        """The names of people and chats, as far as they can be had soon."""
        now = time.monotonic()
        with anyio.move_on_after(_NAME_WAIT_S):
            for id in ids[:8]:
                if self._names.get(id, ("", 0.0))[1] > now:
                    continue
                if len(self._names) >= _NAMES:
                    self._names.clear()
                self._names[id] = ("", now + _NAME_S / 60)
                try:
                    if id[0] in "UW":
                        user = (await self._call("users_info", safe=True, user=id))["user"]
                        profile = user.get("profile") or {}
                        name = profile.get("display_name") or user.get("real_name") or user.get("name")
                    else:
                        name = (await self._call("conversations_info", safe=True, channel=id))["channel"].get("name")
                except Exception as error:  # whatever Slack answered: a message is not lost for a name
                    log.debug("slack: no name of %s: %s", id, type(error).__name__)
                else:
                    self._names[id] = (name or "", now + _NAME_S)
        return {id: self._names[id][0] for id in ids if self._names.get(id, ("",))[0]}

    # ---- sending

    async def send(self, message: Outgoing) -> str:
        if message.kind == "reaction":
            return await self._react(message)
        if message.path is not None:
            return await self._upload(message, message.path)
        body: dict[str, Any] = {"channel": message.chat, "text": writing.escaped(message.text), "parse": "none"}
        blocks = writing.blocks(message)
        if blocks:
            body["blocks"] = blocks
        formed = message.formatted is not None
        if message.edits:
            await self._call("chat_update", formed=formed, ts=message.edits, **body)
            return message.edits
        answer = await self._call(
            "chat_postMessage",
            formed=formed,
            thread_ts=message.thread or None,
            metadata={
                "event_type": _EVENT,
                "event_payload": {"nonce": message.nonce, "delivery": message.delivery},
            },
            **writing.AS_IT_STANDS,
            **body,
        )
        return str(answer["ts"])

    async def find(self, message: Outgoing) -> str | None:
        """By our metadata. Raises Unsure where nothing can be told, NotSent where it may be asked again."""
        try:
            if message.path is not None:
                return await self._find_file(message)
            thread: dict[str, Any] = {"ts": message.thread} if message.thread else {}
            answer = await self._call(
                "conversations_replies" if thread else "conversations_history",
                safe=True,
                channel=message.chat,
                include_all_metadata=True,
                limit=_LOOK_BACK,
                **thread,
            )
        except SendRefused as error:
            raise Unsure(str(error)) from None
        for each in sorted(answer["messages"], key=lambda each: float(each["ts"]), reverse=True):
            if each.get("user") != self._us.user or each.get("files"):
                continue
            metadata = each.get("metadata") or {}
            if metadata.get("event_type") != _EVENT:
                raise Unsure("Slack does not show what our messages are marked with")
            payload = metadata["event_payload"]
            if payload["nonce"] == message.nonce:
                return str(each["ts"])
            if payload["delivery"] < message.delivery:  # a chat's deliveries leave in their order
                return None
        if answer.get("has_more"):
            raise Unsure(f"it is not among the chat's last {_LOOK_BACK} messages")
        return None

    async def delete(self, chat: str, id: str) -> None:
        if id.startswith("F"):
            await self._call("files_delete", file=id)
        else:
            await self._call("chat_delete", channel=chat, ts=id)

    async def typing(self, chat: str, thread: str) -> None:
        if thread:
            await self._call("assistant_threads_setStatus", channel_id=chat, thread_ts=thread, status="is thinking…")

    async def commands(self, table: Mapping[str, str]) -> None:
        """Slack registers commands in the app's manifest alone; here they are only known."""
        self._words = frozenset(table)

    async def _react(self, message: Outgoing) -> str:
        if (name := writing.emoji(message.text)) is None:
            raise SendRefused(f"Slack has no name for {message.text} that clawd knows")
        try:
            await self._call("reactions_add", channel=message.chat, timestamp=message.target, name=name)
        except refusals.Refused as error:
            if error.code != "already_reacted":
                raise
        return message.target or ""

    async def _upload(self, message: Outgoing, path: Path) -> str:
        """Gives the file's id. Only its completion shows it to anybody, so what fails before may be done again. The
        library's own way would read the file within the event loop."""
        name, size = message.name or path.name, (await anyio.Path(path).stat()).st_size
        place = await self._call("files_getUploadURLExternal", safe=True, filename=name, length=size)
        id = str(place["file_id"])
        await self._connected().put(str(place["upload_url"]), path)
        self._uploads[message.nonce] = id
        try:
            await self._call(
                "files_completeUploadExternal",
                files=[{"id": id, "title": name}],
                channel_id=message.chat,
                thread_ts=message.thread or None,
                initial_comment=writing.escaped(message.text) or None,
            )
        except (NotSent, SendRefused):  # surely not there: nothing is to be looked for
            del self._uploads[message.nonce]
            raise
        del self._uploads[message.nonce]
        return id

    async def _find_file(self, message: Outgoing) -> str | None:
        id = self._uploads.get(message.nonce)
        if id is None:
            raise Unsure("a file that was sent before clawd was started again is not to be found")
        try:
            await self._call("files_info", safe=True, file=id)
        except refusals.Refused as error:
            if error.code != "file_not_found":
                raise
            id = None
        self._uploads.pop(message.nonce, None)
        return id

    # ---- files of others

    async def fetch(self, attachment: Attachment, to: Path) -> None:
        web, url = self._connected(), attachment.handle.get("url")
        if not url:  # of another workspace's file Slack tells it only when asked
            file = (await web.call("files_info", safe=True, file=attachment.handle["id"]))["file"]
            url = file.get("url_private_download") or file.get("url_private") or ""
        await web.get(url, attachment, to, self.limits.fetch_bytes)

    # ---- looking

    async def test(self, chats: Sequence[str]) -> list[Check]:
        checks: list[Check] = []
        try:
            async with self._client() as web:
                who = await _first(web, "bot_token", "auth_test")
                checks.append(Check(f"bot token: {who.get('user')} in {who.get('team')}", True))
                has = set(who["scopes"])
                lacking = [each for each in RIGHTS if each not in has]
                checks.append(
                    Check("rights", not lacking, f"{', '.join(lacking)}: {refusals.REINSTALL}" if lacking else "")
                )
                await self._ticket(web)
                checks.append(Check("app token, Socket Mode", True))
                for chat in chats[:1]:
                    chat = chat.rpartition("/")[2]
                    text: dict[str, Any] = {"text": "This is a test by clawd; it goes away.", "channel": chat}
                    sent = await web.call("chat_postMessage", **text, **writing.AS_IT_STANDS)
                    await web.call("chat_delete", channel=chat, ts=sent["ts"])
                    checks.append(Check(f"round trip to {chat}", True))
        except (Fatal, NotSent, SendRefused, Unsure) as error:
            what = ("bot token", "rights", "app token, Socket Mode", "round trip")[len(checks)]
            checks.append(Check(what, False, str(error)))
        return checks

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._connected().call(method, **params)

    def _connected(self) -> Web:
        if self._web is None:
            raise NotSent("Slack is not connected")
        return self._web


async def _first(web: Web, token: str, method: str, **params: Any) -> dict[str, Any]:
    """A call whose refusal is the token's fault. Raises Fatal and NotSent."""
    try:
        return await web.call(method, safe=True, token=token, **params)
    except SendRefused as error:
        raise NotSent(str(error), 10.0) from None
