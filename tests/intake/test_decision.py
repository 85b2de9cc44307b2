"""Whether a message is for us, by table; what its parts are; what cannot be one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clawd.errors import UsageError
from clawd.intake.decision import MAX_TEXT_UNITS, Rules, checked, command_of, is_called, is_for_us, is_late, parts_of
from clawd.model import Attachment, Incoming, Said
from clawd.trust import Origin, Role

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def said(*texts: str, **more: Any) -> Incoming:
    return Incoming("chat", "-1", "1", "chat:2", texts, NOW, **more)


@pytest.mark.parametrize(
    ("answer", "incoming", "ours"),
    [
        ("off", said("hi", direct=True), True),
        ("mention", said("hi", direct=True), True),
        ("always", said("hi"), True),
        ("mention", said("hi"), False),
        ("mention", said("hi", addressed=True), True),
        ("mention", said("clawd, hi"), False),
        ("trigger", said("hi"), False),
        ("trigger", said("Well, CLAWD: hi"), True),
        ("trigger", said("clawdia is here"), False),
        ("trigger", said("hi", addressed=True), True),
        ("off", said("clawd, hi", addressed=True), False),
        ("off", said("/stop"), True),
        ("mention", said("/stop"), True),
        ("mention", said("/stop@clawd_bot", addressed=True), True),
        ("always", said("/stop@other_bot"), False),
        ("mention", said("/roll 20"), False),  # some other bot's
        ("always", said("/roll 20"), True),  # then it is a message
        ("mention", said("/roll 20", addressed=True), True),
        ("mention", said(), False),
    ],
)
def test_who_is_answered_in_a_shared_chat(answer: Any, incoming: Incoming, ours: bool) -> None:
    command = command_of(incoming, {"stop"})
    assert is_for_us(incoming, Rules(answer, "clawd"), command is not None) is ours


@pytest.mark.parametrize(
    ("incoming", "command"),
    [
        (said("/stop@clawd_bot all", addressed=True), ("stop", "all")),
        (said("/stop@clawd_bot all", direct=True), ("stop", "all")),
        (said("/nothing", direct=True), ("nothing", "")),
        (said("/nothing"), None),
        (said("/stop@other_bot"), None),
        (said("/stop", kind="edit", direct=True), None),
        (said("/stop", kind="command", addressed=True), ("stop", "")),
        (said(direct=True), None),
    ],
)
def test_what_is_a_command_for_us(incoming: Incoming, command: tuple[str, str] | None) -> None:
    assert command_of(incoming, {"stop"}) == command


@pytest.mark.parametrize(
    ("word", "text", "called"),
    [
        ("clawd", "clawd", True),
        ("clawd", "hey Clawd!", True),
        ("Frau Klaus", "sag mal, frau\n klaus?", True),
        ("clawd", "declawd", False),
        ("", "anything", False),
        ("c.*d", "clawd", False),  # no expression
        ("Straße", "STRASSE frei", True),
    ],
)
def test_a_trigger_is_a_word(word: str, text: str, called: bool) -> None:
    assert is_called(word, (text,)) is called


@pytest.mark.parametrize(
    ("role", "typed"), [(Role.OWNER, Origin.OWNER), (Role.ADMIN, Origin.ADMIN), (Role.MEMBER, Origin.MEMBER)]
)
def test_only_what_was_typed_is_its_senders_word(role: Role, typed: Origin) -> None:
    passed = (Said("quoted", "buy", "eve"), Said("forwarded", "sell", "mallory"))
    parts = parts_of(said("look", said=passed), role, ours=False)
    assert [(part.kind, part.origin, part.text, part.sender) for part in parts] == [
        ("typed", typed, "look", None),
        ("quoted", Origin.EXTERNAL, "buy", "eve"),
        ("forwarded", Origin.EXTERNAL, "sell", "mallory"),
    ]


def test_what_we_said_ourselves_is_an_agents_word_and_nothing_else_is() -> None:
    own, other = Said("quoted", "mine"), Said("forwarded", "other")
    assert [part.origin for part in parts_of(said(said=(own, other)), Role.OWNER, ours=True)] == [
        *(Origin.AGENT, Origin.EXTERNAL),
    ]
    # Of two quotes nobody knows which one is of our message.
    two = parts_of(said(said=(own, Said("quoted", "else"))), Role.OWNER, ours=True)
    assert {part.origin for part in two} == {Origin.EXTERNAL}


@pytest.mark.parametrize(
    ("incoming", "sentence"),
    [
        (said(), "nothing in that message"),
        (said(" \n\t"), "nothing in that message"),
        (said(said=(Said("quoted", " "),)), "nothing in that message"),
        (said("x" * (MAX_TEXT_UNITS + 1)), "longer than 256 KB"),
        (said("x", said=(Said("forwarded", "\U0001f600" * (MAX_TEXT_UNITS // 2)),)), "longer than 256 KB"),
        (said(attachments=tuple(Attachment(str(n), {}) for n in range(21))), "20 files"),
    ],
)
def test_what_cannot_be_a_message(incoming: Incoming, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        checked(incoming)


def test_what_passes_something_on_needs_no_word_of_its_own() -> None:
    assert checked(said(said=(Said("forwarded", "news"),))).said[0].text == "news"
    assert checked(said("", attachments=(Attachment("a", {}),))).texts == ()
    assert checked(said("half \ud83d", said=(Said("quoted", "\udc00", "\ud800"),))).said[0].sender == "?"


@pytest.mark.parametrize(("hours", "age", "late"), [(24, 25, True), (24, 23, False), (0, 9999, False), (24, -5, False)])
def test_how_old_a_message_may_be(hours: float, age: float, late: bool) -> None:
    assert is_late(NOW - timedelta(hours=age), NOW, hours) is late
