"""What somebody asks to be kept, checked: its text, and what they may say of it. Pure.

Who says it, and how far they are trusted, is never said here: `source`, `trust`, `origin`, `status` are refused like
any other word that is not known.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clawd.clock import moment_of
from clawd.errors import UsageError
from clawd.memory import citations, keyed
from clawd.memory.admission import by_owner
from clawd.memory.protocol import Voice
from clawd.memory.record import PREFIXES, Said, settled
from clawd.memory.text import defanged, normal
from clawd.text import visible

LARGEST = 64 << 10  # bytes of a text that an agent keeps
_OWNERS = 10 << 20  # bytes of one that the owner does
_TAGS, _TAG, _LINEAGE, _ID = 16, 64, 64, 300
_KNOWN = ("event_time", "tags", "derived_from", "supersedes", "key", "said")
RESERVED = frozenset(("bot_name", "user_name"))


@dataclass(frozen=True, slots=True)
class Offer:
    text: str
    kind: str
    event_time: datetime | None = None
    tags: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    supersedes: str | None = None
    key: str = ""
    said: Said | None = None


def offered(content: str, kind: str, metadata: Mapping[str, Any], voice: Voice) -> Offer:
    """Raises UsageError with what is wrong."""
    if kind not in PREFIXES:
        raise UsageError(f"{kind!a} is no kind of memory; there are {', '.join(sorted(PREFIXES))}")
    if unknown := sorted(set(metadata) - set(_KNOWN)):
        raise UsageError(f"{str(unknown[0])[:64]!a} cannot be said of a memory; there are {', '.join(_KNOWN)}")
    given = {name: value for name, value in metadata.items() if value not in (None, "", [], ())}
    supersedes = given.get("supersedes")
    if supersedes is not None and not isinstance(supersedes, str):
        raise UsageError("supersedes is the id of one memory")
    offer = Offer(
        checked(content, voice), kind, _moment(given.get("event_time")), _tags(given.get("tags", ())),
        _ids(given.get("derived_from", ())), supersedes, key_of(given.get("key"), kind, voice),
        citations.checked(given["said"], voice.heard) if "said" in given else None,
    )  # fmt: skip
    if kind == "fact" and supersedes not in (None, f"fact:{offer.key}"):
        raise UsageError("a fact takes the place of what its key had, and of nothing else")
    if kind != "fact" and supersedes is not None and supersedes.startswith(("fact:", "day:")):
        raise UsageError(f"{supersedes[:_ID]!a} cannot be superseded by one of another kind")
    return offer


def checked(content: str, voice: Voice) -> str:
    """A text that may be kept. Raises UsageError."""
    if not isinstance(content, str):
        raise UsageError("a memory is a text")
    if "\0" in content:
        raise UsageError("a memory is a text, and this has a NUL in it")
    text = settled(content)
    if not visible(text):
        raise UsageError("there is nothing in it: a memory needs a text")
    most = _OWNERS if by_owner(voice) else LARGEST
    if len(text.encode("utf-8", "replace")) > most:
        raise UsageError(f"a memory is at most {most >> 10} KB: keep what matters, or several")
    return text


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, str) or (moment := moment_of(value)) is None:
        raise UsageError(f"event_time is a time like 2026-12-01T09:00:00+01:00, not {str(value)[:64]!a}")
    return moment


def _tags(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise UsageError('tags are a list of words, like ["home", "garden"]')
    tags = tuple(dict.fromkeys(each.strip() for each in value if each.strip()))
    if len(tags) > _TAGS or any(len(each) > _TAG or not each.isprintable() for each in tags):
        raise UsageError(f"there may be {_TAGS} tags, each of at most {_TAG} characters in one line")
    return tags


def _ids(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) and 0 < len(each) <= _ID for each in value):
        raise UsageError("derived_from is a list of ids of memories")
    if len(value) > _LINEAGE:
        raise UsageError(f"derived_from names at most {_LINEAGE} memories")
    return tuple(dict.fromkeys(value))


def key_of(value: Any, kind: str, voice: Voice) -> str:
    """With the voice's namespace in front. Raises UsageError."""
    if kind != "fact":
        if value is not None:
            raise UsageError("only a fact has a key")
        return ""
    if not isinstance(value, str):
        raise UsageError("a fact needs a key, like home_town")
    space = f"{voice.namespace}/" if voice.namespace else ""
    key = keyed.key_of(value.strip().removeprefix(space))
    if not by_owner(voice) and defanged(key) != key:
        raise UsageError("a key is a short name: nothing in it can be a link, or hidden")  # it is in every id's place
    if normal(key) in RESERVED and not by_owner(voice):
        raise UsageError(
            f"{key} is set by the owner alone", hint=f"clawd memory write --kind fact --key {shlex.quote(key)} TEXT"
        )
    if not space or normal(key) in RESERVED:
        return key
    if "/" in key:  # else a/b and c would be the same as a and b/c
        raise UsageError(f"{key[:_TAG]!a} has a /: here a key is one word, which is kept as {space}KEY")
    return keyed.key_of(f"{space}{key}")
