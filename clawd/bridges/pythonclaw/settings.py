"""pythonclaw.json: which keys a person must enter anew, who was allowed what, which channels there were. No value that
could be a key leaves this module. Pure.

Source: pythonclaw 0.7.2, config.py, onboard.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clawd.bridges.foreign import secrets
from clawd.bridges.foreign.place import table

_SENDERS = re.compile(r"allowed\w*", re.IGNORECASE)
_PLAIN = re.compile(r"[\w.:+@#/-]{1,64}")
_TOLD = 20


@dataclass(frozen=True, slots=True)
class Settings:
    keys: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    chats: tuple[str, ...] = ()


def of(said: Mapping[str, Any]) -> Settings:
    return Settings(tuple(secrets.keys(said)), tuple(_allowed(said)), tuple(_chats(said)))


def _allowed(said: Mapping[str, Any]) -> Iterator[str]:
    for path, name, _, each in secrets.entries(said):
        if _SENDERS.fullmatch(name) and isinstance(each, list):
            who = [str(one) for one in each if isinstance(one, str | int) and _PLAIN.fullmatch(str(one)[:65])]
            more = f" and {len(who) - _TOLD} more" if len(who) > _TOLD else ""
            none = f"has {len(each)} that cannot be shown" if each else "is empty: everybody may speak"
            yield f"{path}: {', '.join(who[:_TOLD])}{more}" if who else f"{path} {none}"


def _chats(said: Mapping[str, Any]) -> Iterator[str]:
    for name, each in table(said.get("channels")).items():
        if each:
            yield f"{secrets.segment(name)} was set up there: here it needs its token anew"
    if table(said.get("isolation")).get("perGroup") is True:
        yield "each chat had a memory of its own there (isolation.perGroup)"
