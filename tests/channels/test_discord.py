"""The adapter on the real discord.py, over a platform on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.discord import Discord, api, gateway
from channels.discord.api import nonce_of, refusal
from channels.discord.events import Place, read_edit, read_interaction, read_message
from clawd.channel import Fatal, FormatRefused, NotSent, SendRefused, Unsure
from clawd.model import Attachment, Button, Formatted, Incoming, Outgoing, Receipt, Said
from tests.channels.conftest import until
from tests.platforms import discord as platforms
from tests.platforms.discord import FORUM, GUILD, ME, ROLE

pytestmark = pytest.mark.anyio
ANNA = {"id": "7", "username": "anna", "global_name": "Anna"}
SHARED, THREAD = Place("500"), Place("500", "600")


class Inbox:
    """Keeps what it is given, as durable as a test needs it."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Incoming] = {}
        self.given: list[Incoming] = []
        self.place: str | None = None
        self.heards, self.troubles = 0, list[str]()
        self.gate = anyio.Event()
        self.gate.set()
        self.broken = False
        self.stranger = "discord:9"

    async def receive(self, incoming: Incoming, cursor: str | None = None) -> Receipt:
        self.given.append(incoming)
        await self.gate.wait()
        if self.broken:
            raise OSError("the disk is full")
        if incoming.sender == self.stranger:
            return Receipt(None, "refused", None, None)
        key = (incoming.chat, incoming.thread, incoming.kind, incoming.platform_id, incoming.rev)
        fresh = key not in self.rows
        self.rows.setdefault(key, incoming)
        self.place = cursor or self.place
        return Receipt(len(self.rows), "received", "s", None, fresh=fresh)

    async def keep(self, cursor: str) -> None:
        self.place = cursor

    async def cursor(self) -> str | None:
        return self.place

    def heard(self) -> None:
        self.heards += 1

    def trouble(self, why: str) -> None:
        self.troubles.append(why)

    @property
    def texts(self) -> list[str]:
        return [text for each in self.rows.values() for text in each.texts]


@asynccontextmanager
async def running(adapter: Discord, inbox: Inbox, platform: platforms.Discord) -> AsyncIterator[None]:
    """The channel while it is open; then nothing of it is left."""
    before = asyncio.all_tasks()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(adapter.run, inbox)
            await until(lambda: inbox.heards and platform.live)
            yield
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    await until(lambda: not platform.sockets, 5)
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}
    await until(lambda: not any(each.name.startswith("keep-alive") for each in threading.enumerate()), 5)


@pytest.fixture
def platform() -> Iterator[platforms.Discord]:
    with platforms.Discord() as made:
        yield made
        assert made.problems == []


@pytest.fixture
def adapter(platform: platforms.Discord) -> Discord:
    return Discord(platform.settings)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def outgoing(text: str, chat: str = "9007", nonce: str = "n", **more: Any) -> Outgoing:
    return Outgoing(1, "discord", chat, more.pop("thread", ""), more.pop("kind", "text"), text, nonce, **more)


def message(content: str = "hi", **more: Any) -> dict[str, Any]:
    made = {
        "id": "1000",
        "channel_id": "500",
        "author": ANNA,
        "content": content,
        "type": 0,
        "timestamp": "2026-01-02T03:04:05+00:00",
    }
    return made | {"attachments": [], "mentions": []} | more


def read(content: str = "hi", place: Place = SHARED, **more: Any) -> Incoming | None:
    return read_message(message(content, **more), place, "42", frozenset({ROLE}))


# ---- what its objects say


@pytest.mark.parametrize(
    "more",
    [
        {"author": ANNA | {"id": "42"}},
        {"author": ANNA | {"bot": True}},
        {"webhook_id": "9"},
        {"type": 7},  # somebody joined
        {"type": 18},  # a thread was made
        {"type": 21},  # and this is how it begins
        {"content": "", "embeds": [{"title": "a preview"}]},
    ],
    ids=str,
)
def test_what_is_nobodys_word_is_not_read(more: dict[str, Any]) -> None:
    assert read(**more) is None


def test_the_message_that_a_thread_begins_with_is_read_once() -> None:
    assert read(place=Place("500", "1000")) is None
    post = read(place=Place(FORUM, "1000", post=True))
    assert post and (post.chat, post.thread) == (FORUM, "1000")


