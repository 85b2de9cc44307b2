"""The Bot API on loopback, as strict as the real one (its server's source is public): errors in its words, limits in
UTF-16 units, an older poll that ends with 409 when another one comes, updates that are given again until they are
confirmed by a higher offset.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from aiohttp import web

from tests.platforms import Fault, Platform, Sent

BOT: dict[str, Any] = {"id": 4242, "is_bot": True, "first_name": "Clawd", "username": "clawd_bot"}
REACTIONS = set("👍👎❤🔥🥰👏😁🤔🤯😱🎉👌👀💯🙏")
KINDS = {"bold", "italic", "underline", "strikethrough", "spoiler", "code", "pre", "blockquote", "text_link"}
SENDS = re.compile(r"send(?!chataction)|edit|delete(?!webhook)|setmessagereaction")
JSON = {"entities", "caption_entities", "reply_markup", "reply_parameters", "link_preview_options"}
JSON |= {"commands", "reaction", "allowed_updates"}
MB = 1 << 20


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


class Refusal(Exception):
    """What the server answers with: a status, its words, and what a client is told beside."""

    def __init__(self, words: str, status: int = 400, **parameters: Any) -> None:
        super().__init__(words)
        self.status, self.parameters = status, parameters


class Telegram(Platform):
    name = "telegram"
    deletes = False
    form_refusal = "Bad Request: can't parse entities: it is only a test"
    token = "4242:AAtestTESTtestTESTtestTEST"
    names: ClassVar[dict[str, str]] = {"7": "Olga", "8": "Max", "9": "Eve"}

    def __init__(self, poll_s: int = 2) -> None:
        self.poll_s = poll_s
        self.updates: list[dict[str, Any]] = []
        self.messages: dict[tuple[str, int], dict[str, Any]] = {}  # (chat, id): all of them, ours too
        self.topics: dict[str, set[int]] = {}
        self.gone: set[str] = set()  # chats that threw the bot out
        self.moved: dict[str, str] = {}
        self.known: set[str] = {"7", "8", "9", "-100"}
        self.files: dict[str, tuple[str, bytes]] = {}  # by file id: path and content
        self.fetched: list[str] = []
        self.queries: dict[str, bool] = {}  # button presses: whether they were answered
        self.menu: list[dict[str, str]] = []
        self.webhook, self.privacy = "", True
        self._ids, self._update_ids = itertools.count(100), itertools.count(5000)
        self._again: list[dict[str, Any]] = []
        self._polls: list[web.Request] = []
        self._stuck: set[Any] = set()  # transports that are half-open
        self._transports: set[Any] = set()
        self._news = asyncio.Event()
        super().__init__()

    # ---- for tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def config(self) -> str:
        return (
            "[channels.telegram]\nenabled = true\n"
            f'token = "${{env:TELEGRAM_TOKEN}}"\napi_base = "{self.url}"\npoll_s = {self.poll_s}\n'
        )

    @property
    def env(self) -> dict[str, str]:
        return {"TELEGRAM_TOKEN": self.token}

    def account(self, user: str) -> str:
        return f"telegram:{user}"

    def binding(self, chat: str) -> str:
        return f"telegram:{chat}"

    def direct(self, user: str) -> str:
        return user

    def chats(self) -> Iterator[str]:
        for number in itertools.count(1):
            self.known.add(f"-100{number}")
            yield f"-100{number}"

    def registered(self) -> set[str]:
        return {each["command"] for each in self.menu}

    def thread(self, chat: str) -> str:
        topic = next(self._ids)
        self.topics.setdefault(chat, set()).add(topic)
        return str(topic)

    def user(self, id: str, **more: Any) -> dict[str, Any]:
        return {"id": int(id), "is_bot": False, "first_name": self.names.get(id, "Somebody")} | more

    def chat(self, id: str) -> dict[str, Any]:
        if int(id) > 0:
            return {"id": int(id), "type": "private", "first_name": self.names.get(id, "Somebody")}
        return {"id": int(id), "type": "supergroup", "title": "The group"} | (
            {"is_forum": True} if id in self.topics else {}
        )

    def update(self, id: int | None = None, **update: Any) -> int:
        """The platform has an update for the bot. Gives its id."""
        made = {"update_id": next(self._update_ids) if id is None else id} | update
        self._loop.call_soon_threadsafe(self._put, made)
        return int(made["update_id"])

    def put(self, chat: str = "", sender: str = "", **fields: Any) -> dict[str, Any]:
        """A message of somebody with these fields, as the Bot API has them. Gives it."""
        sender = sender or self.owner
        chat = chat or self.direct(sender)
        base = {"message_id": next(self._ids), "date": int(time.time()), "chat": self.chat(chat)}
        message = base | {"from": self.user(sender)} | fields
        self.known.add(chat)
        self.messages[chat, message["message_id"]] = message
        self.update(message=message)
        return message

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
    ) -> str:
        sender = sender or self.owner
        chat = chat or self.direct(sender)
        fields: dict[str, Any] = {"from": self.user(sender, is_bot=bot)}
        if at is not None:
            fields["date"] = int(at)
        if id is not None:
            fields["message_id"] = int(id)
        if thread:
            self.topics.setdefault(chat, set()).add(int(thread))
            fields |= {"message_thread_id": int(thread), "is_topic_message": True}
        if reply_to is not None:
            fields["reply_to_message"] = self.messages[chat, int(reply_to)]
            if not thread and int(chat) < 0:
                fields["message_thread_id"] = int(reply_to)  # as in every supergroup; it is no topic
        if forwarded is not None:
            origin = {"type": "hidden_user", "sender_user_name": forwarded, "date": int(time.time())}
            fields["forward_origin"] = origin
        entities = []
        if mention:
            text = f"@{BOT['username']} {text}"
            entities = [{"type": "mention", "offset": 0, "length": len(BOT["username"]) + 1}]
        elif command := re.match(r"/\w+(@\w+)?", text):
            entities = [{"type": "bot_command", "offset": 0, "length": len(command[0])}]
        if not files:
            return str(self.put(chat, sender, text=text, entities=entities, **fields)["message_id"])
        if album:
            fields["media_group_id"] = str(next(self._ids))
        first = None
        for name, data in files:
            caption = {"caption": text, "caption_entities": entities} if text and first is None else {}
            message = self.put(chat, sender, **self.file(name, data, voice), **caption, **fields)
            first = first or str(message["message_id"])
            fields.pop("message_id", None)
        assert first is not None
        return first

    def file(self, name: str, data: bytes, voice: bool = False, size: int | None = None) -> dict[str, Any]:
        """The field of a message that has this file."""
        id = f"file{next(self._ids)}"
        self.files[id] = (f"documents/{id}", data)
        about = {"file_id": id, "file_unique_id": f"u{id}", "file_size": len(data) if size is None else size}
        if voice:
            return {"voice": about | {"duration": 3, "mime_type": "audio/ogg"}}
        if name.endswith((".jpg", ".png")):
            small = {"file_id": f"{id}small", "file_unique_id": f"s{id}", "file_size": 1, "width": 9, "height": 9}
            return {"photo": [small, about | {"width": 900, "height": 900}]}
        return {"document": about | {"file_name": name, "mime_type": "text/plain"}}

    def edit(self, id: str, text: str, chat: str = "", sender: str = "") -> None:
        sender = sender or self.owner
        message = self.messages[chat or self.direct(sender), int(id)]
        self.update(edited_message=message | {"text": text, "entities": [], "edit_date": int(time.time())})

    def delete(self, id: str, chat: str = "") -> None:
        """Nobody tells a bot."""

    def press(self, message: Sent, value: str, sender: str = "") -> None:
        query = f"q{next(self._ids)}"
        self.queries[query] = False
        about = {"id": query, "from": self.user(sender or self.owner), "chat_instance": "1", "data": value}
        self.update(callback_query=about | {"message": self.messages[message.chat, int(message.id)]})

    def again(self) -> None:
        self._loop.call_soon_threadsafe(self._put, self.updates[-1] if self.updates else self._last, True)

    def drop(self) -> None:
        def work() -> None:
            for request in self._polls:
                if request.transport is not None:
                    request.transport.abort()  # type: ignore[attr-defined]

        self._loop.call_soon_threadsafe(work)

    def freeze(self) -> None:
        super().freeze()
        self._loop.call_soon_threadsafe(lambda: self._stuck.update(self._transports))

    def thaw(self) -> None:
        super().thaw()
        self._loop.call_soon_threadsafe(self._stuck.clear)

    @property
    def connections(self) -> int:
        """Sockets of clients that are open now."""
        return sum(not each.is_closing() for each in set(self._transports))

    # ---- the server

    _last: dict[str, Any]

    def _put(self, update: dict[str, Any], again: bool = False) -> None:
        (self._again if again else self.updates).append(update)
        self._last = update
        self._news.set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * MB)
        app.router.add_route("*", "/bot{token}/{method}", self._call)
        app.router.add_get("/file/bot{token}/{path:.*}", self._download)
        return app

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"].lower()  # the Bot API's methods are case-insensitive
        self._transports = {each for each in self._transports if not each.is_closing()} | {request.transport}
        params = await _params(request)
        self._note(request.match_info["method"], {**params, "_files": None} if "_files" in params else params)
        await self._thawed(request)
        if request.match_info["token"] != self.token:
            return _answer(401, "Unauthorized")
        fault = self.fault("poll" if method == "getupdates" else "send" if SENDS.match(method) else "other")
        if fault is not None:
            await asyncio.sleep(fault.hang)
            if not fault.after:
                return _failed(request, fault)
        try:
            work = getattr(self, f"_{method}", None)
            if work is None:
                raise Refusal("Not Found", 404)
            result = work(params) if method != "getupdates" else await self._getupdates(request, params)
        except Refusal as refusal:
            if method != "getupdates":
                self.news()
            return _answer(refusal.status, str(refusal), **refusal.parameters)
        if fault is not None:
            _abort(request)
        return web.json_response({"ok": True, "result": result})

    async def _thawed(self, request: web.Request) -> None:
        while request.transport in self._stuck:
            await asyncio.sleep(0.02)

    async def _getupdates(self, request: web.Request, params: dict[str, Any]) -> list[dict[str, Any]]:
        if self.webhook:
            raise Refusal("Conflict: can't use getUpdates method while webhook is active; use deleteWebhook", 409)
        offset, deadline = int(params.get("offset", 0)), time.monotonic() + float(params.get("timeout", 0))
        newest = self.updates[-1]["update_id"] if self.updates else 0
        if not self.updates or offset <= newest + 10:  # else: ids began anew, the server gives what it has
            self.updates = [each for each in self.updates if each["update_id"] >= offset]
        self._polls.append(request)
        self.live += 1
        try:
            while True:
                await self._thawed(request)
                if request.transport is None or request.transport.is_closing():
                    return []
                if self._polls[-1] is not request:
                    raise Refusal("Conflict: terminated by other getUpdates request", 409)
                if given := self._again + self.updates[:100]:
                    self._again = []
                    return given
                if time.monotonic() >= deadline:
                    return []
                self._news.clear()
                try:
                    async with asyncio.timeout(0.05):
                        await self._news.wait()
                except TimeoutError:
                    pass
        finally:
            self.live -= 1
            self._polls.remove(request)
            self.news()

    async def _download(self, request: web.Request) -> web.StreamResponse:
        for path, data in self.files.values():
            if path == request.match_info["path"] and request.match_info["token"] == self.token:
                return web.Response(body=data)
        return _answer(404, "Not Found")

    def _getme(self, params: dict[str, Any]) -> dict[str, Any]:
        return BOT | {"can_join_groups": True, "can_read_all_group_messages": not self.privacy}

    def _getwebhookinfo(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"url": self.webhook, "has_custom_certificate": False, "pending_update_count": len(self.updates)}

    def _getmycommands(self, params: dict[str, Any]) -> list[dict[str, str]]:
        return self.menu

    def _setmycommands(self, params: dict[str, Any]) -> bool:
        menu = params["commands"]
        for each in menu:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", each["command"]) or not 1 <= len(each["description"]) <= 256:
                raise Refusal("Bad Request: BOT_COMMAND_INVALID")
        self.menu = menu
        return True

    def _getfile(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["file_id"] not in self.files:
            raise Refusal("Bad Request: invalid file_id")
        path, data = self.files[params["file_id"]]
        if len(data) > 20 * MB:
            raise Refusal("Bad Request: file is too big")
        self.fetched.append(params["file_id"])
        return {"file_id": params["file_id"], "file_unique_id": "u", "file_size": len(data), "file_path": path}

    def _answercallbackquery(self, params: dict[str, Any]) -> bool:
        if self.queries.get(params["callback_query_id"]) is not False:
            raise Refusal("Bad Request: query is too old and response timeout expired or query ID is invalid")
        self.queries[params["callback_query_id"]] = True
        self.news()
        return True

    def _sendchataction(self, params: dict[str, Any]) -> bool:
        chat = self._chat(params)
        if (thread := params.get("message_thread_id")) and int(thread) not in self.topics.get(chat, set()) | {1}:
            raise Refusal("Bad Request: message thread not found")
        self.typed.append((chat, time.monotonic()))
        return True

    def _setmessagereaction(self, params: dict[str, Any]) -> bool:
        message = self._ours_or_theirs(params)
        emoji = [each["emoji"] for each in params["reaction"]]
        if not set(emoji) <= REACTIONS:
            raise Refusal("Bad Request: REACTION_INVALID")
        message["reactions"] = emoji
        for each in self.sent:
            if (each.chat, each.id) == (str(params["chat_id"]), str(params["message_id"])):
                each.reactions = emoji
        self.news()
        return True

    def _sendmessage(self, params: dict[str, Any]) -> dict[str, Any]:
        text = params.get("text", "")
        spans = self._form(text, params, "entities", 4096, "message is too long")
        if not text.strip():
            raise Refusal("Bad Request: message text is empty")
        return self._keep(params, text, spans)

    def _editmessagetext(self, params: dict[str, Any]) -> dict[str, Any]:
        message = self._ours_or_theirs(params, "message to edit not found")
        if message["from"]["id"] != BOT["id"]:
            raise Refusal("Bad Request: message can't be edited")
        text = params.get("text", "")
        spans = self._form(text, params, "entities", 4096, "message is too long")
        if not text.strip():
            raise Refusal("Bad Request: message text is empty")
        sent = next(
            each for each in self.sent if (each.chat, each.id) == (str(params["chat_id"]), params["message_id"])
        )
        buttons = _buttons(params)
        if (sent.text, sent.spans, sent.buttons) == (text, spans, buttons):
            raise Refusal(
                "Bad Request: message is not modified: specified new message content and reply markup are exactly the"
                " same as a current content and reply markup of the message"
            )
        sent.spans, sent.buttons, sent.rich = spans, buttons, bool(spans)
        message["text"] = text
        self._change(sent, text)
        return message

    def _deletemessage(self, params: dict[str, Any]) -> bool:
        self._ours_or_theirs(params, "message to delete not found")
        for each in self.sent:
            if (each.chat, each.id) == (str(params["chat_id"]), params["message_id"]):
                each.deleted = True
        del self.messages[str(params["chat_id"]), int(params["message_id"])]
        self.news()
        return True

    def _media(self, params: dict[str, Any]) -> dict[str, Any]:
        [(name, data)] = params["_files"]
        caption = params.get("caption", "")
        spans = self._form(caption, params, "caption_entities", 1024, "message caption is too long")
        if len(data) > 50 * MB:
            raise Refusal("Request Entity Too Large", 413)
        if not data:
            raise Refusal("Bad Request: file must be non-empty")
        return self._keep(params, caption, spans, name, data)

    _senddocument = _sendaudio = _sendvideo = _sendvoice = _media

    def _sendphoto(self, params: dict[str, Any]) -> dict[str, Any]:
        [(_, data)] = params["_files"]
        if not data.startswith((b"\x89PNG", b"\xff\xd8")):
            raise Refusal("Bad Request: IMAGE_PROCESS_FAILED")
        if len(data) > 10 * MB:
            raise Refusal("Bad Request: file is too big for a photo")
        return self._media(params)

    def _chat(self, params: dict[str, Any]) -> str:
        chat = str(params["chat_id"])
        if chat in self.moved:
            words = "Bad Request: group chat was upgraded to a supergroup chat"
            raise Refusal(words, migrate_to_chat_id=int(self.moved[chat]))
        if chat in self.gone:
            raise Refusal("Forbidden: bot was kicked from the supergroup chat", 403)
        if chat not in self.known:
            raise Refusal("Bad Request: chat not found")
        return chat

    def _ours_or_theirs(self, params: dict[str, Any], words: str = "message not found") -> dict[str, Any]:
        message = self.messages.get((self._chat(params), int(params["message_id"])))
        if message is None:
            raise Refusal(f"Bad Request: {words}")
        return message

    def _form(self, text: str, params: dict[str, Any], key: str, most: int, words: str) -> list[tuple[str, str]]:
        """The (kind, text) of the entities, each of which must be right."""
        if params.get("parse_mode"):
            self.problems.append("a text was sent with a parse_mode: one slip of it loses the message")
            raise Refusal("Bad Request: can't parse entities")
        if units(text) > most:
            self.problems.append(f"a text of {units(text)} units was sent, of {most}")
            raise Refusal(f"Bad Request: {words}")
        raw, spans = text.encode("utf-16-le"), []
        for each in params.get(key, []):
            kind, start, end = each["type"], each["offset"], each["offset"] + each["length"]
            if kind not in KINDS or not 0 <= start < end <= units(text) or (kind == "text_link") != ("url" in each):
                self.problems.append(f"an entity is wrong: {each} of {units(text)} units")
                raise Refusal("Bad Request: can't parse entities: wrong entity")
            try:
                spans.append((kind, raw[2 * start : 2 * end].decode("utf-16-le")))
            except UnicodeDecodeError:
                self.problems.append(f"an entity cuts a character: {each}")
                raise Refusal("Bad Request: can't parse entities: in a surrogate pair") from None
        for each in (shown for kind, shown in spans if kind in ("code", "pre")):
            text = text.replace(each, " ")
        if str(params["chat_id"]).startswith("-") and re.search(r"(?<!\w)@[A-Za-z]\w{2}|tg://user", text):
            self.problems.append("a message may ping")
        return spans

    def _keep(
        self,
        params: dict[str, Any],
        text: str,
        spans: list[tuple[str, str]],
        name: str | None = None,
        data: bytes | None = None,
    ) -> dict[str, Any]:
        chat, thread = self._chat(params), params.get("message_thread_id")
        if thread and int(thread) not in self.topics.get(chat, set()):  # nor 1: General has no id for those who send
            raise Refusal("Bad Request: message thread not found")
        reply = params.get("reply_parameters")
        if reply and (chat, reply["message_id"]) not in self.messages:
            if not reply.get("allow_sending_without_reply"):
                raise Refusal("Bad Request: message to be replied not found")
            reply = None
        if name is None and not params.get("link_preview_options", {}).get("is_disabled"):
            self.problems.append("a text was sent with a preview of its links")
        buttons, id = _buttons(params), next(self._ids)
        message = {"message_id": id, "date": int(time.time()), "chat": self.chat(chat), "from": BOT, "text": text}
        if thread:
            message |= {"message_thread_id": int(thread), "is_topic_message": True}
        self.messages[chat, id] = message
        to = str(reply["message_id"]) if reply else None
        made = Sent(str(id), chat, text, str(thread or ""), to, name, data, buttons, spans=spans, rich=bool(spans))
        self._show(made)
        return message


def _buttons(params: dict[str, Any]) -> list[tuple[str, str]]:
    rows = params.get("reply_markup", {}).get("inline_keyboard", [])
    buttons = [(each["text"], each["callback_data"]) for row in rows for each in row]
    if any(not label or not 1 <= len(value.encode()) <= 64 for label, value in buttons):
        raise Refusal("Bad Request: BUTTON_DATA_INVALID")
    return buttons


async def _params(request: web.Request) -> dict[str, Any]:
    params: dict[str, Any] = dict(request.query)
    for key, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            params.setdefault("_files", []).append((value.filename, value.file.read()))
        else:
            params[key] = value
    return params | {key: json.loads(params[key]) for key in JSON & params.keys()}


def _answer(status: int, words: str, **parameters: Any) -> web.Response:
    body = {"ok": False, "error_code": status, "description": words}
    return web.json_response(body | ({"parameters": parameters} if parameters else {}), status=status)


def _failed(request: web.Request, fault: Fault) -> web.Response:
    if fault.status == 0:
        _abort(request)
    if fault.retry_after is not None:
        words = f"Too Many Requests: retry after {fault.retry_after:g}"
        return _answer(fault.status, words, retry_after=fault.retry_after)
    if fault.status == 502 or (fault.text or "").startswith("<"):
        page = fault.text or "<html><h1>502 Bad Gateway</h1></html>"
        return web.Response(status=fault.status, text=page, content_type="text/html")
    return _answer(
        fault.status,
        fault.text
        or {409: "Conflict: terminated by other getUpdates request"}.get(fault.status, "Internal Server Error"),
    )


def _abort(request: web.Request) -> None:
    """The connection breaks without an answer."""
    if request.transport is not None:
        request.transport.abort()  # type: ignore[attr-defined]
    raise asyncio.CancelledError
