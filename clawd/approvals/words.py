"""How an approval looks to the person: the daemon's words, how to answer, and last what others wrote, quoted. Pure.

Nothing that somebody else wrote can hide, move what stands around it, or end its own quotation.
"""

from __future__ import annotations

import unicodedata

from clawd.approvals.kind import Words

NAME = 64  # characters of a name that others chose
# Letters and marks that show nothing: Hangul fillers, the blank of Braille, the joiner of graphemes.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_HOURS = 24


def visible(text: str) -> str:
    """The same text with everything that does not show, or moves what does, as ⟨U+202E⟩; lines stay lines."""
    return "".join(letter if letter == "\n" or _shows(letter) else f"⟨U+{ord(letter):04X}⟩" for letter in text)


def _shows(letter: str) -> bool:
    if letter in _BLANK or "\ufe00" <= letter <= "\ufe0f" or "\U000e0100" <= letter <= "\U000e01ef":
        return False
    category = unicodedata.category(letter)
    return category not in _HIDDEN and (category != "Zs" or letter == " ")


def named(text: str) -> str:
    """A name that somebody chose, on one line and in quotes."""
    whole = visible(" ".join(text.split()))
    return f"“{whole[:NAME].replace('”', '’').replace('“', '’')}{'…' if len(whole) > NAME else ''}”"


def quoted(text: str) -> str:
    """A text that somebody else wrote: every line of it begins with `> `."""
    return "\n".join(f"> {line}" for line in visible(text).split("\n"))


def request(number: int, words: Words, buttons: bool) -> str:
    """The head of the message, without what is quoted."""
    press = "Press a button, or say" if buttons else "Say"
    how = f"{press} /approve {number} or /deny {number} (here in private, or `clawd approvals approve {number}`)."
    return "\n".join(
        [
            f"clawd asks you, approval {number}: may I {words.title}?",
            *words.lines,
            f"{how} Without a yes in {_HOURS} hours nothing is done.",
        ]
    )


def whole(head: str, words: Words) -> str:
    """All that the person is shown."""
    return f"{head}\n\n{words.called}\n{quoted(words.quoted)}" if words.quoted else head


def outcome(said: str, asked: str) -> str:
    """The message once it is decided: what became of it, then what was asked."""
    return f"{said}.\n\n{asked}"
