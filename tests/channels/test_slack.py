from __future__ import annotations

import asyncio
import html
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.slack import RIGHTS, Slack, reading, refusals, writing
from channels.slack.reading import Us
from clawd.channel import Fatal, FormatRefused, NotSent, SendRefused, Unsure
from clawd.model import Attachment, Button, Formatted, Incoming, Outgoing, Receipt, Said
from tests.channels.conftest import until
from tests.platforms import slack as platforms
from tests.platforms.slack import BOT, TEAM

pytestmark = pytest.mark.anyio
PING_S = 0.2  # a deadline of 4 or 12 pings is waited for with five times its time and more


class Inbox:
    """Keeps what it is handed; `gate` holds it up, `broken` times it cannot be kept."""

    def __init__(self) -> None:
        self.received: list[Incoming] = []
        self.troubles: list[str] = []
        self.state = "starting"
        self.broken = 0
        self.gate = anyio.Event()
        self.gate.set()

    async def receive(self, incoming: Incoming, cursor: str | None = None) -> Receipt:
        await self.gate.wait()
        if self.broken:
            self.broken -= 1
            raise OSError("the disk is full")
        self.received.append(incoming)
        return Receipt(len(self.received), "received", "s", None)

    async def keep(self, cursor: str) -> None: ...

    async def cursor(self) -> str | None:
        return None

    def heard(self) -> None:
        self.state = "live"

    def trouble(self, why: str) -> None:
        self.state = "degraded"
        self.troubles.append(why)


@pytest.fixture
def platform() -> Iterator[platforms.Slack]:
    with platforms.Slack(ping_s=PING_S, resend_s=0.5) as made:
        yield made  # type: ignore[misc]


@asynccontextmanager
async def running(platform: platforms.Slack, live: bool = True) -> AsyncIterator[tuple[Slack, Inbox]]:
    """An adapter that runs; afterwards nothing of it is left."""
    before = asyncio.all_tasks()
    slack, inbox = Slack(platform.settings), Inbox()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slack.run, inbox)
        if live:
            await until(lambda: inbox.state == "live" and platform.live == 1)
        yield slack, inbox
        began = time.monotonic()
        tasks.cancel_scope.cancel()
    assert time.monotonic() - began < 10
    assert asyncio.all_tasks() <= before
    await until(lambda: platform.live == 0)
    assert platform.problems == []
    with pytest.raises(NotSent):
        await slack.send(outgoing())


def outgoing(text: str = "hello", chat: str = "D7", thread: str = "", **more: Any) -> Outgoing:
    made = Outgoing(more.pop("delivery", 1), "slack", chat, thread, more.pop("kind", "text"), text, "n1", account=TEAM)
    return replace(made, **more)


def key(incoming: Incoming) -> tuple[Any, ...]:
    each = incoming
    return (each.channel, each.account, each.chat, each.thread, each.kind, each.platform_id, each.rev)


# ---- what comes in


async def test_what_people_say(platform: platforms.Slack) -> None:
    async with running(platform) as (_, inbox):
        hello = platform.say("a < b & *c*", at=1_700_000_000)
        reply = platform.say("in a thread of a direct chat", thread=hello)
        plain = platform.say("just talking", chat="C100", sender="U8")
        asked = platform.say("what is this?", chat="C100", sender="U8", mention=True)
        below = platform.say("and more", chat="C100", sender="U7", thread=asked)
        shared = platform.say("see", forwarded="Eve")
        files = platform.say("look", files=[("a.txt", b"abc"), ("b.txt", b"")])
        platform.say("", files=[("note.m4a", b"abc")], voice=True)
        await until(lambda: len(inbox.received) == 9)
        got = inbox.received
    first = got[0]
    assert (first.platform_id, first.texts, first.direct, first.addressed) == (hello, ("a < b & *c*",), True, False)
    assert (first.account, first.chat, first.sender, first.name) == (TEAM, "D7", f"slack:{TEAM}/U7", "Olga")
    assert first.at.timestamp() == pytest.approx(1_700_000_000) and first.thread == first.title == ""
    assert (got[1].platform_id, got[1].thread) == (reply, hello)
    assert (got[2].platform_id, got[2].thread, got[2].addressed, got[2].title) == (plain, "", False, "general")
    assert got[2].direct is False and got[2].sender == f"slack:{TEAM}/U8"
    # a mention comes as two events of one message
    assert key(got[3]) == key(got[4]) and got[3].texts == got[4].texts == ("what is this?",)
    assert (got[3].platform_id, got[3].thread, got[3].addressed) == (asked, asked, True)
    assert (got[5].platform_id, got[5].thread, got[5].addressed, got[5].reply_to) == (below, asked, False, None)
    assert (got[6].platform_id, got[6].texts, got[6].said) == (shared, (), (Said("forwarded", "see", "Eve"),))
    assert (got[7].platform_id, got[7].texts, [each.name for each in got[7].attachments]) == (
        files,
        ("look",),
        ["a.txt", "b.txt"],
    )
    assert got[7].attachments[0].size == 3 and not got[7].attachments[0].voice and got[8].attachments[0].voice


