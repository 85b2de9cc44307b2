"""Text in a platform's own units. Pure."""

from __future__ import annotations

_BREAKS = ("\n\n", "\n", " ")


def units(text: str) -> int:
    """Length in UTF-16 code units, which is how chat platforms count."""
    return len(text) + sum(character > "\uffff" for character in text)


def split(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` UTF-16 units whose concatenation is `text`, cut after a paragraph, a line or a word
    where one ends in the second half of the piece. `limit` is at least 2."""
    chunks = []
    while units(text) > limit:
        end = _fitting(text, limit)
        for mark in _BREAKS:
            at = text.rfind(mark, 0, end)
            if at + len(mark) > end // 2 and at != -1:
                end = min(at + len(mark), end)
                break
        chunks.append(text[:end])
        text = text[end:]
    return [*chunks, text] if text else chunks


def _fitting(text: str, limit: int) -> int:
    """How many characters of `text` fit into `limit` units."""
    used = 0
    for at, character in enumerate(text):
        used += 2 if character > "\uffff" else 1
        if used > limit:
            return at
    return len(text)
