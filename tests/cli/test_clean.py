from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.cli.clean import clean


@given(st.text())
def test_nothing_that_steers_or_hides_is_left(text: str) -> None:
    cleaned = clean(text)
    left = {c for c in cleaned if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert left <= {"\n", "\t"}
    assert clean(cleaned) == cleaned


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], max_codepoint=0x10FF), max_size=50))
def test_visible_text_stays(text: str) -> None:
    assert clean(text + "\n\té 🦀 日本 ❤\ufe0f") == text + "\n\té 🦀 日本 ❤\ufe0f"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "␛[31m"),
        ("\x07\r\x08\x00", "␇␍␈␀"),
        ("a\r\nb", "a\nb"),
        ("\x7f\x9b", "␡⟨U+009B⟩"),
        ("\u202e\u2066\u200b\ufeff", "⟨U+202E⟩⟨U+2066⟩⟨U+200B⟩⟨U+FEFF⟩"),
        ("\U000e0041\U000e0101", "⟨U+E0041⟩⟨U+E0101⟩"),
        ("\u2028\ud800", "⟨U+2028⟩⟨U+D800⟩"),
    ],
)
def test_what_is_made_visible(text: str, shown: str) -> None:
    assert clean(text) == shown
