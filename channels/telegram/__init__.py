"""Telegram, on the Bot API's client alone, with a poll loop of our own.

An update is confirmed to Telegram by the next poll, which is made when it is durable. A poll that fails is made anew by
a new client, so that no half-open connection is waited on twice. Telegram may begin its update ids anew after a quiet
week: what it gives is taken, whatever its id. Texts go out as text and entities, never in a markup that one slip makes
it refuse.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio
from anyio import to_thread

from channels.telegram.calls import calling_nobody
from channels.telegram.outcomes import WRONG, is_wrong_token, outcome, seconds
from channels.telegram.reading import read
from clawd.channel import (
    Adapter,
    ChannelLimits,
    Fatal,
    Inbox,
    NotSent,
    Rates,
    SendRefused,
    imported,
)
from clawd.model import Attachment, Check, Formatted, Outgoing

if TYPE_CHECKING:
    import telegram

log = logging.getLogger(__name__)

CONFLICT_S = 60.0  # so long the poll of a daemon that ended may be open still
CLOSE_S = 5.0
SEND_S, FILE_S = 20.0, 120.0  # that the answer to a message, and to a file, is waited for
LONGEST_PAUSE_S, MOST_PAUSE_S = 30.0, 300.0  # of our own, and when Telegram asks for it
ROW = 36  # characters of the buttons that are shown side by side
GENERAL = "1"  # the topic that a send must not name, and typing must
UPDATES = ["message", "edited_message", "channel_post", "edited_channel_post", "callback_query"]
GONE = "(its topic is gone)\n"
ANOTHER = "another program uses this bot's token: stop it, or make a bot of its own for it with @BotFather"
WEBHOOK = "a webhook is set for this bot, and so nothing comes here: deleteWebhook must be called for it"
PRIVACY = "to hear all of a group: @BotFather, /setprivacy, Disable; then take the bot out of the group and in again"
SENT_AS = {".jpg": "photo", ".jpeg": "photo", ".png": "photo", ".mp3": "audio", ".m4a": "audio", ".mp4": "video"}


class Telegram(Adapter):
    name = "telegram"
    limits = ChannelLimits(
        text=4096 - len(GONE),  # what may have to stand before it
        markup="spans",
        reactions=True,
        buttons=True,
        edits=True,
        stream_s=1.2,
        stream_shared_s=3.2,
        typing_s=4.0,
        file_bytes=50 << 20,
        fetch_bytes=20 << 20,
        rates=Rates(chat_s=1.0, shared_per_minute=20, all_s=1 / 30),
    )

    def __init__(self, settings: dict[str, Any]) -> None:
        self._token, self._poll_s = str(settings.get("token") or ""), int(settings.get("poll_s") or 25)
        self._base = str(settings.get("api_base") or "https://api.telegram.org").rstrip("/")
        self._tls: Any = None
        self._bot: telegram.Bot | None = None  # while `run` is at work
        self._stuck = False  # no connection of it will become free again
        self._forums: set[str] = set()

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[telegram.Bot]:
        """A new client. Raises Fatal when there is no token."""
        if not self._token:
            raise Fatal("[channels.telegram] has no token: @BotFather gives one")
        request = await to_thread.run_sync(self._connections)
        from telegram import Bot

        base = f"{self._base}/bot", f"{self._base}/file/bot"
        try:
            yield Bot(self._token, *base, request=request, get_updates_request=request)
        finally:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await request.shutdown()

    def _connections(self) -> telegram.request.HTTPXRequest:
        """In a thread: the imports and the certificates would block the loop."""
        imported("httpx", "telegram.request")
        import httpx
        from telegram.request import HTTPXRequest

        for logger in ("httpx", "httpcore", "telegram"):  # they would write addresses, which hold the token
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        self._tls = self._tls or httpx.create_ssl_context()
        return HTTPXRequest(read_timeout=SEND_S, media_write_timeout=FILE_S, httpx_kwargs={"verify": self._tls})

    # ---- in

    async def run(self, inbox: Inbox) -> None:
        async with self._client() as bot:
            self._bot, self._stuck = bot, False
            try:
                await self._take_in(inbox, bot)
            finally:
                self._bot = None

    async def _take_in(self, inbox: Inbox, bot: telegram.Bot) -> None:
        from telegram.error import Conflict, RetryAfter, TelegramError

        cursor = await inbox.cursor()
        offset = int(cursor) + 1 if cursor else None
        me: telegram.User | None = None
        failures = 0  # in a row
        conflict = conflicted = -CONFLICT_S  # since when another one polls, and when that was seen last
        while True:
            try:
                async with self._client() as poller:
                    # What a client answers at once shows that it works; not so where another one polls, too.
                    wait = self._poll_s if anyio.current_time() - conflicted < CONFLICT_S else 0
                    while True:
                        with anyio.fail_after(wait + 3 + self._poll_s / 4):
                            me = me or await poller.get_me()
                            updates = await _poll(poller, offset, wait)
                        inbox.heard()
                        failures, wait = 0, self._poll_s
                        for raw in updates:
                            await self._update(raw, me, inbox, bot)
                            offset = raw["update_id"] + 1
                        if self._stuck:
                            raise ConnectionError("no connection to Telegram becomes free")
            except (TelegramError, TimeoutError) as error:
                if is_wrong_token(error):
                    raise Fatal(WRONG) from None
                failures, now = failures + 1, anyio.current_time()
                if not isinstance(error, Conflict):
                    inbox.trouble(f"Telegram cannot be reached: {self._words(error)}")
                elif "webhook" in str(error):
                    inbox.trouble(WEBHOOK)
                else:
                    conflict = conflict if now - conflicted < CONFLICT_S else now
                    conflicted = now
                    if now - conflict >= CONFLICT_S:
                        inbox.trouble(ANOTHER)
                pause = min(LONGEST_PAUSE_S, 0.5 * 2.0 ** min(failures - 1, 10)) * (0.75 + random.random() / 2)
                asked = min(seconds(error), MOST_PAUSE_S) if isinstance(error, RetryAfter) else 0.0
                await anyio.sleep(max(pause, asked))

    async def _update(self, raw: dict[str, Any], me: telegram.User, inbox: Inbox, bot: telegram.Bot) -> None:
        """Hand one update over. What cannot be read is passed by: asking for it again would bring nothing else."""
        from telegram import Update

        cursor = str(raw["update_id"])
        try:
            update = Update.de_json(raw, bot)
            incoming = read(update, me)
        except Exception as error:
            log.warning("update %s of Telegram cannot be read: %s", cursor, type(error).__name__)
            return await inbox.keep(cursor)
        if (message := update.message) is not None:
            if message.chat.is_forum:
                self._forums.add(str(message.chat.id))
            if message.migrate_to_chat_id is not None:
                return await inbox.moved(str(message.chat.id), str(message.migrate_to_chat_id), cursor)
        if incoming is None:
            await inbox.keep(cursor)
        else:
            await inbox.receive(incoming, cursor=cursor)
        if update.callback_query is not None:
            with anyio.move_on_after(CLOSE_S):
                await self._answer(update.callback_query)
        return None

    async def _answer(self, query: telegram.CallbackQuery) -> None:
        """Have the button show that it was pressed."""
        from telegram.error import TelegramError

        try:
            await query.answer()
        except TelegramError as error:  # it may be too old; what was pressed is kept
            log.info("a button was not answered: %s", self._words(error))

    # ---- out

    async def send(self, message: Outgoing) -> str:
        bot = self._connected()
        try:
            with self._outcomes(message.formatted is not None):
                return await self._send(bot, message)
        except SendRefused as refusal:
            gone = any(words in str(refusal).lower() for words in ("thread not found", "topic_deleted"))
            if not message.thread or not gone:
                raise
        with self._outcomes(message.formatted is not None):
            return await self._send(bot, replace(message, thread=""), GONE)

    def _connected(self) -> telegram.Bot:
        if self._bot is None:
            raise NotSent("Telegram is not connected")
        return self._bot

    @contextmanager
    def _outcomes(self, formatted: bool = False) -> Iterator[None]:
        """What became of a call, in the protocol's terms."""
        from httpx import PoolTimeout
        from telegram.error import TelegramError

        try:
            yield
        except TelegramError as error:
            self._stuck = self._stuck or isinstance(error.__cause__, PoolTimeout)
            raise outcome(error, self._words(error), formatted) from None

    def _words(self, error: Exception) -> str:
        """What an error says, without the token, and without the page that came in the place of an answer."""
        said = str(error).partition(". Parsing the server response")[0] or "no answer in time"
        return (said.replace(self._token, "…") if self._token else said)[:200]

    async def _send(self, bot: telegram.Bot, message: Outgoing, head: str = "") -> str:
        from telegram import (
            InlineKeyboardButton,
            InlineKeyboardMarkup,
            LinkPreviewOptions,
            MessageEntity,
            ReplyParameters,
        )
        from telegram.error import BadRequest

        chat = message.chat
        if message.kind == "reaction":
            await bot.set_message_reaction(chat, int(message.target or 0), [_known(message.text)])
            return message.target or ""
        form = message.formatted or Formatted(message.text)
        entities = [
            MessageEntity(
                span.kind, span.offset + len(head), span.length, span.url or None, None, span.language or None
            )
            for span in form.spans
        ]
        buttons = [InlineKeyboardButton(each.label, callback_data=each.value) for each in message.buttons]
        rows = [buttons] if sum(len(each.text) for each in buttons) <= ROW else [[each] for each in buttons]
        text = form.text if not chat.startswith("-") else calling_nobody(form)
        shown: dict[str, Any] = {
            "text": head + text,
            "entities": entities or None,
            "link_preview_options": LinkPreviewOptions(is_disabled=True),
            "reply_markup": InlineKeyboardMarkup(rows) if buttons else None,
        }
        if message.edits:
            try:
                await bot.edit_message_text(chat_id=chat, message_id=int(message.edits), **shown)
            except BadRequest as error:
                if "not modified" not in str(error).lower():
                    raise
            return message.edits
        where: dict[str, Any] = {"chat_id": chat}
        if message.thread and message.thread != GENERAL:
            where["message_thread_id"] = int(message.thread)
        if message.reply_to:
            where["reply_parameters"] = ReplyParameters(int(message.reply_to), allow_sending_without_reply=True)
        if message.path is None:
            return str((await bot.send_message(**shown, **where)).message_id)
        return await self._file(bot, message.path, message.name or message.path.name, shown["text"], where)

    async def _file(self, bot: telegram.Bot, path: Path, name: str, caption: str, where: dict[str, Any]) -> str:
        from telegram import InputFile
        from telegram.error import BadRequest

        kind = SENT_AS.get(Path(name).suffix.lower(), "document")
        try:
            async with await anyio.open_file(path, "rb") as file:
                while True:
                    content = InputFile(file.wrapped, filename=name, read_file_handle=False)
                    send = getattr(bot, f"send_{kind}")
                    try:
                        sent = await send(**{kind: content}, caption=caption or None, read_timeout=FILE_S, **where)
                        return str(sent.message_id)
                    except BadRequest:  # not stored; as a document it may be taken
                        if kind == "document":
                            raise
                        kind = "document"
                        await file.seek(0)
        except OSError as error:
            raise SendRefused(f"the file {name} cannot be read: {error.strerror}") from None

    async def delete(self, chat: str, id: str) -> None:
        try:
            with self._outcomes():
                await self._connected().delete_message(chat, int(id))
        except SendRefused as refusal:
            if "not found" not in str(refusal).lower():
                raise

    async def typing(self, chat: str, thread: str) -> None:
        topic = thread or (GENERAL if chat in self._forums else "")
        with self._outcomes():
            await self._connected().send_chat_action(chat, "typing", message_thread_id=int(topic) if topic else None)

    async def fetch(self, attachment: Attachment, to: Path) -> None:
        most = self.limits.fetch_bytes
        too_large = SendRefused(f"Telegram gives a bot no file that is larger than {most >> 20} MB")
        bot = self._connected()
        try:
            with self._outcomes():  # the library's own way would read a file of this machine where its path is named
                file = await bot.do_api_request("getfile", {"file_id": attachment.handle["file"]})
        except SendRefused as refusal:
            raise too_large if "too big" in str(refusal) else refusal from None
        if (file.get("file_size") or 0) > most:
            raise too_large
        import httpx

        path = str(file["file_path"])
        if ".." in path.split("/"):
            raise SendRefused("Telegram names no file of its own")
        url, plain = f"{self._base}/file/bot{self._token}/{quote(path)}", {"Accept-Encoding": "identity"}
        try:
            async with (
                httpx.AsyncClient(verify=self._tls, timeout=SEND_S) as client,
                client.stream("GET", url, headers=plain) as answer,
                await anyio.open_file(to, "wb") as target,
            ):
                if answer.status_code != 200:
                    raise NotSent(f"Telegram's files answered {answer.status_code}")
                async for piece in answer.aiter_raw():
                    if (most := most - len(piece)) < 0:
                        raise too_large
                    await target.write(piece)
        except httpx.HTTPError as error:  # its words may hold the address, and so the token
            raise NotSent(f"the file could not be fetched: {type(error).__name__}") from None

    async def commands(self, table: Mapping[str, str]) -> None:
        bot = self._connected()
        from telegram import BotCommand

        wanted = tuple(BotCommand(word, help[:256]) for word, help in table.items())
        with self._outcomes():
            if await bot.get_my_commands() != wanted:
                await bot.set_my_commands(wanted)

    async def test(self, chats: Sequence[str]) -> list[Check]:
        async with self._client() as bot:
            from telegram import LinkPreviewOptions
            from telegram.error import TelegramError

            try:
                me = await bot.get_me()
                webhook = (await bot.get_webhook_info()).url
            except TelegramError as error:
                if is_wrong_token(error):
                    return [Check("the token", False, WRONG)]
                why = f"{self._words(error)}: look at the network, a proxy, and api_base"
                return [Check("Telegram answers", False, why)]
            whole = bool(me.can_read_all_group_messages)
            hears = "all of a group" if whole else "of a group commands, mentions and replies alone (privacy mode)"
            checks = [
                Check(f"the token is @{me.username}'s", True),
                Check(f"it hears {hears}", True, "" if whole else PRIVACY),
                Check("no webhook is set", not webhook, WEBHOOK if webhook else ""),
            ]
            if not chats:
                return checks
            try:
                text, plain = "A test of clawd: this is taken back at once.", LinkPreviewOptions(is_disabled=True)
                sent = await bot.send_message(chats[0], text, link_preview_options=plain)
                await bot.delete_message(chats[0], sent.message_id)
            except TelegramError as error:
                return [*checks, Check("a message sent and taken back", False, self._words(error))]
            return [*checks, Check("a message sent and taken back", True)]


async def _poll(bot: telegram.Bot, offset: int | None, wait: int) -> list[dict[str, Any]]:
    """Updates as Telegram sent them: the library's own call would parse all of them or none. It warns of this way of
    calling by that call's name, which Telegram takes in any case."""
    asked = {"offset": offset, "timeout": wait, "allowed_updates": UPDATES}
    updates: list[dict[str, Any]] = await bot.do_api_request("getupdates", asked, read_timeout=wait + SEND_S)
    return updates


def _known(emoji: str) -> telegram.ReactionTypeEmoji:
    """An emoji in the spelling that Telegram has in its list of reactions."""
    from telegram import ReactionTypeEmoji
    from telegram.constants import ReactionEmoji

    plain = {each.value.replace("\ufe0f", ""): each.value for each in ReactionEmoji}
    return ReactionTypeEmoji(plain.get(emoji.replace("\ufe0f", ""), emoji))