async def test_a_mention_is_enough_where_the_bot_may_not_read_along(platform: platforms.Slack) -> None:
    platform.scopes.discard("channels:history")
    async with running(platform) as (_, inbox):
        platform.say("just talking", chat="C100")
        asked = platform.say("what is this?", chat="C100", mention=True, files=[("a.txt", b"abc")])
        await until(lambda: inbox.received)
    [only] = inbox.received
    assert (only.platform_id, only.thread, only.texts) == (asked, asked, ("what is this?",))
    assert [each.name for each in only.attachments] == ["a.txt"]


async def test_a_reply_to_us_is_for_us(platform: platforms.Slack) -> None:
    async with running(platform) as (slack, inbox):
        ours = await slack.send(outgoing(chat="C100"))
        platform.say("why?", chat="C100", sender="U8", reply_to=ours)
        [reply] = await until(lambda: inbox.received)
    assert (reply.addressed, reply.reply_to, reply.thread) == (True, ours, ours)


async def test_edits_and_deletions(platform: platforms.Slack) -> None:
    async with running(platform) as (_, inbox):
        id = platform.say("first", chat="C100", mention=True)
        platform.edit(id, f"<@{BOT}> second", chat="C100")
        message = platform.messages["C100", id]
        platform.changed("C100", message, message | {"attachments": [{"title": "a page"}]})  # a link was unfolded
        platform.changed("C100", message, message | {"reply_count": 1})
        program = {"edited": {"user": "U8", "ts": platform.ts()}, "text": "not Olga's words"}
        platform.changed("C100", message, message | program)
        platform.messages["C100", id] = message
        platform.edit(id, "third", chat="C100")
        platform.delete(id, chat="C100")
        root = platform.say("has replies")
        before = platform.messages["D7", root]
        stone = {"subtype": "tombstone", "user": "USLACKBOT", "ts": root, "text": "This message was deleted."}
        platform.changed("D7", before, stone)
        await until(lambda: len(inbox.received) == 7)
        got = [each for each in inbox.received if each.platform_id == id][1:]
    assert [(each.kind, each.texts) for each in got] == [
        ("message", ("first",)),
        ("edit", ("second",)),
        ("edit", ("third",)),
        ("delete", ()),
    ]
    assert 0 < got[1].rev < got[2].rev and {each.sender for each in got} == {f"slack:{TEAM}/U7"}
    assert (inbox.received[-1].kind, inbox.received[-1].platform_id) == ("delete", root)


async def test_bots_and_we_are_nothing_and_acknowledged(platform: platforms.Slack) -> None:
    async with running(platform) as (slack, inbox):
        ours = await slack.send(outgoing(chat="C100"))
        await slack.send(outgoing("changed", chat="C100", edits=ours))
        await slack.delete("C100", ours)
        platform.say("beep", chat="C100", sender="U8", bot=True, mention=True)
        platform.say("beep", chat="C100", sender="U8", bot_id="B0OTHER")  # an app that speaks as a person
        platform.say("a reminder", sender="USLACKBOT")
        platform.say("Max has joined", chat="C100", sender="U8", subtype="channel_join")
        platform.event({"type": "reaction_added", "user": "U7", "item": {}})
        platform.event({"type": "message", "subtype": "of tomorrow", "channel": "C100"})
        platform.event({"type": "message", "channel": "C100", "user": "U7"})  # nothing that we understand
        platform.envelope("interactive", {"type": "view_submission", "team": {"id": TEAM}})
        await until(lambda: len(platform.acknowledged) == 12)
        platform.say("at last")
        await until(lambda: inbox.received)
    assert [each.texts for each in inbox.received] == [("at last",)]
    assert platform.lost == []