@pytest.mark.parametrize(
    ("content", "more", "text", "addressed"),
    [
        ("hi", {}, "hi", False),
        ("<@42> what now?", {"mentions": [ME]}, "what now?", True),
        ("so, <@!42>, what now?", {"mentions": [ME]}, "so,, what now?", True),
        ("<@42>", {"mentions": [ME]}, "@clawd", True),
        (f"<@&{ROLE}> all", {"mention_roles": [ROLE]}, "all", True),
        ("<@&999> all", {"mention_roles": ["999"]}, "<@&999> all", False),
        ("@everyone look", {"mention_everyone": True}, "@everyone look", False),
        ("<@7> and <@8> <:wave:123>", {"mentions": [ANNA]}, "@Anna and <@8> :wave:", False),
        ("a\n\n  b", {}, "a\n\n  b", False),
        ("", {"sticker_items": [{"name": "Wumpus"}]}, "(sticker: Wumpus)", False),
    ],
)
def test_what_is_typed(content: str, more: dict[str, Any], text: str, addressed: bool) -> None:
    found = read(content, **more)
    assert found and (found.texts, found.addressed) == ((text,), addressed)


def test_who_and_where() -> None:
    found = read(place=Place("500", "600", "#room (Server)"), member={"nick": "Annie"})
    assert found and (found.sender, found.name, found.chat, found.thread) == ("discord:7", "Annie", "500", "600")
    assert (found.title, found.direct, found.platform_id, found.at.year) == ("#room (Server)", False, "1000", 2026)


@pytest.mark.parametrize(("author", "addressed"), [(ME, True), (ANNA, False)])
def test_a_reply_passes_on_what_it_answers(author: dict[str, Any], addressed: bool) -> None:
    quoted = message("it is <@7>", author=author, mentions=[ANNA])
    more = {"type": 19, "referenced_message": quoted, "message_reference": {"message_id": "900", "channel_id": "500"}}
    found = read("really?", **more)
    assert found and (found.reply_to, found.addressed) == ("900", addressed)
    assert found.said == (Said("quoted", "it is @Anna", "clawd" if addressed else "Anna"),)
    gone = read("really?", **more | {"referenced_message": None})
    assert gone and gone.said == () and gone.reply_to == "900"


def test_a_forward_is_what_somebody_else_said() -> None:
    snapshot = {
        "content": "from elsewhere",
        "attachments": [{"id": "5", "filename": "a.txt", "size": 3, "url": "https://x/a"}],
    }
    more = {"message_reference": {"type": 1, "message_id": "9"}, "message_snapshots": [{"message": snapshot}]}
    found = read("", **more)
    assert found and found.texts == () and found.said == (Said("forwarded", "from elsewhere"),)
    assert [each.name for each in found.attachments] == ["a.txt"] and found.reply_to is None


def test_files_and_voice() -> None:
    file = {"id": "5", "filename": "v.ogg", "size": 3, "url": "https://x/v", "content_type": "audio/ogg"}
    found = read("", attachments=[file], flags=1 << 13)
    handle = {"channel": "500", "message": "1000", "id": "5", "url": "https://x/v"}
    assert found and found.attachments == (Attachment("v.ogg", handle, 3, "audio/ogg", True),)


def test_an_edit_is_one_when_somebody_edited() -> None:
    assert read_edit(message(edited_timestamp=None), SHARED, "42", frozenset()) is None
    first = read_edit(message("b", edited_timestamp="2026-01-02T03:05:00.5+00:00"), SHARED, "42", frozenset())
    later = read_edit(message("c", edited_timestamp="2026-01-02T03:05:00.6+00:00"), SHARED, "42", frozenset())
    assert first and later and first.kind == "edit" and first.texts == ("b",) and first.rev < later.rev
    assert (
        read_edit(message(author=ME, edited_timestamp="2026-01-02T03:05:00+00:00"), SHARED, "42", frozenset()) is None
    )


def test_interactions() -> None:
    base = {
        "id": str(1 << 60),
        "type": 2,
        "user": ANNA,
        "data": {"name": "model", "options": [{"value": "big"}, {"value": 3}]},
    }
    direct = Place("9007", direct=True)
    found = read_interaction(base, direct)
    assert found and (found.kind, found.texts, found.addressed) == ("command", ("/model big 3",), True)
    assert read_interaction(base | {"context": 2}, direct) is None  # somebody else's chat, where the app was called
    assert read_interaction(base | {"type": 4}, direct) is None
    press = read_interaction(base | {"type": 3, "data": {"custom_id": "v"}, "message": {"id": "55"}}, direct)
    assert press and (press.kind, press.value, press.target, press.texts) == ("button", "v", "55", ())


