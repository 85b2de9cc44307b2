"""The outbox over a real ledger, against a platform that refuses, hangs, loses its answers, and remembers."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.channel import NOTICE, ChannelLimits, ChatMoved, FormatRefused, NotSent, Rates, SendRefused, Unsure
from clawd.clock import SystemClock
from clawd.delivery import outbox as module
from clawd.delivery.outbox import Outbox
from clawd.ledger import deliveries, groups
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import REPEAT, Address
from clawd.markdown import pieces
from clawd.model import Button, Formatted
from clawd.signals import Signals
from clawd.text import units
from tests.delivery.platform import HANGS, LOST, Platform
from tests.ledger.conftest import NOW, Desk

pytestmark = pytest.mark.anyio
TO = Address("platform", "", "c1", "")
PATIENCE = 20


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.tx(lambda tx: groups.add(tx, "main", NOW))
    yield ledger
    ledger.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes again after a failure comes at once."""
    monkeypatch.setattr(module, "backoff", lambda failures, chance: 0.01)


def put(ledger: Ledger, *texts: str, to: Address = TO, state: str = "pending", **what: Any) -> list[int]:
    """A row for each text; gives their ids."""
    what = {"session": "s", "kind": "text", "now": NOW, "limits": ChannelLimits(), **what}

    def work(tx: Transaction) -> list[int]:
        ids = [id for text in texts for id in deliveries.enqueue(tx, to, text=text, **what)]
        for id in ids:
            tx.execute("UPDATE delivery SET state = ? WHERE id = ?", state, id)
        return ids

    return ledger.tx(work)


@asynccontextmanager
async def working(ledger: Ledger, *platforms: Platform, **what: Any) -> AsyncIterator[Outbox]:
    async with anyio.create_task_group() as tasks:
        channels = {each.name: each for each in platforms}
        outbox = Outbox(ledger, Signals(), SystemClock(), channels, what.pop("blobs", Path("/nowhere")), tasks, **what)
        await outbox.start()
        yield outbox
        tasks.cancel_scope.cancel()


async def until(what: Callable[[], Any]) -> None:
    with anyio.fail_after(PATIENCE):
        while not what():
            await anyio.sleep(0.005)


async def run(ledger: Ledger, *platforms: Platform, **what: Any) -> list[str]:
    """Until nothing is left; gives the states of the first platform's rows."""
    async with working(ledger, *platforms, **what) as outbox:
        await until(lambda: outbox.idle)
    return await states(ledger, platforms[0].name)


async def states(ledger: Ledger, channel: str = "platform") -> list[str]:
    rows = await ledger.do(lambda tx: tx.all("SELECT state FROM delivery WHERE channel = ? ORDER BY id", channel))
    return [row["state"] for row in rows]


async def test_rows_of_a_chat_leave_in_order(ledger: Ledger) -> None:
    put(ledger, "a", "b", "c")
    platform = Platform([NotSent("429", 0.01), NotSent("no route"), Unsure("reset")], tells=True)
    sent: list[str] = []
    assert await run(ledger, platform, sent=sent.append) == ["sent"] * 3
    assert [each.text for each in platform.stored] == ["a", "b", "c"]
    assert sent == ["platform"] * 3


@pytest.mark.parametrize(
    ("script", "tells", "state", "seen"),
    [
        ([LOST], False, "resent", ["a", REPEAT + "a"]),  # it cannot tell: once more, marked
        ([LOST], True, "sent", ["a"]),  # it can: nothing is sent again
        ([Unsure("reset")], True, "sent", ["a"]),  # it can, and it had not got it
        ([Unsure("reset"), NotSent("refused")], False, "resent", [REPEAT + "a"]),  # the repeat surely did not arrive
        ([Unsure("reset"), NotSent("429", 0.01)], False, "resent", [REPEAT + "a"]),
        ([Unsure("reset"), Unsure("reset")], False, "resent", []),  # never a third time
        ([Unsure("reset"), SendRefused("chat gone")], False, "failed", []),
        ([Unsure("reset"), ChatMoved("c2")], False, "resent", [REPEAT + "a"]),
        ([SendRefused("chat gone")], False, "failed", []),
        ([FormatRefused("it was plain")], False, "failed", []),
        ([RuntimeError("a defect of the adapter")], False, "resent", [REPEAT + "a"]),
        ([HANGS], False, "resent", [REPEAT + "a"]),
        ([HANGS], True, "sent", ["a"]),
    ],
)
async def test_what_becomes_of_a_send(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, script: list[Any], tells: bool, state: str, seen: list[str]
) -> None:
    monkeypatch.setattr(module, "SEND_S", 0.1)
    put(ledger, "a", "behind it")
    platform = Platform(script, tells=tells)
    assert await run(ledger, platform) == [state, "sent"]
    assert [each.text for each in platform.stored] == [*seen, "behind it"]
    assert [each.repeat for each in platform.stored] == [each.startswith(REPEAT) for each in seen] + [False]