async def test_commands_and_buttons(platform: platforms.Slack) -> None:
    async with running(platform) as (slack, inbox):
        await slack.commands({"stop": "Stop", "status": "Status"})
        platform.slash("/clawd", "remember a &lt; b", chat="C100", sender="U8")
        platform.slash("/stop")
        platform.slash("/jarvis")
        sent = await slack.send(outgoing("May I?", thread="1.5", buttons=(Button("Yes", "approve:1"),)))
        platform.press(next(each for each in platform.sent if each.id == sent), "approve:1", "U8")
        await until(lambda: len(inbox.received) == 4)
        got = inbox.received
    assert [each.texts for each in got] == [("/remember a < b",), ("/stop",), ("/help",), ()]
    assert (got[0].chat, got[0].sender, got[0].direct, got[0].addressed) == ("C100", f"slack:{TEAM}/U8", False, True)
    assert (got[1].chat, got[1].direct) == ("D7", True)
    assert (got[3].kind, got[3].value, got[3].target, got[3].thread) == ("button", "approve:1", sent, "1.5")
    assert len({each.platform_id for each in got}) == 4 and got[3].sender == f"slack:{TEAM}/U8"


async def test_acknowledged_only_once_it_is_kept(platform: platforms.Slack) -> None:
    platform.twice = True  # one envelope at once twice over, with the same id
    async with running(platform) as (_, inbox):
        inbox.gate = anyio.Event()
        platform.say("one")
        platform.slash("/clawd", "status")
        await anyio.wait_all_tasks_blocked()
        await until(lambda: [call for call in platform.calls if call.method == "users.info"])
        assert platform.acknowledged == [] and inbox.received == []
        inbox.gate.set()
        await until(lambda: len(platform.acknowledged) >= 2)
    assert len({key(each) for each in inbox.received}) == 2


async def test_what_cannot_be_kept_is_sent_again(platform: platforms.Slack, caplog: pytest.LogCaptureFixture) -> None:
    async with running(platform) as (_, inbox):
        inbox.broken = 2
        platform.say("one")
        await until(lambda: inbox.received)
        await until(lambda: platform.acknowledged)
        assert len(platform.acknowledged) == 1
    assert "the disk is full" in caplog.text


async def test_messages_come_in_their_order_also_when_names_are_slow(platform: platforms.Slack) -> None:
    platform._conversations_info = lambda params: {"channel": ["nonsense"]}  # type: ignore[attr-defined]
    async with running(platform) as (_, inbox):
        platform.fail(500, what="other", hang=0.2)
        for number in range(20):
            platform.say(f"{number}", chat="C100", sender="U8")
        await until(lambda: len({each.texts for each in inbox.received}) == 20)
        first = list(dict.fromkeys(each.texts[0] for each in inbox.received))
    assert first == [f"{number}" for number in range(20)]


US = Us(BOT, "clawd", TEAM)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (f"<@{BOT}> do it", "do it"),
        (f"<@{BOT}|clawd>: <@{BOT}> do it <@{BOT}>", "do it"),
        (f"ask <@{BOT}> and <@U7> and <@U99> or <@U8|max>", "ask @clawd and @Olga and @U99 or @max"),
        ("<#C1|general> <#C2> <!here> <!subteam^S1|@team> <!date^1^{date}|today>", "#general #C2 @here @team today"),
        ("<https://a.b/c|the page> <https://a.b/c>", "the page (https://a.b/c) https://a.b/c"),
        ("<http://a.b|a.b> <mailto:a@b.c|a@b.c>", "a.b a@b.c"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2, &amp;lt; stays", "1 < 2 && 3 > 2, &lt; stays"),
        ("<> a <", "<> a <"),
    ],
)
def test_text_as_its_sender_saw_it(text: str, seen: str) -> None:
    assert reading.rendered(text, {"U7": "Olga"}, US) == seen


