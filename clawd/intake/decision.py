"""Whether a message is for us, and what its parts are. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from clawd.errors import UsageError
from clawd.intake.commands import names_a_bot, parse
from clawd.model import Attachment, Incoming, Part
from clawd.text import units
from clawd.trust import Origin, Role, origin_of

MAX_TEXT_UNITS = 256 << 10
MOST_FILES = 20  # of one message


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds in a group for messages of shared chats. `trigger` is the word that calls us. `listen`: lines that are
    not for us are kept, to be read with the next answer."""

    answer: Literal["always", "mention", "trigger", "off"] = "mention"
    trigger: str = ""
    listen: bool = False
    followups: str = "steer"


def command_of(incoming: Incoming, known: Collection[str]) -> tuple[str, str] | None:
    """The command that a message is, for us. In a shared chat any other bot may be meant by a word that we do not know,
    and surely is where one is named and it is not us."""
    said = parse(incoming.texts[0]) if incoming.kind in ("message", "command") and incoming.texts else None
    if said is None or incoming.direct or incoming.addressed or incoming.channel == "terminal":
        return said
    return said if said[0] in known and not names_a_bot(incoming.texts[0]) else None


def is_for_us(incoming: Incoming, rules: Rules, command: bool) -> bool:
    """Whether it is to be answered: what is said to us alone, a command, and what the group's rule takes."""
    if incoming.direct or incoming.channel == "terminal" or command:
        return True
    if rules.answer == "off" or (incoming.texts and names_a_bot(incoming.texts[0])):
        return False
    called = rules.answer == "trigger" and is_called(rules.trigger, incoming.texts)
    return rules.answer == "always" or incoming.addressed or called


def is_called(trigger: str, texts: Collection[str]) -> bool:
    """Whether the word stands in what was typed, as a word, in whatever case."""
    word = re.escape(" ".join(trigger.split()).casefold())
    said = " ".join(" ".join(texts).split()).casefold()
    return bool(word) and re.search(rf"(?<!\w){word}(?!\w)", said) is not None


def is_late(at: datetime, now: datetime, hours: float) -> bool:
    """Whether it was said too long ago to be answered as if it were new; with 0 hours nothing was."""
    return bool(hours) and (now - at).total_seconds() > hours * 3600


def clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be stored


def storable(incoming: Incoming) -> Incoming:
    """The same, with ids and names that can be kept and compared, whatever a platform answers or somebody calls
    themselves: one message is never what the next ones wait for."""
    ids = ("account", "chat", "thread", "platform_id", "sender", "reply_to", "album", "target", "value")
    given = {each: getattr(incoming, each) for each in (*ids, "name", "title")}
    cleaned: dict[str, Any] = {each: clean(str(said)) for each, said in given.items() if said}
    return replace(incoming, **cleaned)


def checked(incoming: Incoming) -> Incoming:
    """The same, as text that can be kept. Raises UsageError for what cannot be a message."""

    def name(file: Attachment) -> Attachment:
        return replace(file, name=clean(file.name), mime=clean(file.mime)[:100])

    said = [replace(each, text=clean(each.text), sender=each.sender and clean(each.sender)) for each in incoming.said]
    cleaned = replace(
        incoming,
        texts=tuple(clean(text) for text in incoming.texts if text.strip()),
        said=tuple(each for each in said if each.text.strip()),
        attachments=tuple(map(name, incoming.attachments)),
    )
    if not (cleaned.texts or cleaned.said or cleaned.attachments):
        raise UsageError("an empty message was not sent" if incoming.channel == "terminal" else NOTHING)
    if sum(map(units, (*cleaned.texts, *(each.text for each in cleaned.said)))) > MAX_TEXT_UNITS:
        raise UsageError(
            f"the message is longer than {MAX_TEXT_UNITS >> 10} KB; put it into a file in work/ instead"
            if incoming.channel == "terminal"
            else f"That is longer than {MAX_TEXT_UNITS >> 10} KB, and was not taken in; send it as a file instead."
        )
    if len(cleaned.attachments) > MOST_FILES:
        raise UsageError(f"A message may have {MOST_FILES} files; this one was not taken in.")
    return cleaned


NOTHING = "There is nothing in that message that I can read; it was not taken in."


def parts_of(incoming: Incoming, role: Role, ours: bool) -> list[Part]:
    """What a message says, by whom each piece is. Only what was typed is its sender's own word; what it passes on is
    anybody's, but for our own words (`ours`: it replies to a message of ours)."""
    parts = [Part("typed", origin_of(role), text) for text in incoming.texts]
    quotes = [each for each in incoming.said if each.kind == "quoted"]
    for each in incoming.said:
        own = ours and quotes == [each]
        parts.append(Part(each.kind, Origin.AGENT if own else Origin.EXTERNAL, each.text, each.sender))
    return parts
