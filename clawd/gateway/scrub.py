"""Takes a credential out of what an upstream sends, in every form that it travels in, however the bytes are cut.

A stream's scrubber holds back only a tail that could be the beginning of a form, so that an event is passed on at once.
The common case costs one search for each form and one look at the last byte.
"""

from __future__ import annotations

import base64
import html

from clawd.log import forms

REDACTED = b"[redacted]"
# Of a secret that is cut by the end of a WebSocket message, less than so many bytes pass: a message cannot wait for the
# next one, and a few characters are no secret yet.
_SUSPECT = 8


def forms_of(secret: str, user: str | None = None) -> tuple[bytes, ...]:
    """What to look for, the longest first; with `user`, also HTTP Basic's `user:secret` in base64."""
    found = forms(secret) | {secret.replace("/", "\\/"), html.escape(secret)}
    if user is not None:
        whole = base64.b64encode(f"{user}:{secret}".encode()).decode()
        found |= forms(f"{user}:{secret}") | {whole, whole.rstrip("="), whole.replace("+", "-").replace("/", "_")}
    return tuple(sorted({form.encode("utf-8", "surrogatepass") for form in found}, key=lambda form: (-len(form), form)))


class Forms:
    """The forms of one credential, made ready once and used by every stream."""

    def __init__(self, needles: tuple[bytes, ...]) -> None:
        self.needles = needles
        self.suspect = min(_SUSPECT, len(needles[-1]) // 2)
        self._begin = frozenset(byte for needle in needles for byte in needle[:-1])

    def clean(self, data: bytes) -> bytes:
        """Without any whole form."""
        for needle in self.needles:
            if needle in data:
                data = data.replace(needle, REDACTED)
        return data

    def clean_text(self, text: str) -> str:
        """The same for a header's value."""
        data = text.encode("utf-8", "surrogateescape")
        return (
            self.clean(data).decode("utf-8", "surrogateescape") if any(each in data for each in self.needles) else text
        )

    def begun(self, data: bytes) -> int:
        """How many bytes at the end could be the beginning of a form."""
        return max(_begun(needle, data) for needle in self.needles) if data and data[-1] in self._begin else 0


def _begun(needle: bytes, data: bytes) -> int:
    """How many bytes of a needle, not all, the data ends with."""
    at = max(0, len(data) - len(needle) + 1)
    while (at := data.find(needle[0], at)) >= 0:
        if needle.startswith(data[at:]):
            return len(data) - at
        at += 1
    return 0


class Stream:
    """One body. What `feed` and `end` give, put together, is the body without the credential."""

    def __init__(self, forms: Forms) -> None:
        self._forms, self._held = forms, b""

    def feed(self, data: bytes) -> bytes:
        if self._held:
            data = self._held + data
        data = self._forms.clean(data)
        begun = self._forms.begun(data)
        if not begun:
            self._held = b""
            return data
        self._held = data[-begun:]
        return data[:-begun]

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held


class Messages:
    """One direction of a WebSocket: each message is passed on at once, and what an earlier one began is remembered."""

    def __init__(self, forms: Forms) -> None:
        self._forms, self._before = forms, b""

    def clean(self, data: bytes) -> bytes:
        start = len(self._before)
        whole = self._before + data
        begun = self._forms.begun(whole)
        self._before = whole[-begun:] if begun else b""
        hidden = [(len(whole) - begun, len(whole))] if begun >= self._forms.suspect else []
        for needle in self._forms.needles:
            at = whole.find(needle)
            while at >= 0:
                hidden.append((at, at + len(needle)))
                at = whole.find(needle, at + 1)
        if not hidden:
            return data
        passed, at = bytearray(), start
        for begin, end in sorted(hidden):
            if end > at:
                if begin > at or not passed:
                    passed += whole[at : max(at, begin)] + REDACTED
                at = end
        return bytes(passed + whole[at:])