@given(st.text())
def test_escaped_text_pings_nobody_and_comes_back(text: str) -> None:
    escaped = writing.escaped(text)
    assert "<" not in escaped and ">" not in escaped
    assert reading.rendered(escaped, {}, US) == text.strip() and html.unescape(escaped) == html.unescape(escaped)


# ---- what goes out


async def test_messages_go_out_in_slacks_form(platform: platforms.Slack) -> None:
    async with running(platform) as (slack, _):
        plain = await slack.send(outgoing("a < b & <!channel> *c*"))
        rich = await slack.send(outgoing("**bold** <@U7>", chat="C100", formatted=Formatted("**bold** &lt;@U7>")))
        below = await slack.send(outgoing("below", chat="C100", thread=rich))
        asked = await slack.send(outgoing("May *I*?", buttons=(Button("Yes" * 40, "y"), Button("No", "n"))))
        shown = {each.id: each for each in platform.sent}
        assert shown[plain].text == "a < b & <!channel> *c*" and not shown[plain].rich
        assert shown[rich].spans == [("bold", "bold")] and shown[rich].text == "bold <@U7>"
        assert shown[below].thread == rich
        assert shown[asked].text == "May *I*?"
        assert [value for _, value in shown[asked].buttons] == ["y", "n"]
        assert await slack.send(outgoing("**more**", edits=rich, chat="C100", formatted=Formatted("**more**"))) == rich
        assert (shown[rich].text, shown[rich].spans) == ("more", [("bold", "more")])
        assert await slack.send(outgoing("as *it* stands", edits=rich, chat="C100")) == rich
        assert await slack.send(outgoing("as *it* stands", edits=rich, chat="C100")) == rich
        assert (shown[rich].text, shown[rich].spans) == ("as *it* stands", [])
        await slack.send(outgoing("Done.", edits=asked))
        assert shown[asked].buttons == []
        await slack.typing("C100", rich)
        await slack.typing("D7", "")
        assert [chat for chat, _ in platform.typed] == ["C100"]
        await slack.delete("C100", rich)
        assert shown[rich].deleted
        with pytest.raises(SendRefused, match="gone"):
            await slack.send(outgoing("again", edits=rich, chat="C100"))
        with pytest.raises(SendRefused, match="gone"):
            await slack.delete("C100", rich)
        theirs = platform.say("mine")
        with pytest.raises(SendRefused, match="ours"):
            await slack.send(outgoing("yours", edits=theirs))
        for _ in range(2):
            assert await slack.send(outgoing("❤️", kind="reaction", target=theirs)) == theirs
        assert platform.messages["D7", theirs]["reactions"] == ["heart"]
        for emoji in ("🦕", "nonsense"):
            with pytest.raises(SendRefused, match=r"emoji|name"):
                await slack.send(outgoing(emoji, kind="reaction", target=theirs))


async def test_each_refusal_is_what_it_means(platform: platforms.Slack) -> None:
    formed = outgoing("**x**", formatted=Formatted("**x**"))
    async with running(platform) as (slack, _):
        platform.fail(429, retry_after=7)
        with pytest.raises(NotSent) as held:
            await slack.send(outgoing())
        assert held.value.retry_after == 7
        platform.fail(500)
        with pytest.raises(Unsure):
            await slack.send(outgoing())
        platform.fail(400, text="invalid_blocks")
        with pytest.raises(FormatRefused):
            await slack.send(formed)
        with pytest.raises(FormatRefused):
            await slack.send(replace(formed, formatted=Formatted("x" * 13_000)))
        platform.archived.add("C100")
        for chat, words in [("C404", "invite"), ("C100", "archived")]:
            with pytest.raises(SendRefused, match=words):
                await slack.send(outgoing(chat=chat))
        platform.scopes.discard("reactions:write")
        with pytest.raises(SendRefused, match=r"reactions:write.*install the app again"):
            await slack.send(outgoing("👀", kind="reaction", target="1.1"))
        assert platform.texts() == []
        platform.down()
        with pytest.raises((NotSent, Unsure)):  # a connection that was open may break just now
            await slack.send(outgoing())
        with pytest.raises(NotSent):
            await slack.send(outgoing())
        platform.up()