@pytest.mark.parametrize(
    ("status", "code", "form", "kind", "words"),
    [
        (401, 0, False, NotSent, "token"),
        (403, 50001, False, SendRefused, "View Channels"),
        (403, 50013, False, SendRefused, "Send Messages"),
        (403, 50007, False, SendRefused, "direct messages"),
        (404, 10003, False, SendRefused, "gone"),
        (404, 10008, True, SendRefused, "gone"),
        (413, 0, False, SendRefused, "larger"),
        (400, 50035, True, FormatRefused, "Invalid"),
        (400, 50035, False, SendRefused, "Invalid"),
        (400, 0, True, SendRefused, "Invalid"),
        (503, 0, False, Unsure, "503"),
    ],
)
def test_what_a_refusal_means(status: int, code: int, form: bool, kind: type[Exception], words: str) -> None:
    found = refusal(status, code, "Invalid Form Body", form)
    assert type(found) is kind and words in str(found)


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_nonce_fits_and_stays_one_of_its_own(one: str, other: str) -> None:
    assert len(nonce_of(one)) <= 25 and (nonce_of(one) == nonce_of(other)) == (one == other)


# ---- in


async def test_what_is_said_comes_in_order_and_once(
    platform: platforms.Discord, adapter: Discord, inbox: Inbox
) -> None:
    thread = platform.thread("500")
    async with running(adapter, inbox, platform):
        inbox.gate = anyio.Event()
        sent = [
            platform.say("one"),
            platform.say("two", "500", "8", mention=True),
            platform.say("three", "500", thread=thread),
        ]
        platform.again()
        post = platform.thread(FORUM, "1234567")
        platform.say("a post", FORUM, thread=post, id=post)
        platform.say("from a bot", "500", "8", bot=True)
        platform.say("hello", platform.direct("9"), "9")
        await until(lambda: inbox.given)
        await anyio.sleep(0.1)
        assert len(inbox.given) == 1  # the next one waits until this one is durable
        inbox.gate.set()
        await until(lambda: any("hello" in each.texts for each in inbox.given))
    kept = [(each.chat, each.thread, each.texts, each.direct) for each in inbox.rows.values()]
    assert kept == [
        ("9007", "", ("one",), True),
        ("500", "", ("two",), False),
        ("500", thread, ("three",), False),
        (FORUM, post, ("a post",), False),
    ]
    place = json.loads(inbox.place or "")  # whoever is nobody here leaves no trace
    assert place == {"9007": [sent[0], "9007", True], "500": [sent[1], "500", False]} | {
        thread: [sent[2], "500", False],
        post: [post, FORUM, False],
    }


async def test_edits_and_deletions(platform: platforms.Discord, adapter: Discord, inbox: Inbox) -> None:
    async with running(adapter, inbox, platform):
        ids = [platform.say(f"message {number}", "500") for number in range(4)]
        platform.edit(ids[0], "message zero")
        preview = platform.messages[ids[1]] | {"embeds": [{"title": "preview"}]}
        platform.emit("MESSAGE_UPDATE", preview | platform.where("500"))
        platform.delete(ids[0])
        platform.emit("MESSAGE_DELETE_BULK", {"ids": ids[1:3], "channel_id": "500", "guild_id": GUILD})
        await until(lambda: len(inbox.rows) == 8)
        kinds = [(each.kind, each.platform_id, each.texts) for each in inbox.rows.values()][4:]
    assert kinds == [("edit", ids[0], ("message zero",)), *(("delete", id, ()) for id in ids[:3])]


