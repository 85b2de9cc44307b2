"""Which messages are commands, and how often a sender may speak."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from clawd.clock import TurnedClock
from clawd.intake import RATE_MESSAGES, RATE_WINDOW_S, Rates, parse


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/help", ("help", "")),
        ("  /stop all ", ("stop", "all")),
        ("/status@clawd_bot now", ("status", "now")),
        ("/new\nand more", ("new", "and more")),
        ("/etc/passwd", None),
        ("/ help", None),
        ("/Help", None),
        ("help", None),
        ("see /help", None),
        ("/" + "x" * 33, None),
        ("", None),
    ],
)
def test_a_command_is_one_word_behind_a_slash_at_the_start(text: str, command: tuple[str, str] | None) -> None:
    assert parse(text) == command


def test_who_speaks_too_often_waits_until_the_window_has_room_and_others_do_not() -> None:
    clock = TurnedClock(datetime.now(UTC))
    rates = Rates(clock)
    for _ in range(RATE_MESSAGES):
        assert rates.wait("member:max") == 0
        clock.advance(1)
    assert rates.wait("member:max") == RATE_WINDOW_S - RATE_MESSAGES
    assert rates.wait("member:ada") == 0
    clock.advance(RATE_WINDOW_S - RATE_MESSAGES)
    assert rates.wait("member:max") == 0
    assert rates.wait("member:max") > 0


def test_senders_that_are_quiet_are_forgotten() -> None:
    clock = TurnedClock(datetime.now(UTC))
    rates = Rates(clock)
    for number in range(1000):
        rates.wait(f"member:{number}")
    clock.advance(RATE_WINDOW_S + 1)
    rates.wait("member:new")
    assert list(rates._times) == ["member:new"]