@pytest.mark.parametrize(
    ("status", "error", "formed", "kind"),
    [
        (200, "ratelimited", False, NotSent),
        (200, "service_unavailable", False, NotSent),
        (200, "internal_error", False, Unsure),
        (200, "fatal_error", False, Unsure),
        (200, "", False, Unsure),
        (502, "", False, Unsure),
        (404, "", False, NotSent),
        (200, "token_revoked", False, NotSent),
        (200, "msg_too_long", True, FormatRefused),
        (200, "msg_too_long", False, SendRefused),
        (200, "restricted_action_thread_only_channel", False, SendRefused),
        (200, "not_in_channel", False, SendRefused),
        (200, "of_tomorrow", False, SendRefused),
    ],
)
def test_refusals(status: int, error: str, formed: bool, kind: type[Exception]) -> None:
    assert isinstance(refusals.refusal(status, {"error": error}, formed=formed), kind)
    assert not isinstance(refusals.refusal(status, {"error": error}, safe=True), Unsure)


async def test_a_lost_answer_is_found_and_nothing_is_sent_twice(platform: platforms.Slack) -> None:
    async with running(platform) as (slack, _):
        assert await slack.find(outgoing(delivery=2)) is None  # nothing of ours is there
        await slack.send(replace(outgoing("before", delivery=1), nonce="n0"))
        platform.fail(200, after=True)
        with pytest.raises(Unsure):
            await slack.send(outgoing("once", delivery=2))
        assert platform.texts() == ["before", "once"]
        for number in range(5):
            platform.say(f"{number}")
        assert await slack.find(outgoing("once", delivery=2)) == platform.sent[-1].id
        assert await slack.find(replace(outgoing("never", delivery=3), nonce="n3")) is None
        # the same within a thread, which the chat's history does not show
        root = platform.thread("C100")
        platform.fail(200, after=True)
        with pytest.raises(Unsure):
            await slack.send(outgoing("below", chat="C100", thread=root, delivery=4))
        assert await slack.find(outgoing("below", chat="C100", thread=root, delivery=4)) == platform.sent[-1].id
        assert await slack.find(replace(outgoing(chat="C100", thread=root, delivery=5), nonce="n5")) is None
        platform.fail(500, what="other")
        with pytest.raises(NotSent):
            await slack.find(outgoing(delivery=2))
        platform.shows_metadata = False
        with pytest.raises(Unsure):
            await slack.find(outgoing(delivery=2))
        platform.scopes.discard("im:history")
        with pytest.raises(Unsure, match="im:history"):
            await slack.find(outgoing(delivery=2))


async def test_files_go_out(platform: platforms.Slack, tmp_path: Path) -> None:
    file = tmp_path / "blob"
    file.write_bytes(b"made" * 1000)
    out = outgoing("see <!here>", chat="C100", kind="file", path=file, name="a.txt", thread=platform.thread("C100"))
    async with running(platform) as (slack, inbox):
        id = await slack.send(out)
        [sent] = platform.sent
        assert (sent.text, sent.name, sent.data, sent.thread) == (
            "see <!here>",
            "a.txt",
            file.read_bytes(),
            out.thread,
        )
        for fault in ({"status": 500, "what": "upload"}, {"status": 500, "what": "other"}):
            platform.fail(**fault)
            with pytest.raises(NotSent):  # nobody saw anything of it
                await slack.send(out)
        platform.fail(500)
        with pytest.raises(Unsure):
            await slack.send(out)
        assert await slack.find(out) is None
        platform.fail(200, after=True)
        with pytest.raises(Unsure):
            await slack.send(out)
        assert await slack.find(out) == platform.sent[-1].id
        with pytest.raises(Unsure):
            await slack.find(replace(out, nonce="before a restart"))
        await slack.delete("C100", id)
        assert sent.deleted and inbox.received == []


