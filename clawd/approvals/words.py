"""How an approval looks to the person: the daemon's words, how to answer, and last what others wrote, quoted. Pure.

Nothing that somebody else wrote can hide, move what stands around it, or end its own quotation.
"""

from __future__ import annotations

from clawd.approvals.kind import Words
from clawd.text import made_visible

NAME = 64  # characters of a name that others chose
_HOURS = 24


def named(text: str) -> str:
    """A name that somebody chose, on one line and in quotes."""
    whole = made_visible(" ".join(text.split()))
    return f"“{whole[:NAME].replace('”', '’').replace('“', '’')}{'…' if len(whole) > NAME else ''}”"


def quoted(text: str) -> str:
    """A text that somebody else wrote: every line of it begins with `> `."""
    return "\n".join(f"> {line}" for line in made_visible(text).split("\n"))


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
