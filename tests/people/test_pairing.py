"""Pairing codes: their form, their end, and how often may be tried."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.clock import TurnedClock
from clawd.errors import ClawdError
from clawd.people.pairing import ALPHABET, LENGTH, LIFE_S, MOST_CODES, MOST_WRONG, NONE, TRIES, Codes, Said, said


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock(datetime(2026, 12, 1, tzinfo=UTC))


@pytest.fixture
def codes(clock: TurnedClock) -> Codes:
    return Codes(clock)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("K7QM2XTN", Said("K7QM2XTN", False)),
        (" k7qm-2xtn\n", Said("K7QM2XTN", False)),
        ("k7 qm 2x tn", Said("K7QM2XTN", False)),
        ("/pair K7QM2XTN", Said("K7QM2XTN", True)),
        ("/pair@clawd_bot k7qm-2xtn", Said("K7QM2XTN", True)),
        ("/pair", Said("", True)),
        (" /pair@clawd_bot\n", Said("", True)),
        ("/pair me", Said(NONE, True)),
        ("/pair K7QM2XT0", Said(NONE, True)),
        ("/pair " + "K" * 1000, Said(NONE, True)),
        ("/pairing K7QM2XTN", None),
        ("my code is K7QM2XTN", None),
        ("K7QM2XTN!", None),
        ("K7QM2XT", None),
        ("K7QM2XTNN", None),
        ("K7QM2XT0", None),  # no digit of ours
        ("К7QM2XTN", None),  # a Cyrillic letter
        ("Ｋ7QM2XTN", None),  # a wide one
        ("K7QM\u00a02XTN", None),
        ("K7QM\u20112XTN", None),
        ("ß7QM2XTN", None),
        ("", None),
    ],
)
def test_what_is_a_code(text: str, meant: Said | None) -> None:
    assert said(text) == meant


@given(st.text(max_size=80))
def test_nothing_but_the_alphabet_is_ever_compared(text: str) -> None:
    meant = said(text)
    assert meant is None or meant.code in ("", NONE) or (set(meant.code) <= set(ALPHABET) and len(meant.code) == LENGTH)


def test_a_code_is_used_once_and_known_to_its_user_until_it_ends(codes: Codes, clock: TurnedClock) -> None:
    code, expires = codes.make("ada", "owner")
    assert (expires - clock.now()).total_seconds() == LIFE_S == 600 and said(code.text) == Said(code.text, False)
    assert codes.take(code.text, "telegram:7") == (code, True)
    assert codes.take(code.text, "telegram:7") == (code, False)  # the platform sent it again
    assert codes.take(code.text, "telegram:9") is None
    clock.advance(LIFE_S)
    assert codes.take(code.text, "telegram:7") is None and not codes.any()


def test_a_code_ends_after_ten_minutes(codes: Codes, clock: TurnedClock) -> None:
    code, _ = codes.make("ada", "owner")
    clock.advance(LIFE_S - 1)
    assert codes.any()
    clock.advance(1)
    assert not codes.any() and codes.take(code.text, "telegram:7") is None


def test_after_five_wrong_tries_the_right_one_does_not_count_either(codes: Codes, clock: TurnedClock) -> None:
    code, _ = codes.make("ada", "owner")
    for _ in range(TRIES):
        assert not codes.is_shut_out("telegram:9") and codes.take("22222222", "telegram:9") is None
    assert codes.is_shut_out("telegram:9") and codes.take(code.text, "telegram:9") is None
    second, _ = codes.make("ada", "owner")
    assert codes.take(second.text, "telegram:9") is None  # nor that of another code
    assert codes.take(code.text, "telegram:7") == (code, True)  # and nobody else is hindered
    clock.advance(LIFE_S)
    assert not codes.is_shut_out("telegram:9")


def test_one_account_wears_no_code_out_and_many_do(codes: Codes) -> None:
    code, _ = codes.make("ada", "owner")
    for _ in range(MOST_WRONG * 4):
        codes.take("22222222", "telegram:9")
    assert code.wrong == TRIES and codes.worn() == []
    for sender in range(MOST_WRONG // TRIES - 1):
        assert codes.worn() == []
        for _ in range(TRIES):
            codes.take("22222222", f"telegram:{100 + sender}")
    assert codes.worn() == [code] and codes.take(code.text, "telegram:7") is None


def test_a_code_that_could_not_be_used_can_be_used_again_and_a_dropped_one_cannot(codes: Codes) -> None:
    code, _ = codes.make("Ada", "owner")
    codes.take(code.text, "telegram:7")
    codes.give_back(code)
    assert codes.take(code.text, "telegram:8") == (code, True)
    codes.give_back(code)
    codes.drop("ada")
    assert codes.take(code.text, "telegram:8") is None


def test_what_is_remembered_has_bounds(codes: Codes) -> None:
    for _ in range(MOST_CODES):
        codes.make("ada", "owner")
    with pytest.raises(ClawdError, match="live already"):
        codes.make("ada", "owner")
    for sender in range(3000):
        codes.take("22222222", f"telegram:{sender}")
    assert len(codes._wrong) == 1000
