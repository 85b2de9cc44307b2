"""The fence: how what was said reaches a model, so that no text can pass for another speaker's, or for ours.

    <said-3f9c…>
    {"kind":"message","from":"owner","at":"2026-12-01T09:00:00+01:00","text":"…"}
    </said-3f9c…>

One JSON object a line, one line a part. The name is an HMAC of the turn's id under a secret of `state/`: nobody can
know it beforehand, and the same turn has the same bytes each time, which a provider's prompt cache lives by. In a line
nothing ends a line, turns text around or looks like a closing tag, whatever was said.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from clawd.clock import moment_of
from clawd.context.parts import compact
from clawd.files import read_beneath, sync_directory

KEY_FILE = "fence.key"
_KEY_BYTES = 32
# Ends of lines, controls, what turns the direction of text or hides in it, halves of characters. Joiners stay: scripts
# and emoji need them.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)


class Fences:
    """Names of fences, under a secret that is made with the first."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._key = b""

    def of_turn(self, turn: int) -> str:
        return self._name(f"turn:{turn}")

    def of_memory(self, turn: int) -> str:
        """For what memory gives a turn of itself."""
        return self._name(f"memory:{turn}", "memory")

    def of_text(self, text: str) -> str:
        """For what belongs to no turn of ours: a line that a person or another program wrote into a session's file."""
        return self._name(f"text:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}")

    def _name(self, what: str, tag: str = "said") -> str:
        self._key = self._key or _key(self._state)
        return f"{tag}-{hmac.new(self._key, what.encode(), 'sha256').hexdigest()[:16]}"


def _key(state: Path) -> bytes:
    """The secret, made once, 0600. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if len(key := read_beneath(state, KEY_FILE, _KEY_BYTES)) == _KEY_BYTES:
            return key
        (state / KEY_FILE).unlink()  # a torn one
    temporary = state / f".{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # a command beside the daemon was faster
            os.link(temporary, state / KEY_FILE, follow_symlinks=False)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(state)
    return read_beneath(state, KEY_FILE, _KEY_BYTES)


def fenced(fence: str, lines: Iterable[Mapping[str, Any]]) -> str:
    """The lines, each a flat object, inside of a fence."""
    return "\n".join([f"<{fence}>", *map(json_line, lines), f"</{fence}>"])


def json_line(fields: Mapping[str, Any]) -> str:
    """One object without what is None, on one line whatever its texts hold."""
    text = compact({name: value for name, value in fields.items() if value is not None})
    return _UNSEEN.sub(_escaped, text).replace("</", "<\\/")


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def voices(wake: Mapping[str, Any]) -> list[tuple[str, str, str | None, str]]:
    """(kind, origin, name, text) of each voice in a wake, in order. What was typed, or made the wake without typing,
    has the wake's own kind and speaker; what is quoted, forwarded or attached has its own kind, and whom it names."""

    def voice(part: Mapping[str, Any]) -> tuple[str, str, str | None]:
        if part["kind"] == "typed":
            return wake["kind"], part["origin"], person_of(wake["sender"], wake["role"])
        return part["kind"], part["origin"], part.get("sender") or part.get("name")

    return [(*own, "\n\n".join(part["text"] for part in said)) for own, said in groupby(wake["parts"], voice)]


def shown(fence: str, wake: Mapping[str, Any], zone: str) -> str:
    """A wake in its turn's fence."""
    said = voices(wake)
    return fenced(fence, [line(kind, origin, name, wake["at"], text, zone) for kind, origin, name, text in said])


def line(kind: str, role: str, name: str | None, at: str | None, text: str, zone: str) -> dict[str, Any]:
    """One piece of text with who said it, as a line of a fence; `at` to the second, in the group's time zone."""
    moment = moment_of(at) if at else None
    local = moment.astimezone(ZoneInfo(zone)).isoformat(timespec="seconds") if moment else None
    return {"kind": kind, "from": role, "name": name, "at": local, "text": text}


def person_of(sender: str | None, role: str) -> str | None:
    """How a speaker is called beside the role: `member:bob` is bob, the owner at the terminal has no name."""
    if not sender or sender == role:
        return None
    return sender.removeprefix(f"{role}:")
