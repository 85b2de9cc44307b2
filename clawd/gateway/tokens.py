"""Where the tokens of runs are found: one belongs where its service's key would stand, or with the proxy, nowhere else.

A token that no living run has is only text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from urllib.parse import unquote

from aiohttp import web

from clawd.gateway.caller import TOKEN, TOKEN_LENGTH, Caller
from clawd.gateway.headers import carries_credential, fold
from clawd.gateway.refusal import Refusal

# The beginnings of placeholders of a vendor's shape, and the service that they are for.
VENDORS = {"sk-ant-api03-": "anthropic", "sk-proj-": "openai", "sk-or-v1-": "openrouter", "ghp_": "github"}
PROXY = frozenset({"proxyauthorization"})
_GUESSES = 64  # strings of a token's shape in one head or stream: more of them are a search for one that lives

_FOUND = re.compile(f"({'|'.join(map(re.escape, VENDORS))})?(?=({TOKEN.pattern}))")
_IN_BYTES = re.compile(rb"(?=(%s))" % TOKEN.pattern.encode())
_BEGUN = re.compile(rb"c(?:l(?:a(?:w(?:-[A-Za-z0-9_-]{0,%d})?)?)?)?\Z" % (TOKEN_LENGTH - 6))


def found(text: str) -> Iterator[tuple[str, str | None]]:
    """Every token in a text, overlapping ones too, and the service whose placeholder it is part of."""
    if "claw-" in text:
        for match in _FOUND.finditer(text):
            yield match[2], VENDORS[match[1]] if match[1] else None


def shown(request: web.BaseRequest, caller: Caller, names: frozenset[str] | None) -> set[str] | None:
    """The services of whose shape the placeholders in credential headers are (those of these folded names, else all of
    them); None when no token of the run is shown. Raises Refusal for one of another run, or one in another place."""
    services, ours = set[str](), False
    for count, (token, service, proper) in enumerate(_places(request, names)):
        if count == _GUESSES:
            raise Refusal("placeholder_misuse", "a request's head is full of what looks like tokens of clawd")
        if not proper:
            misused(caller, token)
        elif caller.owner_of(token) == caller.run:
            ours = True
            services |= {service} if service else set()
        elif owner := caller.owner_of(token):
            raise foreign(caller, owner)
    return services if ours else None


def _places(request: web.BaseRequest, names: frozenset[str] | None) -> Iterator[tuple[str, str | None, bool]]:
    """Every token of a request's head, the service whose placeholder it is part of, and whether it belongs there."""
    for name, value in request.headers.items():
        folded = fold(name)
        credential = carries_credential(folded)
        proper = folded in names if names is not None else credential
        for token, service in found(f"{value} {_basic(value)}" if credential or proper else value):
            yield token, service, proper
        for token, _ in found(name):
            yield token, None, False
    target = request.raw_path
    for token, _ in found(f"{target} {unquote(target)}" if "%" in target else target):
        yield token, None, False


def _basic(value: str) -> str:
    """What HTTP Basic says."""
    scheme, _, encoded = value.partition(" ")
    if scheme.casefold() != "basic":
        return ""
    try:
        return base64.b64decode(encoded.strip() + "==").decode("utf-8", "replace")
    except ValueError:
        return ""


class Tokens:
    """Looks for tokens of runs in a stream, and holds back what could be the beginning of one."""

    def __init__(self, caller: Caller) -> None:
        self._caller, self._held, self._guesses = caller, b"", 0

    def feed(self, data: bytes) -> bytes:
        """What may go on. Raises Refusal."""
        if self._held:
            data = self._held + data
        self.check(data)
        begun = _BEGUN.search(data, max(0, len(data) - TOKEN_LENGTH + 1))
        if begun is None:
            self._held = b""
            return data
        self._held = data[begun.start() :]
        return data[: begun.start()]

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held

    def check_next(self, data: bytes) -> None:
        """A message, which goes on as a whole or not at all. Raises Refusal."""
        self.check(self._held + data)
        self._held = (self._held + data)[1 - TOKEN_LENGTH :]

    def check(self, data: bytes) -> None:
        if b"claw-" in data:
            for match in _IN_BYTES.finditer(data):
                self._guesses += 1
                misused(self._caller, match[1].decode())
                if self._guesses > _GUESSES:
                    raise Refusal("placeholder_misuse", "a body is full of what looks like tokens of clawd")


def misused(caller: Caller, token: str) -> None:
    """Raises Refusal for a living run's token in a place where none belongs."""
    owner = caller.owner_of(token)
    if owner == caller.run:
        raise Refusal(
            "placeholder_misuse",
            "the run's token was about to leave with a request",
            hint="it belongs into the Authorization header of its service, nowhere else",
        )
    if owner is not None:
        raise foreign(caller, owner)


def foreign(caller: Caller, owner: str) -> Refusal:
    return Refusal("cross_group_token", f"run {caller.run} of {caller.group} showed the token of run {owner}")
