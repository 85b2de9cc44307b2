"""Slack on loopback, as strict as the real one: tickets for one connection each, envelopes that are sent again until
they are acknowledged, our own messages as events like any other, scopes, files in three calls, refusals in its words.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

from aiohttp import WSMsgType, web
from markdown_it import MarkdownIt

from tests.platforms import Fault, Platform, Sent

BOT, TEAM = "U0BOT", "T012"
SENDS = {"chat.postMessage", "chat.update", "files.completeUploadExternal"}
SCOPES = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "chat.delete": "chat:write",
    "assistant.threads.setStatus": "chat:write",
    "reactions.add": "reactions:write",
    "users.info": "users:read",
    "files.info": "files:read",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
    "files.delete": "files:write",
}
ALL_SCOPES = {
    *SCOPES.values(),
    *(f"{kind}:{what}" for kind in ("channels", "groups", "mpim", "im") for what in ("history", "read")),
    *("app_mentions:read", "commands"),
}
EMOJI = {"eyes", "+1", "-1", "white_check_mark", "x", "heart", "tada", "fire"}
BLOCKS = {"markdown": {"text"}, "rich_text": {"elements"}, "section": {"text"}, "actions": {"elements"}}
HTML = "<!DOCTYPE html><html><head><title>Slack</title></head><body>Sign in</body></html>"


class Refusal(Exception):
    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.error, self.more = error, more


class Connection:
    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        self.socket, self.request, self.frozen = socket, request, False


class Slack(Platform):
    name = "slack"
    shared = "C100"
    owner, member, stranger = "U7", "U8", "U9"
    typing = False  # in threads alone
    albums = False  # several files are one message
    form_refusal = "invalid_blocks"
    bot_token, app_token = "xoxb-7-test-bot", "xapp-1-test-app"
    names: ClassVar[dict[str, str]] = {"U7": "Olga", "U8": "Max", "U9": "Eve", BOT: "clawd"}

    def __init__(self, ping_s: float = 0.5, resend_s: float = 2.0) -> None:
        self.ping_s, self.resend_s = ping_s, resend_s
        self.scopes = set(ALL_SCOPES)
        self.app_error = ""  # what apps.connections.open is refused with
        self.shows_metadata = True
        self.bot_id = "B0BOT"
        self.twice = False  # every envelope is sent twice at once
        self.members: set[str] = {self.shared, "D7", "D8", "D9"}  # chats that the bot is in
        self.archived: set[str] = set()
        self.messages: dict[tuple[str, str], dict[str, Any]] = {}
        self.files: dict[str, dict[str, Any]] = {}
        self.fetched: list[tuple[str, str]] = []  # path, the token that came along
        self.acknowledged: list[str] = []  # envelope ids
        self.lost: list[dict[str, Any]] = []  # envelopes that were given up
        self.opened = self.refused = 0  # handshakes
        self.connections: list[Connection] = []
        self._tickets: set[str] = set()
        self._waiting: dict[str, tuple[dict[str, Any], int, float]] = {}  # envelope, tries, when it is sent next
        self._last: dict[str, Any] = {}
        self._ts, self._ids = itertools.count(1), itertools.count(1)
        super().__init__()
        self._pump: asyncio.Task[None] = self._run(self._begin())

    # ---- for tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def config(self) -> str:
        return (
            '[channels.slack]\nenabled = true\nbot_token = "${env:SLACK_BOT_TOKEN}"\n'
            f'app_token = "${{env:SLACK_APP_TOKEN}}"\napi_base = "{self.url}"\nping_s = {self.ping_s}\n'
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What an adapter gets of `config`."""
        return {
            "bot_token": self.bot_token,
            "app_token": self.app_token,
            "api_base": self.url,
            "ping_s": self.ping_s,
        }

    @property
    def env(self) -> dict[str, str]:
        return {"SLACK_BOT_TOKEN": self.bot_token, "SLACK_APP_TOKEN": self.app_token}

    def account(self, user: str) -> str:
        return f"slack:{TEAM}/{user}"

    def binding(self, chat: str) -> str:
        return f"slack:{TEAM}/{chat}"

    def direct(self, user: str) -> str:
        return f"D{user[1:]}"

    def chats(self) -> Iterator[str]:
        for number in itertools.count(200):
            self.members.add(f"C{number}")
            yield f"C{number}"

    def thread(self, chat: str) -> str:
        """A message of somebody, from before we came, that others answer to."""
        ts = self.ts()
        self.messages[chat, ts] = {"type": "message", "user": self.member, "text": "once", "ts": ts}
        return ts

    def ts(self, at: float | None = None) -> str:
        return f"{int(time.time() if at is None else at)}.{next(self._ts):06}"

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
        album: bool = False,
        voice: bool = False,
        forwarded: str | None = None,
        bot: bool = False,
        at: float | None = None,
        id: str | None = None,
        **fields: Any,
    ) -> str:
        sender = sender or self.owner
        chat = chat or self.direct(sender)
        ts = id or self.ts(at)
        if reply_to is not None:  # to a message within a thread nobody can reply but by naming who wrote it
            root = self.messages[chat, reply_to]
            thread = root.get("thread_ts", reply_to)
            mention = mention or (thread != reply_to and root["user"] == BOT)
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        message = {
            "type": "message",
            "user": sender,
            "text": f"<@{BOT}> {text}" if mention else text,
            "ts": ts,
            "team": TEAM,
            "client_msg_id": str(uuid.uuid4()),
        }
        if thread:
            parent = self.messages.get((chat, thread), {})
            message |= {"thread_ts": thread, "parent_user_id": parent.get("user", self.member)}
        if bot:
            message |= {"bot_id": "B0OTHER", "subtype": "bot_message"}
        if files:
            message |= {"subtype": "file_share", "upload": False}
            message["files"] = [self.file(name, data, voice) for name, data in files]
        if forwarded is not None:
            message["text"] = ""
            message["attachments"] = [{"is_share": True, "is_msg_unfurl": True, "author_name": forwarded, "text": text}]
        self.post(chat, message | fields)
        return ts

    def post(self, chat: str, message: dict[str, Any]) -> None:
        """A message as Slack keeps it; the bot hears of it as far as its scopes go."""
        self.messages[chat, message["ts"]] = message
        about = {"channel": chat, "event_ts": message["ts"], "channel_type": "im" if chat[0] == "D" else "channel"}
        if f"{'im' if chat[0] == 'D' else 'channels'}:history" in self.scopes:
            self.event({**message, **about})
        if chat[0] != "D" and f"<@{BOT}" in message["text"]:
            mention = {key: message[key] for key in message if key not in ("subtype", "parent_user_id")}
            self.event({**mention, "type": "app_mention", "channel": chat, "event_ts": message["ts"]})

    def event(self, event: dict[str, Any]) -> str:
        """An event of the Events API. Gives the envelope's id."""
        payload = {"team_id": TEAM, "api_app_id": "A1", "type": "event_callback", "event": event}
        payload |= {"event_id": f"Ev{next(self._ids)}", "event_time": int(time.time())}
        return self.envelope("events_api", payload)

    def envelope(self, kind: str, payload: dict[str, Any], **more: Any) -> str:
        id = str(uuid.uuid4())
        made = {"envelope_id": id, "type": kind, "payload": payload, "accepts_response_payload": kind != "events_api"}
        self._last = made | more
        self._loop.call_soon_threadsafe(self._put, self._last)
        return id

    def file(self, name: str, data: bytes, voice: bool = False, **more: Any) -> dict[str, Any]:
        id = f"F{next(self._ids)}"
        mime = "audio/mp4" if voice else "text/html" if name.endswith(".html") else "text/plain"
        url = f"{self.url}/files/{id}/download/{name}"
        about: dict[str, Any] = {"id": id, "name": name, "title": name, "mimetype": mime, "size": len(data)}
        about |= {"mode": "hosted", "url_private_download": url} | ({"subtype": "slack_audio"} if voice else {}) | more
        self.files[id] = {"about": about, "data": data, "url": url}
        return about

    def edit(self, id: str, text: str, chat: str = "", sender: str = "") -> None:
        before = self.messages[chat or self.direct(sender or self.owner), id]
        edited = {"user": before["user"], "ts": self.ts()}
        self.changed(chat or self.direct(sender or self.owner), before, before | {"text": text, "edited": edited})

    def changed(self, chat: str, before: dict[str, Any], message: dict[str, Any]) -> None:
        self.messages[chat, before["ts"]] = message
        event = {"type": "message", "subtype": "message_changed", "hidden": True, "channel": chat, "ts": self.ts()}
        self.event(event | {"message": message, "previous_message": before})

    def delete(self, id: str, chat: str = "") -> None:
        chat = chat or self.direct(self.owner)
        event = {"type": "message", "subtype": "message_deleted", "hidden": True, "channel": chat, "ts": self.ts()}
        self.event(event | {"deleted_ts": id, "previous_message": self.messages.pop((chat, id))})

    def press(self, message: Sent, value: str, sender: str = "") -> None:
        user = sender or self.owner
        place = {"type": "message", "message_ts": message.id, "channel_id": message.chat, "is_ephemeral": False}
        if message.thread:
            place["thread_ts"] = message.thread
        action = {"type": "button", "action_id": "b0", "block_id": "x", "value": value, "action_ts": self.ts()}
        payload = {"type": "block_actions", "team": {"id": TEAM}, "user": {"id": user, "name": self.names[user]}}
        payload |= {"container": place, "channel": {"id": message.chat}, "actions": [action]}
        self.envelope("interactive", payload | {"trigger_id": f"{next(self._ids)}.1.x"})

    def slash(self, command: str, text: str = "", chat: str = "", sender: str = "") -> str:
        user = sender or self.owner
        payload = {"command": command, "text": text, "user_id": user, "user_name": self.names[user], "team_id": TEAM}
        payload |= {"channel_id": chat or self.direct(user), "channel_name": "general" if chat else "directmessage"}
        return self.envelope("slash_commands", payload | {"trigger_id": f"{next(self._ids)}.1.x"})

    def again(self) -> None:
        made = self._last | {"envelope_id": str(uuid.uuid4()), "retry_attempt": 1, "retry_reason": "timeout"}
        self._loop.call_soon_threadsafe(self._put, made)

    def drop(self) -> None:
        def work() -> None:
            for each in self.connections:
                if each.request.transport is not None:
                    each.request.transport.abort()  # type: ignore[attr-defined]

        self._loop.call_soon_threadsafe(work)

    def disconnect(self, reason: str) -> None:
        """What Slack says before it closes a connection; it closes it a moment later."""

        async def work() -> None:
            told = list(self.connections)
            for each in told:
                await each.socket.send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "x"}})
            await asyncio.sleep(0.1)
            for each in told:
                await each.socket.close()

        self._run(work())

    def freeze(self, new: bool = True) -> None:
        """With `new`, what connects from now on is not answered either."""
        for each in self.connections:
            each.frozen = True
        if new:
            super().freeze()

    def thaw(self) -> None:
        for each in self.connections:
            each.frozen = False
        super().thaw()

    # ---- the socket

    async def _begin(self) -> asyncio.Task[None]:
        return self._loop.create_task(self._send_envelopes())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._pump.cancel)
        super().close()

    def _put(self, envelope: dict[str, Any]) -> None:
        self._waiting[envelope["envelope_id"]] = (envelope, 0, 0.0)

    async def _send_envelopes(self) -> None:
        """To one of the connections; what is not acknowledged again, three times."""
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            for id, (envelope, tries, due) in list(self._waiting.items()):
                if due > now or not self.connections or id not in self._waiting:
                    continue
                if tries > 3:
                    self.lost.append(self._waiting.pop(id)[0])
                    continue
                if tries:
                    envelope |= {"retry_attempt": tries, "retry_reason": "timeout"}
                self._waiting[id] = (envelope, tries + 1, now + self.resend_s)
                to = self.connections[tries % len(self.connections)]
                if to.frozen:
                    continue
                with contextlib.suppress(ConnectionError):
                    for _ in range(1 + self.twice):
                        await to.socket.send_json(envelope)

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        await self._thawed()
        ticket = request.query.get("ticket", "")
        good = ticket in self._tickets
        self._tickets.discard(ticket)
        if not good or self.fault("socket"):
            self.refused += 1
            return web.Response(status=408, text="the ticket is used up")
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        connection = Connection(socket, request)
        self.opened += 1
        if len(self.connections) >= 10:
            self.problems.append("more than ten connections")
        self.connections.append(connection)
        self.live = len(self.connections)
        self.news()
        await socket.send_json({"type": "hello", "num_connections": self.live, "connection_info": {"app_id": "A1"}})
        await socket.ping(b"hello")
        try:
            async for message in socket:
                await self._frame(connection, message)
        finally:
            self.connections.remove(connection)
            self.live = len(self.connections)
            for id, (envelope, tries, _) in self._waiting.items():
                self._waiting[id] = (envelope, tries, 0.0)
            self.news()
        return socket

    async def _frame(self, connection: Connection, message: Any) -> None:
        if connection.frozen:
            return
        if message.type == WSMsgType.PING:
            await connection.socket.pong(message.data)
        elif message.type == WSMsgType.TEXT:
            answer = json.loads(message.data)
            if set(answer) - {"envelope_id", "payload"} or answer.get("payload"):
                self.problems.append(f"an acknowledgement is not {answer}")
            self._waiting.pop(answer["envelope_id"], None)
            self.acknowledged.append(answer["envelope_id"])
            self.news()

    async def _thawed(self) -> None:
        while self._frozen.is_set():
            await asyncio.sleep(0.02)

    # ---- the web API

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/api/{method}", self._call)
        app.router.add_get("/link", self._connect)
        app.router.add_post("/upload/{id}", self._put_file)
        app.router.add_get("/files/{id}/download/{name}", self._get_file)
        return app

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        params: dict[str, Any] = dict(request.query)
        if request.content_type == "application/json":
            params |= await request.json()
        else:
            params |= dict(await request.post())
        self._note(method, params)
        await self._thawed()
        fault = self.fault("poll" if method == "apps.connections.open" else "send" if method in SENDS else "other")
        if fault is not None:
            await asyncio.sleep(fault.hang)
            if not fault.after:
                return self._failed(fault)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            self._admit(method, token)
            answer = {"ok": True} | getattr(self, "_" + method.replace(".", "_"))(params)
        except Refusal as refusal:
            answer = {"ok": False, "error": refusal.error} | refusal.more
        if fault is not None and request.transport is not None:
            request.transport.abort()  # type: ignore[attr-defined]
        return web.json_response(answer, headers={"x-oauth-scopes": ",".join(sorted(self.scopes))})

    def _failed(self, fault: Fault) -> web.StreamResponse:
        if fault.status == 429:
            headers = {"Retry-After": f"{fault.retry_after or 1:g}"}
            return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)
        if fault.status >= 500:
            return web.Response(status=fault.status, text=HTML, content_type="text/html")
        return web.json_response({"ok": False, "error": fault.text or "invalid_blocks"})  # always with 200

    def _admit(self, method: str, token: str) -> None:
        app = method == "apps.connections.open"
        if token not in (self.bot_token, self.app_token):
            raise Refusal("invalid_auth")
        if (token == self.app_token) != app:
            raise Refusal("not_allowed_token_type")
        if app and self.app_error:
            raise Refusal(self.app_error, needed="connections:write", provided="")
        scope = SCOPES.get(method)
        if scope and scope not in self.scopes:
            raise Refusal("missing_scope", needed=scope, provided=",".join(self.scopes))

    def _channel(self, params: dict[str, Any], key: str = "channel") -> str:
        chat = str(params.get(key))
        if chat not in self.members:
            raise Refusal("channel_not_found")
        if chat in self.archived:
            raise Refusal("is_archived")
        return chat

    def _message(self, params: dict[str, Any], error: str) -> Sent:
        chat = self._channel(params)
        if self.messages.get((chat, str(params["ts"])), {}).get("user", BOT) != BOT:
            raise Refusal(error)
        for each in self.sent:
            if (each.chat, each.id, each.deleted) == (chat, params["ts"], False):
                return each
        raise Refusal("message_not_found")

    def _auth_test(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "url": self.url,
            "team": "Test",
            "user": "clawd",
            "team_id": TEAM,
            "user_id": BOT,
            "bot_id": self.bot_id,
        }

    def _apps_connections_open(self, params: dict[str, Any]) -> dict[str, Any]:
        ticket = uuid.uuid4().hex
        self._tickets.add(ticket)
        return {"url": f"ws://127.0.0.1:{self.port}/link?ticket={ticket}&app_id=A1"}

    def _chat_postMessage(self, params: dict[str, Any]) -> dict[str, Any]:
        chat = self._channel(params)
        shown = self._form(params)
        thread = params.get("thread_ts") or ""
        if params.get("unfurl_links") is not False or params.get("unfurl_media") is not False:
            self.problems.append("links are unfolded")
        ts = self.ts()
        self._show(Sent(ts, chat, thread=thread, **shown))
        message = {"type": "message", "user": BOT, "bot_id": self.bot_id, "text": params["text"], "ts": ts}
        if thread:
            message["thread_ts"] = thread
        self.post(chat, message | ({"metadata": params["metadata"]} if "metadata" in params else {}))
        return {"channel": chat, "ts": ts, "message": message}

    def _chat_update(self, params: dict[str, Any]) -> dict[str, Any]:
        sent = self._message(params, "cant_update_message")
        if params.get("parse") != "none":
            self.problems.append("an edit would be parsed as if a person had typed it")
        shown = self._form(params)
        sent.spans, sent.rich, sent.buttons = shown["spans"], shown["rich"], shown["buttons"]
        self._change(sent, shown["text"])
        before = self.messages[sent.chat, sent.id]
        edited = {} if params.get("blocks") else {"edited": {"user": BOT, "ts": self.ts()}}
        self.changed(sent.chat, before, before | {"text": params["text"]} | edited)
        return {"channel": sent.chat, "ts": sent.id, "text": params["text"]}

    def _chat_delete(self, params: dict[str, Any]) -> dict[str, Any]:
        sent = self._message(params, "cant_delete_message")
        sent.deleted = True
        self.delete(sent.id, sent.chat)
        return {"channel": sent.chat, "ts": sent.id}

    def _form(self, params: dict[str, Any]) -> dict[str, Any]:
        """What a person sees of a message."""
        text = params.get("text")
        if not text:
            raise Refusal("no_text")
        if len(text) > 40_000:
            raise Refusal("msg_too_long")
        if re.search(r"<[!@#][^>]*>", json.dumps(params, ensure_ascii=False)):
            self.problems.append("somebody is pinged")
        blocks = params.get("blocks") or []
        if isinstance(blocks, str) or len(blocks) > 50:
            raise Refusal("invalid_blocks")
        shown: dict[str, Any] = {"text": "", "spans": [], "rich": False, "buttons": []}
        if not blocks:
            if params.get("mrkdwn") is not False:
                self.problems.append("plain text would be read as mrkdwn")
            return shown | {"text": text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")}
        for block in blocks:
            if set(block) - {"type", "block_id"} != BLOCKS.get(block.get("type"), {"?"}):
                raise Refusal("invalid_blocks")
            if block["type"] == "markdown":
                if not 0 < len(block["text"]) <= 12_000:
                    raise Refusal("invalid_blocks")
                shown["text"], shown["spans"] = seen(block["text"])
                shown["rich"] = True
            elif block["type"] == "rich_text":
                [section] = block["elements"]
                shown["text"] = "".join(each["text"] for each in section["elements"])
                if section["type"] != "rich_text_section" or not shown["text"]:
                    raise Refusal("invalid_blocks")
            elif block["type"] == "actions":
                shown["buttons"] = [_button(each) for each in block["elements"]]
                if not 0 < len({each["action_id"] for each in block["elements"]}) == len(shown["buttons"]) <= 25:
                    raise Refusal("invalid_blocks")
        return shown

    def _history(self, params: dict[str, Any], among: list[dict[str, Any]]) -> dict[str, Any]:
        chat, limit = self._channel(params), int(params.get("limit", 100))
        kind = "im" if chat[0] == "D" else "channels"
        if f"{kind}:history" not in self.scopes:
            raise Refusal("missing_scope", needed=f"{kind}:history")
        shown = self.shows_metadata and str(params.get("include_all_metadata")).lower() in ("1", "true")
        found = [each if shown else {k: each[k] for k in each if k != "metadata"} for each in among[:limit]]
        return {"messages": found, "has_more": len(among) > limit}

    def _conversations_history(self, params: dict[str, Any]) -> dict[str, Any]:
        here = [each for (chat, _), each in self.messages.items() if chat == params.get("channel")]
        here = [each for each in here if each.get("thread_ts", each["ts"]) == each["ts"]]
        return self._history(params, sorted(here, key=lambda each: float(each["ts"]), reverse=True))

    def _conversations_replies(self, params: dict[str, Any]) -> dict[str, Any]:
        here = [each for (chat, _), each in self.messages.items() if chat == params.get("channel")]
        here = [each for each in here if params["ts"] in (each["ts"], each.get("thread_ts"))]
        if not here:
            raise Refusal("thread_not_found")
        return self._history(params, sorted(here, key=lambda each: float(each["ts"])))

    def _conversations_info(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"channel": {"id": self._channel(params), "name": "general"}}

    def _users_info(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["user"] not in self.names:
            raise Refusal("user_not_found")
        name = self.names[params["user"]]
        return {"user": {"id": params["user"], "name": name.lower(), "profile": {"display_name": name}}}

    def _reactions_add(self, params: dict[str, Any]) -> dict[str, Any]:
        message = self.messages.get((self._channel(params), params["timestamp"]))
        if message is None:
            raise Refusal("message_not_found")
        if params["name"] not in EMOJI:
            raise Refusal("invalid_name")
        if params["name"] in message.setdefault("reactions", []):
            raise Refusal("already_reacted")
        message["reactions"].append(params["name"])
        self.news()
        return {}

    def _assistant_threads_setStatus(self, params: dict[str, Any]) -> dict[str, Any]:
        if not params.get("thread_ts"):
            raise Refusal("invalid_thread_ts")
        self.typed.append((self._channel(params, "channel_id"), time.monotonic()))
        return {}

    # ---- files

    def _files_getUploadURLExternal(self, params: dict[str, Any]) -> dict[str, Any]:
        id = f"F{next(self._ids)}"
        about = {"id": id, "name": params["filename"], "size": int(params["length"])}
        self.files[id] = {"about": about, "data": None, "done": False}
        return {"file_id": id, "upload_url": f"{self.url}/upload/{id}"}

    async def _put_file(self, request: web.Request) -> web.Response:
        file, data = self.files[request.match_info["id"]], await request.read()
        if "Authorization" in request.headers:
            self.problems.append("a token came along with an upload")
        if fault := self.fault("upload"):
            return web.Response(status=fault.status)
        if len(data) != file["about"]["size"]:
            return web.Response(status=400, text="wrong length")
        file["data"] = data
        return web.Response(text=f"OK - {len(data)}")

    def _files_completeUploadExternal(self, params: dict[str, Any]) -> dict[str, Any]:
        chat = self._channel(params, "channel_id")
        [wanted] = json.loads(params["files"])
        file = self.files.get(wanted["id"])
        if file is None or file["data"] is None or file["done"]:
            raise Refusal("file_not_found")
        file["done"] = True
        text = params.get("initial_comment", "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        thread, ts = params.get("thread_ts") or "", self.ts()
        self._show(Sent(wanted["id"], chat, text, thread, name=file["about"]["name"], data=file["data"]))
        message = {
            "type": "message",
            "subtype": "file_share",
            "user": BOT,
            "bot_id": self.bot_id,
            "text": text,
            "ts": ts,
        }
        self.post(chat, message | {"files": [file["about"]]} | ({"thread_ts": thread} if thread else {}))
        return {"files": [{"id": wanted["id"], "title": wanted.get("title")}]}

    def _files_info(self, params: dict[str, Any]) -> dict[str, Any]:
        file = self.files.get(params["file"])
        if file is None or not file.get("done", True):
            raise Refusal("file_not_found")
        return {"file": file["about"] | ({"url_private_download": file["url"]} if "url" in file else {})}

    def _files_delete(self, params: dict[str, Any]) -> dict[str, Any]:
        for each in self.sent:
            if each.id == params["file"]:
                each.deleted = True
                return {}
        raise Refusal("file_not_found")

    async def _get_file(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.fetched.append((request.path, token))
        file = self.files.get(request.match_info["id"])
        if file is None:
            return web.Response(status=404)
        if "goes" in file:
            return web.Response(status=302, headers={"Location": file["goes"]})
        if token != self.bot_token or "files:read" not in self.scopes:
            return web.Response(text=HTML, content_type="text/html")  # with 200
        return web.Response(body=file["data"], content_type=file["about"]["mimetype"])


def _button(element: dict[str, Any]) -> tuple[str, str]:
    text = element.get("text", {})
    well = element.get("type") == "button" and text.get("type") == "plain_text" and 0 < len(text["text"]) <= 75
    if not well or set(element) - {"type", "action_id", "text", "value", "style"} or len(element["value"]) > 2000:
        raise Refusal("invalid_blocks")
    return text["text"], element["value"]


def seen(markdown: str) -> tuple[str, list[tuple[str, str]]]:
    """What Slack shows of Markdown: its text, and what is formatted in it."""
    names = {"strong": "bold", "em": "italic", "s": "strikethrough", "link": "text_link"}
    text, spans, begun = "", list[tuple[str, str]](), list[tuple[str, int]]()
    for token in MarkdownIt("commonmark").enable(["strikethrough", "table"]).parse(markdown):
        if token.type in ("paragraph_open", "heading_open", "fence", "code_block") and text and text[-1] != " ":
            text += "\n\n" if token.level == 0 else "\n"
        if token.type in ("fence", "code_block"):
            text += token.content.rstrip("\n")
            spans.append(("pre", token.content.rstrip("\n")))
        elif token.type == "list_item_open":
            text += f"\n{token.info}{token.markup} " if token.info else "\n• "
        for child in token.children or ():
            name = child.type.removesuffix("_open").removesuffix("_close")
            if name in names and child.nesting == 1:
                begun.append((names[name], len(text)))
            elif name in names:
                kind, start = begun.pop()
                spans.append((kind, text[start:]))
            elif child.type == "code_inline":
                text += child.content
                spans.append(("code", child.content))
            else:
                text += "\n" if child.type in ("softbreak", "hardbreak") else child.content
    return text.strip("\n"), spans
