"""Discord on loopback: its API and its gateway, as strict as the real ones are about what we were seen to do wrong:
2,000 characters, empty messages, nonces, pings, a token in every call, sessions that are resumed with what was missed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from aiohttp import WSMsgType, web

from tests.platforms import Fault, Platform, Sent

GUILD, ROLE, FORUM = "300", "301", "390"
ME: dict[str, Any] = {"id": "42", "username": "clawd", "discriminator": "0", "avatar": None, "bot": True}
EPOCH = 1_420_070_400_000
CONTENT_INTENT = 1 << 15
MB = 1 << 20


class Refusal(Exception):
    """What the API answers with: a status, its own code, and its words."""

    def __init__(self, status: int, code: int, words: str) -> None:
        super().__init__(words)
        self.status, self.code = status, code


class Socket:
    """One connection of a client to the gateway."""

    def __init__(self, ws: web.WebSocketResponse, request: web.Request) -> None:
        self.ws, self.transport = ws, request.transport
        self.session: str | None = None
        self.frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()


class Discord(Platform):
    name = "discord"
    shared = "500"
    form_refusal = "Invalid Form Body"
    token = "NDI.test.TESTtestTESTtestTEST"

    def __init__(self, heartbeat_s: float = 1.0) -> None:
        self.heartbeat_s = heartbeat_s
        self.messages: dict[str, dict[str, Any]] = {}
        self.history: defaultdict[str, list[str]] = defaultdict(list)  # ids by channel
        self.files: dict[str, tuple[str, bytes]] = {}
        self.gone: set[str] = set()  # links that have run out
        self.nonces: dict[str, str] = {}
        self.threads_of: dict[str, dict[str, Any]] = {}
        self.locked: set[str] = set()
        self.channels = {str(number): f"room{number}" for number in (500, *range(510, 590))}
        self.menu: list[dict[str, Any]] = []
        self.callbacks: dict[str, dict[str, Any]] = {}  # what interactions were answered with, by id
        self.sessions: dict[str, list[dict[str, Any]]] = {}  # every event of one, for RESUME
        self.sockets: list[Socket] = []
        self.opened: list[str] = []  # IDENTIFY or RESUME of each connection
        self.content = True  # the switch in the developer portal
        self.close_code = 0  # what IDENTIFY is answered with
        self.refuse = 0  # handshakes
        self.forget = False  # sessions cannot be resumed
        self._last, self._sessions, self._events = 0, itertools.count(1), itertools.count(1)
        self._again: tuple[str, dict[str, Any]] | None = None
        super().__init__()

    # ---- for tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def gateway(self) -> str:
        return f"ws://127.0.0.1:{self.port}/gateway"

    @property
    def settings(self) -> dict[str, Any]:
        return {"token": self.token, "api_base": f"{self.url}/api/v10", "gateway_url": self.gateway}

    @property
    def config(self) -> str:
        return (
            '[channels.discord]\nenabled = true\ntoken = "${env:DISCORD_TOKEN}"\n'
            f'api_base = "{self.url}/api/v10"\ngateway_url = "{self.gateway}"\n'
        )

    @property
    def env(self) -> dict[str, str]:
        return {"DISCORD_TOKEN": self.token}

    def account(self, user: str) -> str:
        return f"discord:{user}"

    def binding(self, chat: str) -> str:
        return f"discord:{chat}"

    def direct(self, user: str) -> str:
        return f"900{user}"

    def chats(self) -> Iterator[str]:
        return (channel for channel in self.channels if channel != self.shared)

    def registered(self) -> set[str]:
        return {each["name"] for each in self.menu}

    def thread(self, chat: str, id: str = "") -> str:
        id = id or self.snowflake()
        meta = {"archived": False, "locked": False, "auto_archive_duration": 60, "archive_timestamp": _iso(time.time())}
        thread = {"id": id, "type": 11, "guild_id": GUILD, "parent_id": chat, "owner_id": "7", "name": f"thread {id}"}
        thread |= {"message_count": 1, "member_count": 1, "thread_metadata": meta}
        self.threads_of[id] = thread
        self.emit("THREAD_CREATE", thread)
        return id

    def snowflake(self, at: float | None = None) -> str:
        wanted = int((at or time.time()) * 1000 - EPOCH) << 22
        if at is None:
            wanted = self._last = max(wanted, self._last + 1)
        else:
            wanted += next(self._events)
        return str(wanted)

    def user(self, id: str) -> dict[str, Any]:
        if id == ME["id"]:
            return ME
        names = {"7": "Anna", "8": "Bob", "9": "Eve"}
        return {"id": id, "username": f"user{id}", "global_name": names.get(id), "discriminator": "0", "avatar": None}

    def message(self, channel: str, sender: str, content: str, **more: Any) -> dict[str, Any]:
        """A message object, as history has it, kept."""
        at = more.pop("at", None)
        id = more.pop("id", None) or self.snowflake(at)
        made = {"id": id, "channel_id": channel, "author": self.user(sender), "content": content, "type": 0}
        made |= {"timestamp": _iso(at or time.time()), "edited_timestamp": None, "tts": False, "pinned": False}
        made |= {"mention_everyone": False, "mentions": [], "mention_roles": [], "attachments": [], "embeds": []}
        made |= {"flags": 0, "components": []} | more
        made["mentions"] = [self.user(each) for each in re.findall(r"<@!?(\d+)>", content)] + made["mentions"]
        made["mention_roles"] = re.findall(r"<@&(\d+)>", content)
        self.messages[id] = made
        self.history[channel].append(id)
        self.history[channel].sort(key=int)
        return made

    def where(self, channel: str) -> dict[str, Any]:
        """What the gateway says of a message beside what history has."""
        if channel.startswith("900"):
            return {}
        return {
            "guild_id": GUILD,
            "member": {"roles": [], "joined_at": _iso(1e9), "deaf": False, "mute": False, "flags": 0},
        }

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
        **more: Any,
    ) -> str:
        sender = sender or self.owner
        channel = thread or chat or self.direct(sender)
        more |= {"id": id, "at": at, "attachments": [self.attach(*each) for each in files or ()]}
        if voice:
            more["flags"] = 1 << 13
        if reply_to:
            quoted = self.messages.get(reply_to)
            more |= {"type": 19, "message_reference": {"type": 0, "message_id": reply_to, "channel_id": channel}}
            more |= {"referenced_message": quoted, "mentions": [quoted["author"]] if quoted else []}
        if forwarded:
            snapshot = {"content": text, "attachments": more["attachments"], "embeds": [], "mentions": [], "type": 0}
            snapshot |= {
                "timestamp": _iso(1e9),
                "edited_timestamp": None,
                "flags": 0,
                "mention_roles": [],
                "components": [],
            }
            more |= {"message_reference": {"type": 1, "message_id": "77", "channel_id": "78"}, "attachments": []}
            more |= {"message_snapshots": [{"message": snapshot}]}
            text = ""
        made = self.message(channel, sender, f"<@{ME['id']}> {text}" if mention else text, **more)
        if bot:
            made["author"] = {**made["author"], "bot": True}
        self.emit("MESSAGE_CREATE", made | self.where(channel))
        return str(made["id"])

    def attach(self, name: str, data: bytes) -> dict[str, Any]:
        id = self.snowflake()
        name = re.sub(r"[^\w.-]", "_", name)
        self.files[id] = name, data
        return {"id": id, "filename": name, "size": len(data), "url": self.link(id), "proxy_url": self.link(id)}

    def link(self, id: str) -> str:
        return f"{self.url}/attachments/{id}/{self.files[id][0]}?ex={self.snowflake()}"

    def edit(self, id: str, text: str, chat: str = "", sender: str = "") -> None:
        message = self.messages[id]
        message |= {"content": text, "edited_timestamp": _iso(time.time())}
        self.emit("MESSAGE_UPDATE", message | self.where(message["channel_id"]))

    def delete(self, id: str, chat: str = "") -> None:
        channel = self.messages.pop(id)["channel_id"]
        self.history[channel].remove(id)
        guild = {} if channel.startswith("900") else {"guild_id": GUILD}
        self.emit("MESSAGE_DELETE", {"id": id, "channel_id": channel} | guild)

    def press(self, message: Sent, value: str, sender: str = "") -> None:
        data = {"custom_id": value, "component_type": 2}
        self.interact(3, data, message.thread or message.chat, sender, message=self.messages[message.id])

    def slash(self, name: str, text: str = "", chat: str = "", sender: str = "", **more: Any) -> str:
        options = [{"name": "text", "type": 3, "value": text}] if text else []
        return self.interact(2, {"id": "1", "name": name, "type": 1, "options": options}, chat, sender, **more)

    def interact(self, kind: int, data: dict[str, Any], chat: str, sender: str, **more: Any) -> str:
        sender = sender or self.owner
        channel, id = chat or self.direct(sender), self.snowflake()
        made = {"id": id, "application_id": ME["id"], "type": kind, "data": data, "channel_id": channel, "version": 1}
        made |= {
            "token": f"interaction-{id}",
            "attachment_size_limit": 10 * MB,
            "entitlements": [],
            "app_permissions": "0",
        }
        if channel.startswith("900"):
            made |= {"user": self.user(sender), "channel": {"id": channel, "type": 1}, "context": 1}
        else:
            member = self.where(channel)["member"] | {"user": self.user(sender), "permissions": "0"}
            made |= {"member": member, "guild_id": GUILD, "channel": self.channel(channel), "context": 0}
        self.emit("INTERACTION_CREATE", made | more)
        return id

    def again(self) -> None:
        assert self._again
        self.emit(*self._again)

    def drop(self) -> None:
        self._run(self._drop())

    async def _drop(self) -> None:
        for socket in self.sockets:
            if socket.transport:
                socket.transport.abort()

    def frame(self, op: int, data: Any = None) -> None:
        """A frame that is no event, to everybody: 7 reconnect, 9 invalid session."""
        for socket in self.sockets:
            self._loop.call_soon_threadsafe(socket.frames.put_nowait, {"op": op, "d": data, "s": None, "t": None})

    def emit(self, event: str, data: dict[str, Any]) -> None:
        """An event, to every session: to the connected ones now, to the others when they resume."""
        if event == "MESSAGE_CREATE":
            self._again = event, data
        self._loop.call_soon_threadsafe(self._emit, event, json.loads(json.dumps(data)))

    def _emit(self, event: str, data: dict[str, Any]) -> None:
        for id, log in self.sessions.items():
            frame = {"op": 0, "t": event, "s": len(log) + 1, "d": data}
            log.append(frame)
            for socket in self.sockets:
                if socket.session == id:
                    socket.frames.put_nowait(frame)

    # ---- the gateway

    async def _gateway(self, request: web.Request) -> web.StreamResponse:
        if self.refuse:
            self.refuse -= 1
            return web.Response(status=503)
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        socket = Socket(ws, request)
        self.sockets.append(socket)
        writing = asyncio.ensure_future(self._write(socket))
        socket.frames.put_nowait({"op": 10, "d": {"heartbeat_interval": int(self.heartbeat_s * 1000)}})
        try:
            async for message in ws:
                await self._thawed()
                if message.type == WSMsgType.TEXT:
                    await self._heard(socket, json.loads(message.data))
        finally:
            writing.cancel()
            self.sockets.remove(socket)
            self.live = sum(each.session is not None for each in self.sockets)
            self.news()
        return ws

    async def _thawed(self) -> None:
        while self._frozen.is_set():
            await asyncio.sleep(0.02)

    async def _write(self, socket: Socket) -> None:
        while True:
            frame = await socket.frames.get()
            await self._thawed()
            await socket.ws.send_str(json.dumps(frame))

    async def _heard(self, socket: Socket, frame: dict[str, Any]) -> None:
        op, data = frame["op"], frame.get("d")
        if op == 1:
            socket.frames.put_nowait({"op": 11})
        elif op in (2, 6):
            await self._enter(socket, op, data)

    async def _enter(self, socket: Socket, op: int, data: dict[str, Any]) -> None:
        self.opened.append("IDENTIFY" if op == 2 else "RESUME")
        code = self.close_code or (4004 if data["token"] != self.token else 0)
        if op == 2 and data["intents"] & CONTENT_INTENT and not self.content:
            code = 4014
        if code:
            await socket.ws.close(code=code)
            return
        if op == 6 and (self.forget or data["session_id"] not in self.sessions):
            socket.frames.put_nowait({"op": 9, "d": False})
            return
        if op == 6:
            socket.session = data["session_id"]
            for each in self.sessions[data["session_id"]][data["seq"] or 0 :]:
                socket.frames.put_nowait(each)
            socket.frames.put_nowait({"op": 0, "t": "RESUMED", "s": data["seq"], "d": {}})
        else:
            socket.session = f"session{next(self._sessions)}"
            self.sessions = {socket.session: []}  # the ones before are over
            ready = {"v": 10, "user": ME, "guilds": [{"id": GUILD, "unavailable": True}], "session_id": socket.session}
            ready |= {"resume_gateway_url": self.gateway, "application": {"id": ME["id"], "flags": 0}}
            self._emit("READY", ready)
            self._emit("GUILD_CREATE", self._guild())
        self.live = sum(each.session is not None for each in self.sockets)
        self.news()

    def _guild(self) -> dict[str, Any]:
        everyone = {"id": GUILD, "name": "@everyone", "permissions": "0", "position": 0, "color": 0, "hoist": False}
        everyone |= {"managed": False, "mentionable": False, "flags": 0, "colors": {"primary_color": 0}}
        role = everyone | {"id": ROLE, "name": "clawd", "managed": True, "tags": {"bot_id": ME["id"]}}
        member = {"user": ME, "roles": [ROLE], "joined_at": _iso(1e9), "deaf": False, "mute": False, "flags": 0}
        channels = [self.channel(id) for id in (*self.channels, FORUM)]
        return {
            "id": GUILD,
            "name": "The server",
            "owner_id": "7",
            "member_count": 4,
            "roles": [everyone, role],
            "members": [member],
            "channels": channels,
            "threads": [*self.threads_of.values()],
            "unavailable": False,
        }

    def channel(self, id: str) -> dict[str, Any]:
        if id in self.threads_of:
            return self.threads_of[id]
        if id.startswith("900"):
            return {"id": id, "type": 1, "recipients": [self.user(id[3:])], "last_message_id": None}
        if id == FORUM:
            return {
                "id": id,
                "type": 15,
                "guild_id": GUILD,
                "name": "posts",
                "position": 1,
                "permission_overwrites": [],
            }
        if id not in self.channels:
            raise Refusal(404, 10003, "Unknown Channel")
        name = self.channels[id]
        return {"id": id, "type": 0, "guild_id": GUILD, "name": name, "position": 0, "permission_overwrites": []}

    # ---- the API

    def app(self) -> web.Application:
        app = web.Application(client_max_size=30 * MB)
        app.router.add_get("/gateway", self._gateway)
        app.router.add_get("/gateway/", self._gateway)
        app.router.add_get("/attachments/{id}/{name}", self._attachment)
        app.router.add_route("*", "/api/v10/{path:.*}", self._api)
        return app

    async def _attachment(self, request: web.Request) -> web.Response:
        if str(request.url) in self.gone:
            return web.Response(status=404)
        return web.Response(body=self.files[request.match_info["id"]][1])

    async def _api(self, request: web.Request) -> web.StreamResponse:
        path, fault = request.match_info["path"], None
        params, data = await _body(request)
        sends = request.method in ("POST", "PATCH", "DELETE") and "/messages" in path
        if path not in ("users/@me", "oauth2/applications/@me", "gateway/bot"):
            self._note(f"{request.method} {path}", params)
            fault = self.fault("send" if sends else "other")
        if fault:
            await asyncio.sleep(fault.hang)
            if not fault.after:
                return _failed(fault)
        try:
            if request.headers.get("Authorization") != f"Bot {self.token}" and not path.startswith("interactions/"):
                raise Refusal(401, 0, "401: Unauthorized")
            found = self._answer(request, path.split("/"), params, data)
        except Refusal as error:
            return _json({"message": str(error), "code": error.code}, error.status)
        if fault and request.transport:
            request.transport.abort()
        return _json(found) if found is not None else web.Response(status=204)

    def _answer(
        self, request: web.Request, path: list[str], params: dict[str, Any], data: tuple[str, bytes] | None
    ) -> Any:
        match request.method, *path:
            case "GET", "users", "@me":
                return ME
            case "GET", "oauth2", "applications", "@me":
                app = {"id": ME["id"], "name": "clawd", "description": "", "icon": None, "bot_public": False}
                app |= {"bot_require_code_grant": False, "verify_key": "", "owner": self.user("7")}
                return app | {"flags": 1 << 19 if self.content else 0}
            case "GET", "gateway", "bot":
                limit = {"total": 1000, "remaining": 999, "reset_after": 1, "max_concurrency": 1}
                return {"url": self.gateway, "shards": 1, "session_start_limit": limit}
            case "GET", "applications", _, "commands":
                return self.menu
            case "PUT", "applications", _, "commands":
                self.menu = [{"id": self.snowflake(), "version": "1", **each} for each in params["list"]]
                return self.menu
            case "POST", "interactions", id, _, "callback":
                self.callbacks[id] = params
                self.news()
                return None
            case "GET", "channels", id:
                return self.channel(id)
            case "POST", "channels", id, "typing":
                self.typed.append((self._chat(id), time.monotonic()))
                return None
            case "GET", "channels", id, "messages":
                after, most = int(request.query.get("after", 0)), int(request.query.get("limit", 50))
                ids = [each for each in self.history[id] if int(each) > after]
                ids = ids[:most] if after else ids[-most:]
                return [{**self.messages[each]} for each in reversed(ids)]
            case "POST", "channels", id, "messages":
                return self._post(id, params, data)
            case method, "channels", id, "messages", message, *rest:
                self.channel(id)
                if message not in self.history[id]:
                    raise Refusal(404, 10008, "Unknown Message")
                return self._on(method, id, message, rest, params)
        raise Refusal(404, 0, f"404: Not Found {path}")

    def _on(self, method: str, channel: str, id: str, rest: list[str], params: dict[str, Any]) -> Any:
        shown = next((each for each in self.sent if each.id == id), None)
        if method == "GET":
            message = self.messages[id]
            for each in message["attachments"]:
                each["url"] = self.link(each["id"])
            return message
        if rest:
            if len(rest[1]) > 40 or rest[1].isascii():
                raise Refusal(400, 10014, "Unknown Emoji")
            if shown:
                shown.reactions.append(rest[1])
            self.callbacks[f"reaction {id}"] = {"emoji": rest[1]}
            return None
        if shown is None:
            raise Refusal(403, 50005, "Cannot edit a message authored by another user")
        if method == "DELETE":
            shown.deleted = True
            self.delete(id)
            return None
        self._check(params)
        self.messages[id] |= {"content": params["content"], "edited_timestamp": _iso(time.time())}
        shown.buttons = _buttons(params)
        self._change(shown, params["content"])
        self.emit("MESSAGE_UPDATE", self.messages[id] | self.where(channel))
        return self.messages[id]

    def _check(self, params: dict[str, Any], data: tuple[str, bytes] | None = None) -> None:
        content = params.get("content") or ""
        if len(content.encode("utf-16-le")) // 2 > 2000:
            self.problems.append(f"a message of {len(content)} characters")
            raise Refusal(400, 50035, "Invalid Form Body")
        if not content.strip() and data is None:
            raise Refusal(400, 50006, "Cannot send an empty message")
        if params.get("allowed_mentions", {}).get("parse") != []:
            self.problems.append("a message may ping")
        if data and len(data[1]) > 10 * MB:
            raise Refusal(413, 40005, "Request entity too large")

    def _post(self, channel: str, params: dict[str, Any], data: tuple[str, bytes] | None) -> Any:
        self.channel(channel)
        if channel in self.locked:
            raise Refusal(403, 50083, "Thread is archived")
        nonce, reference = str(params.get("nonce") or ""), params.get("message_reference")
        if len(nonce) > 25:
            raise Refusal(400, 50035, "Invalid Form Body")
        if params.get("enforce_nonce") and nonce in self.nonces:
            if self.nonces[nonce] not in self.messages:
                raise Refusal(404, 10008, "Unknown Message")
            return self.messages[self.nonces[nonce]] | {"nonce": nonce}
        self._check(params, data)
        if reference and reference["message_id"] not in self.messages:
            if reference.get("fail_if_not_exists", True):
                raise Refusal(400, 50035, "Invalid Form Body")
            reference = None
        more = {"attachments": [self.attach(*data)] if data else [], "components": params.get("components", [])}
        message = self.message(
            channel, ME["id"], (params.get("content") or "").strip(), flags=params.get("flags", 0), **more
        )
        self.nonces[nonce] = message["id"]
        self._show(
            Sent(
                message["id"],
                self._chat(channel),
                message["content"],
                thread=channel if channel in self.threads_of else "",
                reply_to=reference["message_id"] if reference else None,
                name=data[0] if data else None,
                data=data[1] if data else None,
                buttons=_buttons(params),
                rich=True,
            )
        )
        self.emit("MESSAGE_CREATE", message | self.where(channel) | {"nonce": nonce})
        return message | {"nonce": nonce}

    def _chat(self, channel: str) -> str:
        return str(self.threads_of[channel]["parent_id"]) if channel in self.threads_of else channel


def _buttons(params: dict[str, Any]) -> list[tuple[str, str]]:
    rows = params.get("components") or ()
    return [(each["label"], each["custom_id"]) for row in rows for each in row["components"]]


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _json(data: Any, status: int = 200, **headers: str) -> web.Response:
    """Exactly this content type, or discord.py takes it for text."""
    return web.Response(body=json.dumps(data).encode(), status=status, content_type="application/json", headers=headers)


def _failed(fault: Fault) -> web.Response:
    if fault.status == 429:
        if fault.text:  # not Discord's own answer, but what stands before it
            return web.Response(status=429, text=fault.text, headers={"Retry-After": fault.text})
        after = fault.retry_after or 1.0
        answer = {"message": "You are being rate limited.", "retry_after": after, "global": False}
        return _json(answer, 429, Via="1.1 google", **{"Retry-After": str(after)})
    code = 50035 if fault.status == 400 else 0
    return _json({"message": fault.text or "it is only a test", "code": code}, fault.status)


async def _body(request: web.Request) -> tuple[dict[str, Any], tuple[str, bytes] | None]:
    if request.content_type == "multipart/form-data":
        form = await request.post()
        file: Any = form["files[0]"]
        return json.loads(str(form["payload_json"])), (file.filename, file.file.read())
    if request.content_type != "application/json" or not request.can_read_body:
        return {}, None
    found = await request.json()
    return found if isinstance(found, dict) else {"list": found}, None
