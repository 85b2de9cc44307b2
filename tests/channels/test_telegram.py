"""The Telegram adapter: the real client library against a Bot API on loopback."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from telegram import Update, User
from telegram.error import BadRequest, NetworkError, TelegramError, TimedOut

import channels.telegram
from channels.telegram import Telegram
from channels.telegram.calls import calling_nobody
from channels.telegram.outcomes import outcome
from channels.telegram.reading import read
from clawd.channel import ChatMoved, Fatal, FormatRefused, NotSent, SendRefused, Unsure
from clawd.model import Attachment, Button, Formatted, Incoming, Outgoing, Receipt, Said, Span
from tests.channels.conftest import until
from tests.platforms import telegram as standin

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Deprecated since version v22.2")]
ME = User(id=4242, first_name="Clawd", is_bot=True, username="clawd_bot")


class Inbox:
    """Keeps what it is handed. While `open` is not set, nothing becomes durable."""

    def __init__(self, cursor: str | None = None) -> None:
        self.received: list[Incoming] = []
        self.moves: list[tuple[str, str]] = []
        self.troubles: list[str] = []
        self.heards = 0
        self._cursor = cursor
        self.open = anyio.Event()
        self.open.set()

    async def receive(self, incoming: Incoming, cursor: str | None = None) -> Receipt:
        await self.open.wait()
        self.received.append(incoming)
        if cursor is not None:
            self._cursor = cursor
        return Receipt(len(self.received), "received", "s", None)

    async def keep(self, cursor: str) -> None:
        self._cursor = cursor

    async def moved(self, chat: str, now: str, cursor: str) -> None:
        self.moves.append((chat, now))
        self._cursor = cursor

    async def cursor(self) -> str | None:
        return self._cursor

    def heard(self) -> None:
        self.heards += 1

    def trouble(self, why: str) -> None:
        self.troubles.append(why)

    @property
    def texts(self) -> list[str]:
        return [text for each in self.received for text in each.texts]


@pytest.fixture
def platform() -> Iterator[standin.Telegram]:
    with standin.Telegram(poll_s=1) as platform:
        yield platform
        assert platform.problems == []


def adapter(platform: standin.Telegram, **more: Any) -> Telegram:
    return Telegram({"token": platform.token, "api_base": platform.url, "poll_s": 1} | more)


@asynccontextmanager
async def running(platform: standin.Telegram, inbox: Inbox) -> AsyncIterator[Telegram]:
    """An adapter at work; whatever became of it, it leaves no connection."""
    made = adapter(platform)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run, inbox)
        with anyio.fail_after(20):
            while made._bot is None:
                await anyio.sleep(0.01)
        yield made
        began = time.monotonic()
        tasks.cancel_scope.cancel()
    assert time.monotonic() - began < 10
    await until(lambda: platform.connections == 0, 5)


def outgoing(text: str = "hello", chat: str = "7", **more: Any) -> Outgoing:
    return Outgoing(1, "telegram", chat, more.pop("thread", ""), more.pop("kind", "text"), text, "n1", **more)


# ---- what an update says

CHAT = {"id": -100, "type": "supergroup", "title": "The group"}
MAX = {"id": 8, "is_bot": False, "first_name": "Max", "last_name": "M"}
BOT = {"id": 4242, "is_bot": True, "first_name": "Clawd", "username": "clawd_bot"}
PHOTO = [
    {"file_id": "big", "file_unique_id": "b", "width": 900, "height": 900, "file_size": 99},
    {"file_id": "small", "file_unique_id": "s", "width": 9, "height": 9, "file_size": 1},
]
FILE = {"file_id": "f", "file_unique_id": "u", "file_size": 5}


def entity(kind: str, offset: int, length: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length} | more


def update(kind: str = "message", id: int = 1, **fields: Any) -> Incoming | None:
    message = {"message_id": 50, "date": 1_700_000_000, "chat": CHAT, "from": MAX} | fields
    if kind == "channel_post":
        del message["from"]
    return read(Update.de_json({"update_id": id, kind: message}), ME)


MENTION = entity("mention", 0, 10)
REPLY = {"message_id": 40, "date": 1, "chat": CHAT, "from": MAX | {"first_name": "Ann"}, "text": "what she said"}
OURS = REPLY | {"from": BOT}
HIDDEN = {"type": "hidden_user", "date": 1, "sender_user_name": "Somebody"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"text": "hi"}, {"texts": ("hi",), "sender": "telegram:8", "name": "Max M", "title": "The group"}),
        ({"text": "hi"}, {"chat": "-100", "platform_id": "50", "direct": False, "addressed": False, "thread": ""}),
        ({"text": "hi", "chat": {"id": 8, "type": "private", "first_name": "Max"}}, {"direct": True, "title": "Max"}),
        # mentions: by name in any case, by id, behind an emoji (two units), in a caption; alone it stays
        ({"text": "@Clawd_Bot what?", "entities": [MENTION]}, {"addressed": True, "texts": ("what?",)}),
        ({"text": "😀 @clawd_bot!", "entities": [entity("mention", 3, 10)]}, {"addressed": True}),
        ({"text": "😀 @clawd_bot!", "entities": [entity("mention", 3, 10)]}, {"texts": ("😀 @clawd_bot!",)}),
        ({"text": "@clawd_bot", "entities": [MENTION]}, {"addressed": True, "texts": ("@clawd_bot",)}),
        ({"text": "@clawd_bots hi", "entities": [entity("mention", 0, 11)]}, {"addressed": False}),
        ({"text": "mail@clawd_bot"}, {"addressed": False}),
        ({"text": "Clawd, hi", "entities": [entity("text_mention", 0, 5, user=BOT)]}, {"addressed": True}),
        ({"text": "Ann, hi", "entities": [entity("text_mention", 0, 3, user=MAX)]}, {"addressed": False}),
        (
            {"photo": PHOTO, "caption": "@clawd_bot see", "caption_entities": [MENTION]},
            {
                "addressed": True,
                "texts": ("see",),
                "attachments": (Attachment("photo-50.jpg", {"file": "big"}, 99, "image/jpeg"),),
            },
        ),
        # commands
        ({"text": "/status", "entities": [entity("bot_command", 0, 7)]}, {"addressed": True, "texts": ("/status",)}),
        (
            {"text": "/new@Clawd_bot please", "entities": [entity("bot_command", 0, 14)]},
            {"addressed": True, "texts": ("/new please",)},
        ),
        ({"text": "/start", "entities": [entity("bot_command", 0, 6)]}, {"texts": ("/help",)}),
        ({"text": "/status@other_bot", "entities": [entity("bot_command", 0, 17)]}, None),
        ({"text": "say /new", "entities": [entity("bot_command", 4, 4)]}, {"addressed": False, "texts": ("say /new",)}),
        # replies, quotes, what is passed on
        (
            {"text": "no", "reply_to_message": REPLY},
            {"said": (Said("quoted", "what she said", "Ann M"),), "reply_to": "40", "addressed": False},
        ),
        ({"text": "and?", "reply_to_message": OURS}, {"addressed": True, "reply_to": "40"}),
        (
            {"text": "no", "reply_to_message": REPLY, "quote": {"text": "she", "position": 5}},
            {"said": (Said("quoted", "she", "Ann M"),)},
        ),
        (
            {"text": "no", "external_reply": {"origin": HIDDEN}, "quote": {"text": "there", "position": 0}},
            {"said": (Said("quoted", "there", "Somebody"),), "reply_to": None},
        ),
        (
            {"text": "@clawd_bot /new", "entities": [MENTION], "forward_origin": HIDDEN},
            {"texts": (), "addressed": False, "said": (Said("forwarded", "@clawd_bot /new", "Somebody"),)},
        ),
        (
            {"text": "x", "forward_origin": {"type": "user", "date": 1, "sender_user": MAX}},
            {"said": (Said("forwarded", "x", "Max M"),)},
        ),
        (
            {"text": "x", "forward_origin": {"type": "channel", "date": 1, "chat": CHAT, "message_id": 1}},
            {"said": (Said("forwarded", "x", "The group"),)},
        ),
        (
            {"text": "/status@other_bot", "entities": [entity("bot_command", 0, 17)], "forward_origin": HIDDEN},
            {"said": (Said("forwarded", "/status@other_bot", "Somebody"),)},
        ),
        ({"text": "x", "via_bot": BOT | {"id": 5}}, {"texts": (), "said": (Said("forwarded", "x", "Clawd"),)}),
        # threads: only real topics
        ({"text": "x", "message_thread_id": 40, "is_topic_message": True}, {"thread": "40"}),
        ({"text": "x", "message_thread_id": 40, "reply_to_message": REPLY}, {"thread": ""}),
        ({"text": "x", "message_thread_id": 1, "is_topic_message": True}, {"thread": ""}),
        (
            {
                "text": "x",
                "message_thread_id": 40,
                "is_topic_message": True,
                "reply_to_message": OURS | {"forum_topic_created": {"name": "T", "icon_color": 1}},
            },
            {"addressed": False, "reply_to": None, "said": ()},
        ),
        # files and what is none
        ({"document": FILE | {"file_name": "a.pdf", "mime_type": "application/pdf"}}, {"texts": ()}),
        ({"voice": FILE | {"duration": 1}}, {"attachments": (Attachment("voice-50.ogg", {"file": "f"}, 5, "", True),)}),
        (
            {
                "animation": FILE | {"duration": 1, "width": 1, "height": 1, "file_name": "a.mp4"},
                "document": FILE | {"file_name": "a.mp4"},
            },
            {"attachments": (Attachment("a.mp4", {"file": "f"}, 5),)},
        ),
        (
            {"video_note": FILE | {"duration": 1, "length": 1}, "media_group_id": "g"},
            {"attachments": (Attachment("video_note-50.mp4", {"file": "f"}, 5),), "album": "g"},
        ),
        (
            {"sticker": FILE | {"type": "regular", "width": 1, "height": 1, "is_animated": False, "is_video": False}},
            {"said": (Said("forwarded", "(a sticker: without a name)"),), "attachments": ()},
        ),
        (
            {"location": {"latitude": 1.5, "longitude": 2}, "reply_to_message": REPLY},
            {"said": (Said("quoted", "what she said", "Ann M"), Said("forwarded", "(a place: 1.5, 2)"))},
        ),
        (
            {"contact": {"first_name": "Eve", "phone_number": "+1"}},
            {"texts": (), "said": (Said("forwarded", "(a contact: Eve , +1)"),)},
        ),
        ({"dice": {"emoji": "🎲", "value": 6}}, {"said": (Said("forwarded", "(🎲 6)"),)}),
        ({"story": {"id": 1, "chat": CHAT}}, {"said": (Said("forwarded", "(something that cannot be shown here)"),)}),
        ({"new_chat_title": "x"}, None),
        ({"new_chat_members": [MAX]}, None),
        ({"pinned_message": REPLY}, None),
        # who is nobody
        ({"text": "x", "from": BOT}, None),
        ({"text": "x", "from": BOT | {"id": 5}}, None),
        (
            {"text": "x", "from": BOT | {"id": 1087968824}, "sender_chat": CHAT},
            {"sender": "telegram:chat:-100", "name": "The group"},
        ),
        ({"text": "x", "sender_chat": CHAT | {"id": -200}}, {"sender": "telegram:chat:-200"}),
    ],
)
def test_what_a_message_says(fields: dict[str, Any], expected: dict[str, Any] | None) -> None:
    incoming = update(**fields)
    if expected is None:
        assert incoming is None
        return
    assert incoming is not None and incoming.kind == "message" and incoming.rev == 0
    assert {key: getattr(incoming, key) for key in expected} == expected


def test_posts_and_edits() -> None:
    post = update("channel_post", text="x", sender_chat=CHAT)
    assert post is not None and post.sender == "telegram:chat:-100"
    edits = [update("edited_message", id, text="y", edit_date=1_700_000_100) for id in (7, 8)]
    assert all(each is not None and each.kind == "edit" and each.texts == ("y",) for each in edits)
    revs = [each.rev for each in edits if each is not None]
    assert 0 < revs[0] < revs[1] < 1 << 62  # two within one second
    assert update("edited_message", edit_date=2, location={"latitude": 1, "longitude": 2}) is None  # it moves on
    assert read(Update.de_json({"update_id": 1}), ME) is None


# ---- the poll loop


async def test_an_update_is_confirmed_once_it_is_durable(platform: standin.Telegram) -> None:
    inbox = Inbox()
    async with running(platform, inbox):
        platform.say("one")
        await until(lambda: inbox.texts == ["one"])
        inbox.open = anyio.Event()
        second, third = platform.say("two"), platform.say("three")
        waiting = await until(lambda: [each for each in platform.updates if each["message"]["text"] == "two"])
        await anyio.sleep(0.3)  # nothing comes of it
        offsets = [int(each.params.get("offset", 0)) for each in platform.calls if each.method == "getupdates"]
        assert max(offsets) <= waiting[0]["update_id"] and inbox.texts == ["one"]
    # the program ends before it is durable: the next one is given both
    inbox.open.set()
    async with running(platform, inbox):
        await until(lambda: len(inbox.texts) == 3)
        last = await inbox.cursor()
        await until(lambda: any(each.params.get("offset") == str(int(last or 0) + 1) for each in platform.calls))
    assert inbox.texts == ["one", "two", "three"]
    assert [each.platform_id for each in inbox.received[1:]] == [second, third]
    assert {each.params["allowed_updates"][0] for each in platform.calls if "allowed_updates" in each.params} == {
        "message"
    }
    async with running(platform, inbox):
        platform.again()
        await until(lambda: len(inbox.received) == 4)  # it is for the intake to know it
    assert inbox.received[3] == inbox.received[2]


async def test_ids_that_begin_anew_are_taken(platform: standin.Telegram) -> None:
    inbox = Inbox("900000000")
    async with running(platform, inbox):
        message = {"message_id": 1, "date": 1, "chat": platform.chat("7"), "from": platform.user("7")}
        for id, text in ((3, "first"), (4, "second")):
            platform.update(id, message=message | {"text": text, "message_id": id})
        await until(lambda: inbox.texts == ["first", "second"])
        await until(lambda: any(each.params.get("offset") == "5" for each in platform.calls))
    assert await inbox.cursor() == "4"


async def test_an_update_that_cannot_be_read_is_passed_by(
    platform: standin.Telegram, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    async with running(platform, inbox):
        bad = platform.update(message={"message_id": 1, "date": "secret words", "chat": 5})
        platform.update(something_new={"of": "tomorrow"})
        platform.say("after")
        await until(lambda: inbox.texts == ["after"])
        assert len(platform.calls) < 20
    assert [each.getMessage() for each in caplog.records if str(bad) in each.getMessage()]
    assert "secret words" not in caplog.text


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"status": 502},
        {"status": 429, "retry_after": 1},
        {"status": 0},
        {"status": 409},
        {"status": 404, "text": "<html>a captive portal</html>"},
        {"status": 200, "after": True},
    ],
    ids=str,
)
async def test_a_poll_that_fails_is_made_again(
    platform: standin.Telegram, fault: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    inbox = Inbox()
    async with running(platform, inbox):
        await until(lambda: inbox.heards)
        platform.fail(what="poll", **fault)
        platform.say("one")
        await until(lambda: not platform.faults)
        platform.say("two")
        await until(lambda: inbox.texts == ["one", "two"])
    assert len(inbox.troubles) == (0 if fault["status"] == 409 else 1)
    assert platform.token not in caplog.text + str(inbox.troubles)
    ours = [each for each in caplog.records if each.name.startswith(("channels", "telegram", "http"))]
    assert not [each for each in ours if each.levelno >= logging.WARNING]  # it is for the inbox to say


async def test_a_half_open_connection_is_left(platform: standin.Telegram) -> None:
    inbox = Inbox()
    async with running(platform, inbox):
        await until(lambda: platform.live)
        platform.freeze()
        platform.say("still there?")
        await until(lambda: inbox.texts == ["still there?"], 25)
        assert inbox.troubles


async def test_a_stop_leaves_nothing_though_nobody_answers(platform: standin.Telegram) -> None:
    ended: list[Exception] = []

    async def send(telegram: Telegram) -> None:
        try:
            await telegram.send(outgoing())
        except (NotSent, Unsure) as error:
            ended.append(error)

    async with anyio.create_task_group() as tasks:
        async with running(platform, Inbox()) as telegram:
            await telegram.send(outgoing("one"))
            await until(lambda: platform.live)
            platform.freeze()
            tasks.start_soon(send, telegram)
            await until(lambda: [each.method for each in platform.calls].count("sendMessage") == 2)
        await until(lambda: ended, 10)
    with pytest.raises(NotSent):
        await telegram.send(outgoing())


async def test_a_platform_that_is_down_is_waited_for(platform: standin.Telegram) -> None:
    inbox = Inbox()
    platform.down()
    async with running(platform, inbox) as telegram:
        await until(lambda: inbox.troubles)
        assert not inbox.heards and "reached" in inbox.troubles[0]
        with pytest.raises(NotSent):
            await telegram.send(outgoing())
        platform.up()
        platform.say("hello?")
        await until(lambda: inbox.texts == ["hello?"])
        assert inbox.heards


async def test_another_program_with_the_token_is_told_when_it_stays(
    platform: standin.Telegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels.telegram, "CONFLICT_S", 0.8)
    monkeypatch.setattr(channels.telegram, "LONGEST_PAUSE_S", 0.2)
    inbox = Inbox()
    platform.fail(409, times=1000, what="poll")
    async with running(platform, inbox):
        await until(lambda: len(platform.faults) < 1000)
        assert inbox.troubles == []
        await until(lambda: channels.telegram.ANOTHER in inbox.troubles)
        platform.faults.clear()
        await until(lambda: inbox.heards)
        platform.webhook = "https://example.org/hook"
        platform.drop()
        await until(lambda: channels.telegram.WEBHOOK in inbox.troubles)


async def test_a_wrong_token_is_final(platform: standin.Telegram) -> None:
    for token in (platform.token[:-4] + "beef", "", None, "no token at all"):
        with pytest.raises(Fatal) as fatal, anyio.fail_after(20):
            await adapter(platform, token=token).run(Inbox())
        assert "token" in str(fatal.value) and (not token or token not in str(fatal.value))
    inbox = Inbox()
    made = adapter(platform)

    async def revoke() -> None:
        await until(lambda: inbox.heards)
        platform.token = "another"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(revoke)
        with pytest.raises(Fatal), anyio.fail_after(20):
            await made.run(inbox)
    await until(lambda: platform.connections == 0)


async def test_a_button_is_answered_once_it_is_durable(platform: standin.Telegram) -> None:
    inbox = Inbox()
    async with running(platform, inbox) as telegram:
        buttons = (Button("Approve", "approve:1:abc"), Button("Deny", "deny:1:abc"))
        id = await telegram.send(outgoing("May I?", buttons=buttons))
        [sent] = platform.sent
        assert sent.buttons == [("Approve", "approve:1:abc"), ("Deny", "deny:1:abc")]
        inbox.open = anyio.Event()
        platform.press(sent, "approve:1:abc")
        await anyio.sleep(0.3)
        assert not any(platform.queries.values())
        inbox.open.set()
        await until(lambda: all(platform.queries.values()) and inbox.received)
        [press] = inbox.received
        assert (press.kind, press.target, press.value, press.sender) == ("button", id, "approve:1:abc", "telegram:7")
        assert press.direct and press.chat == "7" and press.texts == ()
        platform.again()  # answered already: Telegram refuses the second answer
        await until(lambda: len(inbox.received) == 2)
        assert inbox.received[1].platform_id == press.platform_id
        await telegram.send(outgoing("Done.", edits=id))
        assert (sent.text, sent.buttons) == ("Done.", [])


async def test_a_chat_that_moved_is_told(platform: standin.Telegram) -> None:
    inbox = Inbox()
    async with running(platform, inbox):
        platform.put("-100", "8", migrate_to_chat_id=-200)
        platform.put("-200", "8", migrate_from_chat_id=-100)
        platform.say("here now", chat="-200", sender="8")
        await until(lambda: inbox.texts == ["here now"])
    assert inbox.moves == [("-100", "-200")]


# ---- out


async def test_what_is_sent_is_shown(platform: standin.Telegram) -> None:
    async with running(platform, Inbox()) as telegram:
        topic = platform.thread("-100")
        text = "😀 bold and a link, code"
        spans = (
            Span("bold", 3, 4),
            Span("text_link", 14, 4, url="https://example.org"),
            Span("pre", 20, 4, language="py"),
        )
        form = Formatted(text, spans)
        asked = platform.say("question")
        id = await telegram.send(outgoing("**source**", formatted=form, reply_to=asked))
        sent = platform.sent[-1]
        assert (sent.id, sent.text, sent.reply_to) == (id, text, asked)
        assert sent.spans == [("bold", "bold"), ("text_link", "link"), ("pre", "code")]
        await telegram.send(outgoing("the question is gone", reply_to="99999"))
        assert platform.sent[-1].reply_to is None
        for thread, shown in ((topic, topic), ("1", ""), ("", "")):
            await telegram.send(outgoing("in a topic", "-100", thread=thread))
            assert platform.sent[-1].thread == shown
        await telegram.send(outgoing("**source**", "-100", thread="77777", formatted=form))
        sent = platform.sent[-1]
        assert sent.thread == "" and sent.text == channels.telegram.GONE + text
        assert sent.spans[0] == ("bold", "bold")
        await telegram.send(outgoing("x" * telegram.limits.text, "-100", thread="77777"))
        await telegram.send(outgoing("*not* _parsed_ <b>at all</b> [x](y)"))
        assert platform.sent[-1].text == "*not* _parsed_ <b>at all</b> [x](y)"
        for text, shown in (
            ("@anna_b and (@bob1), a@b.org, @ 7", "\uff20anna_b and (\uff20bob1), a@b.org, @ 7"),
            ("😀@property @anna_b", "😀@property \uff20anna_b"),
        ):
            code = (Span("code", 2, 9),) if "property" in text else ()
            await telegram.send(outgoing("source", "-100", formatted=Formatted(text, code)))
            assert platform.sent[-1].text == shown
        assert calling_nobody(Formatted("https://a.org/@anna_b https://@anna_b")).count("@") == 1
        await telegram.send(outgoing("to @anna_b alone"))
        assert platform.sent[-1].text == "to @anna_b alone"
        long = [Button(f"A long label, number {number}", f"answer:1:{number}") for number in range(3)]
        await telegram.send(outgoing("Which?", buttons=tuple(long)))
        assert len(platform.sent[-1].buttons) == 3


async def test_edits_deletions_reactions_and_typing(platform: standin.Telegram) -> None:
    inbox = Inbox()
    async with running(platform, inbox) as telegram:
        asked = platform.say("question")
        id = await telegram.send(outgoing("a"))
        form = Formatted("a b", (Span("italic", 2, 1),))
        for _ in range(2):  # the same text again is no error
            assert await telegram.send(outgoing("a *b*", edits=id, formatted=form)) == id
        assert platform.sent[0].history == ["a", "a b"] and platform.sent[0].spans == [("italic", "b")]
        for gone in (asked, "99999"):  # somebody's else, and none
            with pytest.raises(SendRefused):
                await telegram.send(outgoing("x", edits=gone))
        reaction = outgoing("❤️", kind="reaction", target=asked)
        assert await telegram.send(reaction) == asked
        assert platform.messages["7", int(asked)]["reactions"] == ["❤"]
        for odd in (replace(reaction, text="🦔"), replace(reaction, target="99999")):
            with pytest.raises(SendRefused):
                await telegram.send(odd)
        await telegram.delete("7", id)
        await telegram.delete("7", id)  # it is gone, as it should be
        assert platform.texts() == []
        topic = platform.thread("-100")
        platform.say("in General", chat="-100", sender="8")
        await until(lambda: len(inbox.received) == 2)
        for chat, thread in (("7", ""), ("-100", ""), ("-100", topic)):
            await telegram.typing(chat, thread)
        typed = [each.params.get("message_thread_id") for each in platform.calls if each.method == "sendChatAction"]
        assert typed == [None, "1", topic] and [chat for chat, _ in platform.typed] == ["7", "-100", "-100"]


ENTITIES = {"status": 400, "text": "Bad Request: can't parse entities: it is only a test"}


@pytest.mark.parametrize(
    ("fault", "more", "expected"),
    [
        ({"status": 429, "retry_after": 3}, {}, NotSent),
        (ENTITIES, {"formatted": Formatted("x", (Span("bold", 0, 1),))}, FormatRefused),
        ({"status": 400, "text": "Bad Request: ENTITIES_TOO_LONG"}, {"formatted": Formatted("x")}, FormatRefused),
        (ENTITIES, {}, SendRefused),
        ({"status": 400, "text": "Bad Request: not enough rights to send text messages"}, {}, SendRefused),
        ({"status": 403, "text": "Forbidden: bot was blocked by the user"}, {}, SendRefused),
        ({"status": 413, "text": "Request Entity Too Large"}, {}, SendRefused),
        ({"status": 401, "text": "Unauthorized"}, {}, NotSent),
        ({"status": 403, "text": "<html>a proxy's page</html>"}, {}, Unsure),
        ({"status": 500}, {}, Unsure),
        ({"status": 502}, {}, Unsure),
        ({"status": 0}, {}, Unsure),
        ({"status": 200, "after": True}, {}, Unsure),
        ({"status": 200, "hang": 3, "after": True}, {}, Unsure),
    ],
    ids=str,
)
async def test_what_becomes_of_a_send(
    platform: standin.Telegram,
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, Any],
    more: dict[str, Any],
    expected: type[Exception],
) -> None:
    monkeypatch.setattr(channels.telegram, "SEND_S", 1.0)
    async with running(platform, Inbox()) as telegram:
        platform.fail(**fault)
        with pytest.raises(expected) as raised:
            await telegram.send(outgoing("x", **more))
        assert type(raised.value) is expected and platform.token not in str(raised.value)
        if isinstance(raised.value, NotSent) and "retry_after" in fault:
            assert raised.value.retry_after == 3
        if fault.get("after") and not fault.get("hang"):
            assert platform.texts() == ["x"]
        await telegram.send(outgoing("the next one"))


async def test_chats_that_are_not_there(platform: standin.Telegram) -> None:
    platform.known |= {"-1", "-2"}
    platform.gone.add("-1")
    platform.moved["-2"] = "-1002"
    async with running(platform, Inbox()) as telegram:
        for chat, thread in (("-1", ""), ("-5", ""), ("-1", "9")):
            with pytest.raises(SendRefused):
                await telegram.send(outgoing("x", chat, thread=thread))
        with pytest.raises(ChatMoved) as moved:
            await telegram.send(outgoing("x", "-2"))
        assert moved.value.chat == "-1002"


@pytest.mark.parametrize(
    ("error", "cause", "expected"),
    [
        (TimedOut(), httpx.PoolTimeout(""), NotSent),
        (TimedOut(), httpx.ConnectTimeout(""), NotSent),
        (NetworkError(""), httpx.ConnectError(""), NotSent),
        (TimedOut(), httpx.ReadTimeout(""), Unsure),
        (TimedOut(), httpx.WriteTimeout(""), Unsure),
        (NetworkError(""), httpx.RemoteProtocolError(""), Unsure),
        (TelegramError("Invalid server response"), ValueError(), Unsure),
        (NetworkError("Unknown error"), RuntimeError("This HTTPXRequest is not initialized!"), NotSent),
        (BadRequest("Message is too long"), None, SendRefused),
    ],
    ids=str,
)
def test_what_an_error_means(error: TelegramError, cause: Exception | None, expected: type[Exception]) -> None:
    error.__cause__ = cause
    assert type(outcome(error, "words", formatted=True)) is expected


async def test_a_pool_that_stays_full_has_everything_begun_anew(
    platform: standin.Telegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = adapter(platform)

    async def fill() -> None:
        await until(lambda: made._bot)
        error = TimedOut()
        error.__cause__ = httpx.PoolTimeout("")
        with pytest.raises(NotSent), made._outcomes():
            raise error

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fill)
        with pytest.raises(ConnectionError), anyio.fail_after(20):
            await made.run(Inbox())


PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 64


@pytest.mark.parametrize(
    ("name", "content", "method"),
    [
        ("notes.txt", b"notes", "sendDocument"),
        ("picture.PNG", PNG, "sendPhoto"),
        ("no-picture.jpg", b"text", "sendDocument"),  # what Telegram takes for no photo goes as it is
        ("large.png", PNG + bytes(10 << 20), "sendDocument"),
        ("song.mp3", b"song", "sendAudio"),
    ],
)
async def test_a_file_goes_out(
    platform: standin.Telegram, tmp_path: Path, name: str, content: bytes, method: str
) -> None:
    path = tmp_path / "0123"
    path.write_bytes(content)
    topic = platform.thread("-100")
    async with running(platform, Inbox()) as telegram:
        file = outgoing("*as* it stands", "-100", thread=topic, kind="file", path=path, name=name)
        id = await telegram.send(file)
        [sent] = platform.sent
        assert (sent.id, sent.name, sent.text, sent.thread) == (id, name, "*as* it stands", topic)
        assert sent.data == content
        assert [each.method for each in platform.calls if each.method.startswith("send")][-1] == method
        with pytest.raises(SendRefused):
            await telegram.send(replace(file, path=tmp_path / "gone"))


async def test_files_that_come_are_fetched(platform: standin.Telegram, tmp_path: Path) -> None:
    inbox = Inbox()
    async with running(platform, inbox) as telegram:
        files = [("a.png", PNG), ("b.txt", b"text"), ("big.bin", bytes((20 << 20) + 1))]
        platform.say("all of these", files=files, album=True)
        platform.say("", files=[("", b"voice")], voice=True)
        await until(lambda: len(inbox.received) == 4)
        assert len({each.album for each in inbox.received[:3]}) == 1 and inbox.received[3].album is None
        assert inbox.texts == ["all of these"] and inbox.received[3].attachments[0].voice
        attachments = [each.attachments[0] for each in inbox.received]
        assert platform.fetched == []  # nothing is asked for by itself
        for attachment, content in ((attachments[0], PNG), (attachments[1], b"text"), (attachments[3], b"voice")):
            await telegram.fetch(attachment, tmp_path / "file")
            assert (tmp_path / "file").read_bytes() == content
        for attachment in (attachments[2], Attachment("x", {"file": "nonsense"})):
            with pytest.raises(SendRefused):
                await telegram.fetch(attachment, tmp_path / "none")
        platform.fail(500, what="other")
        with pytest.raises(Unsure):
            await telegram.fetch(attachments[1], tmp_path / "none")
        assert not (tmp_path / "none").exists()

        # an answer that names a file of this machine, leads elsewhere, or tells a size that is not the file's
        (tmp_path / "secret").write_text("ours")
        hostile = Attachment("x", {"file": "h"})
        platform.files["h"] = (str(tmp_path / "secret"), b"theirs")
        await telegram.fetch(hostile, tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == b"theirs"
        platform.files["h"] = ("../../x", b"theirs")
        with pytest.raises(SendRefused):
            await telegram.fetch(hostile, tmp_path / "none")
        platform.files["h"] = ("x", bytes((20 << 20) + 1))
        platform._getfile = lambda params: {"file_id": "h", "file_size": 1, "file_path": "x"}  # type: ignore[method-assign]
        with pytest.raises(SendRefused, match="20 MB"):
            await telegram.fetch(hostile, tmp_path / "cut")
        assert (tmp_path / "cut").stat().st_size <= 20 << 20
        platform.files.clear()
        with pytest.raises(NotSent) as lost:
            await telegram.fetch(hostile, tmp_path / "none")
        assert platform.token not in str(lost.value)


async def test_commands_are_registered_when_they_changed(platform: standin.Telegram) -> None:
    async with running(platform, Inbox()) as telegram:
        for table in ({"help": "what there is"}, {"help": "what there is"}, {"help": "x" * 500, "new": "anew"}):
            await telegram.commands(table)
    assert [each["command"] for each in platform.menu] == ["help", "new"]
    assert len([each for each in platform.calls if each.method == "setMyCommands"]) == 2


async def test_the_test_of_a_channel(platform: standin.Telegram) -> None:
    async def checks(chats: list[str], **more: Any) -> dict[str, bool]:
        found = await adapter(platform, **more).test(chats)
        assert all(each.ok or each.hint for each in found)
        return {each.what: each.ok for each in found}

    good = await checks(["7"])
    assert all(good.values()) and "the token is @clawd_bot's" in good and any("privacy" in what for what in good)
    assert platform.sent[0].deleted
    platform.privacy, platform.webhook = False, "https://example.org"
    bad = await checks(["-5"])
    assert [what for what, ok in bad.items() if not ok] == ["no webhook is set", "a message sent and taken back"]
    assert not any("privacy" in what for what in bad)
    assert not all((await checks([])).values())
    assert await checks(["7"], token="4242:wrong") == {"the token": False}
    platform.fail(502, what="other")
    assert await checks(["7"]) == {"Telegram answers": False}
    await until(lambda: platform.connections == 0)