async def test_files_come_in(platform: platforms.Slack, tmp_path: Path) -> None:
    to = tmp_path / "file"

    def file(name: str, data: bytes = b"abc", **more: Any) -> Attachment:
        [made] = reading._message(
            "message", {"ts": "1.1", "files": [platform.file(name, data, **more)]}, "D7", TEAM, US, {}, "1.1"
        ).attachments
        return made

    async with running(platform) as (slack, _):
        await slack.fetch(file("a.txt", b"x" * 1_000_000), to)
        assert to.read_bytes() == b"x" * 1_000_000
        await slack.fetch(file("page.html", b"<html>"), to)
        assert to.read_bytes() == b"<html>"
        hidden = file("b.txt", b"of another workspace", url_private_download=None, file_access="check_file_info")
        await slack.fetch(hidden, to)
        assert to.read_bytes() == b"of another workspace"
        deleted = file("c.txt", url_private_download=None, mode="tombstone")
        platform.files[deleted.handle["id"]].pop("url")
        with pytest.raises(SendRefused, match="Slack itself"):
            await slack.fetch(deleted, to)
        gone = file("c.txt")
        platform.files.pop(gone.handle["id"])
        with pytest.raises(SendRefused, match="gone"):
            await slack.fetch(gone, to)
        moved = file("d.txt")
        with platforms.Slack() as elsewhere:
            platform.files[moved.handle["id"]]["goes"] = f"{elsewhere.url}/files/F1/download/d.txt"
            foreign = file("e.txt", url_private_download=f"{elsewhere.url}/files/F1/download/e.txt", mode="external")
            for each in (moved, foreign):
                with pytest.raises(SendRefused):
                    await slack.fetch(each, to)
            assert elsewhere.fetched == []  # type: ignore[attr-defined]
        for host in ("files.slack.com.evil.example", "slack.com.evil", "evilslack.com", "files.slack.com:8443"):
            with pytest.raises(SendRefused, match="Slack itself"):
                await slack.fetch(file("f.txt", url_private_download=f"https://{host}/f.txt"), to)
        with pytest.raises(SendRefused, match="Slack itself"):
            await slack.fetch(file("f.txt", url_private_download="http://files.slack.com/f.txt"), to)
        slack.limits = replace(slack.limits, fetch_bytes=10)
        with pytest.raises(SendRefused, match="larger"):
            await slack.fetch(file("big.txt", b"x" * 11), to)
        platform.scopes.discard("files:read")
        for each in (file("g.txt"), file("g.html", b"<html>")):
            with pytest.raises(SendRefused, match="files:read"):
                await slack.fetch(each, to)
        platform.down()
        with pytest.raises(NotSent):
            await slack.fetch(file("h.txt"), to)
        platform.up()