async def test_an_event_that_cannot_be_read_is_one_event(
    platform: platforms.Discord, adapter: Discord, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(adapter, inbox, platform):
        bad = platform.message("500", "7", "odd") | platform.where("500")
        platform.emit("MESSAGE_CREATE", bad | {"message_reference": {"type": 1}, "message_snapshots": [{}]})
        for odd in ({"id": "x\ny"}, {"id": None}, {"channel_id": "x", "guild_id": "1"}, {"author": []}):
            platform.emit("MESSAGE_CREATE", bad | odd)
        platform.emit("MESSAGE_DELETE", {"id": "1"})
        press = {"id": "9" * 400, "type": 3, "token": "t", "channel_id": "9007", "user": {"id": "7"}}
        platform.emit("INTERACTION_CREATE", press | {"data": {"custom_id": "x"}, "message": {"id": "1"}})
        platform.say("good", "500")
        await until(lambda: inbox.texts == ["good"])
        assert platform.opened == ["IDENTIFY"]
    assert "cannot be read" in caplog.text


async def test_what_was_missed_is_fetched_where_we_are_known(
    platform: platforms.Discord, adapter: Discord, inbox: Inbox
) -> None:
    """A restart, more than a page of messages, a session that is over, an inbox that failed."""
    thread = platform.thread("500")
    async with running(adapter, inbox, platform):
        platform.say("first")
        platform.say("first in the thread", "500", thread=thread)
        await until(lambda: len(inbox.rows) == 2)
    for number in range(130):
        platform.say(f"away {number}")
    platform.say("from a bot", bot=True)
    platform.say("in the thread", "500", thread=thread, mention=True)
    platform.say("never seen before", "510")
    async with running(adapter, inbox, platform):
        await until(lambda: "in the thread" in inbox.texts)
        assert [text for text in inbox.texts if "away" in text] == [f"away {number}" for number in range(130)]
        found = next(each for each in inbox.rows.values() if each.texts == ("in the thread",))
        assert (found.chat, found.thread, found.addressed, found.direct) == ("500", thread, True, False)
        assert inbox.rows[next(key for key in inbox.rows if inbox.rows[key].texts == ("away 7",))].direct
        platform.frame(9, False)
        await until(lambda: not platform.live)
        platform.sessions = {}
        platform.say("while there was no session")
        await until(lambda: "while there was no session" in inbox.texts)
        assert platform.opened == ["IDENTIFY"] * 3
        inbox.broken = True
    with pytest.raises(OSError, match="disk is full"), anyio.fail_after(10):
        platform.say("it cannot be kept")
        await adapter.run(inbox)
    inbox.broken = False
    async with running(adapter, inbox, platform):
        await until(lambda: "it cannot be kept" in inbox.texts)
    assert "never seen before" not in inbox.texts and len(set(inbox.texts)) == len(inbox.texts)


async def test_a_channel_that_was_lost_does_not_keep_us_out(
    platform: platforms.Discord, adapter: Discord, inbox: Inbox
) -> None:
    inbox.place = json.dumps({"12345": ["1", "12345", False], "9007": [platform.say("seen"), "9007", True]})
    platform.say("missed")
    platform.faults.append(platforms.Fault(status=403, what="other"))
    async with running(adapter, inbox, platform):
        await until(lambda: inbox.texts == ["missed"])


async def test_a_connection_that_breaks_is_resumed(platform: platforms.Discord, adapter: Discord, inbox: Inbox) -> None:
    async with running(adapter, inbox, platform):
        for how in (platform.drop, lambda: platform.frame(7)):
            seen = len(platform.opened)
            how()
            platform.say(f"meanwhile {seen}")
            await until(lambda seen=seen: f"meanwhile {seen}" in inbox.texts)
        platform.refuse = 1
        platform.drop()
        platform.say("after a refused handshake")
        await until(lambda: "after a refused handshake" in inbox.texts)
    assert platform.opened == ["IDENTIFY", "RESUME", "RESUME", "RESUME"]
    assert sorted(inbox.texts) == sorted(set(inbox.texts)) and inbox.troubles == []


async def test_a_half_open_connection_is_noticed_and_left(
    platform: platforms.Discord, adapter: Discord, inbox: Inbox
) -> None:
    async with running(adapter, inbox, platform):
        heard = inbox.heards
        await until(lambda: inbox.heards > heard)  # a heartbeat's answer is enough
        platform.freeze()
        platform.say("into the silence")
        await until(lambda: inbox.troubles, 10)
        heard = inbox.heards
        await anyio.sleep(0.5)
        assert inbox.heards == heard and "says nothing" in inbox.troubles[0]
        platform.thaw()
        await until(lambda: "into the silence" in inbox.texts and inbox.heards > heard)


async def test_a_gateway_that_does_not_come_back_is_given_up(
    platform: platforms.Discord, adapter: Discord, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anyio.fail_after(20), pytest.raises(ConnectionError, match="does not answer"):
        async with running(adapter, inbox, platform):
            monkeypatch.setattr(gateway, "_LOST_S", 0.2)
            monkeypatch.setattr(gateway, "_REBUILD_S", 0.7)
            platform.refuse = 1000
            platform.drop()
            await until(lambda: inbox.troubles)
            await anyio.sleep_forever()
    assert len(inbox.troubles) == 1


# ---- what keeps us out


@pytest.mark.parametrize(
    ("setting", "words"),
    [({"token": "Wrong-Token"}, "token"), ({"code": 4004}, "token"), ({"content": False}, "Message Content Intent")],
    ids=str,
)
async def test_what_only_a_person_can_change_is_fatal(
    platform: platforms.Discord, inbox: Inbox, setting: dict[str, Any], words: str
) -> None:
    platform.close_code, platform.content = setting.get("code", 0), setting.get("content", True)
    adapter = Discord(platform.settings | {key: value for key, value in setting.items() if key == "token"})
    with anyio.fail_after(20), pytest.raises(Fatal, match=words) as failed:
        await adapter.run(inbox)
    assert "Wrong-Token" not in repr(failed.value) and inbox.heards == 0
    await until(lambda: not platform.sockets, 5)


async def test_no_token_is_fatal(inbox: Inbox) -> None:
    with pytest.raises(Fatal, match="token"):
        await Discord({}).run(inbox)


def test_the_librarys_own_addresses_stay() -> None:
    told = (
        "import discord.http, discord.gateway as g; print(discord.http.Route.BASE, g.DiscordWebSocket.DEFAULT_GATEWAY)"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [gateway.api_base({}), gateway.GATEWAY]


async def test_what_passes_is_tried_again_with_a_new_client(
    platform: platforms.Discord, adapter: Discord, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody listens; the first handshake fails; a code of the gateway's that means nothing to us."""
    platform.down()
    with anyio.fail_after(10), pytest.raises(ConnectionError, match="let us in"):
        await adapter.run(inbox)
    platform.up()
    platform.refuse = 1
    with anyio.fail_after(10), pytest.raises(ConnectionError, match="cannot be reached"):
        await adapter.run(inbox)
    platform.close_code = 4011
    with anyio.fail_after(10), pytest.raises(Fatal, match="4011"):
        await adapter.run(inbox)
    with pytest.raises(NotSent):
        await adapter.send(outgoing("hi"))
    platform.close_code = 0
    adapter = Discord(
        {"token": platform.token, "api_base": f"{platform.url}/api/v10/"}
    )  # which is asked for the gateway
    async with running(adapter, inbox, platform):
        platform.say("at last")
        await until(lambda: inbox.texts == ["at last"])
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


# ---- out


async def test_messages_go_out(platform: platforms.Discord, adapter: Discord, inbox: Inbox) -> None:
    thread = platform.thread("500")
    async with running(adapter, inbox, platform):
        asked = platform.say("a question", "500")
        sent = await adapter.send(
            outgoing("plain @everyone", "500", "n1", reply_to=asked, formatted=Formatted("**plain** @everyone"))
        )
        await adapter.send(outgoing("to the thread", "500", "n2", thread=thread, reply_to="404404"))
        await adapter.send(outgoing("🎉" * 1000, nonce="n" * 40))
        await adapter.send(outgoing("**edited**", "500", "n3", edits=sent))
        await adapter.send(outgoing("**edited**", "500", "n3", edits=sent))
        assert await adapter.send(outgoing("👍", "500", "n4", kind="reaction", target=asked)) == asked
        await adapter.typing("500", thread)
        mine = {each.text: each for each in platform.sent}
        assert [each.reply_to for each in platform.sent] == [asked, None, None]
        assert mine["to the thread"].thread == thread and mine["**edited**"].history == [
            "**plain** @everyone",
            "**edited**",
            "**edited**",
        ]
        assert platform.callbacks[f"reaction {asked}"] == {"emoji": "👍"}
        assert platform.typed and platform.messages[sent]["flags"] == 4
        await adapter.delete("500", mine["to the thread"].id)
        assert platform.texts("500") == ["**edited**"]
        platform.say("the last")
        await until(lambda: "the last" in inbox.texts)
        assert inbox.texts == ["a question", "the last"]  # nothing of our own


async def test_what_is_refused_says_what_to_do(platform: platforms.Discord, adapter: Discord, inbox: Inbox) -> None:
    thread = platform.thread("500")
    async with running(adapter, inbox, platform):
        platform.locked.add(thread)
        with pytest.raises(SendRefused, match="locked"):
            await adapter.send(outgoing("hi", "500", "n1", thread=thread))
        with pytest.raises(SendRefused, match="gone"):
            await adapter.send(outgoing("hi", "404", "n2"))
        with pytest.raises(SendRefused, match="gone"):
            await adapter.send(outgoing("hi", "500", "n3", edits="404"))
        with pytest.raises(SendRefused, match="nothing in"):
            await adapter.send(outgoing(" ", "500", "n4"))
        with pytest.raises(SendRefused):
            await adapter.send(outgoing("thumbs", "500", "n5", kind="reaction", target=platform.say("x", "500")))
        long = "x" * 2001
        with pytest.raises(FormatRefused):
            await adapter.send(outgoing(long, "500", "n6", formatted=Formatted(long)))
        with pytest.raises(SendRefused):
            await adapter.send(outgoing(long, "500", "n7"))
        assert platform.sent == [] and len(platform.problems) == 2
        platform.problems.clear()


async def test_a_lost_answer_leaves_one_message(
    platform: platforms.Discord, adapter: Discord, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "AGAIN_S", 0.05)
    async with running(adapter, inbox, platform):
        platform.fail(200, after=True)
        id = await adapter.send(outgoing("only once", nonce="n1"))
        assert platform.texts() == ["only once"] and id == platform.sent[0].id
        for status in (500, 503):
            platform.fail(status)
            await adapter.send(outgoing(f"after {status}", nonce=f"n{status}"))
        platform.fail(429, retry_after=0.2)
        await adapter.send(outgoing("after a pause", nonce="n429"))
        platform.fail(429, text="soon")  # as a proxy before it may say
        with pytest.raises(NotSent) as pause:
            await adapter.send(outgoing("later", nonce="n77"))
        assert pause.value.retry_after == 5
        platform.fail(429, retry_after=77)
        with pytest.raises(NotSent) as pause:
            await adapter.send(outgoing("later", nonce="n77"))
        assert pause.value.retry_after == 77
        platform.fail(503, times=2)
        with pytest.raises(Unsure):
            await adapter.send(outgoing("in doubt", nonce="n5"))
        assert platform.texts() == ["only once", "after 500", "after 503", "after a pause"]
        platform.down()
        with pytest.raises((NotSent, Unsure)):  # a connection that was kept may have carried it
            await adapter.send(outgoing("nobody there", nonce="n9"))
        with pytest.raises(NotSent):
            await adapter.send(outgoing("nobody there", nonce="n9"))
        platform.up()


async def test_what_may_have_arrived_is_found(platform: platforms.Discord, adapter: Discord, inbox: Inbox) -> None:
    message = outgoing("was it there?", nonce="n1")
    async with running(adapter, inbox, platform):
        assert await adapter.find(message) is None
        first = await adapter.send(outgoing("another", nonce="n0"))
        assert await adapter.find(outgoing("another", nonce="n0")) == first
        assert await adapter.find(outgoing("another", nonce="n2")) is None  # that one is somebody else's
        platform._run(_sent_by_an_earlier_life(platform, "9007", "was it there?"))
        adapter._sent.clear()
        found = platform.messages[platform.history["9007"][-1]]["id"]
        for formatted in (None, Formatted("*was* it there?"), Formatted("was it there? ")):
            assert await adapter.find(replace(message, formatted=formatted)) == found
        assert await adapter.find(outgoing("no such text", nonce="n3")) is None
        platform.fail(403, what="other")
        assert await adapter.find(outgoing("was it there?", nonce="n3")) is None
        platform.fail(503, times=2, what="other")
        with pytest.raises(NotSent):
            await adapter.find(outgoing("was it there?", nonce="n3"))


async def _sent_by_an_earlier_life(platform: platforms.Discord, channel: str, content: str) -> None:
    platform.message(channel, ME["id"], content)


async def test_buttons_and_commands(platform: platforms.Discord, adapter: Discord, inbox: Inbox) -> None:
    async with running(adapter, inbox, platform):
        buttons = tuple(Button(f"no. {number}", f"answer:1:{number}") for number in range(6))
        await adapter.send(outgoing("choose", nonce="n1", buttons=buttons))
        assert platform.sent[0].buttons == [(each.label, each.value) for each in buttons]
        inbox.gate = anyio.Event()
        platform.press(platform.sent[0], "answer:1:2")
        id = platform.slash("model", "big", "500", "8")
        await until(lambda: inbox.given)
        await anyio.sleep(0.1)
        assert platform.callbacks == {}  # not before it is durable
        inbox.gate.set()
        await until(lambda: id in platform.callbacks)
        pressed, command = inbox.rows.values()
        assert (pressed.kind, pressed.value, pressed.target) == ("button", "answer:1:2", platform.sent[0].id)
        assert (command.kind, command.texts, command.chat, command.sender) == (
            "command",
            ("/model big",),
            "500",
            "discord:8",
        )
        assert [each["type"] for each in platform.callbacks.values()] == [6, 4]
        assert platform.callbacks[id]["data"]["flags"] == 64
        await adapter.send(outgoing("chosen", nonce="n2", edits=platform.sent[0].id))
        assert platform.sent[0].buttons == []
        for table in (
            {"status": "What goes on", "stop": "Stop"},
            {"stop": "Stop", "status": "What goes on"},
            {"stop": "Stop"},
        ):
            await adapter.commands(table)
        puts = [each for each in platform.calls if each.method.startswith("PUT") and each.method.endswith("commands")]
        assert [len(each.params["list"]) for each in puts] == [2, 1] and platform.menu[0]["contexts"] == [0, 1]


async def test_files(platform: platforms.Discord, adapter: Discord, inbox: Inbox, tmp_path: Path) -> None:
    out, to = tmp_path / "blob", tmp_path / "in"
    out.write_bytes(b"content")
    async with running(adapter, inbox, platform):
        platform.fail(200, after=True)
        await adapter.send(outgoing("caption", nonce="n1", kind="file", path=out, name="a b.txt"))
        assert [(each.name, each.data, each.text) for each in platform.sent] == [("a b.txt", b"content", "caption")]
        adapter._sent.clear()
        same = outgoing("caption", nonce="n2", kind="file", path=out, name="a b.txt")
        assert await adapter.find(same) == platform.sent[0].id
        out.write_bytes(b"x" * (11 << 20))
        with pytest.raises(SendRefused, match="larger"):
            await adapter.send(outgoing("", nonce="n3", kind="file", path=out, name="big"))
        platform.say("two", files=[("one.txt", b"first"), ("two.txt", b"second")], album=True)
        one, two = (await until(lambda: inbox.rows and next(iter(inbox.rows.values())).attachments))[:2]
        await adapter.fetch(one, to)
        assert to.read_bytes() == b"first"
        adapter.limits = replace(adapter.limits, fetch_bytes=4)
        with pytest.raises(SendRefused, match="larger"):
            await adapter.fetch(one, to)
        adapter.limits = Discord.limits
        platform.gone.add(two.handle["url"])  # a link runs out
        await adapter.fetch(two, to)
        assert to.read_bytes() == b"second"
        platform.gone.update((one.handle["url"],))
        platform.delete(one.handle["message"])
        with pytest.raises(SendRefused, match="gone"):
            await adapter.fetch(one, to)
        for url in (
            "https://example.org/a",
            "http://cdn.discordapp.com/a",
            "file:///etc/passwd",
            f"https://127.0.0.1:{platform.port}/x",
        ):
            with pytest.raises(SendRefused, match="where Discord keeps"):
                await adapter.fetch(replace(one, handle=one.handle | {"url": url}), to)


async def test_the_set_up_is_tried(platform: platforms.Discord, adapter: Discord) -> None:
    checks = await adapter.test(["9007"])
    assert all(check.ok for check in checks) and len(checks) == 4, checks
    assert [each.deleted for each in platform.sent] == [True] and platform.opened == []
    platform.content = False
    failed = [check for check in await adapter.test(["404"]) if not check.ok]
    assert ["Message Content Intent" in each.hint or "gone" in each.hint for each in failed] == [True, True]
    [wrong] = await Discord(platform.settings | {"token": "Wrong-Token"}).test([])
    assert not wrong.ok and "token" in wrong.hint and "Wrong-Token" not in wrong.hint
    platform.down()
    [unreached] = await adapter.test([])
    assert not unreached.ok and unreached.hint
    platform.up()
