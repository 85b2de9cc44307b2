"""pythonclaw.json: which keys a person must enter anew, who was allowed what, which channels there were. No value that
could be a key leaves this module.

Source: pythonclaw 0.7.2, config.py (`//` comments and trailing commas are allowed), onboard.py.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from clawd.bridges.foreign.secrets import segment

_SECRET = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_STRING = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|,(?=\s*[}\]])', re.DOTALL)
_SENDERS = re.compile(r"allowed\w*", re.IGNORECASE)
_PLAIN = re.compile(r"[\w.:+@#/-]{1,64}")
_DEEPEST, _MOST = 8, 200


@dataclass(frozen=True, slots=True)
class Settings:
    keys: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    chats: tuple[str, ...] = ()


def read(data: bytes) -> Settings | None:
    """None for what cannot be understood."""
    text = data.decode("utf-8-sig", "replace")
    try:
        said = json.loads(_STRING.sub(lambda match: match[1] or "", text))
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    keys, allowed = list[str](), list[str]()
    _walk(said, (), keys, allowed)
    channels = said.get("channels")
    there = (
        [segment(name) for name, each in channels.items() if _name(name) and each] if isinstance(channels, dict) else []
    )
    chats = [f"{name} was set up there: here it needs its token anew" for name in there]
    isolation = said.get("isolation")
    if isinstance(isolation, dict) and isolation.get("perGroup") is True:
        chats.append("each chat had a memory of its own there (isolation.perGroup)")
    return Settings(tuple(keys), tuple(allowed), tuple(chats))


def _walk(value: Any, path: tuple[str, ...], keys: list[str], allowed: list[str]) -> None:
    if not isinstance(value, dict) or len(path) > _DEEPEST:
        return
    for name, each in value.items():
        if not _name(name) or len(keys) + len(allowed) > _MOST:
            continue
        at = (*path, segment(name))
        if _SENDERS.fullmatch(name) and isinstance(each, list):
            who = [str(one) for one in each if isinstance(one, str | int) and _PLAIN.fullmatch(str(one)[:65])]
            told = ", ".join(who[:20]) + (f" and {len(who) - 20} more" if len(who) > 20 else "")
            place = ".".join(at)
            none = f"has {len(each)} that cannot be shown" if each else "is empty: everybody may speak"
            allowed.append(f"{place}: {told}" if who else f"{place} {none}")
        elif isinstance(each, str) and each.strip() and _SECRET.search(name):
            keys.append(".".join(at))
        else:
            _walk(each, at, keys, allowed)


def _name(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None