# ---- the connection


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bot_token": "xoxb-wrong"}, "bot_token.*does not know it"),
        ({"app_token": "xapp-wrong"}, "app_token.*does not know it"),
        ({"bot_token": ""}, "no bot_token"),
        ({"app_token": None}, "no app_token"),
        ({"bot_token": "xapp-1-test-app", "app_token": "xoxb-7-test-bot"}, "bot_token.*of the other kind"),
        ("missing_scope", "app_token lacks the right connections:write"),
        ("account_inactive", "removed"),
        ("", "bot_token.*a person's"),
    ],
)
async def test_a_wrong_token_is_one_sentence(
    platform: platforms.Slack, change: dict[str, Any] | str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if isinstance(change, str):
        platform.app_error, platform.bot_id = change, "B0BOT" if change else ""
    settings = platform.settings | (change if isinstance(change, dict) else {})
    inbox = Inbox()
    with anyio.fail_after(10), pytest.raises(Fatal, match=words) as fatal:
        await Slack(settings).run(inbox)
    tokens = [value for name, value in settings.items() if "token" in name and value]
    assert not any(token in str(fatal.value) + caplog.text for token in tokens)
    assert inbox.state == "starting" and platform.opened == 0
    if not platform.bot_id:
        return
    checks = await Slack(settings).test(["D7"])
    assert [each.ok for each in checks][-1] is False


async def test_a_token_that_stops_to_be_good_ends_it(platform: platforms.Slack) -> None:
    slack, inbox = Slack(platform.settings), Inbox()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                with pytest.raises(Fatal, match=r"bot_token.*revoked"):
                    await slack.run(inbox)

            tasks.start_soon(run)
            await until(lambda: inbox.state == "live")
            platform.fail(403, text="token_revoked")
            with pytest.raises(NotSent):
                await slack.send(outgoing())
    await until(lambda: platform.live == 0)


async def test_socket_mode_that_is_turned_off_ends_it(platform: platforms.Slack) -> None:
    inbox = Inbox()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                with pytest.raises(Fatal, match="Socket Mode"):
                    await Slack(platform.settings).run(inbox)

            tasks.start_soon(run)
            await until(lambda: inbox.state == "live")
            await anyio.to_thread.run_sync(platform.disconnect, "link_disabled")
    await until(lambda: platform.live == 0)


async def test_one_connection_after_the_other(platform: platforms.Slack) -> None:
    async with running(platform) as (_, inbox):
        for reason in ("warning", "refresh_requested"):
            opened = platform.opened
            await anyio.to_thread.run_sync(platform.disconnect, reason)
            platform.say(reason)
            await until(lambda opened=opened: platform.opened > opened and platform.live == 1)
        opened = platform.opened
        platform.drop()
        platform.say("dropped")
        await until(lambda: platform.opened > opened and platform.live == 1)
        await until(lambda: {("warning",), ("refresh_requested",), ("dropped",)} <= {e.texts for e in inbox.received})
        platform.down()
        platform.up()
        platform.say("was away")
        await until(lambda: ("was away",) in {each.texts for each in inbox.received})
    assert inbox.state == "live" and platform.lost == []


async def test_a_used_ticket_is_not_tried_for_ever(platform: platforms.Slack) -> None:
    async with running(platform) as (_, inbox):
        platform.fail(408, times=2, what="socket")
        platform.drop()
        platform.say("and then")
        await until(lambda: inbox.received)
        await until(lambda: inbox.state == "live")
    assert platform.refused >= 2 and any("silent" in each for each in inbox.troubles)


@pytest.mark.parametrize("new", [False, True])
async def test_half_open(platform: platforms.Slack, new: bool, caplog: pytest.LogCaptureFixture) -> None:
    """`new`: what connects anew is not answered either, for longer than a client is given."""
    caplog.set_level(logging.DEBUG)
    async with running(platform) as (_, inbox):
        platform.freeze(new)
        if new:
            await until(lambda: len(inbox.troubles) > 12, 60)
            assert inbox.state == "degraded"
            platform.thaw()
        platform.say("can you hear me?")
        await until(lambda: inbox.received, 60)
        await until(lambda: inbox.state == "live" and platform.live == 1, 60)
    assert not any(each.name.startswith(("slack_sdk", "asyncio")) for each in caplog.records if each.levelno > 20)
    assert "ticket" not in caplog.text


async def test_a_stop_while_nothing_answers(platform: platforms.Slack) -> None:
    async with running(platform):
        platform.freeze()
    platform.thaw()


async def test_slack_that_is_down_at_the_start_is_waited_for(platform: platforms.Slack) -> None:
    platform.down()
    async with running(platform, live=False) as (_, inbox):
        await until(lambda: inbox.troubles)
        assert inbox.state == "degraded"
        platform.up()
        platform.fail(502, what="poll")
        platform.say("hello")
        await until(lambda: inbox.received)
        assert inbox.state == "live"


async def test_too_many_connections_are_told(platform: platforms.Slack) -> None:
    async with running(platform) as (_, inbox):
        await anyio.to_thread.run_sync(platform.disconnect, "too_many_websockets")
        await until(lambda: any("running twice" in each for each in inbox.troubles))
        await until(lambda: inbox.state == "live")


def test_the_manifest_asks_for_what_is_looked_for() -> None:
    text = (Path(__file__).parents[2] / "docs" / "slack.md").read_text()
    [scopes] = re.findall(r"bot:\n((?: +- [a-z_:]+\n)+)", text)
    assert sorted(re.findall(r"- (\S+)", scopes)) == sorted(RIGHTS)


async def test_the_set_up_is_looked_at(platform: platforms.Slack) -> None:
    slack = Slack(platform.settings)
    checks = await slack.test(["C100"])
    assert [each.ok for each in checks] == [True] * 4 and platform.texts("C100") == []
    assert [each.deleted for each in platform.sent] == [True]
    assert set(RIGHTS) <= platform.scopes
    platform.scopes -= {"files:read", "chat:write"}
    checks = await slack.test(["C100"])
    assert [each.ok for each in checks] == [True, False, True, False]
    assert "files:read" in checks[1].hint and "chat:write" in checks[3].hint
    assert [each.ok for each in await slack.test([])] == [True, False, True]
    platform.down()
    [check] = await slack.test([])
    assert not check.ok and "reached" in check.hint
    platform.up()
    assert platform.problems == []