async def test_a_marked_repeat_fits_its_channel(ledger: Ledger) -> None:
    limits = ChannelLimits(text=100)
    put(ledger, "word 😀 " * 60, limits=limits)
    platform = Platform([Unsure("reset"), "ok"] * 100, text=100)
    assert set(await run(ledger, platform)) == {"resent"}
    assert all(each.text.startswith(REPEAT) and units(each.text) <= 100 for each in platform.stored)
    assert len(platform.stored) > 4


async def test_rows_that_a_crash_left_in_sending_are_decided(ledger: Ledger) -> None:
    put(ledger, "a", "b", state="sending")
    platform = Platform()
    assert await run(ledger, platform) == ["resent", "resent"]
    assert platform.shown() == [REPEAT + "a", REPEAT + "b"]


# ---- one chat, one channel, and the others


async def test_what_the_platform_said_holds_that_chat_alone(ledger: Ledger) -> None:
    put(ledger, "a")
    put(ledger, "b", "b2", to=replace(TO, chat="c2"))
    platform = Platform(scripts={"c1": [NotSent("429", 0.5)]})
    clock = SystemClock()
    began = clock.monotonic()
    async with working(ledger, platform) as outbox:
        await until(lambda: platform.shown("c2") == ["b", "b2"])
        outbox.back("platform")  # it is not gone: it said how long
        await until(lambda: outbox.try_pace(replace(TO, chat="c2"), False))
        assert not outbox.try_pace(TO, False)
        await until(lambda: platform.shown())
        assert clock.monotonic() - began >= 0.5
    assert len(platform.tried) == 4


async def test_the_platforms_rates_are_kept(ledger: Ledger) -> None:
    put(ledger, "a", "b", "c")
    put(ledger, "d", to=replace(TO, chat="c2"))
    clock = SystemClock()
    began = clock.monotonic()
    assert set(await run(ledger, Platform(rates=Rates(chat_s=0.1)))) == {"sent"}
    assert clock.monotonic() - began >= 0.2


@pytest.mark.parametrize("direct", [True, False])
async def test_only_a_shared_chat_has_a_minute(ledger: Ledger, direct: bool) -> None:
    put(ledger, "a", "b", "c")
    if direct:
        chat = {"channel": "platform", "account": "", "chat": "c1", "direct": 1, "title": "Ann", "seen": "2026-12-01"}
        ledger.tx(lambda tx: tx.insert("chat", **chat))
    platform = Platform(rates=Rates(shared_per_minute=2))
    async with working(ledger, platform):
        await until(lambda: len(platform.stored) == (3 if direct else 2))
        await anyio.sleep(0.05)
    assert await states(ledger) == ["sent", "sent", "sent" if direct else "pending"]


async def test_a_chat_that_hangs_holds_no_other(ledger: Ledger) -> None:
    put(ledger, "a")
    for n in range(20):
        put(ledger, "b", to=replace(TO, chat=f"d{n}"))
    put(ledger, "c", to=replace(TO, channel="other"))
    slow, other = Platform(scripts={"c1": [HANGS]}), Platform(name="other")
    async with working(ledger, slow, other):
        await until(lambda: len(slow.stored) == 20 and len(other.stored) == 1)
    assert slow.shown() == []


async def test_a_channel_that_is_not_open_is_not_tried_and_goes_on_when_it_is_back(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "backoff", lambda failures, chance: 60.0)
    put(ledger, "a", "b")
    put(ledger, "x", to=replace(TO, chat="c2"))
    platform, is_open = Platform(scripts={"c2": [NotSent("no route")]}), {"platform": False}
    async with working(ledger, platform, is_open=lambda channel: is_open[channel]) as outbox:
        await anyio.sleep(0.05)
        assert platform.tried == []
        is_open["platform"] = True
        outbox.back("other")
        await anyio.sleep(0.05)
        assert platform.tried == []
        outbox.back("platform")
        await until(lambda: platform.shown() == ["a", "b"] and len(platform.tried) == 3)
        await anyio.sleep(0.05)  # c2 was refused without a word: it rests
        assert platform.shown("c2") == []
        outbox.back("platform")
        await until(lambda: outbox.idle)
    assert platform.shown("c2") == ["x"]


