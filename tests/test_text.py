from hypothesis import given
from hypothesis import strategies as st

from clawd.text import split, units


@given(st.text(), st.integers(2, 50))
def test_pieces_fit_and_join_to_the_text(text: str, limit: int) -> None:
    pieces = split(text, limit)
    assert "".join(pieces) == text
    assert all(len(piece) > 0 and units(piece) <= limit for piece in pieces)


def test_a_piece_ends_at_a_paragraph_a_line_or_a_word() -> None:
    assert split("one two\n\nthree four", 12) == ["one two\n\n", "three four"]
    assert split("one two three", 9) == ["one two ", "three"]


def test_units_are_utf16() -> None:
    assert units("a😀") == 3