async def test_what_is_in_doubt_is_repeated_when_its_channel_is_live(ledger: Ledger) -> None:
    put(ledger, "a")
    platform, live = Platform([Unsure("502")]), {"platform": False}
    async with working(ledger, platform, is_live=lambda channel: live[channel]) as outbox:
        await until(lambda: platform.tried)
        await anyio.sleep(0.05)
        assert len(platform.tried) == 1 and await states(ledger) == ["unknown"]
        live["platform"] = True
        outbox.back("platform")
        await until(lambda: outbox.idle)
    assert platform.shown() == [REPEAT + "a"]


async def test_a_channel_that_is_not_there_fails_its_own_rows_alone(ledger: Ledger) -> None:
    put(ledger, "a")
    put(ledger, "x", to=replace(TO, channel="nowhere"))
    assert await run(ledger, Platform()) == ["sent"]
    assert await states(ledger, "nowhere") == ["failed"]


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_clean_end_waits_for_what_is_under_way_and_begins_nothing(ledger: Ledger, hangs: bool) -> None:
    going = anyio.Event()

    class Slow(Platform):
        async def send(self, message: Any) -> str:
            if message.chat == "c1":
                await going.wait()
            return await super().send(message)

    put(ledger, "a", "never")
    put(ledger, "held", to=replace(TO, chat="c2"))
    platform = Slow(scripts={"c2": [NotSent("429", 3600)]})
    async with working(ledger, platform) as outbox:
        await until(lambda: platform.tried)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.close, 0.3)
            await until(lambda: outbox._closed)
            if not hangs:
                going.set()
    assert await states(ledger) == ["sending" if hangs else "sent", "pending", "pending"]


async def test_a_clean_end_does_not_wait_for_what_is_held(ledger: Ledger) -> None:
    put(ledger, "held")
    platform = Platform([NotSent("429", 3600)])
    async with working(ledger, platform) as outbox:
        await until(lambda: platform.tried)
        with anyio.fail_after(PATIENCE):
            await outbox.close(600)


# ---- form, replies, buttons


def loud(text: str, limits: ChannelLimits) -> Formatted:
    return Formatted(text.upper())


@pytest.mark.parametrize(("kind", "form"), [("text", "A"), ("stream", "A"), ("notice", None)])
async def test_what_a_model_wrote_has_its_channels_form(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, kind: str, form: str | None
) -> None:
    monkeypatch.setattr("clawd.delivery.message.formatted", loud)
    put(ledger, "a", kind=kind)
    platform = Platform(markup="spans")
    await run(ledger, platform)
    [sent] = platform.stored
    assert (sent.text, sent.formatted and sent.formatted.text) == ("a", form)


async def test_a_form_that_is_refused_costs_the_form_of_that_piece_alone(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawd.delivery.message.formatted", loud)
    put(ledger, "a", "b", "c")
    platform = Platform(["ok", FormatRefused("can't parse"), NotSent("429", 0.01), LOST, "ok"], markup="spans")
    assert await run(ledger, platform) == ["sent", "resent", "sent"]
    assert [(each.text, each.formatted and each.formatted.text) for each in platform.stored] == [
        ("a", "A"),
        ("b", None),
        (REPEAT + "b", None),
        ("c", "C"),
    ]


async def test_a_defect_of_the_form_costs_the_form(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str, limits: ChannelLimits) -> Formatted:
        raise ValueError(text)

    monkeypatch.setattr("clawd.delivery.message.formatted", broken)
    put(ledger, "a")
    platform = Platform(markup="spans")
    assert await run(ledger, platform) == ["sent"]
    assert [(each.text, each.formatted) for each in platform.stored] == [("a", None)]


@pytest.mark.parametrize("buttons", [True, False])
async def test_the_first_piece_replies_and_the_last_has_the_buttons(ledger: Ledger, buttons: bool) -> None:
    mine = [Button("Yes", "answer:1:0"), Button("Nein, «danke»", "answer:1:1")]
    put(ledger, "word " * 1000, to=replace(TO, account="T1"), reply_to="m7", buttons=mine)
    platform = Platform(buttons=buttons)
    await run(ledger, platform)
    first, second = platform.stored
    assert (first.account, first.reply_to, first.buttons) == ("T1", "m7", ())
    assert (second.reply_to, second.buttons) == (None, tuple(mine) if buttons else ())


# ---- messages that grow


@pytest.mark.parametrize(
    ("stream", "script", "tells", "shown"),
    [
        ("pending", [], False, ["the answer"]),
        ("pending", ["ok", Unsure("reset"), LOST, NotSent("429", 0.01)], False, ["the answer"]),
        ("pending", ["ok", SendRefused("message to edit not found")], False, ["…", "the answer"]),
        ("pending", [SendRefused("chat gone")], False, ["the answer"]),
        ("pending", [LOST], False, ["…", "the answer"]),  # nobody knows its id
        ("pending", [LOST], True, ["the answer"]),  # the platform knows it
        ("pending", [Unsure("reset")], True, ["the answer"]),
        ("sending", [], False, ["the answer"]),  # since before a crash
        ("pending", ["ok"] + [Unsure("reset")] * 5, True, ["…", REPEAT + "the answer"]),
    ],
)
async def test_an_answer_is_the_last_edit_of_the_message_that_grew(
    ledger: Ledger, stream: str, script: list[Any], tells: bool, shown: list[str]
) -> None:
    [first] = put(ledger, "…", kind="stream", state=stream)
    put(ledger, "the answer", edits=first)
    put(ledger, "and more")
    platform, told = Platform(script, tells=tells), list[str]()

    async def tell(sentence: str, but_not: str) -> None:
        told.append(sentence)

    found = await run(ledger, platform, tell_owner=tell, failed=lambda: told.append("a note"))
    assert (found[0] in ("sent", "failed"), found[1] in ("sent", "resent"), found[2]) == (True, True, "sent")
    assert platform.shown() == [*shown, "and more"]
    assert told == []  # a message that did not grow is nobody's loss


async def test_an_edit_that_a_crash_left_in_sending_is_made_again(ledger: Ledger) -> None:
    [first] = put(ledger, "…", kind="stream", state="sent")
    ledger.tx(lambda tx: deliveries.identify(tx, first, "id9"))
    put(ledger, "the answer", edits=first, state="sending")
    platform = Platform()
    assert await run(ledger, platform) == ["sent", "sent"]
    assert [(each.edits, each.text, each.repeat) for each in platform.stored] == [("id9", "the answer", False)]


# ---- files


async def test_a_text_of_too_many_messages_is_its_beginning_and_a_file(ledger: Ledger, tmp_path: Path) -> None:
    limits, text = ChannelLimits(text=500, pieces=3), "A line of it.\n" * 400
    (tmp_path / "sum").write_text(text)
    put(ledger, text, limits=limits, whole="sum", reply_to="m1")
    platform = Platform(text=500)
    assert await run(ledger, platform, blobs=tmp_path) == ["sent", "sent"]
    beginning, file = platform.stored
    assert beginning.text.startswith("A line of it.\nA line") and "in the file" in beginning.text
    assert 250 < units(beginning.text) <= 500 and beginning.reply_to == "m1"
    assert file.path is not None and (file.name, file.path.read_text()) == ("answer.md", text)


@pytest.mark.parametrize(
    ("lines", "limits", "messages"),
    [
        (400, ChannelLimits(text=500, pieces=3, files=False), None),  # nowhere to put it
        (90, ChannelLimits(text=500, pieces=3), 3),  # few enough
        (110, ChannelLimits(text=500, pieces=3), 2),  # one too many
    ],
)
async def test_when_a_text_is_a_file(ledger: Ledger, lines: int, limits: ChannelLimits, messages: int | None) -> None:
    text = "A line of it.\n" * lines
    ids = put(ledger, text, limits=limits, whole="sum")
    room = replace(limits, text=limits.text - len(REPEAT))
    assert len(ids) == (len(pieces(text, room)) if messages is None else messages)


@pytest.mark.parametrize(
    ("limits", "said"),
    [({}, None), ({"file_bytes": 9}, "0.0 MB"), ({"files": False}, "takes none"), ({"blob": "gone"}, "is gone")],
)
async def test_what_cannot_be_sent_is_said(
    ledger: Ledger, tmp_path: Path, limits: dict[str, Any], said: str | None
) -> None:
    (tmp_path / "sum").write_bytes(b"0123456789")
    put(ledger, "Look:", kind="file", blob=limits.pop("blob", "sum"), name="a.bin")
    platform = Platform([LOST], **limits)
    assert await run(ledger, platform, blobs=tmp_path) == ["resent"]
    for message, mark in zip(platform.stored, ("", REPEAT), strict=True):
        if said is None:
            assert (message.kind, message.text, message.name) == ("file", mark + "Look:", "a.bin")
        else:
            assert message.kind == "text" and message.path is None and message.text.startswith(f"{mark}Look:\n\n")
            assert said in message.text and "a.bin" in message.text


async def test_a_caption_that_no_platform_takes_goes_before_its_file_once(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "sum").write_bytes(b"x")
    put(ledger, "word " * 1500, kind="file", blob="sum", name="a.bin")
    platform = Platform()
    await run(ledger, platform, blobs=tmp_path)
    assert [(each.kind, bool(each.text), each.name) for each in platform.stored] == [
        ("text", True, None),
        ("text", True, None),
        ("file", False, "a.bin"),
    ]


# ---- chats that move


async def test_a_chat_that_moved_keeps_its_name_here(ledger: Ledger) -> None:
    put(ledger, "a", "b")
    platform = Platform(["ok", ChatMoved("c2"), "ok", ChatMoved("c3")])
    assert await run(ledger, platform) == ["sent", "sent"]
    assert (platform.shown("c1"), platform.shown("c2")) == (["a"], ["b"])
    put(ledger, "c")
    await run(ledger, platform)
    put(ledger, "d", to=replace(TO, chat="c3"))  # as the platform calls it
    assert set(await run(ledger, platform)) == {"sent"}
    assert platform.shown("c3") == ["c", "d"]
    rows = await ledger.do(lambda tx: tx.all("SELECT chat, now FROM alias"))
    assert [tuple(row) for row in rows] == [("c1", "c3")]


# ---- what is told


@pytest.mark.parametrize(
    ("script", "state", "what"),
    [
        ([SendRefused("chat gone")], "failed", "could not be delivered to platform:c1: chat gone"),
        ([Unsure("502"), Unsure("chat gone")], "resent", "may not have come to platform:c1"),
    ],
)
async def test_a_send_that_fails_for_good_is_told_elsewhere(
    ledger: Ledger, script: list[Any], state: str, what: str
) -> None:
    put(ledger, "a", turn=Desk(ledger).accept().turn)
    told, noted = list[tuple[str, str]](), list[str]()

    async def tell(sentence: str, but_not: str) -> None:
        told.append((sentence, but_not))

    platform = Platform(script)
    assert await run(ledger, platform, tell_owner=tell, failed=lambda: noted.append("")) == [state]
    [(sentence, but_not)] = told
    assert "chat gone" in sentence and what in sentence and but_not == "platform" and noted == [""]
    assert await states(ledger, "terminal") == []


async def test_what_was_for_the_owner_itself_is_told_at_the_terminal(ledger: Ledger) -> None:
    put(ledger, "An answer could not be delivered", kind="notice")

    async def tell(sentence: str, but_not: str) -> None:
        raise AssertionError("channels report of each other for ever")

    platform = Platform([SendRefused("chat gone")])
    terminal = Platform(name="terminal")
    assert await run(ledger, platform, terminal, tell_owner=tell) == ["failed"]
    [notice] = terminal.stored
    assert "chat gone" in notice.text and notice.chat == "main"


@pytest.mark.parametrize(
    ("trouble", "found", "state"),
    [
        (None, "pending", "sent"),
        (NotSent("429", 3600), "pending", "failed"),
        (SendRefused("no such message"), "pending", "failed"),
        (Unsure("reset"), "pending", "failed"),
        (HANGS, "pending", "failed"),
        (RuntimeError("a defect of the adapter"), "pending", "failed"),
        (None, "sending", "failed"),  # since before a crash
        (None, "unknown", "failed"),
    ],
)
async def test_a_reaction_is_tried_once_and_nothing_waits_for_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, trouble: Any, found: str, state: str
) -> None:
    monkeypatch.setattr(module, "SEND_S", 0.1)
    put(ledger, "👍", kind="reaction", target="m7", state=found)
    put(ledger, "behind it", limits=NOTICE)
    platform = Platform([trouble] if trouble else [])

    async def tell(sentence: str, but_not: str) -> None:
        raise AssertionError(sentence)  # nobody is called for that

    assert await run(ledger, platform, tell_owner=tell) == [state, "sent"]
    assert [(each.kind, each.target) for each in platform.stored] == [("reaction", "m7")] * (state == "sent") + [
        ("text", None)
    ]
